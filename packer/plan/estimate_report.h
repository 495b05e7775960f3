// estimate_report.h - estimates for people and for scripts.
#ifndef BINDERY_PACKER_PLAN_ESTIMATE_REPORT_H
#define BINDERY_PACKER_PLAN_ESTIMATE_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/json.h"
#include "packer/plan/estimate.h"

// The data that the estimates were made from.
typedef struct bd_forecast {
    const bd_estimates *estimates;  // borrowed
    bool is_dataset;
    bool is_exact;                   // every document was laid out, in its unit
    double factor;                   // all there is, in relation to what was laid out
    int64_t n_documents;             // that were laid out
    int64_t n_targets;               // of those, while whole; -1: all tokens are trained
    int64_t n_windows;               // of the sample
    double read_bytes, total_bytes;  // of the inputs
    int64_t read_time_ns;            // all threads together, and tokenising
    int64_t n_units;                 // that there will be
    int n_threads;
    int64_t n_left_out;   // documents that the dataset has dropped
    int64_t most_tokens;  // in a row that may be recommended; 0: nothing is recommended
} bd_forecast;

// Prints what was read, the table, and the recommendation or what is needed for one, within 80
// columns.
void bd_forecast_print(FILE *out, const bd_forecast *forecast, bool color);

// The same (schemas/estimate-v1.schema.json). Free with bd_json_free().
bd_json *bd_forecast_to_json(const bd_forecast *forecast);

#endif
