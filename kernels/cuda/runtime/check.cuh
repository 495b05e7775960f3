// check.cuh - CUDA's error codes as bd_status.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_CHECK_CUH
#define BINDERY_KERNELS_CUDA_RUNTIME_CHECK_CUH

#include <cuda_runtime_api.h>

#include "common/base/error.h"

inline bd_status bd_cuda_status(cudaError_t code)
{
    switch (code) {
    case cudaSuccess:
        return BD_OK;
    case cudaErrorMemoryAllocation:
        return BD_ERR_MEMORY;
    case cudaErrorNoKernelImageForDevice:
        return BD_ERR_UNSUPPORTED;
    default:
        return BD_ERR_DEVICE;
    }
}

// BD_OK for cudaSuccess; else the message is `cannot WHAT: REASON`.
inline bd_status bd_cuda_check(cudaError_t code, const char *what, bd_error *err)
{
    if (code == cudaSuccess)
        return BD_OK;
    return bd_fail(err, bd_cuda_status(code), "cannot %s: %s", what, cudaGetErrorString(code));
}

// Call it after every LAUNCH, before the next one. It reports a launch that was refused. A
// failure of the kernel itself is reported later, to whoever waits for the stream.
inline bd_status bd_cuda_check_launch(const char *kernel, bd_error *err)
{
    const cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess)
        return BD_OK;
    return bd_fail(err, bd_cuda_status(code), "cannot launch %s: %s", kernel,
                   cudaGetErrorString(code));
}

#endif
