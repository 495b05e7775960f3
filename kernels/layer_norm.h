// layer_norm.h - each token's vector to mean 0 and variance 1, then scaled and shifted.
#ifndef BINDERY_KERNELS_LAYER_NORM_H
#define BINDERY_KERNELS_LAYER_NORM_H

#include <stdint.h>

#include "kernels/boundaries.h"

// x, out       [n_rows][seq_len][n_channels]; out is exactly 0 in padding
// gamma, beta  [n_channels]
// mean, rstd   [n_rows][seq_len], kept for the backward pass; 0 in padding
// rstd = 1 / sqrt(variance + epsilon), the variance divided by n_channels
typedef struct bd_layer_norm_forward_args {
    bd_boundaries boundaries;
    int64_t n_channels;
    float epsilon;
    const float *x;
    const float *gamma;
    const float *beta;
    float *out;
    float *mean;
    float *rstd;
} bd_layer_norm_forward_args;

// Adds to d_x (the residual stream's gradient flows past the norm as well), d_gamma and d_beta.
// Padding gets and gives nothing.
typedef struct bd_layer_norm_backward_args {
    bd_boundaries boundaries;
    int64_t n_channels;
    const float *d_out;
    const float *x;
    const float *gamma;
    const float *mean;
    const float *rstd;
    float *d_x;
    float *d_gamma;
    float *d_beta;
} bd_layer_norm_backward_args;

#endif
