// activation.h - the non-linearity between the two halves of a feed-forward block.
#ifndef BINDERY_KERNELS_ACTIVATION_H
#define BINDERY_KERNELS_ACTIVATION_H

#include <stdint.h>

typedef enum bd_activation {
    BD_ACTIVATION_RELU,  // OPT
    BD_ACTIVATION_GELU,  // GPT-2: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
} bd_activation;

// out[i] = f(x[i]); f(0) = 0, so padding stays 0. Arrays of n.
typedef struct bd_activation_forward_args {
    bd_activation activation;
    int64_t n;
    const float *x;
    float *out;
} bd_activation_forward_args;

// d_x[i] = d_out[i] * f'(x[i]); d_x may be d_out. ReLU's derivative at 0 is 0.
typedef struct bd_activation_backward_args {
    bd_activation activation;
    int64_t n;
    const float *x;
    const float *d_out;
    float *d_x;
} bd_activation_backward_args;

// out[i] = a[i] + b[i]; out may be a or b.
typedef struct bd_add_args {
    int64_t n;
    const float *a;
    const float *b;
    float *out;
} bd_add_args;

#endif
