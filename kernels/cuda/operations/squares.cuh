// squares.cuh - sums of squares in double, in an order that depends only on their number: an
// array is divided into parts, a block sums each, and one block adds their sums.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_SQUARES_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_SQUARES_CUH

#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/packs.cuh"

// Enough parts to fill any device, and few enough for one block to add them.
static constexpr int64_t kMaxParts = 1024;
static constexpr int64_t kLeastPerPart = 4096;
static constexpr int kSquares = kPackSize<float>;  // that a thread reads at once

static inline int64_t elements_per_part(int64_t n)
{
    const int64_t per_part =
        ((n + kMaxParts - 1) / kMaxParts + kSquares - 1) / kSquares * kSquares;
    return per_part > kLeastPerPart ? per_part : kLeastPerPart;
}

static inline unsigned parts_of(int64_t n)
{
    return blocks_for(n, elements_per_part(n));
}

// The sum over all threads of the block; only the first thread gets it. `staging` is shared
// memory [kWarpsPerBlock].
static __device__ __forceinline__ double sum_over_block(double x, double *staging)
{
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(kWholeWarp, x, distance);
    if (lane_of_thread() == 0)
        staging[int(threadIdx.x) / kWarpSize] = x;
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0)
        for (int w = 0; w < kWarpsPerBlock; w++)
            sum += staging[w];
    return sum;
}

// The same for the sums of all parts, by a single block.
static __device__ __forceinline__ double sum_of_parts(const double *parts, int64_t n_parts,
                                                      double *staging)
{
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n_parts; i += kThreadsPerBlock)
        sum += parts[i];
    return sum_over_block(sum, staging);
}

#endif
