// exact_operations.h - the operations of a model on one sequence, forward and backward, in double
// precision, for reference.h.
//
// Every operation reads weights, adds to gradients and magnitudes, and rounds as its bd_reference
// says. Arrays have a row for each of the sequence's n tokens. A backward operation writes the
// gradient of its input, unless it says that it adds to it.
#ifndef BINDERY_TRAINER_PROOF_EXACT_OPERATIONS_H
#define BINDERY_TRAINER_PROOF_EXACT_OPERATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/proof/reference.h"

// Adds a * b, or x [n], to the gradients from `offset` on. These sums are not rounded: their error
// is bounded by the magnitudes.
void bd_exact_add_gradients(bd_reference *r, int64_t offset, bd_matrix a, bd_matrix b);
void bd_exact_add_gradient(bd_reference *r, int64_t offset, const double *x, int64_t n);

// out [n][n_out] = x [n][n_in] * weight + bias, if it has one
typedef struct bd_exact_linear {
    bd_linear_offsets at;
    int64_t n_in, n_out;
} bd_exact_linear;

void bd_exact_linear_forward(bd_reference *r, bd_exact_linear l, int64_t n, const double *x,
                             double *out);
void bd_exact_linear_backward(bd_reference *r, bd_exact_linear l, int64_t n, const double *x,
                              const double *d_out, double *d_x);

// A layer norm or an RMS norm, as the family says, of `n_vectors` neighbouring vectors of each
// token, which share gain and shift. Tokens are `stride` apart in all arrays.
typedef struct bd_exact_norm {
    bd_norm_offsets at;
    int64_t n_vectors, n_channels, stride;
} bd_exact_norm;

void bd_exact_norm_forward(bd_reference *r, bd_exact_norm norm, int64_t n, const double *x,
                           double *out);
// With `adds` to d_x, which already has the gradient that bypasses the norm; otherwise d_x may be
// d_out. scratch [3][n_channels]
void bd_exact_norm_backward(bd_reference *r, bd_exact_norm norm, int64_t n, const double *x,
                            const double *d_out, double *d_x, bool adds, double *scratch);

// Turns n_heads neighbouring heads of each token, in place; a token's position is its number in
// the sequence. `inverse` is the transpose, for gradients. Tokens are `stride` apart.
typedef struct bd_exact_rotation {
    bd_rotation how;
    int64_t n_heads, head_size, stride;
    bool inverse;
} bd_exact_rotation;

void bd_exact_rotate(bd_reference *r, const bd_exact_rotation *rotation, int64_t n, double *x);

// A token sees itself and the tokens before it, or with a window the nearest of them.
typedef struct bd_exact_attention {
    int64_t n_heads, n_kv_heads, head_size;
    int64_t window;  // the keys that a query sees at most; 0: no limit
    double scale;    // of the scores
} bd_exact_attention;

// qkv [n][(n_heads + 2 n_kv_heads) * head_size], out [n][n_heads * head_size], scratch [2][n]
void bd_exact_attention_forward(bd_reference *r, const bd_exact_attention *a, int64_t n,
                                const double *qkv, double *out, double *scratch);
void bd_exact_attention_backward(bd_reference *r, const bd_exact_attention *a, int64_t n,
                                 const double *qkv, const double *out, const double *d_out,
                                 double *d_qkv, double *scratch);

// f(x) and its slope.
double bd_exact_activation(bd_activation which, double x, double *slope);

// Turns one token's logits [n] into their gradient and returns -log p(target).
double bd_exact_cross_entropy(bd_reference *r, double *logits, int64_t n, uint32_t target,
                              double loss_scale);

#endif
