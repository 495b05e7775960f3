// elements.cuh - elementwise kernels, which work on a pack of elements at a time.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_ELEMENTS_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_ELEMENTS_CUH

#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

// Thread i calls step.run<W>(W * i, aligned) if all W elements exist; otherwise it calls
// step.run<1>() for each that does. `aligned` says that all arrays of the step are aligned to
// 16 bytes.
template <int W, class Step>
static __global__ void elements_kernel(Step step, int64_t n, bool aligned)
{
    const int64_t first = thread_of_grid() * W;
    if (first + W <= n) {
        step.template run<W>(first, aligned);
        return;
    }
    for (int64_t i = first; i < n; i++)
        step.template run<1>(i, aligned);
}

template <int W, class Step>
static inline bd_status for_each_element(const Step &step, int64_t n, bool aligned,
                                         const char *name, void *stream, bd_error *err)
{
    LAUNCH((elements_kernel<W, Step>), blocks_for(n, kThreadsPerBlock * W), kThreadsPerBlock, 0,
           stream, step, n, aligned);
    return bd_cuda_check_launch(name, err);
}

#endif
