#include "trainer/metrics/step_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/cli/human.h"

void bd_pace_add(bd_pace *pace, const bd_step_result *result, const bd_model_config *config)
{
    pace->n_steps++;
    pace->n_used += result->work.n_used;
    pace->flop += bd_model_flop(config, &result->work);
}

// A rate as a count; 0 if it is too large for one, as after no time at all.
static bd_formatted format_rate(double rate)
{
    return bd_format_count(rate < 1e18 ? (uint64_t)rate : 0);
}

static void print_speed(const bd_step_line *line, double seconds, char *text, size_t size)
{
    const double flops = line->pace.flop / seconds;
    const double percent = 100 * flops / line->peak_flops;
    if (line->peak_flops > 0)
        snprintf(text, size, "  MFU %.*f%%", percent < 10 ? 1 : 0, percent);
    else
        snprintf(text, size, "  %sFLOP/s", format_rate(flops).text);
}

static int print_parts(const bd_step_line *line, const char *smoothed, const char *speed,
                       char *text, size_t size)
{
    const double seconds = (double)line->elapsed_ns / 1e9;
    const double left_ns = (double)(line->n_steps - line->result->step) *
                           ((double)line->elapsed_ns / (double)line->pace.n_steps);
    return snprintf(text, size,
                    "step %" PRId64 "/%" PRId64 "  loss %.4f%s  %s tok/s%s  %s left",
                    line->result->step, line->n_steps, line->result->loss, smoothed,
                    format_rate((double)line->pace.n_used / seconds).text, speed,
                    bd_format_duration((int64_t)fmin(left_ns, 9e18)).text);
}

void bd_step_line_print(const bd_step_line *line, char text[BD_STEP_LINE_COLUMNS + 1])
{
    const size_t size = BD_STEP_LINE_COLUMNS + 1;
    char smoothed[32] = "", speed[48];
    if (!isnan(line->smoothed_loss))
        snprintf(smoothed, sizeof smoothed, " (%.3f)", line->smoothed_loss);
    print_speed(line, (double)line->elapsed_ns / 1e9, speed, sizeof speed);
    if (print_parts(line, smoothed, speed, text, size) <= BD_STEP_LINE_COLUMNS)
        return;
    if (print_parts(line, smoothed, "", text, size) <= BD_STEP_LINE_COLUMNS)
        return;
    print_parts(line, "", "", text, size);
}
