#include "trainer/loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/cli/human.h"
#include "common/cli/terminal.h"
#include "trainer/metrics/step_line.h"
#include "trainer/proof/probe.h"
#include "trainer/setup.h"

// ---- Saving ---------------------------------------------------------------------------------

// Every rank sends its slice of the state to rank 0, which saves it. The writer may still be
// writing when this returns.
static bd_status save(bd_setup *s, bd_error *err)
{
    const bool is_first = bd_setup_is_first(s);
    float *arrays[BD_STATE_ARRAYS] = {0};
    const bd_status prepared =
        is_first ? bd_checkpoint_writer_prepare(s->writer, arrays, err) : BD_OK;
    BD_TRY(bd_group_agree(s->group, prepared, err));
    // A writer without memory of its own writes the trainer's arrays.
    const bool in_place = is_first && !arrays[0];
    if (in_place) {
        arrays[BD_STATE_WEIGHTS] = s->trainer.model.masters;
        arrays[BD_STATE_M] = s->trainer.optimizer.m;
        arrays[BD_STATE_V] = s->trainer.optimizer.v;
        arrays[BD_STATE_AVERAGE] = s->trainer.optimizer.average;
    } else {
        BD_TRY(bd_trainer_assemble(&s->trainer, arrays, err));
    }
    bd_checkpoint_state state = {
        .step = s->trainer.step,
        .parameters = &s->run.parameters,
        .training = s->training_json,
        .data = s->data_json,
        .n_ranks = s->group->n_ranks,
        .isa = s->backend->operations->isa,
        .spike_guard = s->trainer.spike_guard,
    };
    for (int i = 0; i < BD_STATE_ARRAYS; i++)
        state.arrays[i] = arrays[i];
    const bd_status saved =
        is_first ? bd_checkpoint_writer_save(s->writer, &state, err) : BD_OK;
    return bd_group_agree(s->group, saved, err);
}

// Waits until the last step that was saved is on disk.
static bd_status finish_saving(bd_setup *s, bd_error *err)
{
    const bd_status finished =
        bd_setup_is_first(s) ? bd_checkpoint_writer_finish(s->writer, err) : BD_OK;
    return bd_group_agree(s->group, finished, err);
}

// A failed evaluation does not cost the steps that were trained. The failure that is reported
// is that of the evaluation.
static void save_before_failing(bd_setup *s)
{
    if (save(s, NULL) == BD_OK)
        finish_saving(s, NULL);
}

// ---- After a step ---------------------------------------------------------------------------

// Whether something that happens every so many steps, and at the last, happens at this one.
static bool is_due(int64_t every, int64_t step, int64_t n_steps)
{
    return every != BD_NOT_GIVEN && (step % every == 0 || step == n_steps);
}

// Whether stderr shows the latest step in a line that is overwritten.
static bool has_live_line(const bd_setup *s)
{
    return !s->quiet && bd_terminal_has_escapes(stderr);
}

static void clear_live_line(const bd_setup *s)
{
    if (has_live_line(s))
        fputs("\r\x1b[K", stderr);
}

// Looks for leaks between the documents of the first micro-batch of every rank's last step. A
// leak that one rank finds ends the run of all.
static bd_status probe(bd_setup *s, bool *leaks, bd_error *err)
{
    int64_t first, n;
    const bd_batch *batch = bd_trainer_first_rows(&s->trainer, &first, &n);
    bd_probe found;
    bd_status status = bd_probe_batch(&found, &s->trainer.model, batch, first, n, 1, err);
    double n_leaks = status == BD_OK && found.leaked_tokens > 0;
    if (n_leaks > 0)
        status =
            bd_fail(err, BD_ERR_FORMAT,
                    "the probe after step %" PRId64
                    " found a leak: another document reaches segment %" PRId64
                    " of row %" PRId64 " (%" PRId64 " tokens in all)",
                    s->trainer.step, found.leak_segment, found.leak_row, found.leaked_tokens);
    BD_TRY(bd_group_sum(s->group, &n_leaks, 1, err));
    *leaks = n_leaks > 0;
    return bd_group_agree(s->group, status, err);
}

// Writes the step to the metrics, and prints it if a line is due or stderr shows every step.
static bd_status log_step(bd_setup *s, bd_step_line *line, int64_t step_ns, bd_error *err)
{
    const int64_t step = line->result->step;
    BD_TRY(bd_metrics_write(s->metrics, line->result, step_ns, err));
    bd_pace_add(&line->pace, line->result, &s->run.parameters.config);
    line->smoothed_loss = bd_metrics_smoothed_loss(s->metrics);
    const bool is_live = has_live_line(s);
    const bool is_logged =
        !s->quiet && (step == 1 || is_due(s->options->log_every, step, line->n_steps));
    if (!is_logged && !is_live)
        return BD_OK;
    char text[BD_STEP_LINE_COLUMNS + 1];
    bd_step_line_print(line, text);
    if (is_live)
        fprintf(stderr, "\r\x1b[K%.*s", bd_terminal_width(stderr), is_logged ? "" : text);
    if (is_logged) {
        puts(text);
        fflush(stdout);
    }
    return BD_OK;
}

static bool evaluation_is_due(const bd_setup *s)
{
    return s->eval_datasets.n > 0 &&
           is_due(s->options->eval_every, s->trainer.step, s->hyperparameters.n_steps);
}

static bool samples_are_due(const bd_setup *s)
{
    return is_due(s->options->sample_every, s->trainer.step, s->hyperparameters.n_steps);
}

// Evaluates and samples if that is due after the last step. Nothing of the training changes.
static bd_status evaluate(bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    const int64_t step = s->trainer.step, n_steps = s->hyperparameters.n_steps;
    if (evaluation_is_due(s)) {
        const bd_eval_datasets *datasets = &s->eval_datasets;
        BD_TRY(bd_eval_datasets_evaluate(&s->eval_datasets, &s->trainer.model,
                                         options->eval_rows, err));
        BD_TRY(bd_metrics_write_eval(s->metrics, step, datasets->values, datasets->n, err));
        clear_live_line(s);
        for (size_t i = 0; !s->quiet && i < datasets->n; i++) {
            const bd_eval_value *value = &datasets->values[i];
            printf("step %" PRId64 "/%" PRId64 "  ", step, n_steps);
            if (value->n_targets > 0)
                printf("loss %.4f on ", value->loss);
            else
                fputs("no targets in ", stdout);  // the holdout of a small corpus may be empty
            bd_print_safely(stdout, value->dataset, strlen(value->dataset), false);
            putchar('\n');
        }
    }
    if (samples_are_due(s)) {
        const bd_samples *samples = &s->samples;
        BD_TRY(bd_samples_write(&s->samples, err));
        BD_TRY(bd_metrics_write_samples(s->metrics, step, samples->values, samples->n, err));
        clear_live_line(s);
        for (size_t i = 0; !s->quiet && i < samples->n; i++) {
            const bd_sample_value *value = &samples->values[i];
            printf("step %" PRId64 "/%" PRId64 "  ", step, n_steps);
            bd_print_safely(stdout, value->prompt, strlen(value->prompt), true);
            bd_print_safely(stdout, value->text, strlen(value->text), true);
            putchar('\n');
        }
    }
    fflush(stdout);
    return BD_OK;
}

// ---- The loop -------------------------------------------------------------------------------

static bd_status run_steps(bd_setup *s, bool *leaks, bd_error *err)
{
    const int64_t n_steps = s->hyperparameters.n_steps, begun_ns = bd_now_ns();
    bd_step_result result;
    bd_step_line line = {
        .result = &result, .n_steps = n_steps, .peak_flops = 1e12 * s->options->peak_tflops};
    bd_status evaluated = BD_OK;
    bool stops = false;
    while (s->trainer.step < n_steps && !stops) {
        const int64_t step_begun_ns = bd_now_ns();
        BD_TRY(bd_trainer_step(&s->trainer, &result, err));
        const int64_t now_ns = bd_now_ns();
        line.elapsed_ns = now_ns - begun_ns;
        if (is_due(s->options->probe_every, result.step, n_steps))
            BD_TRY(probe(s, leaks, err));

        // Only the first rank evaluates, but all have a part of the average.
        bd_status logged = BD_OK;
        if (evaluation_is_due(s) || samples_are_due(s))
            BD_TRY(bd_trainer_show_average(&s->trainer, err));
        if (bd_setup_is_first(s)) {
            logged = log_step(s, &line, now_ns - step_begun_ns, err);
            if (logged == BD_OK)
                logged = bd_checkpoint_writer_check(s->writer, err);
            evaluated = logged == BD_OK ? evaluate(s, err) : BD_OK;
        }
        bd_trainer_show_trained(&s->trainer);
        BD_TRY(bd_group_agree(s->group, logged, err));

        // The ranks ask once in every step whether one of them was interrupted or could not
        // evaluate, so that all of them stop after the same step, which is saved.
        double met[] = {bd_interrupt_check(NULL) != BD_OK,
                        evaluated != BD_OK && evaluated != BD_ERR_INTERRUPTED};
        BD_TRY(bd_group_sum(s->group, met, 2, err));
        stops = s->trainer.step == n_steps || met[0] > 0;
        if (met[1] > 0) {
            save_before_failing(s);
            return bd_group_agree(s->group, evaluated, err);
        }
        if (stops || is_due(s->options->save_every, result.step, n_steps))
            BD_TRY(save(s, err));
    }
    BD_TRY(finish_saving(s, err));
    bd_status status = BD_OK;
    if (evaluated == BD_ERR_INTERRUPTED && s->trainer.step == n_steps)
        status = bd_fail(err, BD_ERR_INTERRUPTED,
                         "stopped while the last step was evaluated; the step is saved, its "
                         "evaluation is lost");
    return bd_group_agree(s->group, status, err);
}

// ---- Messages -------------------------------------------------------------------------------

// Prints what begins, and everything about it that may be unexpected.
static void introduce(const bd_setup *s)
{
    static const char consequence[] =
        "the run does not end with the same bits as one that was never stopped";
    const bd_hyperparameters *h = &s->hyperparameters;
    const bd_operations *operations = s->backend->operations;
    const bd_checkpoint *checkpoint = &s->run.checkpoint;
    const int64_t step = s->begin_step;
    fprintf(
        stderr, "bindery train: %s with %s parameters in %s on %s, from step %" PRId64 "%s\n",
        s->run.parameters.config.family->name,
        bd_format_count((uint64_t)s->run.parameters.n_total).text, bd_precision_names[h->type],
        operations->name, step, step == h->n_steps ? ", the last: nothing is left to do" : "");
    if (s->too_few_positions > 0)
        fprintf(stderr,
                "bindery train: the model has %" PRId64 " positions instead of %" PRId64
                ", as many as a row has tokens: some segments are longer than that\n",
                s->run.parameters.config.n_positions, s->too_few_positions);
    // The CPU computes in float alone, which nobody needs to be told.
    if (s->why_float.message[0] && operations->computes_bf16)
        fprintf(stderr, "bindery train: computes in float, which takes longer: %s\n",
                s->why_float.message);
    // Another number of ranks, and another instruction set, add up in another order.
    if (s->continues && checkpoint->n_ranks != s->group->n_ranks)
        fprintf(stderr,
                "bindery train: step %" PRId64 " was trained by %" PRId64
                " rank%s and continues with %d: %s\n",
                step, checkpoint->n_ranks, checkpoint->n_ranks == 1 ? "" : "s",
                (int)s->group->n_ranks, consequence);
    if (checkpoint->isa && operations->isa && strcmp(checkpoint->isa, operations->isa) != 0)
        fprintf(stderr,
                "bindery train: step %" PRId64 " was trained with %s and continues with %s: %s "
                "(--isa %s would)\n",
                step, checkpoint->isa, operations->isa, consequence, checkpoint->isa);
    if (s->n_steps_before != h->n_steps)
        fprintf(
            stderr,
            "bindery train: the run is made longer, %" PRId64 " steps instead of %" PRId64
            ": from step %" PRId64 " on the learning rate follows the %s schedule of %" PRId64
            " steps, and begins with %.3g\n",
            h->n_steps, s->n_steps_before, step + 1, bd_learning_rate_schedules[h->schedule],
            h->n_steps, bd_learning_rate(h, step + 1));
    const bd_metrics_damage *damage = s->metrics ? bd_metrics_damaged(s->metrics) : NULL;
    if (damage && damage->n_lines > 0) {
        fputs("bindery train: ", stderr);
        bd_print_safely(stderr, damage->why.message, strlen(damage->why.message), false);
        if (damage->n_lines > 1)
            fprintf(stderr, "; %" PRId64 " more lines are damaged", damage->n_lines - 1);
        fputs("; the run continues, and damaged lines stay in its log\n", stderr);
    }
}

static void count_skipped(const bd_spike_guard *guard)
{
    if (guard->n_without_targets > 0)
        fprintf(stderr,
                "bindery train: %" PRId64 " steps had no targets and were not applied\n",
                guard->n_without_targets);
    if (guard->n_spikes > 0)
        fprintf(stderr, "bindery train: %" PRId64 " steps were spikes and were not applied\n",
                guard->n_spikes);
}

// Printed at once, because the step may take a while.
#define INTERRUPTED                                                              \
    "bindery train: interrupted: the step is finished and saved first; another " \
    "interrupt ends the run at once\n"

bd_status bd_train_loop(const bd_train_options *options, bd_group *group, bool quiet,
                        bool *leaks, bd_error *err)
{
    bd_setup s;
    bd_status status = bd_setup_open(&s, options, group, quiet, err);
    if (status == BD_OK) {
        if (!s.quiet)
            introduce(&s);
        if (bd_setup_is_first(&s))
            bd_interrupt_answer(has_live_line(&s) ? "\r\x1b[K" INTERRUPTED : INTERRUPTED);
        bd_interrupt_catch();  // an interrupt before this has nothing to save
        status = run_steps(&s, leaks, err);
        // If this rank failed, the launcher interrupts the others, and no message is due.
        bd_interrupt_answer(NULL);
    }
    clear_live_line(&s);
    if (status == BD_OK && bd_setup_is_first(&s))
        count_skipped(&s.trainer.spike_guard);
    if (status == BD_OK && s.trainer.step < s.hyperparameters.n_steps) {
        status =
            bd_fail(err, BD_ERR_INTERRUPTED,
                    "stopped after step %" PRId64 " of %" PRId64
                    ", which is saved; the same command, or --resume alone, continues the run",
                    s.trainer.step, s.hyperparameters.n_steps);
        status = bd_group_agree(group, status, err);
    }
    // A rank that is about to abort the others does not free what they may still be reading.
    if (status == BD_OK || group->agreed_to_fail || group->n_ranks == 1)
        bd_setup_close(&s);
    return status;
}
