// step_line.h - the line that tells how a run goes:
//
//   step 400/800  loss 2.5560 (2.531)  21.2 k tok/s  MFU 34%  1 min 17 s left
//
// In parentheses the smoothed loss (smoothed.h). Tokens are those that are not padding. Speed
// is that of all the time since this run, or its resumption, began, whatever it did. MFU is the
// share of the device's peak that the mathematics of the model asks for (step_work.h); where
// the peak is unknown, what was achieved stands there instead, as GFLOP/s.
#ifndef BINDERY_TRAINER_METRICS_STEP_LINE_H
#define BINDERY_TRAINER_METRICS_STEP_LINE_H

#include <stdint.h>

#include "trainer/metrics/step_result.h"
#include "trainer/model/model_config.h"

// What was done since the run began or was resumed.
typedef struct bd_pace {
    int64_t n_steps, n_used;
    double flop;
} bd_pace;

void bd_pace_add(bd_pace *pace, const bd_step_result *result, const bd_model_config *config);

typedef struct bd_step_line {
    const bd_step_result *result;
    double smoothed_loss;  // not a number: left out
    int64_t n_steps;       // of the whole run
    bd_pace pace;
    int64_t elapsed_ns;
    double peak_flops;  // 0: unknown
} bd_step_line;

enum { BD_STEP_LINE_COLUMNS = 80 };

// At most BD_STEP_LINE_COLUMNS columns: of a line that is too long the speed in FLOP goes
// first, then the smoothed loss, then what is at its end.
void bd_step_line_print(const bd_step_line *line, char text[BD_STEP_LINE_COLUMNS + 1]);

#endif
