#include "trainer/metrics.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/json.h"

enum { MAX_METRICS_BYTES = 1 << 30 };

static bool is_of_later_step(const char *line, size_t n, int64_t step)
{
    bd_json *json = NULL;
    int64_t of;
    const bool readable = bd_json_parse(line, n, &json, NULL) == BD_OK &&
                          bd_json_get_integer(json, "step", 1, INT64_MAX, &of, NULL) == BD_OK;
    bd_json_free(json);
    return !readable || of > step;  // a line that was cut short belongs to a step that is lost
}

// Keeps the lines up to the first of a later step.
static bd_status cut_back(const char *folder, const char *path, int64_t step, bd_error *err)
{
    char *text;
    size_t n, kept = 0;
    BD_TRY(bd_file_read(path, MAX_METRICS_BYTES, &text, &n, err));
    while (kept < n) {
        const char *newline = memchr(text + kept, '\n', n - kept);
        const size_t end = newline ? (size_t)(newline - text) + 1 : n;
        if (!newline || is_of_later_step(text + kept, end - kept, step))
            break;
        kept = end;
    }
    bd_status status = BD_OK;
    if (kept < n)
        status = bd_file_publish(folder, BD_METRICS_NAME, text, kept, err);
    free(text);
    return status;
}

bd_status bd_metrics_open(FILE **metrics, const char *folder, int64_t step, bd_error *err)
{
    *metrics = NULL;
    char *path = bd_path_join(folder, BD_METRICS_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = BD_OK;
    if (access(path, F_OK) == 0)
        status = cut_back(folder, path, step, err);
    if (status == BD_OK) {
        *metrics = fopen(path, "ae");
        if (!*metrics)
            status = bd_fail_errno(err, "cannot open '%s'", path);
    }
    free(path);
    return status;
}

// Appends the line and frees it.
static bd_status put_line(FILE *metrics, bd_json *json, bd_error *err)
{
    char *line = NULL;
    bd_status status = bd_json_print(json, BD_JSON_COMPACT, &line, err);
    if (status == BD_OK && (fprintf(metrics, "%s\n", line) < 0 || fflush(metrics) != 0))
        status = bd_fail_errno(err, "cannot write '" BD_METRICS_NAME "'");
    free(line);
    bd_json_free(json);
    return status;
}

bd_status bd_metrics_write(FILE *metrics, const bd_step_result *result, int64_t elapsed_ns,
                           bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "step", result->step);
    bd_json_set_real(json, "loss", result->loss);
    bd_json_set_real(json, "gradient_norm", result->gradient_norm);
    bd_json_set_real(json, "learning_rate", result->learning_rate);
    bd_json_set_integer(json, "targets", result->n_targets);
    bd_json_set_integer(json, "tokens", result->n_tokens);
    if (result->outcome != BD_STEP_APPLIED)
        bd_json_set_string(json, "skipped", bd_step_outcome_words[result->outcome]);
    bd_json_set_real(json, "seconds", (double)elapsed_ns / 1e9);
    return put_line(metrics, json, err);
}

// {"event": …, "step": …, "values": …}; takes over `values`.
static bd_status put_values(FILE *metrics, const char *event, int64_t step, bd_json *values,
                            bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "event", event);
    bd_json_set_integer(json, "step", step);
    bd_json_set(json, "values", values);
    return put_line(metrics, json, err);
}

bd_status bd_metrics_write_eval(FILE *metrics, int64_t step, const bd_eval_value *values,
                                size_t n, bd_error *err)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < n; i++) {
        bd_json *value = bd_json_object();
        bd_json_set_string(value, "dataset", values[i].dataset);
        bd_json_set_figure(value, "loss", values[i].loss);
        bd_json_set_integer(value, "targets", values[i].n_targets);
        bd_json_append(array, value);
    }
    return put_values(metrics, "eval", step, array, err);
}

bd_status bd_metrics_write_samples(FILE *metrics, int64_t step, const bd_sample_value *values,
                                   size_t n, bd_error *err)
{
    bd_json *array = bd_json_array();
    for (size_t i = 0; i < n; i++) {
        bd_json *value = bd_json_object();
        bd_json_set_string(value, "prompt", values[i].prompt);
        bd_json_set_string(value, "text", values[i].text);
        bd_json_append(array, value);
    }
    return put_values(metrics, "sample", step, array, err);
}
