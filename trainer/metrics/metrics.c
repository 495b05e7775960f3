#include "trainer/metrics/metrics.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/smoothed.h"

struct bd_metrics {
    FILE *lines;            // owned
    bd_event_file *events;  // owned
    bd_model_config config;
    double peak_flops;
    bd_smoothed loss;
    bd_metrics_damage damage;  // of the lines that were kept
};

// ---- Opening --------------------------------------------------------------------------------

// Reads the lines up to the first one of a later step; *kept becomes their size in bytes. A torn
// last line belongs to a step that is lost. Damaged lines before the end are kept: their
// steps are unknown.
static bd_status read_kept(bd_metrics *metrics, const char *path, int64_t step, int64_t *kept,
                           bd_error *err)
{
    bd_metrics_reader reader;
    BD_TRY(bd_metrics_reader_open(&reader, path, err));
    bd_metrics_line line;
    bool more;
    bd_status status;
    *kept = 0;
    while ((status = bd_metrics_reader_next(&reader, &line, &more, err)) == BD_OK && more &&
           line.step <= step) {
        if (line.kind == BD_METRICS_STEP && !isnan(line.figures.loss))
            bd_smoothed_add(&metrics->loss, line.figures.loss);
        *kept = reader.end;
        metrics->damage = reader.damage;
    }
    bd_metrics_reader_close(&reader);
    return status;
}

static bd_status open_lines(bd_metrics *metrics, const char *path, int64_t step, bd_error *err)
{
    int64_t kept = 0;
    int descriptor;
    int64_t size_bytes;
    if (step > 0 && access(path, F_OK) == 0)
        BD_TRY(read_kept(metrics, path, step, &kept, err));
    BD_TRY(bd_file_open_as(path, O_WRONLY | O_APPEND | O_CREAT, &descriptor, &size_bytes, err));
    if (!(metrics->lines = fdopen(descriptor, "a"))) {
        const bd_status status = bd_fail_errno(err, "cannot open '%s'", path);
        close(descriptor);
        return status;
    }
    if (size_bytes > kept && ftruncate(descriptor, kept) != 0)
        return bd_fail_errno(err, "cannot cut '%s' back to step %" PRId64, path, step);
    return BD_OK;
}

bd_status bd_metrics_open(bd_metrics **metrics, const char *folder, int64_t step,
                          const bd_model_config *config, double peak_flops, bd_error *err)
{
    char *path = bd_path_join(folder, BD_METRICS_NAME);
    *metrics = calloc(1, sizeof **metrics);
    bd_status status;
    if (!path || !*metrics) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for metrics");
    } else {
        (*metrics)->config = *config;
        (*metrics)->peak_flops = peak_flops;
        status = open_lines(*metrics, path, step, err);
    }
    if (status == BD_OK)
        status = bd_event_file_new(&(*metrics)->events, folder, step > 0 ? step + 1 : 0, err);
    if (status != BD_OK) {
        bd_metrics_close(*metrics);
        *metrics = NULL;
    }
    free(path);
    return status;
}

void bd_metrics_close(bd_metrics *metrics)
{
    if (!metrics)
        return;
    if (metrics->lines)
        fclose(metrics->lines);
    bd_event_file_free(metrics->events);
    free(metrics);
}

const bd_metrics_damage *bd_metrics_damaged(const bd_metrics *metrics)
{
    return &metrics->damage;
}

// ---- Writing --------------------------------------------------------------------------------

// Appends the line and frees it.
static bd_status put_line(bd_metrics *metrics, bd_json *json, bd_error *err)
{
    char *line = NULL;
    bd_status status = bd_json_print(json, BD_JSON_COMPACT, &line, err);
    if (status == BD_OK && strlen(line) > BD_METRICS_LINE_BYTES)
        status = bd_fail(err, BD_ERR_ARGUMENT,
                         "a line of '" BD_METRICS_NAME "' would be longer than %d bytes",
                         BD_METRICS_LINE_BYTES);
    if (status == BD_OK &&
        (fprintf(metrics->lines, "%s\n", line) < 0 || fflush(metrics->lines) != 0))
        status = bd_fail_errno(err, "cannot write '" BD_METRICS_NAME "'");
    free(line);
    bd_json_free(json);
    return status;
}

bd_status bd_metrics_write(bd_metrics *metrics, const bd_step_result *result,
                           int64_t elapsed_ns, bd_error *err)
{
    const double seconds = (double)elapsed_ns / 1e9;
    const double flop = bd_model_flop(&metrics->config, &result->work);
    const double flops = flop / seconds;
    const double mfu = metrics->peak_flops > 0 ? flops / metrics->peak_flops : NAN;
    if (result->n_targets > 0 && isfinite(result->loss))
        bd_smoothed_add(&metrics->loss, result->loss);

    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "step", result->step);
    bd_json_set_figure(json, "loss", result->loss);
    bd_json_set_figure(json, "gradient_norm", result->gradient_norm);
    bd_json_set_real(json, "learning_rate", result->learning_rate);
    bd_json_set_integer(json, "targets", result->n_targets);
    bd_json_set_integer(json, "tokens", result->n_tokens);
    bd_json_set_integer(json, "used", result->work.n_used);
    bd_json_set_integer(json, "pairs", result->work.n_pairs);
    bd_json_set_real(json, "flop", flop);
    if (result->outcome != BD_STEP_APPLIED)
        bd_json_set_string(json, "skipped", bd_step_outcome_names[result->outcome]);
    bd_json_set_real(json, "seconds", seconds);
    if (isfinite(mfu))
        bd_json_set_real(json, "mfu", mfu);
    BD_TRY(put_line(metrics, json, err));

    bd_event_file *events = metrics->events;
    if (result->n_targets > 0) {
        bd_event_file_add_scalar(events, "train/loss", result->loss);
        bd_event_file_add_scalar(events, "train/smoothed_loss",
                                 bd_smoothed_value(&metrics->loss));
    }
    bd_event_file_add_scalar(events, "train/learning_rate", result->learning_rate);
    bd_event_file_add_scalar(events, "train/gradient_norm", result->gradient_norm);
    bd_event_file_add_scalar(events, "speed/tokens_per_second",
                             (double)result->work.n_used / seconds);
    bd_event_file_add_scalar(events, "speed/gigaflops", flops / 1e9);
    if (!isnan(mfu))
        bd_event_file_add_scalar(events, "speed/mfu", mfu);
    return bd_event_file_write(events, result->step, err);
}

double bd_metrics_smoothed_loss(const bd_metrics *metrics)
{
    return bd_smoothed_value(&metrics->loss);
}

// Appends {"event": …, "step": …, "values": …} and frees `values`.
static bd_status put_values(bd_metrics *metrics, const char *event, int64_t step,
                            bd_json *values, bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "event", event);
    bd_json_set_integer(json, "step", step);
    bd_json_set(json, "values", values);
    return put_line(metrics, json, err);
}

bd_status bd_metrics_write_eval(bd_metrics *metrics, int64_t step, const bd_eval_value *values,
                                size_t n, bd_error *err)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < n; i++) {
        bd_json *value = bd_json_object();
        bd_json_set_string(value, "dataset", values[i].dataset);
        bd_json_set_figure(value, "loss", values[i].loss);
        bd_json_set_integer(value, "targets", values[i].n_targets);
        bd_json_append(array, value);
        char tag[256];
        snprintf(tag, sizeof tag, "eval/%s", values[i].dataset);
        bd_event_file_add_scalar(metrics->events, tag, values[i].loss);
    }
    BD_TRY(put_values(metrics, "eval", step, array, err));
    return bd_event_file_write(metrics->events, step, err);
}

bd_status bd_metrics_write_samples(bd_metrics *metrics, int64_t step,
                                   const bd_sample_value *values, size_t n, bd_error *err)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < n; i++) {
        bd_json *value = bd_json_object();
        bd_json_set_string(value, "prompt", values[i].prompt);
        bd_json_set_string(value, "text", values[i].text);
        bd_json_append(array, value);
        char tag[32];
        snprintf(tag, sizeof tag, "sample/%zu", i + 1);
        bd_event_file_add_text(metrics->events, tag, values[i].text);
    }
    BD_TRY(put_values(metrics, "sample", step, array, err));
    return bd_event_file_write(metrics->events, step, err);
}
