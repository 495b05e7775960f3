// run_summary.h - the log of a run from its first step, in bounded memory: half a megabyte, however
// long the log is.
#ifndef BINDERY_TRAINER_METRICS_RUN_SUMMARY_H
#define BINDERY_TRAINER_METRICS_RUN_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "trainer/metrics/curve.h"
#include "trainer/metrics/metrics_reader.h"

enum {
    BD_RUN_DATASETS = 8,           // evaluated datasets that are kept: the first
    BD_RUN_SAMPLES = 12,           // samples that are kept: the latest
    BD_RUN_TEXT_BYTES = 1500,      // that are kept of a sample, and of its prompt
    BD_RUN_NAME_BYTES = 100,       // that are kept of a dataset's name
    BD_RUN_SETTINGS_BYTES = 20000  // longer settings, as JSON, are left out
};

typedef struct bd_run_eval {
    char dataset[BD_RUN_NAME_BYTES + 1];
    bd_curve loss;
} bd_run_eval;

typedef struct bd_run_sample {
    int64_t step;
    char prompt[BD_RUN_TEXT_BYTES + 1], text[BD_RUN_TEXT_BYTES + 1];
    bool cut;  // the prompt or the text was longer
} bd_run_sample;

typedef struct bd_run_summary {
    const char *folder;  // borrowed
    int64_t n_steps;     // in the log
    int64_t last_step;
    double tokens, seconds;                // of them all; tokens without padding
    double last_loss, last_smoothed_loss;  // NAN without such a step
    bd_curve loss, smoothed_loss, learning_rate, gradient_norm;
    bd_curve tokens_per_second, flops, mfu;
    bd_run_eval evals[BD_RUN_DATASETS];
    size_t n_evals;
    bool more_evals;                        // there were more than are kept
    bd_run_sample samples[BD_RUN_SAMPLES];  // sample i is at i % BD_RUN_SAMPLES
    int64_t n_samples;                      // in the log
    bd_metrics_damage damage;               // lines of metrics.jsonl that were left out
    int64_t checkpoint_step;                // of the latest; -1 if there is none
    bd_json *settings;  // owned: its model, training and data; NULL if none, or too long
} bd_run_summary;

// Reads <folder>/metrics.jsonl and the .json of the latest checkpoint, if there is one. The run
// may still be training. `folder` is borrowed. Free the summary; it is NULL on failure.
bd_status bd_run_summary_new(bd_run_summary **summary, const char *folder, bd_error *err);
void bd_run_summary_free(bd_run_summary *summary);  // safe on NULL

#endif
