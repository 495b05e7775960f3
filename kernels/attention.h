// attention.h - document attention: a token sees the tokens of its own segment up to itself, or
// the nearest of them.
//
// Query t of a segment that begins at b sees exactly the keys b … t; with a window of w keys it
// sees max(b, t - w + 1) … t. A window lies inside the document: it only ever makes the mask
// narrower. There is no other mask, and no way to ask for another one. Bit for bit, a segment's
// result depends neither on the values of its neighbours nor on its place in the row, and a window
// that is at least as long as the segment changes no bit.
#ifndef BINDERY_KERNELS_ATTENTION_H
#define BINDERY_KERNELS_ATTENTION_H

#include <stdint.h>
#include <string.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

enum { BD_MOST_HEAD_SIZE = 256 };  // of attention and rotation

// All tensors are of `type`, except lse, which is float.
//
// q    token t, head h: q[t * q_stride + h * head_size … + head_size - 1]    n_heads heads
// k, v token t, head g: k[t * kv_stride + g * head_size …]                   n_kv_heads heads
// (so that q, k and v may be parts of one [n_tokens][3 * n_channels] array)
// n_heads is a multiple of n_kv_heads; query head h uses key head h / (n_heads / n_kv_heads)
// head_size  at most BD_MOST_HEAD_SIZE; in bf16 64 or 128, with pointers aligned to 16 bytes and
//            strides that are multiples of 8. A backend refuses anything else
//            (BD_ERR_UNSUPPORTED)
// window     the number of keys that a query sees at most, itself included; 0: no window
// scale  > 0, applied to q·k before the softmax
// out  [n_tokens][n_heads * head_size]; exactly 0 in padding
// lse  [n_tokens][n_heads], log-sum-exp of the scaled scores; 0 in padding
//
// Memory besides the arguments: on the CPU a few blocks per thread. On CUDA 16 bytes per token;
// the backward pass in bf16 needs head_size + 2 more floats per token and head, for the sums of
// d_q (all layers share them). Nothing has size seq_len x seq_len.
typedef struct bd_attention_forward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;
    int64_t window;
    float scale;
    const void *q;
    const void *k;
    const void *v;
    void *out;
    float *lse;
} bd_attention_forward_args;

// d_q, d_k and d_v have the layout and the strides of q, k and v. They are overwritten, with 0
// in padding.
typedef struct bd_attention_backward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;
    int64_t window;
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

// The arguments of the backward pass that belongs to a forward call. d_out and the gradients
// are still to be filled in.
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
    args.window = forward->window;
    args.scale = forward->scale;
    args.q = forward->q;
    args.k = forward->k;
    args.v = forward->v;
    args.out = forward->out;
    args.lse = forward->lse;
    return args;
}

#endif
