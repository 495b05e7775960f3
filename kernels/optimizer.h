// optimizer.h - AdamW, the sum of squares from which the norm of the gradients is computed,
// and the running average of weights.
#ifndef BINDERY_KERNELS_OPTIMIZER_H
#define BINDERY_KERNELS_OPTIMIZER_H

#include <stdint.h>

#include "kernels/type.h"

// A part of the array of parameters that has one weight decay and one learning rate. It begins
// where the part before it ends.
typedef struct bd_adamw_part {
    int64_t end;
    float weight_decay;
    float rate_factor;  // of the learning rate
} bd_adamw_part;

// One step of AdamW on n parameters, as in torch.optim.AdamW, with rate = learning_rate *
// rate_factor:
//   g = gradient_scale * gradient[i]
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   parameter -= rate * weight_decay * parameter                         (before the next line)
//   parameter -= rate * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon)
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

// average[i] += rate * (parameter[i] - average[i]), arrays of n; without `parameter` (NULL) the
// average stays as it is. `copy` [n], of `type`, then receives the average; NULL if not wanted.
typedef struct bd_average_args {
    int64_t n;
    float rate;
    const float *parameter;
    float *average;
    bd_type type;
    void *copy;
} bd_average_args;

#endif
