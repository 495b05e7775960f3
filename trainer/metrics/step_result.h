// step_result.h - the result of one training step, for the metrics and for printing.
#ifndef BINDERY_TRAINER_METRICS_STEP_RESULT_H
#define BINDERY_TRAINER_METRICS_STEP_RESULT_H

#include <stdint.h>

#include "trainer/data/step_work.h"
#include "trainer/weights/spike_guard.h"

typedef struct bd_step_result {
    int64_t step;
    bd_step_outcome outcome;
    double loss;           // what the step minimised, see bd_loss_kind
    double gradient_norm;  // before clipping
    double learning_rate;
    int64_t n_targets, n_tokens;
    bd_step_work work;
} bd_step_result;

#endif
