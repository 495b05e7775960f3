// step_work.h - how much there is to compute in a step, counted from its boundaries; the share
// of a device's peak that a run uses (MFU) follows from it.
#ifndef BINDERY_TRAINER_DATA_STEP_WORK_H
#define BINDERY_TRAINER_DATA_STEP_WORK_H

#include <stdint.h>

#include "kernels/boundaries.h"

typedef struct bd_step_work {
    int64_t n_used;          // tokens that are not padding
    int64_t n_pairs;         // pairs of tokens of which one may see the other: the sum of
                             // L (L + 1) / 2 over the segments
    int64_t n_window_pairs;  // those that are still left in layers with a window
} bd_step_work;

// `window` is the number of keys that a query sees in layers with a window; 0: there is none.
bd_step_work bd_count_work(const bd_boundaries *boundaries, int64_t window);
int64_t bd_count_row_pairs(const bd_boundaries *boundaries, int64_t row);  // of one row

#endif
