// optimizer.h - AdamW, and the sum of squares from which the norm of the gradients is computed.
#ifndef BINDERY_KERNELS_OPTIMIZER_H
#define BINDERY_KERNELS_OPTIMIZER_H

#include <stdint.h>

// A part of the array of parameters that has one weight decay. It begins where the part before
// it ends.
typedef struct bd_adamw_part {
    int64_t end;
    float weight_decay;
} bd_adamw_part;

// One step of AdamW on n parameters, as in torch.optim.AdamW:
//   g = gradient_scale * gradient[i]
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   parameter -= learning_rate * weight_decay * parameter                (before the next line)
//   parameter -= learning_rate * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) +
//   epsilon)
typedef struct bd_adamw_args {
    int64_t n;
    int64_t step;  // 1, 2, …
    float learning_rate, beta1, beta2, epsilon;
    float gradient_scale;  // below 1 when the gradient is clipped
    int64_t n_parts;
    const bd_adamw_part *parts;  // [n_parts], with rising ends; the last end is n
    const float *gradient;
    float *parameter;
    float *m;
    float *v;
    uint16_t *rounded;  // [n]: the new parameters in bf16; NULL if not wanted
} bd_adamw_args;

// *sum = sum of x[i]^2, added in double, in an order that depends only on n.
typedef struct bd_sum_of_squares_args {
    int64_t n;
    const float *x;
    double *sum;  // host memory
} bd_sum_of_squares_args;

#endif
