#include "packer/pack/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/folder.h"
#include "common/base/threads.h"
#include "common/base/utf8.h"
#include "common/dataset/manifest.h"
#include "packer/input/kinds.h"
#include "packer/input/source_option.h"

// The table of options fills in these fields of the job directly.
_Static_assert((int)BD_NO_BOS == BD_NOT_GIVEN && (int)BD_NO_SHUFFLE == BD_NOT_GIVEN &&
                   (int)BD_NO_LIMIT == BD_NOT_GIVEN,
               "an option that is not given asks for nothing");

bd_dataset_config bd_holdout_config(const bd_pack_job *job)
{
    bd_dataset_config config = job->config;
    config.part = BD_PART_HELD_OUT;
    return config;
}

bd_status bd_pack_job_units(const bd_pack_job *job, bd_units *units, bd_error *err)
{
    const int64_t unit_bytes = job->reading.unit_bytes;
    *units = (bd_units){0};
    bd_status status = BD_OK;
    for (size_t i = 0; status == BD_OK && i < job->inputs->n; i++)
        status = bd_units_add(units, &job->inputs->items[i].entry, unit_bytes, err);
    if (status == BD_OK && (int64_t)units->n > bd_units_most(unit_bytes))
        status = bd_units_fail_many(NULL, unit_bytes, err);
    if (status != BD_OK)
        bd_units_release(units);
    return status;
}

uint64_t bd_pack_job_bytes(const bd_pack_job *job)
{
    uint64_t n = 0;
    for (size_t i = 0; i < job->inputs->n; i++) {
        if (job->inputs->items[i].entry.size_bytes == BD_UNKNOWN)
            return 0;
        n += (uint64_t)job->inputs->items[i].entry.size_bytes;
    }
    return n;
}

// ---- Options -------------------------------------------------------------------------------

// "0.5%" is 5000 millionths: at most four digits after the point. `least` and `most` are
// millionths too.
static bd_status parse_share(const char *option, const char *text, int64_t least, int64_t most,
                             int64_t *millionths, bd_error *err)
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
    const bool is_number = n_whole + n_digits > 0;
    const bool sound = is_number && n_digits <= 4 && strcmp(end, "%") == 0;
    if (sound && *millionths >= least && *millionths <= most)
        return BD_OK;
    if (is_number && *end == '\0' && *millionths > 0 && strtod(text, NULL) < 1)
        return bd_fail(err, BD_ERR_ARGUMENT, "%s: '%s' is not clear: write %g%% or %s%%",
                       option, text, 100 * strtod(text, NULL), text);
    if (is_number && *end == '\0')
        return bd_fail(err, BD_ERR_ARGUMENT, "%s: '%s' lacks its sign: write %s%%", option,
                       text, text);
    return bd_fail(err, BD_ERR_ARGUMENT, "%s: '%s' is not a share from %g%% to %g%%", option,
                   text, (double)least / 1e4, (double)most / 1e4);
}

// The name of the tokenizer in messages: the file that was given, or that of a built-in one.
static const char *tokenizer_name(const bd_pack_options *options)
{
    const bd_pack_job *job = &options->job;
    return job->tokenizer_file ? job->tokenizer_file : job->tokenizer->name;
}

static bd_status choose_separator(bd_pack_options *options, bd_error *err)
{
    const bd_tokenizer *tokenizer = options->job.tokenizer;
    const char *text = options->separator_token;
    int64_t *separator = &options->job.config.separator;
    uint32_t found;
    if (text && *separator != BD_NOT_GIVEN)
        return bd_fail(err, BD_ERR_ARGUMENT, "either --separator-id or --separator-token");
    if (text && !tokenizer->kind->find_token(tokenizer, text, strlen(text), &found))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--separator-token: tokenizer '%s' has no token '%s'",
                       tokenizer_name(options), text);
    if (text)
        *separator = found;
    else if (*separator == BD_NOT_GIVEN)
        *separator = tokenizer->separator;
    if (*separator != BD_NO_SEPARATOR)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   tokenizer->takes_text
                       ? "the tokenizer has no separator of its own: give --separator-id or "
                         "--separator-token"
                       : "--vocab-size needs --separator-id as well");
}

static bd_status complete_config(bd_pack_options *options, bd_error *err)
{
    const bd_tokenizer *tokenizer = options->job.tokenizer;
    bd_dataset_config *config = &options->job.config;
    BD_TRY(choose_separator(options, err));
    if (config->padding == BD_NOT_GIVEN)
        config->padding = config->separator;
    config->vocab_size = tokenizer->vocab_size;
    config->fingerprint = tokenizer->fingerprint;
    snprintf(config->tokenizer, sizeof config->tokenizer, "%s", tokenizer->name);
    config->batch_rows = bd_dataset_default_batch_rows(config);
    if (options->holdout) {
        BD_TRY(parse_share("--holdout", options->holdout, 1, BD_MILLION - 1, &config->holdout,
                           err));
        config->part = BD_PART_TRAINING;
    }
    const struct {
        const char *option;
        int64_t id;
    } ids[] = {{"--separator-id", config->separator},
               {"--bos", config->bos},
               {"--padding-id", config->padding}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id >= tokenizer->vocab_size)
            return bd_fail(
                err, BD_ERR_ARGUMENT,
                "%s: %" PRId64 " is not an id of tokenizer '%s', whose vocabulary is %" PRId64,
                ids[i].option, ids[i].id, tokenizer_name(options), tokenizer->vocab_size);
    return BD_OK;
}

static bd_status complete_reading(bd_pack_options *options, bd_error *err)
{
    enum { USUAL_MAX_BAD = BD_MILLION / 1000 };
    const bd_dataset_config *config = &options->job.config;
    bd_input_options *reading = &options->job.reading;
    const bool skips = reading->bad_records == BD_BAD_SKIP;
    reading->max_bad = skips ? USUAL_MAX_BAD : 0;
    if (options->max_bad && !skips)
        return bd_fail(err, BD_ERR_ARGUMENT, "--max-bad goes with --bad-records skip");
    if (options->max_bad)
        BD_TRY(
            parse_share("--max-bad", options->max_bad, 0, BD_MILLION, &reading->max_bad, err));
    reading->format = bd_input_kind_chosen(options->format);
    if (reading->delimiter && strchr(reading->delimiter, '\n'))
        return bd_fail(err, BD_ERR_ARGUMENT, "--delimiter: one line, without a newline");
    if (options->id_bytes == 3)
        return bd_fail(err, BD_ERR_ARGUMENT, "--id-bytes: 2 or 4");
    reading->raw_id_bytes = options->id_bytes == BD_NOT_GIVEN ? bd_dataset_id_bytes(config)
                                                              : (int)options->id_bytes;
    reading->end_of_text = config->separator;
    // They are part of the plan, which is JSON.
    if (!bd_is_utf8(reading->text_field) ||
        (reading->delimiter && !bd_is_utf8(reading->delimiter)))
        return bd_fail(err, BD_ERR_ARGUMENT, "--text-field and --delimiter must be UTF-8");
    return BD_OK;
}

// The form of the records: what the options about fields say, which exclude each other.
static bd_status choose_form(bd_pack_options *options, bd_error *err)
{
    bd_input_options *reading = &options->job.reading;
    const bool has_pair = options->prompt_field || options->completion_field;
    const bool has_chat = options->messages_field || options->chat_format;
    const char *messages_field = options->messages_field ? options->messages_field : "messages";
    const struct {
        bool is_given;
        bd_record_form form;
        const char *fields[BD_MAX_FORM_FIELDS];
    } forms[] = {
        {has_pair, BD_FORM_COMPLETION, {options->prompt_field, options->completion_field}},
        {options->segments_field, BD_FORM_SEGMENTS, {options->segments_field}},
        {has_chat, BD_FORM_MESSAGES, {messages_field}},
    };
    int n_given = 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (forms[i].is_given) {
            n_given++;
            reading->form = forms[i].form;
            memcpy(reading->fields, forms[i].fields, sizeof reading->fields);
        }
    if (n_given > 1)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "either --prompt-field and --completion-field, or --segments-field, or "
                       "--chat-format and --messages-field");
    if (has_pair && !(options->prompt_field && options->completion_field))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--prompt-field and --completion-field go together");
    if (n_given > 0 && options->text_field_given)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--text-field is for records of one text; these have other fields");
    for (int i = 0; i < BD_MAX_FORM_FIELDS; i++)
        if (reading->fields[i] &&
            (*reading->fields[i] == '\0' || !bd_is_utf8(reading->fields[i])))
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "the name of a field must be UTF-8, and not empty");
    return BD_OK;
}

// Opens the chat format and finds its special tokens.
static bd_status complete_chat(bd_pack_options *options, bd_error *err)
{
    bd_pack_job *job = &options->job;
    if (job->reading.form != BD_FORM_MESSAGES) {
        if (options->train_roles || options->turn_ends_given)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "--train-roles and --train-turn-end go with --chat-format");
        return BD_OK;
    }
    if (!options->chat_format)
        return bd_fail(err, BD_ERR_ARGUMENT, "--messages-field needs --chat-format");
    // A content that spells a special token must not plant one.
    if (job->reading.special_tokens == BD_SPECIAL_TOKEN)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--special-tokens token: the special tokens of a chat come from its "
                       "format alone");
    BD_TRY(bd_chat_format_open(&job->chat, options->chat_format, err));
    job->reading.chat = job->chat;
    if (options->train_roles)
        BD_TRY(bd_chat_format_train_roles(job->chat, options->train_roles, err));
    return bd_chat_format_find_tokens(job->chat, job->tokenizer, tokenizer_name(options), err);
}

void bd_pack_job_release(bd_pack_job *job)
{
    bd_tokenizer_close(job->tokenizer);
    bd_chat_format_free(job->chat);
    job->tokenizer = NULL;
    job->chat = NULL;
    job->reading.chat = NULL;
}

bd_status bd_pack_job_complete(bd_pack_options *options, bd_error *err)
{
    bd_pack_job *job = &options->job;
    const int64_t vocab_size = job->config.vocab_size;
    BD_TRY(vocab_size == BD_NOT_GIVEN
               ? bd_tokenizer_open(&job->tokenizer, options->tokenizer, err)
               : bd_tokenizer_open_ids(&job->tokenizer, vocab_size, err));
    if (strcmp(job->tokenizer->name, BD_BPE_NAME) == 0)
        job->tokenizer_file = options->tokenizer;
    BD_TRY(complete_config(options, err));
    BD_TRY(complete_reading(options, err));
    BD_TRY(choose_form(options, err));
    job->config.loss_mask = job->reading.form != BD_FORM_TEXT;
    // The context of a piece of a conversation would be lost.
    if (job->reading.form == BD_FORM_MESSAGES && !options->long_given)
        job->config.long_policy = BD_LONG_DROP;
    return complete_chat(options, err);
}

// ---- Inputs --------------------------------------------------------------------------------

// An input whose own option says the same as that of all inputs is read like all of them.
static void forget_same(char **own, const char *of_all)
{
    if (*own && of_all && strcmp(*own, of_all) == 0) {
        free(*own);
        *own = NULL;
    }
}

static bd_status add_source(bd_inputs *inputs, const char *labelled, bd_collect_options how,
                            const bd_pack_options *options, bd_error *err)
{
    bd_source_option source;
    bd_status status = bd_source_option_parse(&source, labelled, err);
    if (status == BD_OK && source.own.text_field && options->job.reading.form != BD_FORM_TEXT)
        status = bd_fail(err, BD_ERR_ARGUMENT,
                         "--source: '%s': text-field is for records of one text", labelled);
    if (status == BD_OK) {
        forget_same(&source.own.text_field, options->job.reading.text_field);
        forget_same(&source.own.delimiter, options->job.reading.delimiter);
        how.source = source.name;
        how.own = source.own;
        status = bd_inputs_add(inputs, source.input, &how, err);
        if (status != BD_OK && strchr(source.input, ','))
            bd_error_suffix(err, status,
                            "an input's options are text-field, format and delimiter");
    }
    bd_source_option_release(&source);
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

bd_status bd_pack_job_collect(bd_inputs *inputs, const char *const *operands, size_t n_operands,
                              const bd_pack_options *options, bd_error *err)
{
    const bd_collect_options how = {.source = BD_DEFAULT_SOURCE,
                                    .avoided = options->job.folder,
                                    .include = options->include,
                                    .exclude = options->exclude};
    inputs->allow_skipped = options->allow_skipped;
    for (size_t i = 0; i < n_operands; i++)
        BD_TRY(bd_inputs_add(inputs, operands[i], &how, err));
    for (size_t i = 0; i < options->sources.n; i++)
        BD_TRY(add_source(inputs, options->sources.items[i], how, options, err));
    if (inputs->n == 0 && inputs->n_folders == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "no input: name a file or a folder");
    if (options->sources.n >= BD_MAX_SOURCES)
        return bd_fail(err, BD_ERR_ARGUMENT, "more than %d sources", BD_MAX_SOURCES);
    return options->job.folder ? refuse_inside(inputs, options->job.folder, err) : BD_OK;
}

static bd_status check_input(const bd_pack_job *job, const bd_input *input, bd_error *err)
{
    const bd_input_options reading = bd_input_options_of(input, &job->reading);
    if (input->id_bytes == 0 && !job->tokenizer->takes_text)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "'%s' holds text, which needs a tokenizer instead of --vocab-size",
                       input->path);
    if (input->id_bytes == 0 && reading.separator == BD_SEPARATOR_PRESENT)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "--separator present is for tokenised inputs; '%s' holds text, which has "
            "no separators yet",
            input->path);
    if (bd_input_is_stdin(input) && reading.format && !reading.format->is_text)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--format: standard input cannot be a table or a file of tokens");
    return BD_OK;
}

bd_status bd_pack_job_examine(bd_pack_job *job, bd_inputs *inputs, int n_threads, bd_error *err)
{
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    bd_status status = bd_inputs_examine(inputs, &job->reading, threads, err);
    bd_threads_free(threads);
    for (size_t i = 0; status == BD_OK && i < inputs->n; i++) {
        status = check_input(job, &inputs->items[i], err);
        job->config.loss_mask = job->config.loss_mask || inputs->items[i].has_masks;
    }
    return status;
}
