#include "trainer/train_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/format.h"
#include "common/interrupt.h"
#include "common/terminal.h"
#include "trainer/probe.h"
#include "trainer/step_line.h"
#include "trainer/train_session.h"

typedef bd_train_session session;

static bd_status save(session *s, bd_error *err)
{
    const bd_checkpoint_state state = {
        .step = s->training.step,
        .parameters = &s->run.parameters,
        .weights = s->training.model.masters,
        .m = s->training.m,
        .v = s->training.v,
        .training = s->training_json,
        .data = s->data_json,
        .history = s->training.history,
    };
    return bd_checkpoint_writer_save(s->writer, &state, err);
}

static bool is_live(const session *s)
{
    return !s->quiet && bd_terminal_has_escapes(stderr);
}

static void report(const session *s, const bd_step_line *line)
{
    const int64_t step = line->result->step;
    const bool logged =
        step % s->settings->log_every == 0 || step == 1 || step == s->settings->n_steps;
    const bool live = is_live(s);
    char text[BD_STEP_LINE_COLUMNS + 1];
    if (!logged && !live)
        return;
    bd_step_line_print(line, text);
    if (live)
        fprintf(stderr, "\r\x1b[K%.*s", bd_terminal_width(stderr), logged ? "" : text);
    if (logged) {
        puts(text);
        fflush(stdout);
    }
}

static void clear_live_line(const session *s)
{
    if (is_live(s))
        fputs("\r\x1b[K", stderr);
}

// Whether something that happens every so many steps, and at the last, happens at this one.
static bool is_due(int64_t every, int64_t step, int64_t n_steps)
{
    return every != BD_NOT_GIVEN && (step % every == 0 || step == n_steps);
}

static void show_evaluation(const session *s, int64_t step)
{
    for (size_t i = 0; i < s->held_out.n; i++) {
        const bd_eval_value *value = &s->held_out.values[i];
        printf("step %" PRId64 "/%" PRId64 "  loss %.4f on ", step, s->settings->n_steps,
               value->loss);
        bd_print_safely(stdout, value->dataset, strlen(value->dataset), false);
        putchar('\n');
    }
}

static void show_samples(const session *s, int64_t step)
{
    for (size_t i = 0; i < s->samples.n; i++) {
        const bd_sample_value *value = &s->samples.values[i];
        printf("step %" PRId64 "/%" PRId64 "  ", step, s->settings->n_steps);
        bd_print_safely(stdout, value->prompt, strlen(value->prompt), false);
        bd_print_safely(stdout, value->text, strlen(value->text), false);
        putchar('\n');
    }
}

// Looks for leaks between the documents of the last step's first micro-batch.
static bd_status probe(session *s, bool *leaks, bd_error *err)
{
    const bd_training *training = &s->training;
    const int64_t most = training->settings.micro_batch_rows;
    const int64_t there = training->batch->boundaries.n_rows;
    bd_probe found;
    BD_TRY(bd_probe_batch(&found, &s->training.model, training->batch,
                          there < most ? there : most, err));
    *leaks = found.leaked_tokens > 0;
    if (!*leaks)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT,
                   "the probe after step %" PRId64 " found a leak: another document reaches "
                   "segment %" PRId64 " of row %" PRId64 " (%" PRId64 " tokens in all)",
                   training->step, found.leak_segment, found.leak_row, found.leaked_tokens);
}

// Evaluations and samples after the step that was just made. They change nothing of the run.
static bd_status look(session *s, bd_error *err)
{
    const bd_train_settings *settings = s->settings;
    const int64_t step = s->training.step;
    if (s->held_out.n > 0 && is_due(settings->eval_every, step, settings->n_steps)) {
        BD_TRY(
            bd_held_out_evaluate(&s->held_out, &s->training.model, settings->eval_rows, err));
        BD_TRY(bd_metrics_write_eval(s->metrics, step, s->held_out.values, s->held_out.n, err));
        clear_live_line(s);
        show_evaluation(s, step);
    }
    if (is_due(settings->sample_every, step, settings->n_steps)) {
        BD_TRY(bd_samples_write(&s->samples, err));
        BD_TRY(
            bd_metrics_write_samples(s->metrics, step, s->samples.values, s->samples.n, err));
        clear_live_line(s);
        show_samples(s, step);
    }
    fflush(stdout);
    return BD_OK;
}

// What cannot be looked at does not spoil what was trained.
static void save_nevertheless(session *s)
{
    if (save(s, NULL) == BD_OK)
        bd_checkpoint_writer_finish(s->writer, NULL);
}

static bd_status train(session *s, bool *leaks, bd_error *err)
{
    bd_status looked = BD_OK;  // who stops does not wait for it
    const int64_t n_steps = s->settings->n_steps, begun_ns = bd_now_ns();
    bd_step_result result;
    bd_step_line line = {
        .result = &result, .n_steps = n_steps, .peak_flops = 1e12 * s->settings->peak_tflops};
    bool stops = false;  // asked once for each step, so that the last one is always saved
    while (s->training.step < n_steps && !stops) {
        const int64_t step_begun_ns = bd_now_ns();
        BD_TRY(bd_training_step(&s->training, &result, err));
        BD_TRY(bd_metrics_write(s->metrics, &result, bd_now_ns() - step_begun_ns, err));
        bd_pace_add(&line.pace, &result, &s->run.parameters.config);
        line.smoothed_loss = bd_metrics_smoothed_loss(s->metrics);
        line.elapsed_ns = bd_now_ns() - begun_ns;
        report(s, &line);
        if (is_due(s->settings->probe_every, result.step, n_steps))
            BD_TRY(probe(s, leaks, err));
        looked = look(s, err);
        if (looked != BD_OK && looked != BD_ERR_INTERRUPTED) {
            save_nevertheless(s);
            return looked;
        }
        BD_TRY(bd_checkpoint_writer_check(s->writer, err));
        stops = result.step == n_steps || bd_interrupt_check(NULL) != BD_OK;
        if (stops || is_due(s->settings->save_every, result.step, n_steps))
            BD_TRY(save(s, err));
    }
    BD_TRY(bd_checkpoint_writer_finish(s->writer, err));
    if (looked == BD_ERR_INTERRUPTED && s->training.step == n_steps)
        return bd_fail(err, BD_ERR_INTERRUPTED,
                       "stopped while the last step was evaluated; the step is saved, its "
                       "evaluation is lost");
    return BD_OK;
}

static void count_skipped(const session *s)
{
    const bd_history *history = &s->training.history;
    if (history->n_without_targets > 0)
        fprintf(stderr,
                "bindery train: %" PRId64 " steps had no targets and were not applied\n",
                history->n_without_targets);
    if (history->n_spikes > 0)
        fprintf(stderr, "bindery train: %" PRId64 " steps were spikes and were not applied\n",
                history->n_spikes);
}

// A run that was stopped before its end says what is left of it.
static bd_status say_stopped(const session *s, bd_error *err)
{
    if (s->training.step == s->settings->n_steps)
        return BD_OK;
    return bd_fail(err, BD_ERR_INTERRUPTED,
                   "stopped after step %" PRId64 " of %" PRId64
                   ", which is saved; the same command continues the run",
                   s->training.step, s->settings->n_steps);
}

static void introduce(const session *s)
{
    fprintf(
        stderr, "bindery train: %s with %s parameters in %s on %s, from step %" PRId64 "%s\n",
        bd_model_family_words[s->run.parameters.config.family],
        bd_format_count((uint64_t)s->run.parameters.n_total).text,
        bd_precision_words[s->training.settings.type], s->backend->operations->name,
        s->training.step,
        s->training.step == s->settings->n_steps ? ", the last: nothing is left to do" : "");
}

bd_status bd_train_run(const bd_train_settings *settings, bool quiet, bool *leaks,
                       bd_error *err)
{
    session s;
    bd_status status = bd_train_session_begin(&s, settings, quiet, err);
    if (status == BD_OK && !quiet)
        introduce(&s);
    if (status == BD_OK) {
        bd_interrupt_catch();  // until here there was nothing to save
        status = train(&s, leaks, err);
    }
    clear_live_line(&s);  // the step that was being shown when it ended
    if (status == BD_OK && !quiet)
        count_skipped(&s);
    if (status == BD_OK)
        status = say_stopped(&s, err);
    bd_train_session_end(&s);
    return status;
}
