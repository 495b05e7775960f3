#include "trainer/metrics/metrics_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"
#include "common/base/memory.h"

// Larger figures are refused, so that sums of them stay finite, and so are larger steps, so that a
// double can hold them.
static const double MOST = 1e100;
static const int64_t LAST_STEP = (INT64_C(1) << 53) - 1;

bd_status bd_metrics_reader_open(bd_metrics_reader *reader, const char *path, bd_error *err)
{
    int descriptor;
    int64_t size_bytes;
    *reader = (bd_metrics_reader){.path = path};
    BD_TRY(bd_file_open(path, &descriptor, &size_bytes, err));
    if ((reader->file = fdopen(descriptor, "r")))
        return BD_OK;
    const bd_status status = bd_fail_errno(err, "cannot open '%s'", path);
    close(descriptor);
    return status;
}

void bd_metrics_reader_close(bd_metrics_reader *reader)
{
    if (reader->file)
        fclose(reader->file);
    free(reader->text);
    bd_json_free(reader->json);
    *reader = (bd_metrics_reader){0};
}

static bd_status fail_in_line(const bd_metrics_reader *reader, bd_status status, bd_error *err)
{
    return bd_error_prefix(err, status, "'%s', line %" PRId64, reader->path, reader->number);
}

// ---- Lines ----------------------------------------------------------------------------------

// Reads up to a newline. *n is the number of bytes before it, of which at most
// BD_METRICS_LINE_BYTES are stored. *more is false if the file ends before a newline.
static bd_status read_text(bd_metrics_reader *reader, int64_t *n, bool *more, bd_error *err)
{
    int c;
    *n = 0;
    while ((c = getc_unlocked(reader->file)) != EOF && c != '\n') {
        const size_t at = (size_t)(*n)++;
        if (at >= BD_METRICS_LINE_BYTES)
            continue;
        if (at == reader->capacity)
            BD_TRY(bd_array_reserve((void **)&reader->text, &reader->capacity, at + 1, 1, err));
        reader->text[at] = (char)c;
    }
    if (ferror(reader->file)) {
        const bd_status status = bd_fail_errno(err, "cannot read it");
        return fail_in_line(reader, status, err);
    }
    *more = c == '\n';
    return BD_OK;
}

static bd_status parse_text(bd_metrics_reader *reader, int64_t n, bd_error *err)
{
    bd_json_free(reader->json);
    reader->json = NULL;
    bd_error why;
    if (n > BD_METRICS_LINE_BYTES)
        return bd_fail(err, BD_ERR_FORMAT, "it is longer than %d bytes", BD_METRICS_LINE_BYTES);
    if (bd_json_parse(n > 0 ? reader->text : "", (size_t)n, &reader->json, &why) == BD_OK)
        return BD_OK;
    const char *column = strstr(why.message, "column");  // the parser's line is always 1
    return bd_fail(err, BD_ERR_FORMAT, "not valid JSON: %s", column ? column : why.message);
}

// A number that may be null or absent.
static bd_status get_figure(const bd_json *json, const char *key, double min, double *value,
                            bd_error *err)
{
    *value = NAN;
    return bd_json_is_null(json, key) ? BD_OK
                                      : bd_json_get_real(json, key, min, MOST, value, err);
}

static bd_status read_step(const bd_json *json, bd_metrics_step *step, bd_error *err)
{
    int64_t n_targets, n_tokens;
    BD_TRY(get_figure(json, "loss", -MOST, &step->loss, err));
    BD_TRY(get_figure(json, "gradient_norm", 0, &step->gradient_norm, err));
    BD_TRY(bd_json_get_real(json, "learning_rate", 0, MOST, &step->learning_rate, err));
    BD_TRY(bd_json_get_integer(json, "targets", 0, INT64_MAX, &n_targets, err));
    BD_TRY(bd_json_get_integer(json, "tokens", 0, INT64_MAX, &n_tokens, err));
    BD_TRY(bd_json_get_real(json, "seconds", 0, MOST, &step->seconds, err));
    BD_TRY(get_figure(json, "used", 0, &step->tokens, err));
    BD_TRY(get_figure(json, "flop", 0, &step->flop, err));
    BD_TRY(get_figure(json, "mfu", 0, &step->mfu, err));
    if (n_targets == 0)
        step->loss = NAN;
    if (isnan(step->tokens))  // an older version wrote the line
        step->tokens = (double)n_tokens;
    return BD_OK;
}

static bd_status find_event_kind(const bd_json *json, bd_metrics_kind *kind, bd_error *err)
{
    const char *event;
    *kind = BD_METRICS_STEP;
    if (bd_json_is_null(json, "event"))
        return BD_OK;
    BD_TRY(bd_json_get_string(json, "event", &event, err));
    *kind = strcmp(event, "eval") == 0     ? BD_METRICS_EVAL
            : strcmp(event, "sample") == 0 ? BD_METRICS_SAMPLE
                                           : BD_METRICS_OTHER;
    return BD_OK;
}

static bd_status read_eval(const bd_json *json, bd_eval_value *value, bd_error *err)
{
    BD_TRY(bd_json_get_string(json, "dataset", &value->dataset, err));
    BD_TRY(get_figure(json, "loss", -MOST, &value->loss, err));
    return bd_json_get_integer(json, "targets", 0, INT64_MAX, &value->n_targets, err);
}

static bd_status read_sample(const bd_json *json, bd_sample_value *value, bd_error *err)
{
    BD_TRY(bd_json_get_string(json, "prompt", &value->prompt, err));
    return bd_json_get_string(json, "text", &value->text, err);
}

static bd_status check_values(const bd_metrics_line *line, bd_error *err)
{
    for (size_t i = 0; i < bd_json_length(line->values); i++) {
        const bd_json *json = bd_json_at(line->values, i);
        BD_TRY(line->kind == BD_METRICS_EVAL ? read_eval(json, &(bd_eval_value){0}, err)
                                             : read_sample(json, &(bd_sample_value){0}, err));
    }
    return BD_OK;
}

static bd_status read_line(bd_metrics_reader *reader, bd_metrics_line *line, bd_error *err)
{
    const bd_json *json = reader->json;
    *line = (bd_metrics_line){0};
    BD_TRY(find_event_kind(json, &line->kind, err));
    const bool is_step = line->kind == BD_METRICS_STEP;
    BD_TRY(bd_json_get_integer(json, "step", is_step ? 1 : 0, LAST_STEP, &line->step, err));
    if (line->step < reader->last_step || (is_step && line->step == reader->last_trained))
        return bd_fail(err, BD_ERR_FORMAT, "step %" PRId64 " comes after step %" PRId64,
                       line->step, reader->last_step);
    if (is_step)
        BD_TRY(read_step(json, &line->figures, err));
    if (line->kind == BD_METRICS_EVAL || line->kind == BD_METRICS_SAMPLE) {
        BD_TRY(bd_json_get_array(json, "values", &line->values, err));
        BD_TRY(check_values(line, err));
    }
    reader->last_step = line->step;
    if (is_step)
        reader->last_trained = line->step;
    return BD_OK;
}

bd_status bd_metrics_reader_next(bd_metrics_reader *reader, bd_metrics_line *line, bool *more,
                                 bd_error *err)
{
    for (;;) {
        int64_t n;
        bd_error why;
        reader->number++;
        BD_TRY(read_text(reader, &n, more, err));
        if (!*more) {
            reader->n_torn = n;
            return BD_OK;
        }
        reader->end += n + 1;
        if (parse_text(reader, n, &why) == BD_OK && read_line(reader, line, &why) == BD_OK)
            return BD_OK;
        if (reader->damage.n_lines++ == 0) {
            reader->damage.first_line = reader->number;
            reader->damage.why = why;
            fail_in_line(reader, why.status, &reader->damage.why);
        }
        BD_TRY(bd_interrupt_check(err));
    }
}

// ---- Values ---------------------------------------------------------------------------------

// These cannot fail: read_line() has checked the values.

bd_eval_value bd_metrics_eval_value(const bd_metrics_line *line, size_t i)
{
    bd_eval_value value = {0};
    read_eval(bd_json_at(line->values, i), &value, NULL);
    return value;
}

bd_sample_value bd_metrics_sample_value(const bd_metrics_line *line, size_t i)
{
    bd_sample_value value = {0};
    read_sample(bd_json_at(line->values, i), &value, NULL);
    return value;
}
