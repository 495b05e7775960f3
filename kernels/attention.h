// attention.h - document attention: a token sees the tokens of its own segment up to itself.
//
// Query t of a segment that begins at b sees exactly the keys b … t. There is no other mask,
// and no way to ask for another one. A segment's result does not depend on its neighbours'
// values, nor on where in the row it lies, bit for bit.
#ifndef BINDERY_KERNELS_ATTENTION_H
#define BINDERY_KERNELS_ATTENTION_H

#include <stdint.h>

#include "kernels/boundaries.h"

// q    token t, head h: q[t * q_stride + h * head_size … + head_size - 1]    n_heads heads
// k, v token t, head g: k[t * kv_stride + g * head_size …]                   n_kv_heads heads
// (so that q, k and v may be parts of one [n_tokens][3 * n_channels] array)
// n_heads is a multiple of n_kv_heads; query head h uses key head h / (n_heads / n_kv_heads)
// head_size  at most 256; a backend refuses what is wider (BD_ERR_UNSUPPORTED)
// scale  > 0, applied to q·k before the softmax
// out  [n_tokens][n_heads * head_size]; exactly 0 in padding
// lse  [n_tokens][n_heads], log-sum-exp of the scaled scores; 0 in padding
//
// Memory besides the arguments is a few blocks per thread: nothing of size seq_len x seq_len.
typedef struct bd_attention_forward_args {
    bd_boundaries boundaries;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;
    float scale;
    const float *q;
    const float *k;
    const float *v;
    float *out;
    float *lse;
} bd_attention_forward_args;

// d_q, d_k, d_v lie as q, k, v do (same strides) and are written, 0 in padding.
typedef struct bd_attention_backward_args {
    bd_boundaries boundaries;
    int64_t n_heads, n_kv_heads, head_size;
    int64_t q_stride, kv_stride;
    float scale;
    const float *q;
    const float *k;
    const float *v;
    const float *out;
    const float *lse;
    const float *d_out;
    float *d_q;
    float *d_k;
    float *d_v;
} bd_attention_backward_args;

#endif
