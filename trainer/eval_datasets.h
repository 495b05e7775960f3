// eval_datasets.h - the datasets on which a run is evaluated now and then.
#ifndef BINDERY_TRAINER_EVAL_DATASETS_H
#define BINDERY_TRAINER_EVAL_DATASETS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/cli/options.h"
#include "trainer/data/batch.h"
#include "trainer/metrics/metrics.h"
#include "trainer/model/model.h"

typedef struct bd_eval_datasets {
    bd_rows *rows;          // [n], owned
    bd_eval_value *values;  // [n], owned: of the last evaluation, each with its name
    char **names;           // [n], owned: the folders' own, or as given where two are the same
    size_t n;
} bd_eval_datasets;

// Opens the datasets in `folders`, whose texts are borrowed. They must be of the tokenizer of
// `trained_on`, in rows that are not longer; the message names the folder. Close what comes
// out, also after a failure.
bd_status bd_eval_datasets_open(bd_eval_datasets *datasets, const bd_texts *folders,
                                const bd_packing *trained_on, bd_error *err);
void bd_eval_datasets_close(
    bd_eval_datasets *datasets);  // safe on an empty struct and safe twice

int64_t
bd_eval_datasets_longest_segment(const bd_eval_datasets *datasets);  // 0 without a dataset

// Whether a model of this shape can be evaluated on all of them; the message names the folder.
bd_status bd_eval_datasets_check_fit(const bd_eval_datasets *datasets,
                                     const bd_model_config *config, bd_error *err);

// Evaluates the model on each, on at most max_rows rows (0: all), into datasets->values.
bd_status bd_eval_datasets_evaluate(bd_eval_datasets *datasets, bd_model *model,
                                    int64_t max_rows, bd_error *err);

#endif
