// cross_entropy.h - the loss: each token predicts the next one of its own segment.
//
// The target of token t is token t + 1 if that lies in the same segment and is trained
// (loss_mask.h); otherwise t has none.
#ifndef BINDERY_KERNELS_CROSS_ENTROPY_H
#define BINDERY_KERNELS_CROSS_ENTROPY_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "kernels/loss_mask.h"
#include "kernels/type.h"

// ids     [n_rows][seq_len], as in embedding.h
// logits  [n_rows][seq_len][n_vocabulary], of `type`. Tokens are `stride` numbers apart (0:
//         n_vocabulary); the numbers between them are left alone. With want_gradient the logits
//         are overwritten by the gradient of gradient_scale * (loss + z_loss * lse^2), where lse
//         is the log-sum-exp of the token's logits:
//         (softmax * (1 + 2 z_loss lse) - one_hot(target)) * gradient_scale, or exactly 0 where
//         there is no target
// losses  [n_rows][seq_len]: -log softmax[target], without the term of z_loss, or exactly 0
//         where there is no target
// per_document  the loss and the gradient of a token are divided by the number of targets of its
//         segment, which the operation counts
// gradient_scale is 1 / (targets of the whole global batch), or with per_document 1 / (segments
//         of it that have a target)
// z_loss  at least 0: how strongly lse is drawn to 0
typedef struct bd_cross_entropy_args {
    bd_boundaries boundaries;
    bd_loss_mask mask;
    bd_type type;
    const void *ids;
    int32_t id_bytes;
    int64_t n_vocabulary, stride;
    int32_t want_gradient, per_document;
    float gradient_scale, z_loss;
    void *logits;
    float *losses;
} bd_cross_entropy_args;

#endif
