// queue.h - the stream and the memory that the CUDA operations use. The backend owns them.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_QUEUE_H
#define BINDERY_KERNELS_CUDA_RUNTIME_QUEUE_H

#include <stddef.h>

// Work on one stream is executed in the order in which it was queued, so that all operations
// can use the same `scratch`. An operation must not expect to find there what an earlier one
// has written.
typedef struct bd_cuda_queue {
    void *stream;          // a cudaStream_t, never NULL
    void *scratch;         // device memory, 256-aligned
    size_t scratch_bytes;  // at least bd_cuda_X_scratch() of the operation X
    void *blas;            // from bd_cuda_blas_new(): cuBLASLt's handle and its plans
} bd_cuda_queue;

#endif
