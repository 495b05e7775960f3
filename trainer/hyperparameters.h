// hyperparameters.h - the numbers that decide how a model is trained, and the learning rates and
// numbers of steps that follow from them.
#ifndef BINDERY_TRAINER_HYPERPARAMETERS_H
#define BINDERY_TRAINER_HYPERPARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "kernels/type.h"
#include "trainer/data/batch.h"
#include "trainer/data/rows.h"
#include "trainer/weights/kept_state.h"

// The learning rate after the warm-up.
typedef enum bd_learning_rate_schedule {
    BD_SCHEDULE_COSINE,    // half a cosine down to the minimum
    BD_SCHEDULE_LINEAR,    // a straight line down to the minimum
    BD_SCHEDULE_CONSTANT,  // stays at the peak
    BD_SCHEDULE_WSD,       // stays at the peak, then falls linearly over the last decay_steps
} bd_learning_rate_schedule;

extern const char *const bd_learning_rate_schedules[];  // their names, ended by NULL

// Everything that decides a bit of the result, except for model, data and program.
typedef struct bd_hyperparameters {
    int64_t n_steps;
    int64_t batch_rows;        // rows of one step
    int64_t micro_batch_rows;  // of them, the most that are computed at a time
    bd_learning_rate_schedule schedule;
    int64_t warm_up_steps, decay_steps;
    double learning_rate, min_learning_rate;
    double rate_factors[BD_PARAMETER_KINDS];  // of the learning rate, by bd_parameter_kind
    bd_optimizer_kind optimizer;
    double momentum;  // of Muon
    double beta1, beta2, epsilon, weight_decay;
    double average;      // decay of the running average of the weights; 0: there is none
    bd_loss_kind loss;   // what is minimised
    double z_loss;       // see kernels/cross_entropy.h
    double clip_norm;    // 0: no clipping
    double skip_spikes;  // see bd_spike_guard_add(); 0: none
    int64_t seed;        // of the order of rows and of the initial weights
    bd_type type;        // what the model computes in
    bool recomputes;     // see model.h; decides no bit, so checkpoints do not keep it
} bd_hyperparameters;

bd_json *bd_hyperparameters_to_json(const bd_hyperparameters *hyperparameters);

// Rises linearly from 0 over the warm-up, then follows the schedule to the minimum at the last
// step. A warm-up that is longer than the run rises to the end. step = 1, 2, …
double bd_learning_rate(const bd_hyperparameters *hyperparameters, int64_t step);

// How far the running average of the weights moves towards those of a step: 1 - average, but
// more in the first steps, so that the initial weights are soon forgotten.
double bd_average_rate(const bd_hyperparameters *hyperparameters, int64_t step);

// How long a run is: at most one of these is given, the others are BD_NOT_GIVEN.
typedef struct bd_run_length {
    int64_t n_steps;
    double n_epochs;   // passes over the datasets' rows, to the nearest row
    int64_t n_tokens;  // padding included
} bd_run_length;

static inline bool bd_run_length_is_given(const bd_run_length *length)
{
    return length->n_steps > 0 || length->n_epochs > 0 || length->n_tokens > 0;
}

// The fewest steps that reach the length, at least 1; 300 if none is given. BD_ERR_ARGUMENT if
// more than one is given, or if the result is more than 2^40.
bd_status bd_count_steps(int64_t *n_steps, const bd_run_length *length, int64_t batch_rows,
                         const bd_rows *rows, bd_error *err);

// `decay` is a share of n_steps if it is below 1, else a number of steps; BD_ERR_ARGUMENT if it is
// neither.
bd_status bd_count_decay_steps(int64_t *decay_steps, double decay, int64_t n_steps,
                               bd_error *err);

#endif
