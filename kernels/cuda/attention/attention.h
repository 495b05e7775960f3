// attention.h - document attention on the GPU: the operations of kernels/attention.h in float
// and, on tensor cores, in bf16. attention.cu picks one by the type of the tensors.
//
// Both keep the whole contract of kernels/attention.h. All products and sums are divided into
// tiles that count from the first token of the document, so that, bit for bit, a segment's
// result depends neither on its neighbours nor on its place in the row. It does not depend on
// the order in which the device runs blocks either. Padding of q, k, v, out and d_out is never
// used.
//
// Pointers, queue and scratch are as in kernels/cuda/operations/operations.h.
#ifndef BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_H
#define BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "kernels/attention.h"
#include "kernels/cuda/runtime/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- float, any head size up to 256 ---------------------------------------------------------

size_t bd_cuda_attention_float_forward_scratch(const bd_attention_forward_args *args);
bd_status bd_cuda_attention_float_forward(const bd_attention_forward_args *args,
                                          bd_cuda_queue *queue, bd_error *err);

size_t bd_cuda_attention_float_backward_scratch(const bd_attention_backward_args *args);
bd_status bd_cuda_attention_float_backward(const bd_attention_backward_args *args,
                                           bd_cuda_queue *queue, bd_error *err);

// ---- bf16, head sizes 64 and 128 ------------------------------------------------------------

size_t bd_cuda_attention_bf16_forward_scratch(const bd_attention_forward_args *args);
bd_status bd_cuda_attention_bf16_forward(const bd_attention_forward_args *args,
                                         bd_cuda_queue *queue, bd_error *err);

size_t bd_cuda_attention_bf16_backward_scratch(const bd_attention_backward_args *args);
bd_status bd_cuda_attention_bf16_backward(const bd_attention_backward_args *args,
                                          bd_cuda_queue *queue, bd_error *err);

#ifdef __cplusplus
}
#endif

#endif
