// step_work.h - what the mathematics of a step asks for, counted from its boundaries: the share
// of a device's peak that a run uses (MFU) comes from it.
#ifndef BINDERY_TRAINER_STEP_WORK_H
#define BINDERY_TRAINER_STEP_WORK_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "trainer/model_config.h"

// *n_used: tokens that are not padding. *n_pairs: pairs of tokens that may see each other, the
// sum of L (L + 1) / 2 over the segments.
void bd_count_work(const bd_boundaries *boundaries, int64_t *n_used, int64_t *n_pairs);
int64_t bd_count_row_pairs(const bd_boundaries *boundaries, int64_t row);  // of one row

// Floating-point operations, forward and backward, of training on `n_tokens` tokens with
// `n_pairs` pairs; nothing that is computed twice counts twice. 6 for each weight of a matrix
// product and token (2 forward, 4 backward; the token table is one such matrix, as the head),
// 12 for each pair, channel and layer.
double bd_model_flop(const bd_model_config *config, int64_t n_tokens, int64_t n_pairs);

#endif
