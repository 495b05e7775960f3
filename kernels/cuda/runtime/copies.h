// copies.h - copies between host and device through pinned memory: from other memory the driver
// would copy in pieces of its own, waiting for each.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_COPIES_H
#define BINDERY_KERNELS_CUDA_RUNTIME_COPIES_H

#include <stddef.h>

#include <cuda_runtime_api.h>

#include "common/base/error.h"

typedef struct bd_cuda_staging {
    void *memory;        // pinned, owned
    cudaEvent_t copied;  // the last copy from or to it is done
} bd_cuda_staging;

typedef struct bd_cuda_copies {
    cudaStream_t stream;  // borrowed
    bd_cuda_staging staging[2];
} bd_cuda_copies;

// Copies are queued on `stream`. After a failure, release what there is.
bd_status bd_cuda_copies_init(bd_cuda_copies *copies, cudaStream_t stream, bd_error *err);

// When nothing is queued any more. Safe on an empty struct and safe twice.
void bd_cuda_copies_release(bd_cuda_copies *copies);

// Done on return.
bd_status bd_cuda_upload(bd_cuda_copies *copies, void *to, const void *from, size_t size_bytes,
                         bd_error *err);
bd_status bd_cuda_download(bd_cuda_copies *copies, void *to, const void *from,
                           size_t size_bytes, bd_error *err);

#endif
