// cpu.h - declarations that the files of the CPU backend share.
//
// Every operation is one plain C file that is compiled once for each instruction set (CMake
// defines BD_CPU_ISA). The backend picks the operations of one set when it is opened; there is
// no other dispatch.
//
// Work is divided into chunks that depend only on shapes and boundaries, and the result of a
// chunk does not depend on the thread that computes it. So results are the same for any number
// of threads.
#ifndef BINDERY_KERNELS_CPU_CPU_H
#define BINDERY_KERNELS_CPU_CPU_H

#include <stdint.h>

#include "common/base/threads.h"
#include "kernels/backend.h"

// A segment of a batch, for the tasks of attention.
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

// ---- Dividing work among threads ------------------------------------------------------------

// One chunk: elements first … last - 1.
typedef void (*bd_cpu_loop)(const void *args, int64_t first, int64_t last);

// Runs `loop` over 0 … n - 1 in chunks of `chunk`.
bd_status bd_cpu_for(bd_backend *backend, int64_t n, int64_t chunk, bd_cpu_loop loop,
                     const void *args, bd_error *err);

// Uninitialized memory for an operation to use besides its tensors. It is borrowed from the
// backend until the next call of this function or of bd_cpu_sort_segments().
bd_status bd_cpu_scratch(bd_backend *backend, size_t size_bytes, void **memory, bd_error *err);

// The segments of a batch, the longest first (of equal ones the earlier first), so that threads
// do not wait for a long one at the end. They lie in the same borrowed memory.
bd_status bd_cpu_sort_segments(bd_backend *backend, const bd_boundaries *boundaries,
                               const bd_cpu_segment **segments, int64_t *n_segments,
                               bd_error *err);

// Pointers to element i of a tensor, for reading and for writing. All tensors are floats here.
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

// A pointer b into the row's bounds such that b[0] <= t < b[1]. t must not be padding.
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

// The position of token `token` of the batch in its document, of which past[s] tokens (NULL: none)
// precede segment s of the batch; -1 in padding.
static inline int64_t bd_token_position(const bd_boundaries *boundaries, const int32_t *past,
                                        int64_t token)
{
    const int64_t r = token / boundaries->seq_len, t = token % boundaries->seq_len;
    if (t >= bd_row_used(boundaries, r))
        return -1;
    int64_t n_segments;
    const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
    const int32_t *begin = bd_segment_around(bounds, n_segments, t);
    // Each row has one bound more than segments.
    const int64_t segment = begin - boundaries->values - boundaries->offsets[0] - r;
    return t - *begin + (past ? past[segment] : 0);
}

// ---- The operations, once for each instruction set ------------------------------------------

#define BD_CPU_PASTE_(name, isa) name##_##isa
#define BD_CPU_PASTE(name, isa)  BD_CPU_PASTE_(name, isa)

// The name and the operations of each instruction set; the other members are NULL. backend.c
// copies one of them and adds the functions that all share.
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
