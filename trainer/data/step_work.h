// step_work.h - how much there is to compute in a step, counted from its boundaries; the share
// of a device's peak that a run uses (MFU) follows from it.
#ifndef BINDERY_TRAINER_DATA_STEP_WORK_H
#define BINDERY_TRAINER_DATA_STEP_WORK_H

#include <stdint.h>

#include "kernels/boundaries.h"

// *n_used: tokens that are not padding. *n_pairs: pairs of tokens that may see each other, the
// sum of L (L + 1) / 2 over the segments.
void bd_count_work(const bd_boundaries *boundaries, int64_t *n_used, int64_t *n_pairs);
int64_t bd_count_row_pairs(const bd_boundaries *boundaries, int64_t row);  // of one row

#endif
