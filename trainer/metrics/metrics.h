// metrics.h - what a run tells of itself while it goes on: metrics.jsonl, one line of JSON for
// each step, evaluation and sample (schemas/metrics-v1.schema.json), and the same for
// TensorBoard (event_file.h).
//
// Every line is handed to the system when it is written: a killed run loses none. It is not
// synced: of a machine that stops, the last seconds may be lost, and the last line or record
// may be cut short, which readers pass over.
#ifndef BINDERY_TRAINER_METRICS_METRICS_H
#define BINDERY_TRAINER_METRICS_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "trainer/metrics/metrics_reader.h"
#include "trainer/metrics/step_result.h"
#include "trainer/model/model_config.h"

#define BD_METRICS_NAME "metrics.jsonl"

typedef struct bd_metrics bd_metrics;

// Opens <folder>/metrics.jsonl for appending after step `step`: lines of later steps, which a
// run that was stopped wrote after its last checkpoint, are removed first; with step 0 all are.
// Begins a new event file, at which TensorBoard forgets those steps likewise. `config` is
// borrowed for the call; `peak_flops` is what the device could do at best, FLOP/s, 0 if that is
// unknown: there is no MFU then. Close what comes out; it is NULL on failure.
bd_status bd_metrics_open(bd_metrics **metrics, const char *folder, int64_t step,
                          const bd_model_config *config, double peak_flops, bd_error *err);
void bd_metrics_close(bd_metrics *metrics);  // safe on NULL

// Damaged lines that were there before and are kept as they are. Borrowed.
const bd_metrics_damage *bd_metrics_damaged(const bd_metrics *metrics);

// Appends a step that took `elapsed_ns`.
bd_status bd_metrics_write(bd_metrics *metrics, const bd_step_result *result,
                           int64_t elapsed_ns, bd_error *err);

// The loss, smoothed (smoothed.h) over the steps so far that had targets, those before a resume
// included; not a number before the first.
double bd_metrics_smoothed_loss(const bd_metrics *metrics);

// Append an evaluation and samples after `step` steps. Whoever does both at a step that is
// saved calls these before saving: a run that is resumed from there does not repeat them.
bd_status bd_metrics_write_eval(bd_metrics *metrics, int64_t step, const bd_eval_value *values,
                                size_t n, bd_error *err);
bd_status bd_metrics_write_samples(bd_metrics *metrics, int64_t step,
                                   const bd_sample_value *values, size_t n, bd_error *err);

#endif
