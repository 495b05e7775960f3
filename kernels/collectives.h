// collectives.h - how the ranks of a training run exchange the backend's memory: sums of
// gradients, slices of weights.
//
// An array is divided into slices, one for each rank, by bounds [n_ranks + 1] in host memory:
//
//   rank             0        1         2
//   slice       |--------|--------|-----------|
//   bounds      0     bounds[1] bounds[2]  bounds[3], the length of the array
//
// Each rank gets the sum of its slice of the gradients, updates its slice of the weights, and
// gives that to all others. So the optimizer's moments exist only once among all ranks
// (ZeRO-1). Slices may have any length, 0 included; equal ones are exchanged faster.
//
// Every rank makes the same calls in the same order, with the same bounds. If a rank fails, the
// others wait for it for ever: its process must end theirs.
#ifndef BINDERY_KERNELS_COLLECTIVES_H
#define BINDERY_KERNELS_COLLECTIVES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct bd_collectives bd_collectives;

// All arrays are the backend's memory. Like a backend's operations, these are queued on its
// stream (nccl) or done on return (mpi).
typedef struct bd_collectives_operations {
    const char *name;  // "mpi"

    // This rank's slice of x becomes the sum over all ranks, the rest of x is unspecified. The
    // order of the additions depends only on the bounds.
    bd_status (*sum_slices)(bd_collectives *, float *x, const int64_t *bounds, bd_error *err);

    // x has numbers of `number_bytes` (2 or 4): every rank gets the slices of all others.
    bd_status (*gather_slices)(bd_collectives *, void *x, const int64_t *bounds,
                               size_t number_bytes, bd_error *err);

    void (*close)(bd_collectives *);
} bd_collectives_operations;

// Every implementation's own struct begins with this.
struct bd_collectives {
    const bd_collectives_operations *operations;
    int32_t rank, n_ranks;
};

// The address by which the ranks of a device's collectives find each other: rank 0 makes it,
// all ranks are given the same one.
typedef struct bd_collectives_id {
    char bytes[128];
} bd_collectives_id;

typedef struct bd_rank_slice {
    int64_t begin, end;
} bd_rank_slice;

static inline bd_rank_slice bd_rank_slice_of(const int64_t *bounds, int32_t rank)
{
    const bd_rank_slice slice = {bounds[rank], bounds[rank + 1]};
    return slice;
}

enum { BD_SLICE_MULTIPLE = 64 };  // numbers; at least a cache line

// Divides n numbers into slices of one size, a multiple of BD_SLICE_MULTIPLE; the last rank has
// the rest as well.
static inline void bd_divide_equally(int64_t n, int32_t n_ranks, int64_t *bounds)
{
    const int64_t size = n / n_ranks / BD_SLICE_MULTIPLE * BD_SLICE_MULTIPLE;
    for (int32_t r = 0; r < n_ranks; r++)
        bounds[r] = r * size;
    bounds[n_ranks] = n;
}

#endif
