// `bindery pack`: settings in, a packed dataset and its ledger out. The options themselves are
// in pack_options.c, and pack_job.c makes a job of them.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/interrupt.h"
#include "common/base/ranks.h"
#include "common/base/threads.h"
#include "common/cli/human.h"
#include "common/cli/program.h"
#include "common/cli/progress.h"
#include "packer/input/bad_records.h"
#include "packer/pack/dataset_card.h"
#include "packer/pack/job.h"
#include "packer/pack/ledger_report.h"
#include "packer/pack/output.h"
#include "packer/pack/pack.h"
#include "packer/pack/pack_options.h"
#include "packer/pack/report_plan.h"
#include "packer/pack/space.h"

// ---- Who does it ---------------------------------------------------------------------------

static bd_status choose_ranks(bd_pack_settings *how, const bd_pack_options *settings,
                              bd_error *err)
{
    bd_ranks ranks = {.rank = settings->rank, .n_ranks = settings->n_ranks};
    if ((settings->rank == BD_NOT_GIVEN) != (settings->n_ranks == BD_NOT_GIVEN))
        return bd_fail(err, BD_ERR_ARGUMENT, "--rank and --ranks go together");
    if (settings->rank == BD_NOT_GIVEN)
        BD_TRY(bd_ranks_from_environment(&ranks, err));
    if (ranks.rank >= ranks.n_ranks)
        return bd_fail(err, BD_ERR_ARGUMENT, "--rank: from 0 to %" PRId64, ranks.n_ranks - 1);
    how->rank = ranks.rank;
    how->n_ranks = ranks.n_ranks;
    how->mode = settings->finish     ? BD_PACK_FINISH
                : ranks.n_ranks == 1 ? BD_PACK_ALONE
                                     : BD_PACK_SHARED;
    if (settings->finish && settings->rank != BD_NOT_GIVEN)
        return bd_fail(err, BD_ERR_ARGUMENT, "--finish is for one process, without --rank");
    if (settings->overwrite && settings->update)
        return bd_fail(err, BD_ERR_ARGUMENT, "either --overwrite or --update");
    if (how->mode != BD_PACK_ALONE && settings->update)
        return bd_fail(err, BD_ERR_ARGUMENT, "--update is for one process alone");
    if (how->mode != BD_PACK_ALONE && settings->overwrite)
        return bd_fail(err, BD_ERR_ARGUMENT, "--overwrite is for one process alone");
    if (how->mode != BD_PACK_ALONE && settings->limit != BD_NOT_GIVEN)
        return bd_fail(err, BD_ERR_ARGUMENT, "--limit is for one process alone");
    return BD_OK;
}

// ---- Inputs --------------------------------------------------------------------------------

static bd_status examine_inputs(bd_inputs *inputs, const bd_pack_job *job,
                                const bd_pack_settings *how, bd_error *err)
{
    BD_TRY(bd_pack_job_examine(job, inputs, how->n_threads, err));
    for (size_t i = 0; i < inputs->n; i++)
        if (bd_input_is_stdin(&inputs->items[i]) && how->mode != BD_PACK_ALONE)
            return bd_fail(err, BD_ERR_ARGUMENT, "standard input is for one process alone");
        else if (bd_input_is_stdin(&inputs->items[i]) && how->update)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "--update: standard input cannot be read twice (--overwrite packs "
                           "it anew)");
    return BD_OK;
}

// ---- What is printed -----------------------------------------------------------------------

static bd_status print_result(const bd_arguments *arguments, const bd_pack_settings *how,
                              const bd_inputs *inputs, const bd_pack_result *result,
                              bd_error *err)
{
    const bd_pack_options *settings = arguments->settings;
    if (result->n_doubtful > 0)
        bd_command_note(
            arguments,
            "'%s'%s may have changed since then: pack-log.json does not have that "
            "size, time and inode (bindery verify %s --against INPUT compares them, "
            "--update packs again what differs)",
            inputs->items[result->first_doubtful].path,
            result->n_doubtful > 1 ? " and others" : "", settings->out);
    if (result->already_finished && !arguments->quiet)
        bd_command_note(arguments, "'%s' is finished already, with the same plan",
                        settings->out);
    else if (result->n_continued > 0 && !arguments->quiet)
        bd_command_note(arguments, "%" PRId64 " of %" PRId64 " units were finished already",
                        result->n_continued, result->n_continued + result->n_packed);
    if (!result->finished) {
        if (!arguments->quiet)
            bd_command_note(arguments,
                            "rank %" PRId64 " of %" PRId64 " has packed %" PRId64
                            " units; others are still at work",
                            how->rank, how->n_ranks, result->n_packed);
        return BD_OK;
    }
    if (result->card_kept && !arguments->quiet)
        bd_command_note(arguments, BD_CARD_KEPT, settings->out);
    if (settings->json)
        return bd_manifest_print(settings->out, stdout, err);
    return arguments->quiet ? BD_OK
                            : bd_report_ledger(stdout, settings->out, &result->manifest, err);
}

// "3 files (2 hidden, 1 PDF)"; nothing if none was passed over.
static size_t list_passed(const bd_passed_over *passed, char *text, size_t size)
{
    const int64_t n_files = bd_passed_over_files(passed);
    size_t n = n_files == 0
                   ? 0
                   : (size_t)snprintf(text, size, "%s file%s (", bd_format_exact(n_files).text,
                                      n_files == 1 ? "" : "s");
    for (size_t i = 0; i < passed->n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s %s", i > 0 ? ", " : "",
                              bd_format_exact(passed->items[i].n_files).text,
                              passed->items[i].reason);
    if (n_files > 0 && n < size)
        n += (size_t)snprintf(text + n, size - n, ")");
    return n < size ? n : size - 1;
}

// Whoever wants to read nothing else still learns what is missing. (Others have been told of
// files before packing began, and of tokens in the ledger.)
static void say_left_out(const bd_arguments *arguments, const bd_passed_over *passed,
                         const bd_figures *totals)
{
    const struct {
        const char *before;
        int64_t n;
        const char *after;
    } parts[] = {
        {"", totals->dropped_documents, " longer than a row"},
        {"", totals->too_short_documents, " of fewer than --min-tokens"},
        {"the ends of ", totals->truncated_documents, ""},
    };
    bd_figures figures = *totals;
    char text[2048] = "";
    size_t n = list_passed(passed, text, sizeof text - 768);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].n > 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s document%s%s",
                                  n > 0 ? "; " : "", parts[i].before,
                                  bd_format_exact(parts[i].n).text, parts[i].n == 1 ? "" : "s",
                                  parts[i].after);
    for (int kind = BD_BAD_NONE + 1; kind < BD_N_BAD_KINDS; kind++) {
        const int64_t n_bad = *bd_figures_bad(&figures, (bd_bad_kind)kind);
        if (n_bad > 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s record%s %s",
                                  n > 0 ? "; " : "", bd_format_exact(n_bad).text,
                                  n_bad == 1 ? "" : "s", bd_bad_kind_words[kind]);
    }
    if (arguments->quiet && n > 0)
        bd_command_note(arguments, "left out: %s", text);
}

// 0 if one is not known: then progress tells no share.
static uint64_t total_bytes(const bd_inputs *inputs)
{
    uint64_t n = 0;
    for (size_t i = 0; i < inputs->n; i++) {
        if (inputs->items[i].entry.size_bytes == BD_UNKNOWN)
            return 0;
        n += (uint64_t)inputs->items[i].entry.size_bytes;
    }
    return n;
}

// ---- The command ---------------------------------------------------------------------------

static bd_status pack(bd_pack_job *job, const bd_pack_settings *how,
                      const bd_arguments *arguments, bd_error *err)
{
    const bd_pack_options *settings = arguments->settings;
    const int64_t started_ns = bd_now_ns();
    bd_pack_result result;
    // Several processes would each count what all of them need; a limit makes it unknowable.
    if (!settings->no_space_check && how->mode == BD_PACK_ALONE && job->limit == BD_NO_LIMIT)
        BD_TRY(bd_space_check(job, err));
    job->progress = bd_progress_new(&(bd_progress_config){.label = "packing",
                                                          .unit = "bytes",
                                                          .total = total_bytes(job->inputs),
                                                          .quiet = arguments->quiet});
    bd_status status = bd_pack(job, how, &result, err);
    bd_progress_free(job->progress);
    if (status == BD_ERR_INTERRUPTED)
        bd_fail(err, status, "interrupted; the same command continues");
    if (status == BD_OK)
        status = print_result(arguments, how, job->inputs, &result, err);
    if (status == BD_OK && !result.already_finished)  // of a part the bytes are not known
        bd_command_say_time(arguments, bd_now_ns() - started_ns,
                            result.finished && result.n_continued == 0 && how->n_ranks == 1
                                ? total_bytes(job->inputs)
                                : 0,
                            "read");
    if (status == BD_OK && result.finished)
        say_left_out(arguments, &job->inputs->passed, &result.manifest.totals);
    for (size_t i = 0; i < result.n_missing; i++)
        printf("%s%s\n", bd_unit_shard_name(&result.missing[i].unit).text,
               result.missing[i].is_series ? " and what follows it" : "");
    bd_pack_result_release(&result);
    return status;
}

static bd_status pack_inputs(bd_pack_job *job, const bd_pack_settings *how,
                             const bd_arguments *arguments, bd_error *err)
{
    const bd_pack_options *settings = arguments->settings;
    bd_inputs inputs = {0};
    char *holdout = NULL;
    bd_status status =
        bd_pack_job_collect(&inputs, arguments->operands, arguments->n_operands, settings, err);
    if (status != BD_OK)
        goto done;
    status = examine_inputs(&inputs, job, how, err);
    if (status != BD_OK)
        goto done;
    if (settings->dry_run)  // which tells others with the plan
        say_left_out(arguments, &inputs.passed, &(bd_figures){0});
    else if (!arguments->quiet)
        bd_report_passed_over(stderr, &inputs.passed);
    job->inputs = &inputs;
    job->folder = settings->out;
    if (settings->holdout) {
        job->holdout_folder = holdout = bd_path_join(settings->out, BD_HOLDOUT_NAME);
        if (!holdout)
            status = bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    }
    if (status == BD_OK)
        status = settings->dry_run ? bd_report_plan(stdout, job, err)
                                   : pack(job, how, arguments, err);
done:
    free(holdout);
    bd_inputs_release(&inputs);
    return status;
}

int bd_pack_run(const bd_arguments *arguments)
{
    const bd_pack_options *settings = arguments->settings;
    bd_error err;
    bd_pack_job job;
    bd_pack_settings how = {.n_threads = bd_threads_count(settings->n_threads),
                            .overwrite = settings->overwrite,
                            .update = settings->update,
                            .quiet = arguments->quiet};
    if (bd_pack_job_init(&job, settings, &err) != BD_OK ||
        choose_ranks(&how, settings, &err) != BD_OK) {
        bd_tokenizer_close(job.tokenizer);
        return bd_command_misuse(arguments, &err);
    }
    bd_interrupt_catch();
    const bd_status status = pack_inputs(&job, &how, arguments, &err);
    bd_tokenizer_close(job.tokenizer);
    if (status == BD_OK)
        return BD_EXIT_DONE;
    return bd_command_fail(arguments, &err);
}
