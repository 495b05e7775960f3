// balance.h - which rank and which micro-batch computes each row of a global batch.
//
// A batch is dealt out to parts: for each rank its micro-batches, one after another. All parts
// have the same number of rows, or one more; what differs between rows is their attention, the
// sum of L (L + 1) / 2 over their segments. So the row with the most goes first, to the part
// that has the least so far and has room. The deal follows from the rows' boundaries alone.
#ifndef BINDERY_TRAINER_DATA_BALANCE_H
#define BINDERY_TRAINER_DATA_BALANCE_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/boundaries.h"

// Micro-batches of every rank, so that none has more than `micro_batch_rows` rows.
int64_t bd_deal_micro_batches(int64_t batch_rows, int64_t micro_batch_rows, int32_t n_ranks);

// Rows of a part, at most.
int64_t bd_deal_most_rows(int64_t batch_rows, int32_t n_ranks, int64_t n_micro_batches);

// Deals the rows out to n_ranks x n_micro_batches parts. order [n_rows] becomes the rows part
// after part, in each in the order that they had; ends [n_ranks * n_micro_batches] where the
// parts end in it, part r * n_micro_batches + i being micro-batch i of rank r. Time grows with
// rows x parts, memory with their sum.
bd_status bd_deal_rows(const bd_boundaries *boundaries, int32_t n_ranks,
                       int64_t n_micro_batches, int64_t *order, int64_t *ends, bd_error *err);

#endif
