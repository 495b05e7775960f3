// linear.h - a linear layer: every token's vector times a weight matrix, plus a bias, and
// optionally an activation.
#ifndef BINDERY_KERNELS_LINEAR_H
#define BINDERY_KERNELS_LINEAR_H

#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/boundaries.h"
#include "kernels/type.h"

// The memory layout of the weight.
typedef enum bd_weight_layout {
    BD_WEIGHT_OUT_IN,  // [n_out][n_in], as torch.nn.Linear (OPT) and tied embeddings have it
    BD_WEIGHT_IN_OUT,  // [n_in][n_out], as GPT-2's Conv1D has it
} bd_weight_layout;

// All tensors are of `type`, except the gradients of weight and bias, which are float.
//
// out[t][j] = sum_i x[t][i] * weight(i, j) + bias[j]
// activated[t][j] = activation(out[t][j])
//
// x          [n_tokens][n_in]    n_tokens = n_rows * seq_len
// out        [n_tokens][n_out], exactly 0 in padding, where x must be finite. NULL if only
//            `activated` is wanted. Tokens are out_stride numbers apart (0: n_out, without
//            gaps); the numbers between them are neither read nor written. A stride that is a
//            multiple of 8 is faster if n_out is not; with an activation there are no gaps
// activated  [n_tokens][n_out], ignored with BD_ACTIVATION_NONE
// bias       [n_out] or NULL
typedef struct bd_linear_forward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_in, n_out, out_stride;
    bd_weight_layout layout;
    bd_activation activation;
    const void *x;
    const void *weight;
    const void *bias;
    void *out;
    void *activated;
} bd_linear_forward_args;

// d_x       = d_out * weight^T            overwritten; NULL if not wanted
// d_weight += x^T * d_out                 in the layout of the weight
// d_bias   += sum over tokens of d_out    NULL if there is no bias
// d_out and x are exactly 0 in padding, so d_x is too. Tokens of d_out are d_out_stride numbers
// apart, as those of out are.
typedef struct bd_linear_backward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_in, n_out, d_out_stride;
    bd_weight_layout layout;
    const void *d_out;
    const void *x;
    const void *weight;
    void *d_x;
    float *d_weight;
    float *d_bias;
} bd_linear_backward_args;

#endif
