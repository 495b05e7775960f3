// activation.h - the non-linearity between the two halves of a feed-forward block.
#ifndef BINDERY_KERNELS_ACTIVATION_H
#define BINDERY_KERNELS_ACTIVATION_H

#include <stdint.h>

#include "kernels/type.h"

typedef enum bd_activation {
    BD_ACTIVATION_NONE,
    BD_ACTIVATION_RELU,  // OPT
    BD_ACTIVATION_GELU,  // GPT-2, Gemma: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
    BD_ACTIVATION_SILU,  // Llama, Qwen, OLMo: x / (1 + exp(-x))
} bd_activation;

// linear_forward applies it: f(0) = 0, so padding stays 0. A NaN stays a NaN, with one exception:
// in bf16 on CUDA cuBLASLt may apply ReLU, and may turn a NaN into 0. The residual stream beside
// it still carries the NaN to the loss.
//
// d_x[i] = d_out[i] * f'(x[i]); d_x may be d_out. ReLU's derivative at 0 is 0, so that for ReLU
// the result f(x) may be given in place of x. Arrays have n numbers of `type`; the activation is
// not BD_ACTIVATION_NONE.
typedef struct bd_activation_backward_args {
    bd_type type;
    bd_activation activation;
    int64_t n;
    const void *x;
    const void *d_out;
    void *d_x;
} bd_activation_backward_args;

// out[i] = a[i] + b[i]; out may be a or b.
typedef struct bd_add_args {
    bd_type type;
    int64_t n;
    const void *a;
    const void *b;
    void *out;
} bd_add_args;

#endif
