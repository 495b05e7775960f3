// metrics.h - the log of a run: metrics.jsonl with one line of JSON for each step, evaluation and
// sample (schemas/metrics-v1.schema.json), and the same for TensorBoard (event_file.h).
//
// Every line is flushed when it is written, so that a killed run loses none. There is no fsync():
// if the machine stops, the last seconds may be lost, and the last line or record may be torn.
// Readers ignore it then.
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

// Opens <folder>/metrics.jsonl for appending after step `step`. Lines of later steps, which a
// stopped run wrote after its last checkpoint, are removed first; with step 0 all lines are. Also
// begins a new event file, which makes TensorBoard forget those steps. `config` is borrowed for
// the call. `peak_flops` is the device's peak in FLOP/s; if it is unknown, 0, there is no MFU.
// Close the metrics; they are NULL on failure.
bd_status bd_metrics_open(bd_metrics **metrics, const char *folder, int64_t step,
                          const bd_model_config *config, double peak_flops, bd_error *err);
void bd_metrics_close(bd_metrics *metrics);  // safe on NULL

// Damaged lines that the file had and keeps. Borrowed.
const bd_metrics_damage *bd_metrics_damaged(const bd_metrics *metrics);

// Appends a step that took `elapsed_ns`.
bd_status bd_metrics_write(bd_metrics *metrics, const bd_step_result *result,
                           int64_t elapsed_ns, bd_error *err);

// The loss, smoothed (smoothed.h) over the steps so far that had targets, those before a resume
// included; NAN before the first.
double bd_metrics_smoothed_loss(const bd_metrics *metrics);

// Append an evaluation and samples after `step` steps. Call these before the step is saved: a run
// that is resumed from there does not evaluate it again.
bd_status bd_metrics_write_eval(bd_metrics *metrics, int64_t step, const bd_eval_value *values,
                                size_t n, bd_error *err);
bd_status bd_metrics_write_samples(bd_metrics *metrics, int64_t step,
                                   const bd_sample_value *values, size_t n, bd_error *err);

#endif
