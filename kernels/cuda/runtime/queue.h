// queue.h - where the CUDA operations put their work. The backend owns what this points to.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_QUEUE_H
#define BINDERY_KERNELS_CUDA_RUNTIME_QUEUE_H

#include <stddef.h>

// Work on one stream is done in the order in which it was queued, so operations may share
// `scratch`: what one has written there is gone when the next begins.
typedef struct bd_cuda_queue {
    void *stream;          // a cudaStream_t, never NULL
    void *scratch;         // device memory, 256-aligned
    size_t scratch_bytes;  // at least what the operation's bd_cuda_X_scratch() asks for
    void *blas;            // what bd_cuda_blas_new() gave: cuBLASLt's handle and its plans
} bd_cuda_queue;

#endif
