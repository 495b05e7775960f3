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

// What messages call the tokenizer: as it was given, or as what stands for it.
static const char *name_of(const bd_tokenizer *tokenizer, const bd_pack_options *settings)
{
    return strcmp(tokenizer->name, BD_BPE_NAME) == 0 ? settings->tokenizer : tokenizer->name;
}

static bd_status check_id(int64_t id, const char *option, const bd_tokenizer *tokenizer,
                          const bd_pack_options *settings, bd_error *err)
{
    if (id < tokenizer->vocab_size)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "%s: %" PRId64
                   " is not an id of tokenizer '%s', whose vocabulary is %" PRId64,
                   option, id, name_of(tokenizer, settings), tokenizer->vocab_size);
}

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

static bd_status find_token(const bd_tokenizer *tokenizer, const bd_pack_options *settings,
                            int64_t *id, bd_error *err)
{
    const char *text = settings->separator_token;
    uint32_t found;
    if (!tokenizer->kind->find_token(tokenizer, text, strlen(text), &found))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--separator-token: tokenizer '%s' has no token '%s'",
                       name_of(tokenizer, settings), text);
    *id = found;
    return BD_OK;
}

static bd_status choose_separator(int64_t *separator, const bd_pack_options *settings,
                                  const bd_tokenizer *tokenizer, bd_error *err)
{
    *separator = settings->separator_id;
    if (settings->separator_token && *separator != BD_NOT_GIVEN)
        return bd_fail(err, BD_ERR_ARGUMENT, "either --separator-id or --separator-token");
    if (settings->separator_token)
        return find_token(tokenizer, settings, separator, err);
    if (*separator == BD_NOT_GIVEN)
        *separator = tokenizer->separator;
    if (*separator != BD_NO_SEPARATOR)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   tokenizer->takes_text
                       ? "the tokenizer has no separator of its own: give --separator-id or "
                         "--separator-token"
                       : "--vocab-size needs --separator-id as well");
}

static bd_status make_packing(bd_packing *packing, const bd_pack_options *settings,
                              const bd_tokenizer *tokenizer, bd_error *err)
{
    int64_t separator;
    BD_TRY(choose_separator(&separator, settings, tokenizer, err));
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
        BD_TRY(parse_share("--holdout", settings->holdout, 1, BD_MILLION - 1, &packing->holdout,
                           err));
        packing->part = BD_PART_TRAINING;
    }
    BD_TRY(check_id(packing->separator, "--separator-id", tokenizer, settings, err));
    BD_TRY(check_id(packing->bos, "--bos", tokenizer, settings, err));
    return check_id(packing->padding, "--padding-id", tokenizer, settings, err);
}

static bd_status choose_max_bad(int64_t *max_bad, const bd_pack_options *settings,
                                bd_error *err)
{
    enum { USUAL = BD_MILLION / 1000 };
    const bool skips = settings->bad_records == BD_BAD_SKIP;
    *max_bad = skips ? USUAL : 0;
    if (!settings->max_bad)
        return BD_OK;
    if (!skips)
        return bd_fail(err, BD_ERR_ARGUMENT, "--max-bad goes with --bad-records skip");
    return parse_share("--max-bad", settings->max_bad, 0, BD_MILLION, max_bad, err);
}

static bd_status make_reading(bd_reading *reading, const bd_pack_options *settings,
                              const bd_packing *packing, bd_error *err)
{
    *reading = (bd_reading){
        .format = bd_input_kind_chosen(settings->format),
        .text_field = settings->text_field,
        .delimiter = settings->delimiter,
        .utf8_policy = settings->utf8_policy,
        .special_tokens = settings->special_tokens,
        .separator = settings->separator,
        .bad_records = settings->bad_records,
        .unit_bytes = settings->unit_bytes,
        .max_document_bytes = settings->max_document_bytes,
        .raw_id_bytes = settings->id_bytes == BD_NOT_GIVEN ? bd_packing_id_bytes(packing)
                                                           : (int)settings->id_bytes,
        .end_of_text = packing->separator,
    };
    BD_TRY(choose_max_bad(&reading->max_bad, settings, err));
    if (settings->delimiter && strchr(settings->delimiter, '\n'))
        return bd_fail(err, BD_ERR_ARGUMENT, "--delimiter: one line, without a newline");
    if (reading->raw_id_bytes == 3)
        return bd_fail(err, BD_ERR_ARGUMENT, "--id-bytes: 2 or 4");
    // They are part of the plan, which is JSON.
    if (!bd_is_utf8(settings->text_field) ||
        (settings->delimiter && !bd_is_utf8(settings->delimiter)))
        return bd_fail(err, BD_ERR_ARGUMENT, "--text-field and --delimiter must be UTF-8");
    return BD_OK;
}

bd_status bd_pack_job_init(bd_pack_job *job, const bd_pack_options *settings, bd_error *err)
{
    *job =
        (bd_pack_job){.limit = settings->limit == BD_NOT_GIVEN ? BD_NO_LIMIT : settings->limit};
    if (settings->vocab_size == BD_NOT_GIVEN)
        BD_TRY(bd_tokenizer_open(&job->tokenizer, settings->tokenizer, err));
    else
        BD_TRY(bd_tokenizer_open_ids(&job->tokenizer, settings->vocab_size, err));
    if (strcmp(job->tokenizer->name, BD_BPE_NAME) == 0)
        job->tokenizer_file = settings->tokenizer;
    BD_TRY(make_packing(&job->packing, settings, job->tokenizer, err));
    return make_reading(&job->reading, settings, &job->packing, err);
}

// ---- Inputs --------------------------------------------------------------------------------

// A text of its own that says what all have anyway is none.
static void forget_same(char **own, const char *of_all)
{
    if (*own && of_all && strcmp(*own, of_all) == 0) {
        free(*own);
        *own = NULL;
    }
}

static bd_status add_source(bd_inputs *inputs, const char *labelled, bd_gathering how,
                            const bd_pack_options *settings, bd_error *err)
{
    bd_source_option option;
    bd_status status = bd_source_option_parse(&option, labelled, err);
    if (status == BD_OK) {
        forget_same(&option.own.text_field, settings->text_field);
        forget_same(&option.own.delimiter, settings->delimiter);
        how.source = option.name;
        how.own = option.own;
        status = bd_inputs_add(inputs, option.input, &how, err);
        if (status != BD_OK && strchr(option.input, ','))
            bd_error_suffix(err, status,
                            "an input's options are text-field, format and delimiter");
    }
    bd_source_option_release(&option);
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
                              const bd_pack_options *settings, bd_error *err)
{
    const bd_gathering how = {.source = BD_DEFAULT_SOURCE,
                              .avoided = settings->out,
                              .include = settings->include,
                              .exclude = settings->exclude};
    inputs->allow_skipped = settings->allow_skipped;
    for (size_t i = 0; i < n_operands; i++)
        BD_TRY(bd_inputs_add(inputs, operands[i], &how, err));
    for (size_t i = 0; i < settings->sources.n; i++)
        BD_TRY(add_source(inputs, settings->sources.items[i], how, settings, err));
    if (inputs->n == 0 && inputs->n_folders == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "no input: name a file or a folder");
    if (settings->sources.n >= BD_MAX_SOURCES)
        return bd_fail(err, BD_ERR_ARGUMENT, "more than %d sources", BD_MAX_SOURCES);
    return settings->out ? refuse_inside(inputs, settings->out, err) : BD_OK;
}

// What goes with the job and what does not.
static bd_status check_input(const bd_pack_job *job, const bd_input *input, bd_error *err)
{
    const bd_reading reading = bd_input_reading(input, &job->reading);
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

bd_status bd_pack_job_examine(const bd_pack_job *job, bd_inputs *inputs, int n_threads,
                              bd_error *err)
{
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    bd_status status = bd_inputs_examine(inputs, &job->reading, threads, err);
    bd_threads_free(threads);
    for (size_t i = 0; status == BD_OK && i < inputs->n; i++)
        status = check_input(job, &inputs->items[i], err);
    return status;
}
