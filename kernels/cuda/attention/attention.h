// attention.h - document attention on the GPU: the operations of kernels/attention.h, which are
// made in float or, on tensor cores, in bf16.
//
// The contract is that of kernels/attention.h, whole: every product and every sum is cut from
// the document's own first token, so that a segment's result depends neither on its neighbours
// nor on where in the row it lies, bit for bit, in bf16 as in float. Results do not depend on
// the order in which the device runs blocks either. Padding of q, k, v, out and d_out is never
// used.
//
// All pointers are device memory, boundaries too. Work is queued on queue->stream; it uses the
// first bd_cuda_..._scratch() bytes of queue->scratch.
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
