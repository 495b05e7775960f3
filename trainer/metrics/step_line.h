// step_line.h - the line that shows the progress of a run:
//
//   step 400/800  loss 2.5560 (2.531)  21.2 k tok/s  MFU 34%  1 min 17 s left
//
// The smoothed loss (smoothed.h) is in parentheses. Padding does not count as tokens. Speeds are
// means over the whole time since the run began or was resumed, evaluations included. MFU is the
// share of the device's peak that the mathematics of the model needs (step_work.h); if the peak is
// unknown, the line has the achieved FLOP/s instead.
#ifndef BINDERY_TRAINER_METRICS_STEP_LINE_H
#define BINDERY_TRAINER_METRICS_STEP_LINE_H

#include <stdint.h>

#include "trainer/metrics/step_result.h"
#include "trainer/model/model_config.h"

// The work since the run began or was resumed.
typedef struct bd_pace {
    int64_t n_steps, n_used;
    double flop;
} bd_pace;

void bd_pace_add(bd_pace *pace, const bd_step_result *result, const bd_model_config *config);

typedef struct bd_step_line {
    const bd_step_result *result;
    double smoothed_loss;  // left out if it is NAN
    int64_t n_steps;       // of the whole run
    bd_pace pace;
    int64_t elapsed_ns;
    double peak_flops;  // 0: unknown
} bd_step_line;

enum { BD_STEP_LINE_COLUMNS = 80 };

// Prints at most BD_STEP_LINE_COLUMNS columns. A line that is too long loses MFU or FLOP/s, then
// the smoothed loss, then its end.
void bd_step_line_print(const bd_step_line *line, char text[BD_STEP_LINE_COLUMNS + 1]);

#endif
