// cpu.h - inside the CPU backend: what its files share.
//
// Every operation is one plain C file that is compiled once for each instruction set (CMake
// gives BD_CPU_ISA); the backend picks a table when it opens. Nothing is dispatched below that.
//
// Work is cut into chunks that depend on shapes and boundaries alone, and a chunk's result does
// not depend on who computes it, so results are the same for any number of threads.
#ifndef BINDERY_KERNELS_CPU_CPU_H
#define BINDERY_KERNELS_CPU_CPU_H

#include <stdint.h>

#include "common/base/threads.h"
#include "kernels/backend.h"

// A segment as attention's tasks see it.
typedef struct bd_cpu_segment {
    int64_t first;  // token of the batch where it begins
    int64_t length;
} bd_cpu_segment;

typedef struct bd_cpu_backend {
    bd_backend base;
    bd_threads *threads;  // owned
    void *scratch;        // owned; grows to the most that an operation has needed
    size_t scratch_bytes;
    bd_operations table;  // base.operations points here
} bd_cpu_backend;

// ---- Sharing out work -----------------------------------------------------------------------

// One chunk: elements first … last - 1.
typedef void (*bd_cpu_loop)(const void *args, int64_t first, int64_t last);

// Runs `loop` over 0 … n - 1 in chunks of `chunk`.
bd_status bd_cpu_for(bd_backend *backend, int64_t n, int64_t chunk, bd_cpu_loop loop,
                     const void *args, bd_error *err);

// Memory that an operation needs besides its tensors, with anything in it. Borrowed from the
// backend until the next call of this or the next function.
bd_status bd_cpu_scratch(bd_backend *backend, size_t size_bytes, void **memory, bd_error *err);

// The segments of a batch, longest first (earlier first among equals). Borrowed likewise.
bd_status bd_cpu_sort_segments(bd_backend *backend, const bd_boundaries *boundaries,
                               const bd_cpu_segment **segments, int64_t *n_segments,
                               bd_error *err);

// From element i of a tensor on, read or written: this backend's tensors are all floats.
static inline const float *bd_floats(const void *tensor, int64_t i)
{
    return (const float *)tensor + i;
}

static inline float *bd_floats_out(void *tensor, int64_t i)
{
    return (float *)tensor + i;
}

static inline int64_t bd_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t bd_ceil_divide(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// Whether token `token` of the batch lies in a segment.
static inline int bd_token_used(const bd_boundaries *boundaries, int64_t token)
{
    return token % boundaries->seq_len < bd_row_used(boundaries, token / boundaries->seq_len);
}

static inline int bd_all_padding(const bd_boundaries *boundaries, int64_t first, int64_t n)
{
    for (int64_t token = first; token < first + n; token++)
        if (bd_token_used(boundaries, token))
            return 0;
    return 1;
}

// The bounds b with b[0] <= t < b[1] in a row, for t before the row's padding.
static inline const int32_t *bd_segment_around(const int32_t *bounds, int64_t n_segments,
                                               int64_t t)
{
    int64_t low = 0, high = n_segments;  // bounds[low] <= t < bounds[high]
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (bounds[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return bounds + low;
}

// ---- The operations, once per instruction set ------------------------------------------

#define BD_CPU_PASTE_(name, isa) name##_##isa
#define BD_CPU_PASTE(name, isa)  BD_CPU_PASTE_(name, isa)

// Of each instruction set its name and its operations; backend.c adds what all share.
extern const bd_operations bd_cpu_operations_baseline;
extern const bd_operations bd_cpu_operations_avx2;
extern const bd_operations bd_cpu_operations_avx512;

#ifdef BD_CPU_ISA
#define BD_CPU(name) BD_CPU_PASTE(bd_cpu_##name, BD_CPU_ISA)
#define BD_CPU_OPERATION(name) \
    bd_status BD_CPU(name)(bd_backend * backend, const bd_##name##_args *args, bd_error *err)

#define BD_CPU_DECLARE(name) BD_CPU_OPERATION(name);
BD_FOR_EACH_OPERATION(BD_CPU_DECLARE)
#undef BD_CPU_DECLARE

// out[i] = activation(x[i]) on the calling thread; out may be x.
void BD_CPU(activate)(bd_activation activation, const float *x, float *out, int64_t n);
#endif

#endif
