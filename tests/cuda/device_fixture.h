// device_fixture.h - what the cases of operations_test.c share: the two backends, device memory
// between guard bands, batches, and comparisons that every schedule must pass with the same
// bits.
#ifndef BINDERY_TESTS_CUDA_DEVICE_FIXTURE_H
#define BINDERY_TESTS_CUDA_DEVICE_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "../unit/kernel_fixture.h"

extern bd_backend *cpu, *cuda;
extern const char *module_path;

// A bound is on max |got - wanted| / max |wanted|. Both sides round at 6e-8; sums of some
// hundred terms in another order differ by a few times that.
static const double few_roundings = 1e-6;
static const double long_sums = 4e-6;

// ThreadSanitizer finds a race under any schedule, slowly.
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { BRIEF = 1 };
#else
enum { BRIEF = 0 };
#endif

void must(bd_status status, const bd_error *err);

// ---- Device memory between guard bands ------------------------------------------------------

// 1: every tensor begins one float after an aligned address.
extern int misaligned;

// Copies of host memory, or (NULL, or the second) NaN.
void *device_bytes(const void *from, size_t size_bytes);
float *on_device(const float *x, int64_t n);
float *nan_on_device(int64_t n);
bd_boundaries boundaries_on_device(const batch *b);

// Releases all of it, and fails where a band was written.
void release_device(void);

// ---- Results, and every schedule's against the first ----------------------------------------

// Around each run of a case: what the first one compares is kept, and must come out again in
// all others, no less and no more. After the last it is forgotten.
void start_comparisons(bool first);
void end_comparisons(void);
void forget_comparisons(void);

// Takes `got` over, from get_memory().
void record(const char *what, float *got, int64_t n);

// Tolerance 0 asks for the same bits.
void compare(const char *what, const float *device, const float *wanted, int64_t n,
             double tolerance);
// The same, and zeros in the padding.
void compare_padded(const char *what, const batch *b, const float *device, const float *wanted,
                    int64_t width, double tolerance);
// For a small difference of numbers of size 1, whose own size says nothing.
void compare_cancelled(const char *what, const batch *b, const float *device,
                       const float *wanted, int64_t width);

// ---- Batches --------------------------------------------------------------------------------

enum { N_SIZES = 6, N_BATCHES = 6 };
extern const int64_t sizes[N_SIZES];

batch make_batch(int which);
void for_each_batch(void (*check)(const batch *b, int64_t width, int32_t id_bytes));

const void *ids_of(const batch *b, int32_t id_bytes);
const void *ids_on_device(const batch *b, int32_t id_bytes);

#endif
