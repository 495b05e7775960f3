// step.h - the trainer: model, optimizer and loader of a run, and one training step.
#ifndef BINDERY_TRAINER_STEP_H
#define BINDERY_TRAINER_STEP_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/data/batch.h"
#include "trainer/data/loader.h"
#include "trainer/group.h"
#include "trainer/hyperparameters.h"
#include "trainer/metrics/step_result.h"
#include "trainer/model/model.h"
#include "trainer/model/parameters.h"
#include "trainer/optimizer.h"
#include "trainer/weights/checkpoint.h"
#include "trainer/weights/spike_guard.h"

// Everything that a trainer borrows; it must outlive the trainer.
typedef struct bd_trainer_needs {
    const bd_rows *rows;
    const bd_parameters *parameters;
    bd_backend *backend;
    bd_group *group;              // who trains together
    bd_collectives *collectives;  // theirs, of the backend's memory
} bd_trainer_needs;

// What a rank's part of a training takes of its backend's memory.
typedef struct bd_training_size {
    bd_model_options model;  // what the model's buffers are made for
    bd_model_memory memory;
    size_t optimizer_bytes;
    size_t total_bytes;  // of model and optimizer
} bd_training_size;

// BD_ERR_ARGUMENT if there is not a row for every rank.
bd_status bd_training_measure(bd_training_size *size, const bd_hyperparameters *hyperparameters,
                              const bd_parameters *parameters, int64_t seq_len,
                              const bd_group *group, bd_error *err);

typedef struct bd_trainer {
    bd_hyperparameters hyperparameters;
    bd_trainer_needs needs;
    int64_t *bounds;          // [n_ranks + 1], owned: the slices of the ranks' optimizers
    int64_t *v_bounds;        // likewise: those of their second moments
    int64_t n_micro_batches;  // of this rank in a step, those without a row included
    bd_model model;           // owned
    void *trained_weights;    // of the model, borrowed: see bd_trainer_show_average()
    bd_optimizer optimizer;   // owned
    bd_loader *loader;        // owned
    const bd_balanced_batch *balanced;  // of the last step, borrowed from the loader
    bd_sent_batch sent;          // the micro-batch that comes next, if it was sent already
    int64_t step;                // done so far
    bd_spike_guard spike_guard;  // of these steps; set it after init to resume
} bd_trainer;

// Checks that model and dataset fit together (vocabulary, longest segment against positions),
// that there is a row for every rank, and that the backend has enough memory. (Ranks that share
// a machine do not count each other's.) `step` steps are done so far. Weights and moments are
// zero, to be filled before the first step. On failure the trainer is empty; else release it.
bd_status bd_trainer_init(bd_trainer *trainer, const bd_hyperparameters *hyperparameters,
                          const bd_trainer_needs *needs, int64_t step, bd_error *err);

// Makes one step, all ranks together: the next batch, its gradients, clipping, the update. A
// loss or a gradient that is not finite is BD_ERR_FORMAT; the message names the step and the
// rows, and the weights stay as they were. A step whose outcome is not BD_STEP_APPLIED changes
// neither weights nor moments.
bd_status bd_trainer_step(bd_trainer *trainer, bd_step_result *result, bd_error *err);

// The batch of the last step; rows [*first, *first + *n) of it are this rank's first micro-batch.
const bd_batch *bd_trainer_first_rows(const bd_trainer *trainer, int64_t *first, int64_t *n);

// Lets the model compute with the average of the weights, if there is one, until
// bd_trainer_show_trained(). In between no step must be made. Every rank must call both.
bd_status bd_trainer_show_average(bd_trainer *trainer, bd_error *err);
void bd_trainer_show_trained(bd_trainer *trainer);

// Assembles weights, moments and average (see bd_state_array) for a checkpoint in arrays of
// rank 0's host memory; the other ranks pass NULLs, and so do all for an average that there is
// not. Every rank must call it.
bd_status bd_trainer_assemble(const bd_trainer *trainer, float *const arrays[BD_STATE_ARRAYS],
                              bd_error *err);

void bd_trainer_release(bd_trainer *trainer);  // safe on an empty struct and safe twice

#endif
