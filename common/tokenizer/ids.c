// The tokenizer of data that comes as ids without their meaning. A token is written as its
// number, so that rows can be printed. Its tokenizer.json is one that Hugging Face's
// `tokenizers` opens: words that are numbers.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/tokenizer/tokenizer.h"

typedef struct number_text {
    char text[12];  // "4194303 "
} number_text;

typedef struct ids_tokenizer {
    bd_tokenizer base;
    char name[32];
    number_text *texts;  // [vocab_size], owned
} ids_tokenizer;

static size_t ids_max_ids(const bd_tokenizer *tokenizer, size_t size_bytes)
{
    (void)tokenizer;
    return size_bytes;
}

// Reads the numbers in the text; those that are not ids are passed over.
static bd_status ids_encode(bd_encoder *encoder, const char *text, size_t size_bytes,
                            uint32_t *ids, size_t *n, bd_error *err)
{
    (void)err;
    const int64_t vocab_size = encoder->tokenizer->vocab_size;
    *n = 0;
    for (size_t i = 0; i < size_bytes;) {
        int64_t id = 0;
        const size_t begin = i;
        for (; i < size_bytes && text[i] >= '0' && text[i] <= '9'; i++)
            if (id < vocab_size)
                id = 10 * id + (text[i] - '0');
        if (i > begin && id < vocab_size)
            ids[(*n)++] = (uint32_t)id;
        i += i == begin;
    }
    return BD_OK;
}

static const char *ids_token_bytes(const bd_tokenizer *tokenizer, uint32_t id,
                                   size_t *size_bytes)
{
    const char *text = ((const ids_tokenizer *)tokenizer)->texts[id].text;
    *size_bytes = strlen(text);
    return text;
}

// Ids have no texts by which they could be found.
static bool ids_find_token(const bd_tokenizer *tokenizer, const char *text, size_t size_bytes,
                           uint32_t *id)
{
    (void)tokenizer, (void)text, (void)size_bytes, (void)id;
    return false;
}

static bd_status ids_to_file(const bd_tokenizer *tokenizer, char **text, bd_error *err)
{
    bd_json *vocabulary = bd_json_object();
    for (int64_t id = 0; id < tokenizer->vocab_size; id++) {
        char word[32];
        snprintf(word, sizeof word, "%" PRId64, id);
        bd_json_set_integer(vocabulary, word, id);
    }
    bd_json *model = bd_json_object();
    bd_json_set_string(model, "type", "WordLevel");
    bd_json_set(model, "vocab", vocabulary);
    bd_json_set_string(model, "unk_token", "<unk>");

    bd_json *whitespace = bd_json_object();
    bd_json_set_string(whitespace, "type", "WhitespaceSplit");

    bd_json *json = bd_json_object();
    bd_json_set_string(json, "version", "1.0");
    bd_json_set_null(json, "truncation");
    bd_json_set_null(json, "padding");
    bd_json_set(json, "added_tokens", bd_json_array());
    bd_json_set_null(json, "normalizer");
    bd_json_set(json, "pre_tokenizer", whitespace);
    bd_json_set_null(json, "post_processor");
    bd_json_set_null(json, "decoder");
    bd_json_set(json, "model", model);
    const bd_status status = bd_json_print(json, BD_JSON_COMPACT, text, err);
    bd_json_free(json);
    return status;
}

static void ids_close(bd_tokenizer *tokenizer)
{
    ids_tokenizer *ids = (ids_tokenizer *)tokenizer;
    free(ids->texts);
    free(ids);
}

bd_status bd_tokenizer_open_ids(const bd_tokenizer **out, int64_t vocab_size, bd_error *err)
{
    static const bd_tokenizer_kind kind = {.max_ids = ids_max_ids,
                                           .encode = ids_encode,
                                           .token_bytes = ids_token_bytes,
                                           .find_token = ids_find_token,
                                           .to_file = ids_to_file,
                                           .close = ids_close};
    *out = NULL;
    if (vocab_size < 1 || vocab_size > BD_MAX_IDS_VOCABULARY)
        return bd_fail(err, BD_ERR_ARGUMENT, "a vocabulary of %" PRId64 " ids, not 1 to %d",
                       vocab_size, BD_MAX_IDS_VOCABULARY);
    ids_tokenizer *ids = calloc(1, sizeof *ids);
    if (ids)
        ids->texts = calloc((size_t)vocab_size, sizeof *ids->texts);
    if (!ids || !ids->texts) {
        free(ids);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " ids", vocab_size);
    }
    for (int64_t id = 0; id < vocab_size; id++)
        snprintf(ids->texts[id].text, sizeof ids->texts[id].text, "%u ", (unsigned)id);
    snprintf(ids->name, sizeof ids->name, "ids:%" PRId64, vocab_size);
    ids->base = (bd_tokenizer){
        .kind = &kind,
        .name = ids->name,
        .vocab_size = vocab_size,
        .separator = BD_NO_SEPARATOR,
        .tokens_per_byte = 0.5,
        .fingerprint =
            bd_digest_of(ids->name, strlen(ids->name)),  // all that is known of the ids
    };
    *out = &ids->base;
    return BD_OK;
}
