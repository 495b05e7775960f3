// balance.h - which rank and which micro-batch computes each row of a global batch.
//
// The batch is divided into parts: the micro-batches of rank 0, then those of rank 1, and so
// on. All parts have the same number of rows, or one more. Rows differ in their attention, the
// sum of L (L + 1) / 2 over their segments, and every rank waits for the one with the most, so
// the parts are to have nearly the same sum. That is multiway partitioning, solved greedily:
// the rows, those with the most attention first, each go to the part that has the least so far
// and has room left. The result depends on the rows' boundaries alone, so every rank finds the
// same one by itself.
#ifndef BINDERY_TRAINER_DATA_BALANCE_H
#define BINDERY_TRAINER_DATA_BALANCE_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/boundaries.h"

// Micro-batches of every rank, so that none has more than `micro_batch_rows` rows.
int64_t bd_balance_micro_batches(int64_t batch_rows, int64_t micro_batch_rows, int32_t n_ranks);

// Rows of a part, at most.
int64_t bd_balance_most_rows(int64_t batch_rows, int32_t n_ranks, int64_t n_micro_batches);

// Divides the rows into n_ranks x n_micro_batches parts; part r * n_micro_batches + i is
// micro-batch i of rank r. order [n_rows] becomes the rows part after part, within a part in
// the order that they had; ends [n_ranks * n_micro_batches] where each part ends in it. Time
// grows with rows x parts, memory with rows + parts.
bd_status bd_balance_rows(const bd_boundaries *boundaries, int32_t n_ranks,
                          int64_t n_micro_batches, int64_t *order, int64_t *ends,
                          bd_error *err);

#endif
