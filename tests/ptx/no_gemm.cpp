// no_gemm.cpp - kernels/cuda/runtime/gemm.h without cuBLASLt: products change nothing. The
// kernels of linear.cu before and after them are executed.
#include "kernels/cuda/runtime/gemm.h"

// Whether a product, its bias and its activation count as done in one call.
extern "C" bool bd_gemm_activates;
bool bd_gemm_activates = false;

size_t bd_cuda_gemm_scratch(void)
{
    return 0;
}

bd_status bd_cuda_gemm(const bd_cuda_gemm_args *, bd_cuda_queue *, bd_error *)
{
    return BD_OK;
}

bd_status bd_cuda_try_gemm(const bd_cuda_gemm_args *, bd_cuda_queue *, bool *done, bd_error *)
{
    *done = bd_gemm_activates;
    return BD_OK;
}
