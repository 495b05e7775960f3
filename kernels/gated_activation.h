// gated_activation.h - the non-linearity of a gated feed-forward block, as SwiGLU and GeGLU.
#ifndef BINDERY_KERNELS_GATED_ACTIVATION_H
#define BINDERY_KERNELS_GATED_ACTIVATION_H

#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/type.h"

// x    [n_tokens][2 * n_channels]: of each token first the gate, then what is gated (up), as one
//      matrix product gives them
// out  [n_tokens][n_channels]: f(gate) * up, with f the activation, which is not
//      BD_ACTIVATION_NONE. f(0) * 0 is 0, so padding stays exactly 0
typedef struct bd_gated_activation_forward_args {
    bd_type type;
    bd_activation activation;
    int64_t n_tokens, n_channels;
    const void *x;
    void *out;
} bd_gated_activation_forward_args;

// d_x  [n_tokens][2 * n_channels], overwritten: d_gate = d_out * up * f'(gate),
//      d_up = d_out * f(gate)
typedef struct bd_gated_activation_backward_args {
    bd_type type;
    bd_activation activation;
    int64_t n_tokens, n_channels;
    const void *x;
    const void *d_out;
    void *d_x;
} bd_gated_activation_backward_args;

#endif
