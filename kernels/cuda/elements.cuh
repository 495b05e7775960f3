// elements.cuh - kernels that do the same to every element of their arrays, four at a time
// where the arrays are aligned for it.
#ifndef BINDERY_KERNELS_CUDA_ELEMENTS_CUH
#define BINDERY_KERNELS_CUDA_ELEMENTS_CUH

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/grid.cuh"

static constexpr int kElementsPerThread = 4;

// Thread i calls step.four(4i) if all four elements exist and step.one() for each otherwise.
// `aligned`: every array of the step allows a float4 at any multiple of four elements.
template <class Step>
static __global__ void elements_kernel(Step step, int64_t n, bool aligned)
{
    const int64_t first = thread_of_grid() * kElementsPerThread;
    if (aligned && first + kElementsPerThread <= n) {
        step.four(first);
        return;
    }
    for (int64_t i = first; i < n && i < first + kElementsPerThread; i++)
        step.one(i);
}

static inline bool is_aligned(const void *pointer)
{
    return (uintptr_t)pointer % sizeof(float4) == 0;
}

template <class Step>
static inline bd_status for_each_element(const Step &step, int64_t n, bool aligned,
                                         const char *name, void *stream, bd_error *err)
{
    LAUNCH(elements_kernel<Step>, blocks_for(n, kThreadsPerBlock * kElementsPerThread),
           kThreadsPerBlock, 0, stream, step, n, aligned);
    return bd_cuda_check_launch(name, err);
}

static __device__ __forceinline__ float4 load_four(const float *x, int64_t i)
{
    return *(const float4 *)(x + i);
}

static __device__ __forceinline__ void store_four(float *x, int64_t i, float4 value)
{
    *(float4 *)(x + i) = value;
}

#endif
