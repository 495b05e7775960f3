// layer_norm.h - normalizes each token's vector to mean 0 and variance 1, then scales and
// shifts it.
#ifndef BINDERY_KERNELS_LAYER_NORM_H
#define BINDERY_KERNELS_LAYER_NORM_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

// x, out, gamma, beta and, in the backward pass, d_out and d_x are of `type`.
//
// x, out       [n_rows][seq_len][n_channels]; out is exactly 0 in padding
// gamma, beta  [n_channels]
// mean, rstd   [n_rows][seq_len], kept for the backward pass; 0 in padding
// rstd = 1 / sqrt(variance + epsilon), the variance divided by n_channels
typedef struct bd_layer_norm_forward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_channels;
    float epsilon;
    const void *x;
    const void *gamma;
    const void *beta;
    void *out;
    float *mean;
    float *rstd;
} bd_layer_norm_forward_args;

// Adds to d_x, d_gamma and d_beta. (d_x already holds the gradient that flows past the norm
// along the residual stream.) Padding tokens are left alone and add nothing.
typedef struct bd_layer_norm_backward_args {
    bd_boundaries boundaries;
    bd_type type;
    int64_t n_channels;
    const void *d_out;
    const void *x;
    const void *gamma;
    const float *mean;
    const float *rstd;
    void *d_x;
    float *d_gamma;
    float *d_beta;
} bd_layer_norm_backward_args;

#endif
