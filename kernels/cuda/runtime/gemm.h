// gemm.h - matrix products by cuBLASLt, summed in float.
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_GEMM_H
#define BINDERY_KERNELS_CUDA_RUNTIME_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "kernels/activation.h"
#include "kernels/cuda/runtime/queue.h"
#include "kernels/type.h"

// d [m x n] = activation(op(a) [m x k] * op(b) [k x n] + bias). If `adds` is set, the product
// is added to d instead. Matrices are stored column after column, with the matrix's stride from
// one column to the next (0: without gaps). All pointers are device memory.
typedef struct bd_cuda_gemm_args {
    int64_t m, n, k;
    int64_t a_stride, b_stride, d_stride;
    bool a_transposed, b_transposed;  // op() transposes
    bool adds;
    bd_type type;    // of a, b, bias and before
    bd_type d_type;  // BD_FLOAT if type is
    // Not SiLU, which cuBLASLt does not know; and only in bf16: in float its activations are
    // not precise enough.
    bd_activation activation;
    const void *a;
    const void *b;
    const void *bias;  // [m], added to every column; or NULL
    void *d;
    // [m x n], without gaps: receives the argument of the activation, which must be
    // BD_ACTIVATION_GELU; or NULL.
    void *before;
} bd_cuda_gemm_args;

// The number of bytes of queue->scratch that every product needs.
size_t bd_cuda_gemm_scratch(void);

bd_status bd_cuda_gemm(const bd_cuda_gemm_args *args, bd_cuda_queue *queue, bd_error *err);

// The same, but if cuBLASLt has no algorithm for it, *done becomes false and nothing is
// computed.
bd_status bd_cuda_try_gemm(const bd_cuda_gemm_args *args, bd_cuda_queue *queue, bool *done,
                           bd_error *err);

// The state that products keep between calls: cuBLASLt's handle, and the algorithm of every
// shape so far. Put it into queue->blas.
bd_status bd_cuda_blas_new(void **blas, bd_error *err);
void bd_cuda_blas_free(void *blas);  // NULL-safe

#endif
