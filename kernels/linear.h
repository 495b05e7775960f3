// linear.h - matrix products of every token's vector with a weight matrix, plus a bias.
#ifndef BINDERY_KERNELS_LINEAR_H
#define BINDERY_KERNELS_LINEAR_H

#include <stdint.h>

#include "kernels/boundaries.h"

// How the weight lies in memory.
typedef enum bd_weight_layout {
    BD_WEIGHT_OUT_IN,  // [n_out][n_in], as torch.nn.Linear (OPT) and tied embeddings have it
    BD_WEIGHT_IN_OUT,  // [n_in][n_out], as GPT-2's Conv1D has it
} bd_weight_layout;

// out[t][j] = sum_i x[t][i] * weight(i, j) + bias[j]
//
// x    [n_tokens][n_in]    n_tokens = n_rows * seq_len
// out  [n_tokens][n_out]; exactly 0 in padding, where x must be finite
// bias [n_out] or NULL
typedef struct bd_linear_forward_args {
    bd_boundaries boundaries;
    int64_t n_in, n_out;
    bd_weight_layout layout;
    const float *x;
    const float *weight;
    const float *bias;
    float *out;
} bd_linear_forward_args;

// d_x    = d_out * weight^T   (written; NULL if not wanted)
// d_weight += x^T * d_out     (in the weight's own layout)
// d_bias   += sum over tokens of d_out (NULL if there is none)
// d_out and x are exactly 0 in padding, so d_x is too.
typedef struct bd_linear_backward_args {
    bd_boundaries boundaries;
    int64_t n_in, n_out;
    bd_weight_layout layout;
    const float *d_out;
    const float *x;
    const float *weight;
    float *d_x;
    float *d_weight;
    float *d_bias;
} bd_linear_backward_args;

#endif
