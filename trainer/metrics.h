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

#endif
