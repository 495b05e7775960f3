// setup.h - what a training run works with: data, model, backend and its folder.
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

// What a run needs, from opening the data to its end.
typedef struct bd_setup {
    const bd_train_options *options;  // `settled`, below
    bd_train_options settled;         // as given, and n_steps worked out
    bool is_length_given;             // somebody said how many steps, epochs or tokens
    bool quiet;
    bd_group *group;  // borrowed; what is said, written and looked at is for its rank 0
    bd_data_sources sources;
    bd_rows rows;
    bd_run run;  // checkpoint and parameters; of a new run the parameters alone
    bd_backend *backend;
    bd_collectives *collectives;  // of the group, of the backend's memory
    bd_trainer trainer;
    bd_json *training_json, *data_json;
    char *tokenizer;  // the text of the data's tokenizer.json, owned
    bd_eval_datasets eval_datasets;
    bd_samples samples;            // empty if none are asked for
    bd_checkpoint_writer *writer;  // NULL but for rank 0, and so is metrics
    bd_metrics *metrics;
    bool continues;             // from a checkpoint,
    int64_t begin_step;         // of this step,
    int64_t n_steps_before;     // when the run was to have so many; n_steps of a new run
    bd_error why_float;         // what --precision auto could not do; empty if nothing
    int64_t too_few_positions;  // that a new model would have had; 0 if they were enough
    int lock;                   // of the folder; -1 before
    int n_made;                 // folders that are taken back if the run does not begin
} bd_setup;

// Whether this is the rank that speaks, writes and looks.
static inline bool bd_setup_is_first(const bd_setup *setup)
{
    return setup->group->rank == 0;
}

// Opens it all, from the beginning of a run or from a checkpoint, and locks the run's folder,
// in which nothing is changed before all else is known to be well. What `options` points to is
// borrowed, as is the group, all of which begins or agrees to fail. End it also after a
// failure.
bd_status bd_setup_open(bd_setup *setup, const bd_train_options *options, bd_group *group,
                        bool quiet, bd_error *err);
void bd_setup_close(bd_setup *setup);  // safe twice

#endif
