// `bindery pack`: settings in, a packed dataset and its ledger out. The options themselves are
// in pack_options.c.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/folder.h"
#include "common/format.h"
#include "common/interrupt.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/terminal.h"
#include "common/threads.h"
#include "common/utf8.h"
#include "packer/output.h"
#include "packer/pack.h"
#include "packer/pack_options.h"
#include "packer/ranks.h"
#include "packer/report.h"
#include "packer/space.h"

// ---- From settings to a job -----------------------------------------------------------------

static bd_status check_id(int64_t id, const char *option, const bd_tokenizer *tokenizer,
                          bd_error *err)
{
    if (id < tokenizer->vocab_size)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "%s: %" PRId64
                   " is not an id of tokenizer '%s', whose vocabulary is %" PRId64,
                   option, id, tokenizer->name, tokenizer->vocab_size);
}

// "0.5%" is 5000 millionths: at most four digits after the point.
static bd_status parse_share(const char *text, int64_t *millionths, bd_error *err)
{
    const size_t n_whole = strspn(text, "0123456789");
    const char *point = text + n_whole;
    const size_t n_digits = *point == '.' ? strspn(point + 1, "0123456789") : 0;
    const char *end = *point == '.' ? point + 1 + n_digits : point;
    *millionths = 0;
    for (size_t i = 0; i < n_whole && *millionths <= BD_MILLION; i++)
        *millionths = 10 * *millionths + (text[i] - '0') * INT64_C(10000);
    for (size_t i = 0, unit = 1000; i < n_digits && i < 4; i++, unit /= 10)
        *millionths += (point[1 + i] - '0') * (int64_t)unit;
    const bool sound = n_whole + n_digits > 0 && n_digits <= 4 && strcmp(end, "%") == 0;
    if (sound && *millionths > 0 && *millionths < BD_MILLION)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "--holdout: '%s' is not a share from 0.0001%% to 99.9999%%", text);
}

static bd_status make_packing(bd_packing *packing, const bd_pack_options *settings,
                              const bd_tokenizer *tokenizer, bd_error *err)
{
    const int64_t separator =
        settings->separator_id == BD_NOT_GIVEN ? tokenizer->separator : settings->separator_id;
    if (separator == BD_NO_SEPARATOR)
        return bd_fail(err, BD_ERR_ARGUMENT, "--vocab-size needs --separator-id as well");
    *packing = (bd_packing){
        .seq_len = settings->seq_len,
        .vocab_size = tokenizer->vocab_size,
        .separator = separator,
        .bos = settings->bos == BD_NOT_GIVEN ? BD_NO_BOS : settings->bos,
        .padding = settings->padding_id == BD_NOT_GIVEN ? separator : settings->padding_id,
        .strategy = settings->strategy,
        .long_policy = settings->long_policy,
        .max_documents = settings->max_documents,
        .min_tokens = settings->min_tokens,
        .shuffle = settings->shuffle == BD_NOT_GIVEN ? BD_NO_SHUFFLE : settings->shuffle,
        .codec = settings->codec,
        .fingerprint = tokenizer->fingerprint,
    };
    snprintf(packing->tokenizer, sizeof packing->tokenizer, "%s", tokenizer->name);
    packing->batch_rows = bd_packing_default_batch_rows(packing);
    if (settings->holdout) {
        BD_TRY(parse_share(settings->holdout, &packing->holdout, err));
        packing->part = BD_PART_TRAINING;
    }
    BD_TRY(check_id(packing->separator, "--separator-id", tokenizer, err));
    BD_TRY(check_id(packing->bos, "--bos", tokenizer, err));
    return check_id(packing->padding, "--padding-id", tokenizer, err);
}

static bool is_utf8(const char *text)
{
    return bd_utf8_valid_prefix(text, strlen(text)) == strlen(text);
}

static bd_status make_reading(bd_reading *reading, const bd_pack_options *settings,
                              const bd_packing *packing, bd_error *err)
{
    *reading = (bd_reading){
        .format = settings->format,
        .text_field = settings->text_field,
        .delimiter = settings->delimiter,
        .utf8_policy = settings->utf8_policy,
        .separator = settings->separator,
        .unit_bytes = settings->unit_bytes,
        .max_document_bytes = settings->max_document_bytes,
        .raw_id_bytes = settings->id_bytes == BD_NOT_GIVEN ? bd_packing_id_bytes(packing)
                                                           : (int)settings->id_bytes,
        .end_of_text = packing->separator,
    };
    if (settings->delimiter && strchr(settings->delimiter, '\n'))
        return bd_fail(err, BD_ERR_ARGUMENT, "--delimiter: one line, without a newline");
    if (reading->raw_id_bytes == 3)
        return bd_fail(err, BD_ERR_ARGUMENT, "--id-bytes: 2 or 4");
    // They are part of the plan, which is JSON.
    if (!is_utf8(settings->text_field) ||
        (settings->delimiter && !is_utf8(settings->delimiter)))
        return bd_fail(err, BD_ERR_ARGUMENT, "--text-field and --delimiter must be UTF-8");
    return BD_OK;
}

// Fills in all but the inputs, the folders and the progress. Close job->tokenizer afterwards.
static bd_status make_job(bd_pack_job *job, const bd_pack_options *settings, bd_error *err)
{
    *job =
        (bd_pack_job){.limit = settings->limit == BD_NOT_GIVEN ? BD_NO_LIMIT : settings->limit};
    if (settings->vocab_size == BD_NOT_GIVEN)
        BD_TRY(bd_tokenizer_open(&job->tokenizer, settings->tokenizer, err));
    else
        BD_TRY(bd_tokenizer_open_ids(&job->tokenizer, settings->vocab_size, err));
    BD_TRY(make_packing(&job->packing, settings, job->tokenizer, err));
    return make_reading(&job->reading, settings, &job->packing, err);
}

// ---- Who does it ---------------------------------------------------------------------------

static bd_status choose_ranks(bd_pack_settings *how, const bd_pack_options *settings,
                              bd_error *err)
{
    bd_ranks ranks = {settings->rank, settings->n_ranks};
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
    if (how->mode != BD_PACK_ALONE && settings->overwrite)
        return bd_fail(err, BD_ERR_ARGUMENT, "--overwrite is for one process alone");
    if (how->mode != BD_PACK_ALONE && settings->limit != BD_NOT_GIVEN)
        return bd_fail(err, BD_ERR_ARGUMENT, "--limit is for one process alone");
    return BD_OK;
}

// ---- Inputs --------------------------------------------------------------------------------

static bd_status add_source(bd_inputs *inputs, const char *labelled,
                            const bd_pack_options *settings, bd_error *err)
{
    const char *equals = strchr(labelled, '=');
    if (!equals || equals == labelled || equals[1] == '\0' || !is_utf8(labelled))
        return bd_fail(err, BD_ERR_ARGUMENT, "--source: '%s' is not NAME=INPUT", labelled);
    char *name = strndup(labelled, (size_t)(equals - labelled));
    if (!name)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    const bd_status status =
        bd_inputs_add(inputs, equals + 1, name, settings->format, settings->out, err);
    free(name);
    return status;
}

// An input in the dataset's own folder would be an earlier dataset's shard, which --overwrite
// removes before it is read.
static bd_status refuse_inside(const bd_inputs *inputs, const char *folder, bd_error *err)
{
    for (size_t i = 0; i < inputs->n; i++)
        if (bd_lies_in_folder(inputs->items[i].path, folder))
            return bd_fail(err, BD_ERR_ARGUMENT, "'%s' lies in '%s', which is the output",
                           inputs->items[i].path, folder);
    return BD_OK;
}

static bd_status collect_inputs(bd_inputs *inputs, const bd_arguments *arguments, bd_error *err)
{
    const bd_pack_options *settings = arguments->settings;
    for (size_t i = 0; i < arguments->n_operands; i++)
        BD_TRY(bd_inputs_add(inputs, arguments->operands[i], BD_DEFAULT_SOURCE,
                             settings->format, settings->out, err));
    for (size_t i = 0; i < settings->sources.n; i++)
        BD_TRY(add_source(inputs, settings->sources.items[i], settings, err));
    if (inputs->n == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "no input: name a file or a folder");
    if (settings->sources.n >= BD_MAX_SOURCES)
        return bd_fail(err, BD_ERR_ARGUMENT, "more than %d sources", BD_MAX_SOURCES);
    return refuse_inside(inputs, settings->out, err);
}

// What goes with the job and what does not.
static bd_status check_input(const bd_pack_job *job, const bd_pack_settings *how,
                             const bd_input *input, bd_error *err)
{
    if (input->id_bytes == 0 && !job->tokenizer->takes_text)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds text, which needs a tokenizer instead of --vocab-size",
                       input->path);
    if (input->id_bytes == 0 && job->reading.separator == BD_SEPARATOR_PRESENT)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "--separator present is for tokenised inputs; '%s' holds text, which has "
            "no separators yet",
            input->path);
    if (bd_input_is_stdin(input) && job->reading.format > BD_FORMAT_JSONL)
        return bd_fail(err, BD_ERR_ARGUMENT, "--format: standard input is text or jsonl");
    if (bd_input_is_stdin(input) && how->mode != BD_PACK_ALONE)
        return bd_fail(err, BD_ERR_ARGUMENT, "standard input is for one process alone");
    return BD_OK;
}

static bd_status examine_inputs(bd_inputs *inputs, const bd_pack_job *job,
                                const bd_pack_settings *how, bd_error *err)
{
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, how->n_threads, err));
    bd_status status = bd_inputs_examine(inputs, &job->reading, threads, err);
    bd_threads_free(threads);
    for (size_t i = 0; status == BD_OK && i < inputs->n; i++)
        status = check_input(job, how, &inputs->items[i], err);
    return status;
}

// ---- What is printed -----------------------------------------------------------------------

static bd_status print_result(const bd_pack_options *settings, const bd_pack_settings *how,
                              const bd_pack_result *result, bool quiet, bd_error *err)
{
    if (result->already_finished && !quiet)
        fprintf(stderr, "bindery pack: '%s' is finished already, with the same plan\n",
                settings->out);
    else if (result->n_continued > 0 && !quiet)
        fprintf(stderr,
                "bindery pack: %" PRId64 " of %" PRId64 " units were finished already\n",
                result->n_continued, result->n_continued + result->n_packed);
    if (!result->finished) {
        if (!quiet)
            fprintf(stderr,
                    "bindery pack: rank %" PRId64 " of %" PRId64 " has packed %" PRId64
                    " units; others are still at work\n",
                    how->rank, how->n_ranks, result->n_packed);
        return BD_OK;
    }
    if (settings->json)
        return bd_manifest_print(settings->out, stdout, err);
    return bd_report_ledger(stdout, &result->manifest, err);
}

static bd_status print_plan(const bd_pack_job *job, bd_error *err)
{
    bd_units units;
    size_t n_series = 0;
    BD_TRY(bd_pack_plan_units(job, &units, err));
    for (size_t i = 0; i < units.n; i++)
        n_series += units.items[i].is_series;
    for (size_t i = 0; i < job->inputs->n; i++) {
        const bd_input_entry *entry = &job->inputs->items[i].entry;
        printf("%-12s  %-6s  %12s  ", entry->format, entry->compression,
               entry->size_bytes == BD_UNKNOWN
                   ? "?"
                   : bd_format_bytes((uint64_t)entry->size_bytes).text);
        bd_print_safely(stdout, entry->name, strlen(entry->name), false);
        putchar('\n');
    }
    printf("%zu input%s, %zu unit%s", job->inputs->n, job->inputs->n == 1 ? "" : "s",
           units.n - n_series, units.n - n_series == 1 ? "" : "s");
    if (n_series > 0)
        printf(" and those of %zu input%s of unknown size", n_series, n_series == 1 ? "" : "s");
    printf("; about %s to be written\n", bd_format_bytes((uint64_t)bd_space_needed(job)).text);
    bd_units_release(&units);
    return BD_OK;
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
        status = print_result(settings, how, &result, arguments->quiet, err);
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
    bd_status status = collect_inputs(&inputs, arguments, err);
    if (status != BD_OK)
        goto done;
    if (inputs.n_skipped > 0 && !arguments->quiet)
        fprintf(stderr, "bindery pack: %zu file%s of unknown format skipped, such as '%s'\n",
                inputs.n_skipped, inputs.n_skipped == 1 ? "" : "s", inputs.first_skipped);
    status = examine_inputs(&inputs, job, how, err);
    if (status != BD_OK)
        goto done;
    job->inputs = &inputs;
    job->folder = settings->out;
    if (settings->holdout) {
        job->holdout_folder = holdout = bd_path_join(settings->out, BD_HOLDOUT_NAME);
        if (!holdout)
            status = bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    }
    if (status == BD_OK)
        status = settings->dry_run ? print_plan(job, err) : pack(job, how, arguments, err);
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
                            .overwrite = settings->overwrite};
    if (make_job(&job, settings, &err) != BD_OK ||
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
