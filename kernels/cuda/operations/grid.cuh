// grid.cuh - the number of blocks of a launch, and the numbers of its warps and threads.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_GRID_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_GRID_CUH

#include <stdint.h>

#include "kernels/cuda/operations/warp.cuh"

// The size of blocks, for all kernels but those of attention.
static constexpr int kWarpsPerBlock = 8;
static constexpr int kThreadsPerBlock = kWarpsPerBlock * kWarpSize;

// The number of blocks for n items, `per_block` in each. Never 0, because an empty grid is an
// error.
static inline unsigned blocks_for(int64_t n, int64_t per_block)
{
    return n > 0 ? unsigned((n + per_block - 1) / per_block) : 1;
}

static __device__ __forceinline__ int lane_of_thread()
{
    return int(threadIdx.x) % kWarpSize;
}

// The number of this warp, or thread, along x in a grid of blocks of kThreadsPerBlock.
static __device__ __forceinline__ int64_t warp_of_grid()
{
    return int64_t(blockIdx.x) * kWarpsPerBlock + int(threadIdx.x) / kWarpSize;
}

static __device__ __forceinline__ int64_t thread_of_grid()
{
    return int64_t(blockIdx.x) * kThreadsPerBlock + int(threadIdx.x);
}

#endif
