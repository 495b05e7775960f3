// collectives.h - how the ranks of a training run exchange the backend's memory: sums of
// gradients, slices of weights.
//
// An array of n numbers is divided into slices, one for each rank:
//
//   rank          0         1         2
//   slice     |- size -|- size -|- size + rest -|  size = n / n_ranks, down to a multiple of 64
//
// Each rank gets the sum of its slice of the gradients, updates its slice of the weights, and
// gives that to all others. So the optimizer's moments exist only once among all ranks
// (ZeRO-1).
//
// Every rank makes the same calls in the same order, with arrays of the same size. If a rank
// fails, the others wait for it for ever: its process must end theirs.
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

    // x [n]: this rank's slice becomes the sum over all ranks, the rest of x is unspecified.
    // The order of the additions depends only on n and the number of ranks.
    bd_status (*sum_slices)(bd_collectives *, float *x, int64_t n, bd_error *err);

    // x [n], numbers of `number_bytes` (2 or 4): every rank gets the slices of all others.
    bd_status (*gather_slices)(bd_collectives *, void *x, int64_t n, size_t number_bytes,
                               bd_error *err);

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

enum { BD_SLICE_MULTIPLE = 64 };  // numbers; at least a cache line

// The size of a slice, without the rest that the last rank has as well.
static inline int64_t bd_rank_slice_size(int64_t n, int32_t n_ranks)
{
    return n / n_ranks / BD_SLICE_MULTIPLE * BD_SLICE_MULTIPLE;
}

static inline bd_rank_slice bd_rank_slice_of(int64_t n, int32_t rank, int32_t n_ranks)
{
    const int64_t size = bd_rank_slice_size(n, n_ranks);
    const bd_rank_slice slice = {rank * size, rank == n_ranks - 1 ? n : (rank + 1) * size};
    return slice;
}

#endif
