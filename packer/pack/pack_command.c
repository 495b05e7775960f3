// `bindery pack`: its options and their checks, the run, and what is printed about it. job.c makes
// a job of the options, pack.c runs it.
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
#include "packer/commands.h"
#include "packer/input/bad_records.h"
#include "packer/pack/dataset_card.h"
#include "packer/pack/dry_run_report.h"
#include "packer/pack/input_option_table.h"
#include "packer/pack/job.h"
#include "packer/pack/ledger_report.h"
#include "packer/pack/output.h"
#include "packer/pack/pack.h"
#include "packer/pack/space.h"

static const bd_option pack_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(bd_pack_options, job.folder),
     .required = true,
     .help = "Write the dataset into DIR; an unfinished one is continued"},
    {.name = "seq-len",
     .aliases = (const char *const[]){"sequence-length", NULL},
     .value = "N",
     BD_LENGTH(bd_pack_options, job.config.seq_len, BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN),
     .initial = "2048",
     .help = "Tokens in a row; 2k is 2048"},
    BD_TOKENIZER_OPTION,
    {.name = "strategy",
     .value = "HOW",
     BD_CHOICE(bd_pack_options, job.config.strategy, bd_strategy_names),
     .initial = "best-fit",
     .help = "How rows are filled"},
    {.name = "long",
     .value = "HOW",
     BD_CHOICE(bd_pack_options, job.config.long_policy, bd_long_policy_names),
     BD_GIVEN(bd_pack_options, long_given),
     .initial = "split",
     .initial_note = "split, and drop for chats",
     .help = "What to do with documents longer than a row"},
    {.name = "max-documents",
     .value = "N",
     BD_INTEGER(bd_pack_options, job.config.max_documents, 1, BD_MAX_SEQ_LEN),
     .initial = "0",
     .initial_note = "no limit",
     .help = "Most documents, or pieces of them, in a row"},
    BD_MIN_TOKENS_OPTION,
    {.name = "shuffle",
     .value = "SEED",
     BD_INTEGER(bd_pack_options, job.config.shuffle, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "input order",
     .help = "Shuffle the documents of each unit"},
    {.name = "holdout",
     .value = "SHARE%",
     BD_TEXT(bd_pack_options, holdout),
     .initial_note = "none",
     .help = "Hold out that share of the documents, into a second dataset in DIR/holdout"},
    {.name = "limit",
     .value = "N",
     BD_INTEGER(bd_pack_options, job.limit, 1, INT64_MAX),
     .initial = "-1",
     .initial_note = "all",
     .help = "Take the first N documents of the inputs"},
    BD_INPUT_OPTIONS,
    BD_FOLDER_OPTIONS,
    {.name = "max-bad",
     .value = "SHARE%",
     BD_TEXT(bd_pack_options, max_bad),
     .initial_note = "0.1% with --bad-records skip",
     .help = "Largest share of the records that may be bad; with more there is no manifest"},
    {.name = "compress",
     .value = "CODEC",
     BD_CHOICE(bd_pack_options, job.config.codec, bd_shard_codec_names),
     .initial = "none",
     .help = "Compress the shards, for archives: training reads them more slowly"},
    BD_UNIT_OPTIONS,
    BD_SETTINGS_OPTION(bd_pack_options, settings_file, "seq-len: 1024"),
    BD_THREADS_OPTION(bd_pack_options, n_threads,
                      "Units to pack at the same time; the result does not depend on it"),
    {.name = "rank",
     .value = "R",
     BD_INTEGER(bd_pack_options, rank, 0, INT32_MAX),
     .initial = "-1",
     .initial_note = "what mpirun or srun says",
     .help = "This is process R of those that pack the same inputs into DIR"},
    {.name = "ranks",
     .value = "N",
     BD_INTEGER(bd_pack_options, n_ranks, 1, INT32_MAX),
     .initial = "-1",
     .initial_note = "what mpirun or srun says",
     .help = "Number of those processes"},
    {.name = "finish",
     BD_FLAG(bd_pack_options, finish),
     .help = "Pack nothing: publish the manifest of what several processes have packed, or "
             "say what is missing"},
    {.name = "no-space-check",
     BD_FLAG(bd_pack_options, no_space_check),
     .help = "Begin even if the disk seems too small"},
    {.name = "dry-run",
     .letter = 'n',
     BD_FLAG(bd_pack_options, dry_run),
     .help = "Say what would be done, write nothing"},
    {.name = "overwrite",
     BD_FLAG(bd_pack_options, overwrite),
     .help = "Replace a dataset that is in DIR already"},
    {.name = "update",
     BD_FLAG(bd_pack_options, update),
     .help = "The inputs have changed since they were packed into DIR: pack again what differs "
             "(with --limit also all that follows it) and nothing else"},
    {.name = "json",
     BD_FLAG(bd_pack_options, json),
     .help = "Print the manifest as JSON (schemas/manifest-v1.schema.json)"},
};

// ---- Checks --------------------------------------------------------------------------------

static bd_status choose_ranks(bd_pack_settings *how, const bd_pack_options *options,
                              bd_error *err)
{
    bd_ranks ranks = {.rank = options->rank, .n_ranks = options->n_ranks};
    if ((options->rank == BD_NOT_GIVEN) != (options->n_ranks == BD_NOT_GIVEN))
        return bd_fail(err, BD_ERR_ARGUMENT, "--rank and --ranks go together");
    if (options->rank == BD_NOT_GIVEN)
        BD_TRY(bd_ranks_from_environment(&ranks, err));
    if (ranks.rank >= ranks.n_ranks)
        return bd_fail(err, BD_ERR_ARGUMENT, "--rank: from 0 to %" PRId64, ranks.n_ranks - 1);
    how->rank = ranks.rank;
    how->n_ranks = ranks.n_ranks;
    how->mode = options->finish      ? BD_PACK_FINISH
                : ranks.n_ranks == 1 ? BD_PACK_ALONE
                                     : BD_PACK_SHARED;
    if (options->finish && options->rank != BD_NOT_GIVEN)
        return bd_fail(err, BD_ERR_ARGUMENT, "--finish is for one process, without --rank");
    if (options->overwrite && options->update)
        return bd_fail(err, BD_ERR_ARGUMENT, "either --overwrite or --update");
    if (how->mode != BD_PACK_ALONE && options->update)
        return bd_fail(err, BD_ERR_ARGUMENT, "--update is for one process alone");
    if (how->mode != BD_PACK_ALONE && options->overwrite)
        return bd_fail(err, BD_ERR_ARGUMENT, "--overwrite is for one process alone");
    if (how->mode != BD_PACK_ALONE && options->job.limit != BD_NO_LIMIT)
        return bd_fail(err, BD_ERR_ARGUMENT, "--limit is for one process alone");
    return BD_OK;
}

static bd_status check_standard_input(const bd_inputs *inputs, const bd_pack_settings *how,
                                      bd_error *err)
{
    for (size_t i = 0; i < inputs->n; i++)
        if (bd_input_is_stdin(&inputs->items[i]) && how->mode != BD_PACK_ALONE)
            return bd_fail(err, BD_ERR_ARGUMENT, "standard input is for one process alone");
        else if (bd_input_is_stdin(&inputs->items[i]) && how->update)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "--update: standard input cannot be read twice (--overwrite packs "
                           "it anew)");
    return BD_OK;
}

// ---- Printing ------------------------------------------------------------------------------

static bd_status print_result(const bd_arguments *arguments, const bd_pack_settings *how,
                              const bd_pack_result *result, bd_error *err)
{
    const bd_pack_options *options = arguments->settings;
    const char *folder = options->job.folder;
    if (result->n_doubtful > 0)
        bd_command_note(
            arguments,
            "'%s'%s may have changed since then: pack-log.json does not have that "
            "size, time and inode (bindery verify %s --against INPUT compares them, "
            "--update packs again what differs)",
            options->job.inputs->items[result->first_doubtful].path,
            result->n_doubtful > 1 ? " and others" : "", folder);
    if (result->already_finished && !arguments->quiet)
        bd_command_note(arguments, "'%s' is finished already, with the same plan", folder);
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
    if (options->job.reading.form == BD_FORM_MESSAGES && !options->long_given &&
        result->manifest.totals.dropped_documents > 0 && !arguments->quiet)
        bd_command_note(arguments,
                        "chats longer than a row were dropped: %" PRId64
                        " (--long truncate, split or error does otherwise)",
                        result->manifest.totals.dropped_documents);
    if (result->card_kept && !arguments->quiet)
        bd_command_note(arguments, BD_CARD_KEPT, folder);
    if (options->json)
        return bd_manifest_print(folder, stdout, err);
    return arguments->quiet ? BD_OK : bd_report_ledger(stdout, folder, &result->manifest, err);
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

// With --quiet this one line tells what is missing from the dataset. Without it the files were
// printed before packing began, and the ledger has the rest.
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
    for (int kind = BD_BAD_NONE + 1; bd_bad_kind_names[kind]; kind++) {
        const int64_t n_bad = *bd_figures_bad(&figures, (bd_bad_kind)kind);
        if (n_bad > 0)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s record%s %s",
                                  n > 0 ? "; " : "", bd_format_exact(n_bad).text,
                                  n_bad == 1 ? "" : "s", bd_bad_kind_names[kind]);
    }
    if (arguments->quiet && n > 0)
        bd_command_note(arguments, "left out: %s", text);
}

// ---- The command ---------------------------------------------------------------------------

static bd_status pack_dataset(const bd_arguments *arguments, const bd_pack_settings *how,
                              bd_error *err)
{
    const bd_pack_options *options = arguments->settings;
    const bd_pack_job *job = &options->job;
    const int64_t started_ns = bd_now_ns();
    bd_pack_result result;
    // Several processes would each count what all of them need, and with a limit nobody knows.
    if (!options->no_space_check && how->mode == BD_PACK_ALONE && job->limit == BD_NO_LIMIT)
        BD_TRY(bd_space_check(job, err));
    bd_status status = bd_pack(job, how, &result, err);
    if (status == BD_ERR_INTERRUPTED)
        bd_fail(err, status, "interrupted; the same command continues");
    if (status == BD_OK)
        status = print_result(arguments, how, &result, err);
    if (status == BD_OK && !result.already_finished) {
        const bool read_all = result.finished && result.n_continued == 0 && how->n_ranks == 1;
        bd_command_say_time(arguments, bd_now_ns() - started_ns,
                            read_all ? bd_pack_job_bytes(job) : 0, "read");
    }
    if (status == BD_OK && result.finished)
        say_left_out(arguments, &job->inputs->passed, &result.manifest.totals);
    for (size_t i = 0; i < result.n_missing; i++)
        printf("%s%s\n", bd_unit_shard_name(&result.missing[i].unit).text,
               result.missing[i].is_stream ? " and what follows it" : "");
    bd_pack_result_release(&result);
    return status;
}

static bd_status find_inputs(const bd_arguments *arguments, const bd_pack_settings *how,
                             bd_inputs *inputs, bd_error *err)
{
    bd_pack_options *options = arguments->settings;
    BD_TRY(
        bd_pack_job_collect(inputs, arguments->operands, arguments->n_operands, options, err));
    BD_TRY(bd_pack_job_examine(&options->job, inputs, how->n_threads, err));
    BD_TRY(check_standard_input(inputs, how, err));
    if (options->dry_run)  // without --quiet the report names them
        say_left_out(arguments, &inputs->passed, &(bd_figures){0});
    else if (!arguments->quiet)
        bd_report_passed_over(stderr, &inputs->passed);
    return BD_OK;
}

static int pack_run(const bd_arguments *arguments)
{
    bd_pack_options *options = arguments->settings;
    bd_pack_job *job = &options->job;
    bd_pack_settings how = {.n_threads = bd_threads_count(options->n_threads),
                            .overwrite = options->overwrite,
                            .update = options->update,
                            .quiet = arguments->quiet};
    bd_inputs inputs = {0};
    char *holdout = NULL;
    bd_error err;
    if (bd_pack_job_complete(options, &err) != BD_OK ||
        choose_ranks(&how, options, &err) != BD_OK) {
        bd_pack_job_release(job);
        return bd_command_misuse(arguments, &err);
    }
    bd_interrupt_catch();
    bd_status status = find_inputs(arguments, &how, &inputs, &err);
    if (status == BD_OK && options->holdout) {
        job->holdout_folder = holdout = bd_path_join(job->folder, BD_HOLDOUT_NAME);
        if (!holdout)
            status = bd_fail(&err, BD_ERR_MEMORY, "no memory for a file name");
    }
    job->inputs = &inputs;
    if (status == BD_OK)
        status = options->dry_run ? bd_report_dry_run(stdout, job, &err)
                                  : pack_dataset(arguments, &how, &err);
    free(holdout);
    bd_inputs_release(&inputs);
    bd_pack_job_release(job);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

static const char pack_description[] =
    "Documents are tokenised, each is ended by a separator, and they are laid end to end "
    "into rows of exactly --seq-len tokens. Every row is stored with the boundaries of its "
    "documents, so that training never looks across them. DIR gets one Arrow file per "
    "unit, plan.json, tokenizer.json, README.md, and last of all manifest.json. If the run is "
    "stopped, by whatever, the same command continues it, and ends with the same bytes.\n"
    "\n"
    "Inputs that change are noticed: by their time, size and inode, and then by reading them. "
    "If the contents of some have changed, --update packs the units that differ again, keeps "
    "the "
    "shards of all others, and ends with the bytes of a fresh run.\n"
    "\n"
    "README.md is a card with figures, columns and how to open the dataset; it also tells "
    "Hugging Face's datasets the splits, so that load_dataset(\"DIR\") gives train and "
    "holdout. One that you have changed or written is never replaced or removed.\n"
    "\n"
    "An INPUT is a file; a folder, which is read recursively in the order of names (those "
    "that begin with a dot are left out); a pattern such as 'data/*.jsonl'; @FILE, which names "
    "inputs line by line; or - for standard input. The content tells what a file is: JSONL (a "
    "line is a document), CSV and TSV (a row), JSON arrays (an element), text (a file is a "
    "document, or see --delimiter), all of them plain, gzip, zstd, bzip2 or xz; Parquet and "
    "Arrow (a row is a document); and what is tokenised already: a "
    "column input_ids or tokens, Megatron's .bin with its .idx, llm.c's .bin, raw ids with "
    "datatrove's .index or dolma's .csv.gz beside them. --format takes every file of a folder "
    "as what it says.\n"
    "\n"
    "Every file is read once, however often and by whatever links it is met; a link to a "
    "folder is followed if that folder was not entered before. What cannot be read (archives, "
    "images, an object of JSON over several lines, …) is an error if it was named, and "
    "passed over if it was found in a folder. Whatever is passed over is counted by reason, "
    "which is printed and stored in the manifest; if that is more than half of a folder, by "
    "bytes and but for what you left out yourself, it is an error without --allow-skipped. "
    "PATTERN is for the path below the folder that was given, and * matches / as well; "
    "without a / it may match the last name alone, and a folder that it matches stands for all "
    "that is below.\n"
    "\n"
    "Options after the INPUT of --source are text-field, format and delimiter; they are looked "
    "for from the right, so that any other comma is part of the name.\n"
    "\n"
    "--delimiter LINE must be the whole line: with CRLF line ends it includes the CR. JSON is "
    "UTF-8 by definition, so --invalid-utf8 keep does not take it. Standard input is JSONL "
    "unless --format or --delimiter says otherwise.\n"
    "\n"
    "With --bad-records skip, records of which no document can be made are left out and "
    "counted by kind in the ledger, and the first hundred are listed in pack-log.json. If they "
    "are more than --max-bad of all records, the shards stay, and the same command with a "
    "larger --max-bad finishes the dataset. A damaged file is always an error.\n"
    "\n"
    "A document that spells out a special token of the tokenizer, such as <|endoftext|>, "
    "cannot "
    "plant one: it is text like any other, as with split_special_tokens in transformers and "
    "encode_ordinary in tiktoken. --special-tokens token makes it the token, error refuses the "
    "document. Added tokens that are not special, such as runs of spaces, are tokens in any "
    "case. "
    "Those that were recognised are counted one by one in the ledger and by inspect.\n"
    "\n"
    "Records may say which tokens are trained; the dataset then has a loss mask. A prompt "
    "(--prompt-field) is not trained, and what follows it (--completion-field) is, with the "
    "end of "
    "the document. --segments-field names a list of {\"text\": ..., \"train\": true or false}. "
    "--chat-format is for chats, lists of {\"role\": ..., \"content\": ...} in the field of "
    "--messages-field, and names what stands around their messages; the special tokens of a "
    "chat come from there "
    "alone. No token spans a border between trained and untrained text. Documents of which no "
    "token is trained are left out and counted. Chats that are longer than a row are dropped "
    "and "
    "counted unless --long says otherwise. docs/pack.md describes the formats.\n"
    "\n"
    "A document longer than a row is split, and a piece after the first repeats the last "
    "token of the piece before it as context; or it is truncated, or dropped, or an error. "
    "The ledger that is printed says where every token went.\n"
    "\n"
    "Memory, for each thread, is below 4 bytes per token of a unit (2 if the vocabulary "
    "has at most 65536 ids), 70 per segment of it, 20 per byte of its largest record, and "
    "50 MiB; with a tokenizer from a file 128 MiB more. Besides: for compressed inputs the "
    "unit's bytes, 80 per record and zstd's window; "
    "for tables the column of one row group or record batch, while it is read up to four times "
    "that; with --shuffle 100 per document. Rows that take more memory in one unit than "
    "--unit-size (and 64 MiB), and more than 64 times their bytes in the file, are refused. "
    "The "
    "same inputs and options give the same bytes, whatever the number of threads and "
    "processes.\n"
    "\n"
    "Several processes share the work if each is given --rank and --ranks, or is started by "
    "mpirun or srun. Each takes units that no other has; the last to end packs what others "
    "left and publishes the manifest. A compressed input is read by one process.\n"
    "\n"
    "Exit status: 0 done, 2 it could not be done. Interrupted, it ends by that signal.\n"
    "\n"
    "Examples:\n"
    "\n"
    "  bindery pack -o shards --seq-len 1024 corpus.jsonl\n"
    "  bindery pack -o shards --delimiter '<|endoftext|>' stories.txt.gz\n"
    "  bindery pack -o shards --holdout 1% --source web=crawl/ --source wiki=wiki/\n"
    "  bindery pack -o shards --source code=src/,format=text --source web=crawl/\n"
    "  bindery pack -o shards --source web=crawl/,text-field=content\n"
    "  bindery pack -o shards --include '*.py' --include '*.md' --exclude tests src/\n"
    "  bindery pack -o shards --tokenizer gpt2/tokenizer.json corpus.jsonl\n"
    "  bindery pack -o shards --tokenizer cl100k_base.tiktoken:cl100k corpus.jsonl\n"
    "  bindery pack -o shards --vocab-size 50257 --separator-id 50256 tokens.bin\n"
    "  bindery pack -o sft --chat-format plain chats.jsonl\n"
    "  bindery pack -o sft --prompt-field src --completion-field tgt pairs.jsonl\n";

const bd_command bd_pack_command = {
    .name = "pack",
    .summary = "Pack documents into training shards with stored boundaries",
    .description = pack_description,
    .operands = "[INPUT...]",
    .operand_kind = BD_OPTION_FILE,
    .options = pack_options,
    .n_options = sizeof pack_options / sizeof pack_options[0],
    .settings_size = sizeof(bd_pack_options),
    .run = pack_run,
};
