// `bindery pack`: options in, a packed dataset and its ledger out.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/program.h"
#include "common/progress.h"
#include "common/threads.h"
#include "common/utf8.h"
#include "packer/commands.h"
#include "packer/pack.h"
#include "packer/report.h"

enum { NOT_GIVEN = -1 };  // of options whose default comes from the tokenizer

typedef enum separator_mode { SEPARATOR_APPEND, SEPARATOR_PRESENT } separator_mode;

typedef struct pack_settings {
    const char *out;
    int64_t seq_len;
    const char *tokenizer;
    bd_strategy strategy;
    bd_long_policy long_policy;
    separator_mode separator;
    int64_t separator_id, bos, padding_id;
    bd_format_choice format;
    const char *text_field;
    const char *delimiter;
    bd_utf8_policy utf8_policy;
    int64_t unit_bytes, max_document_bytes;
    int64_t n_threads;
    bool overwrite;
    bool json;
} pack_settings;

static const char *const separator_words[] = {"append", "present", NULL};
static const char *const format_words[] = {"auto", "text", "jsonl", NULL};

static const bd_option pack_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(pack_settings, out),
     .required = true,
     .help = "Write the dataset into DIR; an unfinished one is continued"},
    {.name = "seq-len",
     .value = "N",
     BD_INTEGER(pack_settings, seq_len, BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN),
     .initial = "2048",
     .help = "Tokens in a row"},
    {.name = "tokenizer",
     .value = "NAME",
     BD_TEXT(pack_settings, tokenizer),
     .initial = "bytes",
     .help = "Tokenizer; 'bytes' (built in) has one id per byte and a separator"},
    {.name = "strategy",
     .value = "HOW",
     BD_CHOICE(pack_settings, strategy, bd_strategy_words),
     .initial = "best-fit",
     .help = "How rows are filled"},
    {.name = "long",
     .value = "HOW",
     BD_CHOICE(pack_settings, long_policy, bd_long_policy_words),
     .initial = "split",
     .help = "What to do with documents longer than a row"},
    {.name = "separator",
     .value = "HOW",
     BD_CHOICE(pack_settings, separator, separator_words),
     .initial = "append",
     .help = "Whether separators are to be appended, or are in the input already (which text "
             "never is)"},
    {.name = "separator-id",
     .value = "ID",
     BD_INTEGER(pack_settings, separator_id, 0, UINT32_MAX),
     .initial = "-1",
     .initial_note = "the tokenizer's",
     .help = "Token that ends each document"},
    {.name = "bos",
     .value = "ID",
     BD_INTEGER(pack_settings, bos, 0, UINT32_MAX),
     .initial = "-1",
     .initial_note = "none",
     .help = "Token that begins each document"},
    {.name = "padding-id",
     .value = "ID",
     BD_INTEGER(pack_settings, padding_id, 0, UINT32_MAX),
     .initial = "-1",
     .initial_note = "the separator",
     .help = "Token that fills the end of a row; its value never matters"},
    {.name = "format",
     .value = "FORMAT",
     BD_CHOICE(pack_settings, format, format_words),
     .initial = "auto",
     .help = "Format of the inputs; auto goes by the ending of the name"},
    {.name = "text-field",
     .value = "FIELD",
     BD_TEXT(pack_settings, text_field),
     .initial = "text",
     .help = "Field of a JSON record that holds the text; a.b is field b of field a"},
    {.name = "delimiter",
     .value = "LINE",
     BD_TEXT(pack_settings, delimiter),
     .initial_note = "a text file is one document",
     .help = "Text: a line that equals LINE separates documents"},
    {.name = "invalid-utf8",
     .value = "HOW",
     BD_CHOICE(pack_settings, utf8_policy, bd_utf8_policy_words),
     .initial = "error",
     .help = "What to do with text that is not UTF-8"},
    {.name = "unit-size",
     .value = "SIZE",
     BD_SIZE(pack_settings, unit_bytes, 1, INT64_C(1) << 40),
     .initial = "64M",
     .help = "Bytes of input that become one shard"},
    {.name = "max-document-bytes",
     .value = "SIZE",
     BD_SIZE(pack_settings, max_document_bytes, 1, UINT32_MAX),
     .initial = "256M",
     .help = "A larger record is an error"},
    {.name = "threads",
     .value = "N",
     BD_INTEGER(pack_settings, n_threads, 1, 4096),
     .initial = "0",
     .initial_note = "one per core",
     .help = "Units to pack at the same time; the result does not depend on it"},
    {.name = "overwrite",
     BD_FLAG(pack_settings, overwrite),
     .help = "Replace a dataset that is in DIR already"},
    {.name = "json",
     BD_FLAG(pack_settings, json),
     .help = "Print the manifest as JSON (schemas/manifest-v1.schema.json)"},
};

static const char pack_description[] =
    "Documents are tokenised, each is ended by a separator, and they are laid end to end "
    "into rows of exactly --seq-len tokens. Every row is stored with the boundaries of its "
    "documents, so that training never looks across them. DIR gets one Arrow file per "
    "unit, plan.json, tokenizer.json, and last of all manifest.json.\n"
    "\n"
    "An INPUT is a file, or a folder that is read recursively in the order of names (those "
    "that begin with a dot are left out). Names that end in .txt or .text are text: a file "
    "is a document, or see --delimiter (LINE must be the whole line: with CRLF line ends "
    "it includes the CR). Names that end in .jsonl or .ndjson are JSONL: a line is a "
    "document. JSON is UTF-8 by definition, so --invalid-utf8 keep does not take it.\n"
    "\n"
    "A document longer than a row is split, and a piece after the first repeats the last "
    "token of the piece before it as context; or it is truncated, or dropped, or an error. "
    "The ledger that is printed says where every token went.\n"
    "\n"
    "Memory, for each thread, is below 4 bytes per token of a unit (2 if the vocabulary "
    "has at most 65536 ids), 70 per segment of it, 20 per byte of its largest record, and "
    "50 MiB. The same inputs and options give the same bytes, whatever the number of "
    "threads.\n"
    "\n"
    "Examples:\n"
    "\n"
    "  bindery pack -o shards --seq-len 1024 corpus.jsonl\n"
    "  bindery pack -o shards --delimiter '<|endoftext|>' stories.txt\n";

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

static bd_status make_packing(bd_packing *packing, const pack_settings *settings,
                              const bd_tokenizer *tokenizer, bd_error *err)
{
    const int64_t separator =
        settings->separator_id == NOT_GIVEN ? tokenizer->separator : settings->separator_id;
    *packing = (bd_packing){
        .seq_len = settings->seq_len,
        .vocab_size = tokenizer->vocab_size,
        .separator = separator,
        .bos = settings->bos == NOT_GIVEN ? BD_NO_BOS : settings->bos,
        .padding = settings->padding_id == NOT_GIVEN ? separator : settings->padding_id,
        .strategy = settings->strategy,
        .long_policy = settings->long_policy,
        .fingerprint = tokenizer->fingerprint,
    };
    snprintf(packing->tokenizer, sizeof packing->tokenizer, "%s", tokenizer->name);
    packing->batch_rows = bd_packing_default_batch_rows(packing);
    BD_TRY(check_id(packing->separator, "--separator-id", tokenizer, err));
    BD_TRY(check_id(packing->bos, "--bos", tokenizer, err));
    return check_id(packing->padding, "--padding-id", tokenizer, err);
}

static bool is_utf8(const char *text)
{
    return bd_utf8_valid_prefix(text, strlen(text)) == strlen(text);
}

static bd_status make_job(bd_pack_job *job, const pack_settings *settings, bd_error *err)
{
    *job = (bd_pack_job){
        .text_field = settings->text_field,
        .delimiter = settings->delimiter,
        .utf8_policy = settings->utf8_policy,
        .unit_bytes = settings->unit_bytes,
        .max_document_bytes = settings->max_document_bytes,
        .folder = settings->out,
    };
    if (settings->separator == SEPARATOR_PRESENT)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "--separator present is for tokenised input; text has no separators yet");
    if (settings->delimiter && strchr(settings->delimiter, '\n'))
        return bd_fail(err, BD_ERR_ARGUMENT, "--delimiter: one line, without a newline");
    // They are part of the plan, which is JSON.
    if (!is_utf8(settings->text_field) ||
        (settings->delimiter && !is_utf8(settings->delimiter)))
        return bd_fail(err, BD_ERR_ARGUMENT, "--text-field and --delimiter must be UTF-8");
    BD_TRY(bd_tokenizer_open(&job->tokenizer, settings->tokenizer, err));
    return make_packing(&job->packing, settings, job->tokenizer, err);
}

// ---- What is printed -----------------------------------------------------------------------

static bd_status print_result(const pack_settings *settings, const bd_pack_result *result,
                              bool quiet, bd_error *err)
{
    if (result->already_finished && !quiet)
        fprintf(stderr, "bindery pack: '%s' is finished already, with the same plan\n",
                settings->out);
    if (result->n_continued > 0 && !quiet)
        fprintf(stderr, "bindery pack: %" PRId64 " of %zu shards were finished already\n",
                result->n_continued, result->manifest.n_shards);
    if (settings->json)
        return bd_manifest_print(settings->out, stdout, err);
    bd_report_ledger(stdout, &result->manifest);
    return BD_OK;
}

static uint64_t total_bytes(const bd_inputs *inputs)
{
    uint64_t n = 0;
    for (size_t i = 0; i < inputs->n; i++)
        n += (uint64_t)inputs->items[i].size_bytes;
    return n;
}

static int pack_run(const bd_arguments *arguments)
{
    const pack_settings *settings = arguments->settings;
    bd_error err;
    bd_pack_job job;
    bd_inputs inputs = {0};
    bd_pack_result result = {0};
    if (make_job(&job, settings, &err) != BD_OK)
        return bd_command_misuse(arguments, &err);
    bd_status status = bd_inputs_collect(&inputs, arguments->operands, arguments->n_operands,
                                         settings->format, &err);
    if (status == BD_OK) {
        if (inputs.n_skipped > 0 && !arguments->quiet)
            fprintf(stderr,
                    "bindery pack: %zu file%s of unknown format skipped, such as '%s'\n",
                    inputs.n_skipped, inputs.n_skipped == 1 ? "" : "s", inputs.first_skipped);
        const int n_threads = bd_threads_count(settings->n_threads);
        job.inputs = &inputs;
        job.progress = bd_progress_new(&(bd_progress_config){.label = "packing",
                                                             .unit = "bytes",
                                                             .total = total_bytes(&inputs),
                                                             .quiet = arguments->quiet});
        status = bd_pack(&job, n_threads, settings->overwrite, &result, &err);
        bd_progress_free(job.progress);
    }
    if (status == BD_OK)
        status = print_result(settings, &result, arguments->quiet, &err);
    bd_manifest_release(&result.manifest);
    bd_inputs_release(&inputs);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_pack_command = {
    .name = "pack",
    .summary = "Pack documents into training shards with stored boundaries",
    .description = pack_description,
    .operands = "INPUT...",
    .operand_kind = BD_OPTION_FILE,
    .options = pack_options,
    .n_options = sizeof pack_options / sizeof pack_options[0],
    .settings_size = sizeof(pack_settings),
    .run = pack_run,
};
