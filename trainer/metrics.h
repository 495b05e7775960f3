// metrics.h - metrics.jsonl: one line of JSON for each step (schemas/metrics-v1.schema.json).
#ifndef BINDERY_TRAINER_METRICS_H
#define BINDERY_TRAINER_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "common/error.h"
#include "trainer/training.h"

#define BD_METRICS_NAME "metrics.jsonl"

// Opens <folder>/metrics.jsonl for appending after step `step`: lines of later steps, which a
// run that was stopped wrote after its last checkpoint, are removed first. Close with fclose().
bd_status bd_metrics_open(FILE **metrics, const char *folder, int64_t step, bd_error *err);

// Appends a step's line and hands it to the system.
bd_status bd_metrics_write(FILE *metrics, const bd_step_result *result, int64_t elapsed_ns,
                           bd_error *err);

// The mean loss over the targets of a dataset.
typedef struct bd_eval_value {
    const char *dataset;  // borrowed
    double loss;          // not a number without targets
    int64_t n_targets;
} bd_eval_value;

// What the model wrote after `prompt`.
typedef struct bd_sample_value {
    const char *prompt, *text;  // borrowed
} bd_sample_value;

// Append an evaluation and samples after `step` steps. Whoever does both at a step that is
// saved calls these before saving: a run that is resumed from there does not repeat them.
bd_status bd_metrics_write_eval(FILE *metrics, int64_t step, const bd_eval_value *values,
                                size_t n, bd_error *err);
bd_status bd_metrics_write_samples(FILE *metrics, int64_t step, const bd_sample_value *values,
                                   size_t n, bd_error *err);

#endif
