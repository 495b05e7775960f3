// training.h - a training run's state and one step of it.
#ifndef BINDERY_TRAINER_TRAINING_H
#define BINDERY_TRAINER_TRAINING_H

#include <stdint.h>

#include "common/error.h"
#include "kernels/backend.h"
#include "trainer/batch.h"
#include "trainer/history.h"
#include "trainer/loader.h"
#include "trainer/model.h"
#include "trainer/parameters.h"
#include "trainer/training_settings.h"

typedef struct bd_training {
    bd_training_settings settings;
    const bd_rows *rows;              // borrowed
    const bd_parameters *parameters;  // borrowed
    bd_backend *backend;              // borrowed
    bd_model model;                   // owned
    float *m, *v;                     // [n_total], the backend's memory, owned
    bd_adamw_part *parts;             // [parameters->n], likewise
    bd_loader *loader;                // owned
    const bd_batch *batch;            // of the last step, borrowed from the loader
    int64_t step;                     // done so far
    bd_history history;               // of these steps; set it after init to resume
} bd_training;

typedef struct bd_step_result {
    int64_t step;
    bd_step_outcome outcome;
    double loss;           // mean over the step's targets
    double gradient_norm;  // before clipping
    double learning_rate;
    int64_t n_targets, n_tokens;
    int64_t n_used, n_pairs;  // without padding; bd_count_work()
} bd_step_result;

// Checks that model and dataset fit together (vocabulary, longest segment against positions),
// then begins after `step` steps with the given weights and moments [n_total] in host memory
// (NULL: zero, to be filled before the first step). Everything borrowed must outlive the
// training. Release what comes out.
bd_status bd_training_init(bd_training *training, const bd_training_settings *settings,
                           const bd_rows *rows, const bd_parameters *parameters,
                           bd_backend *backend, int64_t step, const float *weights,
                           const float *m, const float *v, bd_error *err);

// One step: the next batch, its gradients, clipping, AdamW. A loss or a gradient that is not a
// finite number is BD_ERR_FORMAT and names the step and the rows; the weights are then those
// before the step. A step whose outcome is not BD_STEP_APPLIED changes neither weights nor
// moments.
bd_status bd_training_step(bd_training *training, bd_step_result *result, bd_error *err);

void bd_training_release(bd_training *training);  // safe on an empty struct and safe twice

// Whether a model can be trained or proved on datasets: the same vocabulary, and positions for
// the longest segment.
bd_status bd_check_fit(const bd_model_config *config, const bd_rows *rows, bd_error *err);

// Rows [first, first + n) of a batch, as the model takes them.
bd_model_batch bd_batch_part(const bd_batch *batch, int64_t first, int64_t n);

#endif
