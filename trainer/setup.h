// setup.h - everything that a training run works with: data, model, backend and its folder.
#ifndef BINDERY_TRAINER_SETUP_H
#define BINDERY_TRAINER_SETUP_H

#include <stdbool.h>

#include "common/base/error.h"
#include "trainer/data/batch.h"
#include "trainer/data/data_sources.h"
#include "trainer/eval_datasets.h"
#include "trainer/metrics/metrics.h"
#include "trainer/samples.h"
#include "trainer/step.h"
#include "trainer/train_options.h"
#include "trainer/weights/checkpoint_writer.h"
#include "trainer/weights/run.h"

typedef struct bd_setup {
    const bd_train_options *options;     // as they were given, borrowed
    bd_hyperparameters hyperparameters;  // complete, unlike those of the options
    const char *folder;                  // of the run, borrowed from the options
    int64_t n_kept;                      // checkpoints; 0: all
    bool quiet;
    bd_group *group;  // borrowed; its rank 0 prints, writes, evaluates and samples for all
    bd_data_sources sources;
    bd_rows rows;
    bd_eval_datasets eval_datasets;
    bd_run run;  // checkpoint and parameters; a new run has parameters alone
    bd_backend *backend;
    bd_collectives *collectives;  // of the group, for the backend's memory
    bd_trainer trainer;
    bd_json *training_json, *data_json;  // as checkpoints keep them
    char *tokenizer;                     // the text of the data's tokenizer.json, owned
    bd_samples samples;                  // empty if none are asked for
    bd_checkpoint_writer *writer;        // NULL except on rank 0, and so is metrics
    bd_metrics *metrics;
    bool continues;             // a run that has a checkpoint
    int64_t begin_step;         // its step; 0 for a new run
    int64_t n_steps_before;     // length of the run when that was saved; n_steps of a new run
    bd_error why_float;         // why --precision auto chose float; empty if it did not
    int64_t too_few_positions;  // that a new model would have had; 0 if they were enough
    int lock;                   // of the folder; -1 before
    int n_made;                 // folders to remove again if the run does not begin
} bd_setup;

// What one rank of a run takes, in bytes.
typedef struct bd_run_size {
    bd_training_size training;
    size_t scratch;  // of a device, while it computes, and for batches on their way to it
    size_t samples;  // at most, for --sample-every
    size_t copies;   // of checkpoints, in the host's memory
    size_t total;    // of the backend's memory, which on the CPU has the copies too
} bd_run_size;

static inline bool bd_setup_is_first(const bd_setup *setup)
{
    return setup->group->rank == 0;
}

// Opens everything, from the beginning of a run or from a checkpoint, and locks the run's
// folder. Nothing in the folder changes before all the rest has succeeded. `options` and the
// group must outlive the setup. Either all ranks of the group succeed, or all agree to fail.
// Close the setup also after a failure.
bd_status bd_setup_open(bd_setup *setup, const bd_train_options *options, bd_group *group,
                        bool quiet, bd_error *err);
// Opens data, backend and the description of the model alone, without locking or writing the run's
// folder, and without weights: for a dry run. Close the setup likewise.
bd_status bd_setup_describe(bd_setup *setup, const bd_train_options *options, bd_group *group,
                            bd_error *err);
// Counts what `rank` takes of memory with these hyperparameters, which may differ from the setup's.
// Rank 0 has samples and copies.
bd_status bd_setup_measure(const bd_setup *setup, const bd_hyperparameters *hyperparameters,
                           int32_t rank, bd_run_size *size, bd_error *err);
void bd_setup_close(bd_setup *setup);  // safe twice

#endif
