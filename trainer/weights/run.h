// run.h - a training run on disk, opened to continue or to use its model.
#ifndef BINDERY_TRAINER_WEIGHTS_RUN_H
#define BINDERY_TRAINER_WEIGHTS_RUN_H

#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/dataset/manifest.h"
#include "common/tokenizer/tokenizer.h"
#include "trainer/data/rows.h"
#include "trainer/model/backend_choice.h"
#include "trainer/model/parameters.h"
#include "trainer/weights/checkpoint.h"

#define BD_WEIGHTS_CHOICES(X)                                                               \
    X(BD_WEIGHTS_AUTO, "auto")       /* the average if the run has one, else the trained */ \
    X(BD_WEIGHTS_AVERAGE, "average") /* of train --average */                               \
    X(BD_WEIGHTS_TRAINED, "trained")
BD_ENUM(bd_weights_choice, BD_WEIGHTS_CHOICES);

#define BD_WEIGHTS_HELP                                                                    \
    "Which weights of the run: as they were trained, or their average (train --average); " \
    "auto takes the average if there is one"

typedef struct bd_run {
    bd_checkpoint checkpoint;  // owned
    bd_parameters parameters;  // owned
    float *weights;            // [n_total], owned; NULL after bd_run_forget_weights()
    bool averaged;             // the weights are the average
} bd_run;

// Opens the latest checkpoint of the run in `folder`. BD_ERR_ARGUMENT if it does not have the
// weights that are asked for. Release what comes out.
bd_status bd_run_open(bd_run *run, const char *folder, bd_weights_choice choice, bd_error *err);
// The same for the checkpoint of `step`.
bd_status bd_run_open_step(bd_run *run, const char *folder, int64_t step,
                           bd_weights_choice choice, bd_error *err);
// Frees the weights, 4 bytes per parameter, once they are on the backend.
void bd_run_forget_weights(bd_run *run);
void bd_run_release(bd_run *run);  // safe on an empty struct and safe twice

// The type that the run's model was trained in.
bd_status bd_run_type(const bd_run *run, bd_type *type, bd_error *err);

// The type in which a command that uses the run computes. BD_PRECISION_AUTO becomes the type
// that it was trained in if the backend can compute such a model in it, and float otherwise,
// with the reason in `why`.
bd_status bd_run_settle_type(const bd_run *run, bd_precision_choice choice,
                             const bd_backend *backend, bd_type *type, bd_error *why,
                             bd_error *err);

// The tokenizer of a run's model, with its special ids.
typedef struct bd_run_tokenizer {
    const bd_tokenizer *tokenizer;  // owned
    int64_t separator, bos;         // bos may be BD_NO_BOS
} bd_run_tokenizer;

// Opens the tokenizer of the run in `folder`; BD_ERR_ARGUMENT if it is not the one of training.
// Close the result. On failure *opened is empty.
bd_status bd_run_open_tokenizer(const bd_run *run, const char *folder, bd_run_tokenizer *opened,
                                bd_error *err);
void bd_run_tokenizer_close(bd_run_tokenizer *opened);  // safe if empty, safe twice

// Makes the description of the datasets that a checkpoint holds: their tokenizer and row
// length, the checksum of each manifest and, if there are several, the share of each. `folders`
// are those of `rows`.
bd_status bd_run_describe_data(const char *const *folders, const bd_rows *rows, bd_json **json,
                               bd_error *err);

#define BD_RUN_SETTINGS_NAME "settings.yaml"  // what --settings takes

// The path of the run's settings, malloc'd; NULL if it has none (older versions wrote none).
bd_status bd_run_find_settings(const char *folder, char **path, bd_error *err);

#endif
