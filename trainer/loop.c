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

static bool is_first(const bd_setup *s)
{
    return bd_setup_is_first(s);
}

// Every rank has a part of what is saved; rank 0 saves it.
static bd_status save(bd_setup *s, bd_error *err)
{
    float *arrays[BD_STATE_ARRAYS] = {0};
    const bd_status prepared =
        is_first(s) ? bd_checkpoint_writer_prepare(s->writer, arrays, err) : BD_OK;
    BD_TRY(bd_group_agree(s->group, prepared, err));
    const bool as_it_lies = is_first(s) && !arrays[0];
    if (!as_it_lies)
        BD_TRY(bd_trainer_assemble(&s->trainer, arrays, err));
    const bd_checkpoint_state state = {
        .step = s->trainer.step,
        .parameters = &s->run.parameters,
        .weights = as_it_lies ? s->trainer.model.masters : arrays[0],
        .m = as_it_lies ? s->trainer.m : arrays[1],
        .v = as_it_lies ? s->trainer.v : arrays[2],
        .training = s->training_json,
        .data = s->data_json,
        .n_ranks = s->group->n_ranks,
        .isa = s->backend->operations->isa,
        .spike_guard = s->trainer.spike_guard,
    };
    const bd_status saved =
        is_first(s) ? bd_checkpoint_writer_save(s->writer, &state, err) : BD_OK;
    return bd_group_agree(s->group, saved, err);
}

// The last step that was saved is on disk.
static bd_status finish_saving(bd_setup *s, bd_error *err)
{
    const bd_status finished =
        is_first(s) ? bd_checkpoint_writer_finish(s->writer, err) : BD_OK;
    return bd_group_agree(s->group, finished, err);
}

static bool is_live(const bd_setup *s)
{
    return !s->quiet && bd_terminal_has_escapes(stderr);
}

static void report(const bd_setup *s, const bd_step_line *line)
{
    const int64_t step = line->result->step;
    const bool logged = !s->quiet && (step % s->options->log_every == 0 || step == 1 ||
                                      step == s->hyperparameters.n_steps);
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

static void clear_live_line(const bd_setup *s)
{
    if (is_live(s))
        fputs("\r\x1b[K", stderr);
}

// Whether something that happens every so many steps, and at the last, happens at this one.
static bool is_due(int64_t every, int64_t step, int64_t n_steps)
{
    return every != BD_NOT_GIVEN && (step % every == 0 || step == n_steps);
}

static void show_evaluation(const bd_setup *s, int64_t step)
{
    for (size_t i = 0; !s->quiet && i < s->eval_datasets.n; i++) {
        const bd_eval_value *value = &s->eval_datasets.values[i];
        printf("step %" PRId64 "/%" PRId64 "  ", step, s->hyperparameters.n_steps);
        if (value->n_targets > 0)
            printf("loss %.4f on ", value->loss);
        else
            fputs("no targets in ", stdout);  // a small corpus may have nothing held out
        bd_print_safely(stdout, value->dataset, strlen(value->dataset), false);
        putchar('\n');
    }
}

static void show_samples(const bd_setup *s, int64_t step)
{
    for (size_t i = 0; !s->quiet && i < s->samples.n; i++) {
        const bd_sample_value *value = &s->samples.values[i];
        printf("step %" PRId64 "/%" PRId64 "  ", step, s->hyperparameters.n_steps);
        bd_print_safely(stdout, value->prompt, strlen(value->prompt), true);
        bd_print_safely(stdout, value->text, strlen(value->text), true);
        putchar('\n');
    }
}

// Looks for leaks between the documents of the last step's first micro-batch.
static bd_status probe(bd_setup *s, bool *leaks, bd_error *err)
{
    bd_trainer *trainer = &s->trainer;
    int64_t first, n;
    const bd_batch *batch = bd_trainer_first_rows(trainer, &first, &n);
    bd_probe found;
    BD_TRY(bd_probe_batch(&found, &trainer->model, batch, first, n, 1, err));
    *leaks = found.leaked_tokens > 0;
    if (!*leaks)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT,
                   "the probe after step %" PRId64 " found a leak: another document reaches "
                   "segment %" PRId64 " of row %" PRId64 " (%" PRId64 " tokens in all)",
                   trainer->step, found.leak_segment, found.leak_row, found.leaked_tokens);
}

// Every rank its own rows; a leak that one has found is one of all.
static bd_status probe_all(bd_setup *s, bool *leaks, bd_error *err)
{
    const bd_status status = probe(s, leaks, err);
    double n_leaks = *leaks;
    BD_TRY(bd_group_sum(s->group, &n_leaks, 1, err));
    *leaks = n_leaks > 0;
    return bd_group_agree(s->group, status, err);
}

// Evaluations and samples after the step that was just made. They change nothing of the run.
static bd_status evaluate(bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    const int64_t step = s->trainer.step;
    if (s->eval_datasets.n > 0 &&
        is_due(options->eval_every, step, s->hyperparameters.n_steps)) {
        BD_TRY(bd_eval_datasets_evaluate(&s->eval_datasets, &s->trainer.model,
                                         options->eval_rows, err));
        BD_TRY(bd_metrics_write_eval(s->metrics, step, s->eval_datasets.values,
                                     s->eval_datasets.n, err));
        clear_live_line(s);
        show_evaluation(s, step);
    }
    if (is_due(options->sample_every, step, s->hyperparameters.n_steps)) {
        BD_TRY(bd_samples_write(&s->samples, err));
        BD_TRY(
            bd_metrics_write_samples(s->metrics, step, s->samples.values, s->samples.n, err));
        clear_live_line(s);
        show_samples(s, step);
    }
    fflush(stdout);
    return BD_OK;
}

// What cannot be evaluated at does not spoil what was trained.
static void save_before_failing(bd_setup *s)
{
    if (save(s, NULL) == BD_OK)
        finish_saving(s, NULL);
}

// After a step: rank 0 tells of it and looks, with what came of that in *evaluated.
static bd_status tell(bd_setup *s, bd_step_line *line, int64_t step_ns, bd_status *evaluated,
                      bd_error *err)
{
    *evaluated = BD_OK;
    if (!is_first(s))
        return BD_OK;
    BD_TRY(bd_metrics_write(s->metrics, line->result, step_ns, err));
    bd_pace_add(&line->pace, line->result, &s->run.parameters.config);
    line->smoothed_loss = bd_metrics_smoothed_loss(s->metrics);
    report(s, line);
    BD_TRY(bd_checkpoint_writer_check(s->writer, err));
    *evaluated = evaluate(s, err);
    return BD_OK;
}

// What happens next, asked once for each step, so that the last one is always saved. What one
// rank has met, all have.
typedef struct next_move {
    bool stops;   // after this step, at its end or because of a signal
    bool breaks;  // it could not be evaluated at
} next_move;

static bd_status decide(bd_setup *s, bd_status evaluated, next_move *next, bd_error *err)
{
    double met[] = {bd_interrupt_check(NULL) != BD_OK,
                    evaluated != BD_OK && evaluated != BD_ERR_INTERRUPTED};
    BD_TRY(bd_group_sum(s->group, met, 2, err));
    next->stops = s->trainer.step == s->hyperparameters.n_steps || met[0] > 0;
    next->breaks = met[1] > 0;
    return BD_OK;
}

static bd_status run_steps(bd_setup *s, bool *leaks, bd_error *err)
{
    bd_status evaluated = BD_OK;  // who stops does not wait for it
    const int64_t n_steps = s->hyperparameters.n_steps, begun_ns = bd_now_ns();
    bd_step_result result;
    bd_step_line line = {
        .result = &result, .n_steps = n_steps, .peak_flops = 1e12 * s->options->peak_tflops};
    next_move next = {0};
    while (s->trainer.step < n_steps && !next.stops) {
        const int64_t step_begun_ns = bd_now_ns();
        BD_TRY(bd_trainer_step(&s->trainer, &result, err));
        const int64_t now_ns = bd_now_ns();
        line.elapsed_ns = now_ns - begun_ns;
        if (is_due(s->options->probe_every, result.step, n_steps))
            BD_TRY(probe_all(s, leaks, err));
        const bd_status told = tell(s, &line, now_ns - step_begun_ns, &evaluated, err);
        BD_TRY(bd_group_agree(s->group, told, err));
        BD_TRY(decide(s, evaluated, &next, err));
        if (next.breaks) {
            save_before_failing(s);
            return bd_group_agree(s->group, evaluated, err);
        }
        if (next.stops || is_due(s->options->save_every, result.step, n_steps))
            BD_TRY(save(s, err));
    }
    BD_TRY(finish_saving(s, err));
    bd_status ended = BD_OK;
    if (evaluated == BD_ERR_INTERRUPTED && s->trainer.step == n_steps)
        ended = bd_fail(err, BD_ERR_INTERRUPTED,
                        "stopped while the last step was evaluated; the step is saved, its "
                        "evaluation is lost");
    return bd_group_agree(s->group, ended, err);
}

static void count_skipped(const bd_setup *s)
{
    const bd_spike_guard *spike_guard = &s->trainer.spike_guard;
    if (spike_guard->n_without_targets > 0)
        fprintf(stderr,
                "bindery train: %" PRId64 " steps had no targets and were not applied\n",
                spike_guard->n_without_targets);
    if (spike_guard->n_spikes > 0)
        fprintf(stderr, "bindery train: %" PRId64 " steps were spikes and were not applied\n",
                spike_guard->n_spikes);
}

// A run that was stopped before its end says what is left of it.
static bd_status say_stopped(const bd_setup *s, bd_error *err)
{
    if (s->trainer.step == s->hyperparameters.n_steps)
        return BD_OK;
    return bd_fail(err, BD_ERR_INTERRUPTED,
                   "stopped after step %" PRId64 " of %" PRId64
                   ", which is saved; the same command, or --resume alone, continues the run",
                   s->trainer.step, s->hyperparameters.n_steps);
}

static void introduce(const bd_setup *s)
{
    fprintf(stderr,
            "bindery train: %s with %s parameters in %s on %s, from step %" PRId64 "%s\n",
            s->run.parameters.config.family->name,
            bd_format_count((uint64_t)s->run.parameters.n_total).text,
            bd_precision_words[s->hyperparameters.type], s->backend->operations->name,
            s->trainer.step,
            s->trainer.step == s->hyperparameters.n_steps ? ", the last: nothing is left to do"
                                                          : "");
}

// A new model that was given more positions than it asked for.
static void say_positions(const bd_setup *s)
{
    if (s->too_few_positions == 0)
        return;
    fprintf(stderr,
            "bindery train: the model has %" PRId64 " positions instead of %" PRId64
            ", as many as a row has tokens: some segments are longer than that\n",
            s->run.parameters.config.n_positions, s->too_few_positions);
}

// A device that computes in bf16 computes this model in float. (The CPU always does.)
static void say_why_float(const bd_setup *s)
{
    if (s->why_float.message[0] && s->backend->operations->computes_bf16)
        fprintf(stderr, "bindery train: computes in float, which takes longer: %s\n",
                s->why_float.message);
}

// Sums over ranks have another order than sums over one rank's rows, and so have those of another
// instruction set.
static void say_other_bits(const bd_setup *s)
{
    static const char consequence[] =
        "the run does not end with the same bits as one that was never stopped";
    if (!s->continues)
        return;
    const int64_t n_ranks = s->run.checkpoint.n_ranks;
    if (n_ranks != s->group->n_ranks)
        fprintf(stderr,
                "bindery train: step %" PRId64 " was trained by %" PRId64
                " rank%s and goes on with %d: %s\n",
                s->begin_step, n_ranks, n_ranks == 1 ? "" : "s", (int)s->group->n_ranks,
                consequence);
    const char *before = s->run.checkpoint.isa, *now = s->backend->operations->isa;
    if (before && now && strcmp(before, now) != 0)
        fprintf(stderr,
                "bindery train: step %" PRId64 " was trained with %s and goes on with %s: %s "
                "(--isa %s would)\n",
                s->begin_step, before, now, consequence, before);
}

// A log that is damaged holds nothing back.
static void say_damaged_log(const bd_setup *s)
{
    const bd_metrics_damage *damage = s->metrics ? bd_metrics_damaged(s->metrics) : NULL;
    if (!damage || damage->n_lines == 0)
        return;
    fputs("bindery train: ", stderr);
    bd_print_safely(stderr, damage->why.message, strlen(damage->why.message), false);
    if (damage->n_lines > 1)
        fprintf(stderr, "; %" PRId64 " more lines are damaged", damage->n_lines - 1);
    fputs("; the run goes on, and what is damaged in its log stays as it is\n", stderr);
}

// How a run goes on that is longer than it was planned to be.
static void say_extended(const bd_setup *s)
{
    const bd_hyperparameters *h = &s->hyperparameters;
    if (s->n_steps_before == h->n_steps)
        return;
    fprintf(stderr,
            "bindery train: the run is made longer, %" PRId64 " steps instead of %" PRId64
            ": from step %" PRId64 " on the learning rate follows the %s schedule of %" PRId64
            " steps, and begins with %.3g\n",
            h->n_steps, s->n_steps_before, s->begin_step + 1,
            bd_learning_rate_schedule_words[h->schedule], h->n_steps,
            bd_learning_rate(h, s->begin_step + 1));
}

// Said at once: the step may take a while.
#define HEARD                                                                    \
    "bindery train: interrupted: the step is finished and saved first; another " \
    "interrupt ends the run at once\n"

bd_status bd_train_loop(const bd_train_options *options, bd_group *group, bool quiet,
                        bool *leaks, bd_error *err)
{
    bd_setup s;
    bd_status status = bd_setup_open(&s, options, group, quiet, err);
    if (status == BD_OK && !s.quiet) {
        introduce(&s);
        say_positions(&s);
        say_why_float(&s);
        say_other_bits(&s);
        say_extended(&s);
        say_damaged_log(&s);
    }
    if (status == BD_OK) {
        if (is_first(&s))
            bd_interrupt_answer(is_live(&s) ? "\r\x1b[K" HEARD : HEARD);
        bd_interrupt_catch();  // until here there was nothing to save
        status = run_steps(&s, leaks, err);
        bd_interrupt_answer(NULL);  // a launcher ends the others when one of them has failed
    }
    clear_live_line(&s);  // the step that was being shown when it ended
    if (status == BD_OK && is_first(&s))
        count_skipped(&s);
    if (status == BD_OK)
        status = bd_group_agree(group, say_stopped(&s, err), err);
    // A rank that is about to end the others leaves alone what they may still be reading.
    if (status == BD_OK || group->agreed_to_fail || group->n_ranks == 1)
        bd_setup_close(&s);
    return status;
}
