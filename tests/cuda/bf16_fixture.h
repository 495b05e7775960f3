// bf16_fixture.h - shared by the tests of bf16. Tensors are made as floats that are
// representable in bf16, go to the device as bf16, and come back as floats.
//
// A reference is computed in double from the same rounded inputs. The arithmetic of an
// operation is float's: a result must be the rounding of a number that differs from the exact
// one by a few roundings of float, which is what a plain program that rounds once would give.
#ifndef BINDERY_TESTS_CUDA_BF16_FIXTURE_H
#define BINDERY_TESTS_CUDA_BF16_FIXTURE_H

#include <stdint.h>

#include "module_fixture.h"

// ---- Numbers --------------------------------------------------------------------------------

float rounded_to_bf16(float x);

// Like random_tensor() and random_activations(), but rounded. Free with free().
float *bf16_tensor(uint64_t *seed, int64_t n, double scale);
float *bf16_activations(uint64_t *seed, const batch *b, int64_t width, double scale);

double *zeros(int64_t n);
double largest(const double *x, int64_t n);  // magnitude

// ---- Device memory, see module_fixture.h ----------------------------------------------------

void *bf16_on_device(const float *x, int64_t n);
void *bf16_nan_on_device(int64_t n);

// Returns the values, which must be the same in every run.
float *fetch_bf16(const char *what, const void *device, int64_t n);

// ---- Expectations ---------------------------------------------------------------------------

// Tells whether `got` is the rounding of a number within `tolerance` of `exact`.
void expect_rounding(const char *what, int64_t i, float got, double exact, double tolerance);

// Expects this of n values, with a tolerance relative to the largest; frees `exact`. The batch,
// unless NULL, says where padding must be 0.
void expect_bf16(const char *what, const batch *b, const void *device, double *exact, int64_t n,
                 double tolerance);

// The same for floats; frees `exact`.
void expect_floats(const char *what, const void *device, double *exact, int64_t n,
                   double tolerance);

// ---- Batches --------------------------------------------------------------------------------

typedef struct shape {
    int64_t n_rows, seq_len, width;
    int32_t id_bytes;
} shape;

// Awkward lengths and widths, random documents, padding, a row of padding alone. Releases the
// device's memory after each.
void for_each_shape(void (*check)(const batch *b, shape s));

#endif
