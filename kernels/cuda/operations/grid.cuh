// grid.cuh - how many blocks a launch needs, and how its warps are numbered.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_GRID_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_GRID_CUH

#include <stdint.h>

#include "kernels/cuda/operations/warp.cuh"

// What kernels with one warp per token (or the like) are launched with.
static constexpr int kWarpsPerBlock = 8;
static constexpr int kThreadsPerBlock = kWarpsPerBlock * kWarpSize;

// Blocks that hold n things, `per_block` in each; never 0, because an empty grid is an error.
static inline unsigned blocks_for(int64_t n, int64_t per_block)
{
    return n > 0 ? unsigned((n + per_block - 1) / per_block) : 1;
}

static __device__ __forceinline__ int lane_of_thread()
{
    return int(threadIdx.x) % kWarpSize;
}

// The number of this warp (thread) along x in a grid of blocks of kThreadsPerBlock.
static __device__ __forceinline__ int64_t warp_of_grid()
{
    return int64_t(blockIdx.x) * kWarpsPerBlock + int(threadIdx.x) / kWarpSize;
}

static __device__ __forceinline__ int64_t thread_of_grid()
{
    return int64_t(blockIdx.x) * kThreadsPerBlock + int(threadIdx.x);
}

#endif
