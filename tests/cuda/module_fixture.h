// module_fixture.h - shared by the tests of a module: its backend, its memory between guard
// bands, and runs under every schedule of threads and streams (on a device, several runs),
// which must give the same bits.
//
//   TEST device|emulated MODULE [CASE…]
//
// CASE is a pattern of names, as in a shell; it is a failure if none matches. Without a
// pattern, all cases are run.
//
// MODULE is the real module, and the test is skipped if that finds no device; or it is the
// emulated one, which must open everywhere.
#ifndef BINDERY_TESTS_CUDA_MODULE_FIXTURE_H
#define BINDERY_TESTS_CUDA_MODULE_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "tests/emulation/emulation.h"
#include "tests/unit/kernels/kernel_fixture.h"

extern bd_backend *cuda;
extern const char *module_path;

// A sanitizer is slow and finds its faults under any schedule; ThreadSanitizer at any size.
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { ONE_SCHEDULE = 1, BRIEF = 1 };
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { ONE_SCHEDULE = 1, BRIEF = 0 };
#else
enum { ONE_SCHEDULE = 0, BRIEF = 0 };
#endif

// A bound on max |got - wanted| / max |wanted|. Both sides round at 6e-8; sums of some hundred
// terms in another order differ by a few times that.
static const double few_roundings = 1e-6;
static const double long_sums = 4e-6;

// NULL on a device.
extern void (*configure_emulation)(const bd_emulation_settings *settings);

// Kernels launched since the last call; -1 on a device.
int64_t take_launches(void);

void must(bd_status status, const bd_error *err);

// ---- Device memory --------------------------------------------------------------------------

// Device memory between guard bands: a copy of `from`, or (NULL) bytes 0xff, which are NaN. In
// every second run of a case that asks for it, it begins one element after an aligned address.
void *device_array(const void *from, int64_t n, size_t element_bytes);

float *floats_on_device(const float *x, int64_t n);  // NULL: NaN
bd_boundaries boundaries_on_device(const batch *b);
bd_loss_mask mask_on_device(const batch *b, const batch_mask *m);  // m may be NULL
const void *ids_on_device(const batch *b, int32_t id_bytes);

// Free with free().
void *fetch_bytes(const void *device, size_t size_bytes);

// Checks the bands of all device memory and releases it.
void release_device(void);

// ---- Cases ----------------------------------------------------------------------------------

// Must be called in the same order, with the same sizes, in every run of a case.
void expect_same_in_every_run(const char *what, const void *bytes, size_t size_bytes);

typedef struct module_case {
    const char *name;
    void (*check)(void);
    bool once;        // one emulated schedule is enough: the case sets others itself
    bool misaligned;  // each run is repeated with misaligned arrays
    bool differs;     // then the bits may differ
} module_case;

// Runs all cases and returns the exit status for main().
int run_module_cases(int argc, char **argv, const module_case *cases, int n_cases);

#endif
