// linear.h - matrix products of every token's vector with a weight matrix, plus a bias.
#ifndef BINDERY_KERNELS_LINEAR_H
#define BINDERY_KERNELS_LINEAR_H

#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/boundaries.h"
#include "kernels/type.h"

// How the weight lies in memory.
typedef enum bd_weight_layout {
    BD_WEIGHT_OUT_IN,  // [n_out][n_in], as torch.nn.Linear (OPT) and tied embeddings have it
    BD_WEIGHT_IN_OUT,  // [n_in][n_out], as GPT-2's Conv1D has it
} bd_weight_layout;

// All tensors but the gradients of weight and bias are of `type`.
//
// out[t][j] = sum_i x[t][i] * weight(i, j) + bias[j]
// activated[t][j] = activation(out[t][j])
//
// x          [n_tokens][n_in]    n_tokens = n_rows * seq_len
// out        [n_tokens][n_out], tokens out_stride numbers apart (0: n_out, without gaps); a
//            stride that is a multiple of 8 is quicker where n_out is not. What lies between
//            is neither read nor written; with an activation there is nothing. Exactly 0 in
//            padding, where x must be finite. NULL if only `activated` is wanted
// activated  [n_tokens][n_out], not looked at with BD_ACTIVATION_NONE
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

// d_x    = d_out * weight^T   (written; NULL if not wanted)
// d_weight += x^T * d_out     (in the weight's own layout)
// d_bias   += sum over tokens of d_out (NULL if there is none)
// d_out and x are exactly 0 in padding, so d_x is too. Tokens of d_out are d_out_stride numbers
// apart, as in out.
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
