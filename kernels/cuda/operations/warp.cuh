// warp.cuh - sums and maxima over the 32 lanes of a warp. All lanes must call them, and all get
// the result. The order of additions is fixed, so that results are the same in every run.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_WARP_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_WARP_CUH

#include "kernels/cuda/runtime/gpu.cuh"

constexpr int kWarpSize = 32;
constexpr unsigned kWholeWarp = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
        v += __shfl_xor_sync(kWholeWarp, v, distance);
    return v;
}

// Like fmaxf, it ignores a NaN.
__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
        v = fmaxf(v, __shfl_xor_sync(kWholeWarp, v, distance));
    return v;
}

#endif
