// attention.h - document attention: a token sees the tokens of its own segment up to itself.
//
// Query t of a segment that begins at b sees exactly the keys b … t. There is no other mask,
// and no way to ask for another one. A segment's result does not depend on its neighbours'
// values, nor on where in the row it lies, bit for bit.
#ifndef BINDERY_KERNELS_ATTENTION_H
#define BINDERY_KERNELS_ATTENTION_H

#include <stdint.h>
#include <string.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

// All tensors but lse are of `type`.
//
// q    token t, head h: q[t * q_stride + h * head_size … + head_size - 1]    n_heads heads
// k, v token t, head g: k[t * kv_stride + g * head_size …]                   n_kv_heads heads
// (so that q, k and v may be parts of one [n_tokens][3 * n_channels] array)
// n_heads is a multiple of n_kv_heads; query head h uses key head h / (n_heads / n_kv_heads)
// head_size  at most 256; in bf16 64 or 128, with pointers aligned to 16 bytes and strides that
//            are multiples of 8. A backend refuses anything else (BD_ERR_UNSUPPORTED)
// scale  > 0, applied to q·k before the softmax
// out  [n_tokens][n_heads * head_size]; exactly 0 in padding
// lse  [n_tokens][n_heads], log-sum-exp of the scaled scores; 0 in padding
//
// Memory besides the arguments: on the CPU a few blocks per thread; on CUDA 16 bytes per token,
// and going back in bf16 head_size + 2 floats per token and head besides (the sums of d_q, which
// are shared by all layers). Nothing of size seq_len x seq_len.
typedef struct bd_attention_forward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;
    float scale;
    const void *q;
    const void *k;
    const void *v;
    void *out;
    float *lse;
} bd_attention_forward_args;

// d_q, d_k, d_v lie as q, k, v do (same strides) and are written, 0 in padding.
typedef struct bd_attention_backward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;
    float scale;
    const void *q;
    const void *k;
    const void *v;
    const void *out;
    const float *lse;
    const void *d_out;
    void *d_q;
    void *d_k;
    void *d_v;
} bd_attention_backward_args;

// The arguments of the backward pass of a forward call, but for d_out and the gradients.
static inline bd_attention_backward_args
bd_attention_backward_of(const bd_attention_forward_args *forward)
{
    bd_attention_backward_args args;
    memset(&args, 0, sizeof args);
    args.boundaries = forward->boundaries;
    args.type = forward->type;
    args.n_heads = forward->n_heads;
    args.n_kv_heads = forward->n_kv_heads;
    args.head_size = forward->head_size;
    args.q_stride = forward->q_stride;
    args.kv_stride = forward->kv_stride;
    args.scale = forward->scale;
    args.q = forward->q;
    args.k = forward->k;
    args.v = forward->v;
    args.out = forward->out;
    args.lse = forward->lse;
    return args;
}

#endif
