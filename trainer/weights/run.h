// run.h - what a training run left behind, opened to go on or to be used.
#ifndef BINDERY_TRAINER_WEIGHTS_RUN_H
#define BINDERY_TRAINER_WEIGHTS_RUN_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/dataset/manifest.h"
#include "common/tokenizer/tokenizer.h"
#include "trainer/data/rows.h"
#include "trainer/model/backend_choice.h"
#include "trainer/model/parameters.h"
#include "trainer/weights/checkpoint.h"

typedef struct bd_run {
    bd_checkpoint checkpoint;  // owned
    bd_parameters parameters;  // owned
    float *weights;            // [n_total], owned; NULL once they were forgotten
} bd_run;

// Opens the latest checkpoint of the run in `folder`. Release what comes out.
bd_status bd_run_open(bd_run *run, const char *folder, bd_error *err);
// The same for the checkpoint of `step`.
bd_status bd_run_open_step(bd_run *run, const char *folder, int64_t step, bd_error *err);
// Frees the weights, which are on the backend by now: 4 bytes per parameter.
void bd_run_forget_weights(bd_run *run);
void bd_run_release(bd_run *run);  // safe on an empty struct and safe twice

// What the run's model was trained in.
bd_status bd_run_type(const bd_run *run, bd_type *type, bd_error *err);

// What a command that uses the run computes in: BD_PRECISION_AUTO is what it was trained in if
// the backend computes such a model in that, and else float, with the reason in `why`.
bd_status bd_run_settle_type(const bd_run *run, bd_precision_choice choice,
                             const bd_backend *backend, bd_type *type, bd_error *why,
                             bd_error *err);

// What the ids of a run's model mean.
typedef struct bd_run_tokenizer {
    const bd_tokenizer *tokenizer;  // owned
    int64_t separator, bos;         // bos may be BD_NO_BOS
} bd_run_tokenizer;

// Opens the tokenizer of the run in `folder`, which must give the ids the meaning that they had
// in training (BD_ERR_ARGUMENT if not). Close what comes out. On failure *opened is empty.
bd_status bd_run_open_tokenizer(const bd_run *run, const char *folder, bd_run_tokenizer *opened,
                                bd_error *err);
void bd_run_tokenizer_close(bd_run_tokenizer *opened);  // safe if empty, safe twice

// What a checkpoint says of the datasets in `folders`, which are those of `rows`: their
// tokenizer and their rows' length, the checksum of each manifest and, of several, the share.
bd_status bd_run_describe_data(const char *const *folders, const bd_rows *rows, bd_json **json,
                               bd_error *err);

#define BD_RUN_SETTINGS_NAME "settings.yaml"  // what --settings takes

// The path of the run's settings, malloc'd; NULL if it has none, as those of older versions.
bd_status bd_run_find_settings(const char *folder, char **path, bd_error *err);

#endif
