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
    bd_eval_value *values;  // [n], owned: of the last evaluation, each with its dataset's name
    char **names;           // [n], owned: last names of the folders; where two are the same or
                            // empty, the values have the folders as they were given instead
    size_t n;
} bd_eval_datasets;

// Opens the datasets in `folders`, whose texts are borrowed. They must have the tokenizer of
// `trained_on`, and rows that are not longer; the message names the folder. Close the datasets
// also after a failure.
bd_status bd_eval_datasets_open(bd_eval_datasets *datasets, const bd_texts *folders,
                                const bd_dataset_config *trained_on, bd_error *err);
// Safe on an empty struct and safe twice.
void bd_eval_datasets_close(bd_eval_datasets *datasets);

// 0 without a dataset.
int64_t bd_eval_datasets_longest_segment(const bd_eval_datasets *datasets);

// Whether a model of this shape can be evaluated on all of them; the message names the folder.
bd_status bd_eval_datasets_check_fit(const bd_eval_datasets *datasets,
                                     const bd_model_config *config, bd_error *err);

// Evaluates the model on at most max_rows rows (0: all) of each, into datasets->values.
bd_status bd_eval_datasets_evaluate(bd_eval_datasets *datasets, bd_model *model,
                                    int64_t max_rows, bd_error *err);

#endif
