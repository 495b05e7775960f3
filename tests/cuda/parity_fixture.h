// parity_fixture.h - shared by the cases of operations_test.c: the CPU backend to compare with,
// comparisons that every run must pass with the same bits, and batches.
#ifndef BINDERY_TESTS_CUDA_PARITY_FIXTURE_H
#define BINDERY_TESTS_CUDA_PARITY_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "module_fixture.h"

extern bd_backend *cpu;

// ---- Results --------------------------------------------------------------------------------

// With tolerance 0 the bits must be the same.
void compare(const char *what, const float *device, const float *wanted, int64_t n,
             double tolerance);
// Also expects zeros in the padding.
void compare_padded(const char *what, const batch *b, const float *device, const float *wanted,
                    int64_t width, double tolerance);
// For small differences of numbers of size 1: the tolerance is relative to 1.
void compare_cancelled(const char *what, const batch *b, const float *device,
                       const float *wanted, int64_t width);
// Tokens are `stride` numbers apart and have `width` of them. Expects the numbers between them
// to have the bits of `before`; with_padding: so have those of padding tokens.
void expect_untouched(const char *what, const batch *b, const float *device,
                      const float *before, int64_t width, int64_t stride, bool with_padding);

// Random in [-scale, scale), for tokens `stride` numbers apart; between them small numbers,
// which are 0 in padding. Free with free().
float *spread_tensor(uint64_t *seed, const batch *b, int64_t width, int64_t stride,
                     double scale);

// ---- Batches --------------------------------------------------------------------------------

enum { N_SIZES = 6, N_BATCHES = 6 };
extern const int64_t sizes[N_SIZES];

batch make_batch(int which);
void for_each_batch(void (*check)(const batch *b, int64_t width, int32_t id_bytes));

const void *ids_of(const batch *b, int32_t id_bytes);

#endif
