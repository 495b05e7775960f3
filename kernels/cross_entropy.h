// cross_entropy.h - the loss: each token predicts the next one of its own segment.
//
// The target of token t is token t + 1 if that lies in the same segment; otherwise t has none.
#ifndef BINDERY_KERNELS_CROSS_ENTROPY_H
#define BINDERY_KERNELS_CROSS_ENTROPY_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

// ids     [n_rows][seq_len], as in embedding.h
// logits  [n_rows][seq_len][n_vocabulary], of `type`. Tokens are `stride` numbers apart (0:
//         n_vocabulary); the numbers between them are left alone. With want_gradient the logits
//         are overwritten by (softmax - one_hot(target)) * gradient_scale, or by exactly 0 where
//         there is no target
// losses  [n_rows][seq_len]: -log softmax[target], or exactly 0 where there is no target
// gradient_scale is 1 / (targets of the whole global batch)
typedef struct bd_cross_entropy_args {
    bd_boundaries boundaries;
    bd_type type;
    const void *ids;
    int32_t id_bytes;
    int64_t n_vocabulary, stride;
    int32_t want_gradient;
    float gradient_scale;
    void *logits;
    float *losses;
} bd_cross_entropy_args;

#endif
