#include "trainer/metrics/run_summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"
#include "common/base/utf8.h"
#include "trainer/metrics/metrics.h"
#include "trainer/metrics/smoothed.h"
#include "trainer/weights/checkpoint.h"

// ---- Metrics --------------------------------------------------------------------------------

static void add_finite(bd_curve *curve, int64_t step, double value)
{
    if (isfinite(value))
        bd_curve_add(curve, step, value);
}

static void add_step_figures(bd_run_summary *summary, bd_smoothed *smoothed, int64_t step,
                             const bd_metrics_step *figures)
{
    if (!isnan(figures->loss)) {
        bd_smoothed_add(smoothed, figures->loss);
        summary->last_loss = figures->loss;
        summary->last_smoothed_loss = bd_smoothed_value(smoothed);
        bd_curve_add(&summary->loss, step, summary->last_loss);
        bd_curve_add(&summary->smoothed_loss, step, summary->last_smoothed_loss);
    }
    bd_curve_add(&summary->learning_rate, step, figures->learning_rate);
    add_finite(&summary->gradient_norm, step, figures->gradient_norm);
    add_finite(&summary->tokens_per_second, step, figures->tokens / figures->seconds);
    add_finite(&summary->flops, step, figures->flop / figures->seconds);
    add_finite(&summary->mfu, step, figures->mfu);
    summary->n_steps++;
    summary->tokens += figures->tokens;
    summary->seconds += figures->seconds;
}

// Copies as many whole characters as fit; true if those are all.
static bool copy_characters(char *out, size_t most, const char *text)
{
    const size_t n = strlen(text), kept = n > most ? bd_utf8_valid_prefix(text, most) : n;
    memcpy(out, text, kept);
    out[kept] = '\0';
    return kept == n;
}

static void add_eval(bd_run_summary *summary, int64_t step, bd_eval_value value)
{
    char dataset[BD_RUN_NAME_BYTES + 1];
    size_t i = 0;
    copy_characters(dataset, BD_RUN_NAME_BYTES, value.dataset);
    while (i < summary->n_evals && strcmp(summary->evals[i].dataset, dataset) != 0)
        i++;
    if (i == BD_RUN_DATASETS) {
        summary->more_evals = true;
        return;
    }
    if (i == summary->n_evals)
        memcpy(summary->evals[summary->n_evals++].dataset, dataset, sizeof dataset);
    add_finite(&summary->evals[i].loss, step, value.loss);
}

static void add_sample(bd_run_summary *summary, int64_t step, bd_sample_value value)
{
    bd_run_sample *sample = &summary->samples[summary->n_samples++ % BD_RUN_SAMPLES];
    sample->step = step;
    const bool whole_prompt = copy_characters(sample->prompt, BD_RUN_TEXT_BYTES, value.prompt);
    const bool whole_text = copy_characters(sample->text, BD_RUN_TEXT_BYTES, value.text);
    sample->cut = !whole_prompt || !whole_text;
}

static bd_status read_lines(bd_run_summary *summary, bd_metrics_reader *reader, bd_error *err)
{
    bd_metrics_line line;
    bd_smoothed smoothed = {0};
    for (int64_t n_lines = 0;; n_lines++) {
        bool more;
        BD_TRY(bd_metrics_reader_next(reader, &line, &more, err));
        summary->damage = reader->damage;
        if (!more && n_lines == 0 && reader->damage.n_lines > 0)  // the file is no log
            return bd_fail(err, BD_ERR_FORMAT, "%s", reader->damage.why.message);
        if (!more)
            return BD_OK;
        BD_TRY(bd_interrupt_check(err));
        summary->last_step = line.step;
        if (line.kind == BD_METRICS_STEP)
            add_step_figures(summary, &smoothed, line.step, &line.figures);
        for (size_t i = 0; line.values && i < bd_json_length(line.values); i++) {
            if (line.kind == BD_METRICS_EVAL)
                add_eval(summary, line.step, bd_metrics_eval_value(&line, i));
            else
                add_sample(summary, line.step, bd_metrics_sample_value(&line, i));
        }
    }
}

static bd_status read_metrics(bd_run_summary *summary, bd_error *err)
{
    char *path = bd_path_join(summary->folder, BD_METRICS_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_metrics_reader reader;
    bd_status status = bd_metrics_reader_open(&reader, path, err);
    if (status == BD_OK) {
        status = read_lines(summary, &reader, err);
        bd_metrics_reader_close(&reader);
    }
    free(path);
    return status;
}

// ---- Settings -------------------------------------------------------------------------------

static bd_status keep_settings(bd_run_summary *summary, const bd_json *document, bd_error *err)
{
    static const char *const parts[] = {"model", "training", "data"};
    bd_json *settings = bd_json_object();
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < sizeof parts / sizeof parts[0]; i++) {
        const bd_json *part;
        status = bd_json_get_object(document, parts[i], &part, err);
        if (status == BD_OK)
            bd_json_set(settings, parts[i], bd_json_share(part));
    }
    char *text = NULL;
    if (status == BD_OK)
        status = bd_json_print(settings, BD_JSON_COMPACT, &text, err);
    if (status == BD_OK && strlen(text) <= BD_RUN_SETTINGS_BYTES)
        summary->settings = settings;
    else
        bd_json_free(settings);
    free(text);
    return status;
}

static bd_status read_settings(bd_run_summary *summary, bd_error *err)
{
    int64_t step;
    bd_checkpoint checkpoint;
    summary->checkpoint_step = -1;
    const bd_status found = bd_checkpoint_find_latest(summary->folder, &step, err);
    if (found == BD_ERR_ARGUMENT)  // nothing is saved yet
        return BD_OK;
    BD_TRY(found);
    BD_TRY(bd_checkpoint_load(&checkpoint, summary->folder, step, err));
    summary->checkpoint_step = step;
    const bd_status status = keep_settings(summary, checkpoint.document, err);
    bd_checkpoint_release(&checkpoint);
    return status;
}

bd_status bd_run_summary_new(bd_run_summary **summary, const char *folder, bd_error *err)
{
    *summary = calloc(1, sizeof **summary);
    if (!*summary)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the run in '%s'", folder);
    (*summary)->folder = folder;
    (*summary)->last_loss = (*summary)->last_smoothed_loss = NAN;
    bd_status status = read_metrics(*summary, err);
    if (status == BD_OK)
        status = read_settings(*summary, err);
    if (status != BD_OK) {
        bd_run_summary_free(*summary);
        *summary = NULL;
    }
    return status;
}

void bd_run_summary_free(bd_run_summary *summary)
{
    if (!summary)
        return;
    bd_json_free(summary->settings);
    free(summary);
}
