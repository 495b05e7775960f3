// linear_by_token.h - a linear layer for the few tokens of a step of generation.
//
// It computes what linear_forward computes, with one more promise: bit for bit, a token's result
// does not depend on how many other tokens there are, nor on what they hold. (Matrix products of
// a BLAS choose the order of their sums by the shape of both factors.) A token is mostly alone;
// then the time is that of reading the weight once.
#ifndef BINDERY_KERNELS_LINEAR_BY_TOKEN_H
#define BINDERY_KERNELS_LINEAR_BY_TOKEN_H

#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/linear.h"
#include "kernels/type.h"

// out[t][j] = activation(sum_i x[r][i] * weight(i, j) + bias[j])    r = rows[t], or t
//
// All tensors are of `type`; out shares no memory with the others.
// x       [… rows that are named …][n_in]
// rows    [n_tokens]: the row of x of each token; NULL: the tokens are the rows of x
// bias    [n_out] or NULL
// out     [n_tokens][n_out]. Tokens are out_stride numbers apart (0: n_out, without gaps); the
//         numbers between them are neither read nor written
typedef struct bd_linear_by_token_args {
    bd_type type;
    int64_t n_tokens, n_in, n_out, out_stride;
    bd_weight_layout layout;
    bd_activation activation;
    const void *x;
    const int32_t *rows;
    const void *weight;
    const void *bias;
    void *out;
} bd_linear_by_token_args;

#endif
