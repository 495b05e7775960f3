// muon.h - one step of Muon on a weight matrix.
//
// Muon moves a matrix by its momentum, made nearly orthogonal: all singular values of the
// update are about 1, so that rare directions learn as fast as frequent ones.
#ifndef BINDERY_KERNELS_MUON_H
#define BINDERY_KERNELS_MUON_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/type.h"

// The iteration of Newton and Schulz with Keller Jordan's coefficients, which trade exactness
// for speed: five iterations bring singular values between 0.002 and 1 to between 0.68 and
// 1.21. Smaller ones stay smaller.
enum { BD_MUON_ITERATIONS = 5 };
static const float bd_muon_a = 3.4445f, bd_muon_b = -4.7750f, bd_muon_c = 2.0315f;

// A direction whose norm is not above this is taken for 0.
static const double bd_muon_least_norm = 1e-30;

// gradient, parameter, m  [n_rows][n_columns]; `type` is that of the matrices in the products
//
//   g = gradient_scale * gradient
//   m = momentum * m + g
//   u = g + momentum * m                              Nesterov's
//   X = u / |u|                                       Frobenius norm, in double
//   5 times:  A = X X^T;  B = b A + c A A;  X = a X + B X       (X^T X, X B if X is taller)
//   parameter -= learning_rate * weight_decay * parameter
//   parameter -= learning_rate * 0.2 sqrt(max(n_rows, n_columns)) * X
//
// The last factor gives the update the root mean square that AdamW's usually have, so that
// learning rate and weight decay can be those of AdamW (Moonlight, arXiv 2502.16982). The scale
// of all gradients together does not matter.
typedef struct bd_muon_args {
    int64_t n_rows, n_columns;
    bd_type type;
    float learning_rate, momentum, weight_decay, gradient_scale;
    const float *gradient;
    float *parameter;
    float *m;
    uint16_t *rounded;  // the new parameters in bf16; NULL if not wanted
} bd_muon_args;

static inline int64_t bd_muon_short_side(const bd_muon_args *args)
{
    return args->n_rows < args->n_columns ? args->n_rows : args->n_columns;
}

// What X is multiplied by in the last line.
static inline float bd_muon_rate(const bd_muon_args *args)
{
    const int64_t longest = args->n_rows > args->n_columns ? args->n_rows : args->n_columns;
    return (float)((double)args->learning_rate * 0.2 * sqrt((double)longest));
}

static inline float bd_muon_decay(const bd_muon_args *args)
{
    return (float)(1.0 - (double)args->learning_rate * (double)args->weight_decay);
}

// The scratch memory of a step: X, B X, A and A A.
static inline size_t bd_muon_matrix_bytes(const bd_muon_args *args)
{
    const size_t side = (size_t)bd_muon_short_side(args);
    const size_t n = (size_t)args->n_rows * (size_t)args->n_columns;
    return 2 * (n + side * side) * bd_type_bytes(args->type);
}

#endif
