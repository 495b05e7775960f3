#include "common/dataset/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tokenizer/tokenizer.h"

BD_ENUM_NAMES(bd_strategy, BD_STRATEGIES);
BD_ENUM_NAMES(bd_long_policy, BD_LONG_POLICIES);
BD_ENUM_NAMES(bd_part, BD_PARTS);
BD_ENUM_NAMES(bd_shard_codec, BD_SHARD_CODECS);

bd_formatted bd_dataset_tokenizer(const bd_dataset_config *config)
{
    bd_formatted shown;
    if (strcmp(config->tokenizer, BD_BPE_NAME) == 0)
        snprintf(shown.text, sizeof shown.text, "BPE of %.20s ids",
                 bd_format_exact(config->vocab_size).text);
    else
        snprintf(shown.text, sizeof shown.text, "%.31s", config->tokenizer);
    return shown;
}

const char *bd_dataset_format(const bd_dataset_config *config)
{
    return config->loss_mask ? BD_MASKED_FORMAT_VERSION : BD_FORMAT_VERSION;
}

int bd_dataset_id_bytes(const bd_dataset_config *config)
{
    return config->vocab_size <= 65536 ? 2 : 4;
}

int64_t bd_dataset_default_batch_rows(const bd_dataset_config *config)
{
    const int64_t rows = (INT64_C(4) << 20) / (config->seq_len * bd_dataset_id_bytes(config));
    return rows > 0 ? rows : 1;
}

bd_document_place bd_dataset_place(const bd_dataset_config *config, uint32_t input,
                                   uint64_t position)
{
    bd_document_place place = {.position = position, .input = input};
    if (config->shuffle != BD_NO_SHUFFLE) {
        unsigned char bytes[12];
        memcpy(bytes, &input, 4);
        memcpy(bytes + 4, &position, 8);
        place.rank = bd_hash64(bytes, sizeof bytes, (uint64_t)config->shuffle);
    }
    return place;
}

int bd_document_place_compare(const bd_document_place *a, const bd_document_place *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

// `none` stands for an option that was not given.
static void set_optional(bd_json *json, const char *key, int64_t value, int64_t none)
{
    if (value == none)
        bd_json_set_null(json, key);
    else
        bd_json_set_integer(json, key, value);
}

bd_json *bd_dataset_config_to_json(const bd_dataset_config *config)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "seq_len", config->seq_len);
    bd_json_set_integer(json, "vocab_size", config->vocab_size);
    bd_json_set_integer(json, "separator", config->separator);
    set_optional(json, "bos", config->bos, BD_NO_BOS);
    bd_json_set_integer(json, "padding", config->padding);
    bd_json_set_integer(json, "batch_rows", config->batch_rows);
    bd_json_set_string(json, "strategy", bd_strategy_names[config->strategy]);
    bd_json_set_string(json, "long", bd_long_policy_names[config->long_policy]);
    set_optional(json, "max_documents", config->max_documents, 0);
    bd_json_set_integer(json, "min_tokens", config->min_tokens);
    set_optional(json, "shuffle", config->shuffle, BD_NO_SHUFFLE);
    bd_json_set_integer(json, "holdout", config->holdout);
    bd_json_set_string(json, "part", bd_part_names[config->part]);
    bd_json_set_string(json, "codec", bd_shard_codec_names[config->codec]);
    if (config->loss_mask)  // absent, not false, so that other datasets are what they were
        bd_json_set_bool(json, "loss_mask", true);
    bd_json *tokenizer = bd_json_object();
    bd_json_set_string(tokenizer, "name", config->tokenizer);
    bd_json_set_string(tokenizer, "fingerprint", config->fingerprint.hex);
    bd_json_set(json, "tokenizer", tokenizer);
    return json;
}

// An integer that may be null, or absent as in format 1.0; then *value is left unchanged.
static bd_status get_optional(const bd_json *json, const char *key, int64_t min, int64_t max,
                              int64_t *value, bd_error *err)
{
    return bd_json_is_null(json, key) ? BD_OK
                                      : bd_json_get_integer(json, key, min, max, value, err);
}

// The same for one of `words`.
static bd_status get_optional_word(const bd_json *json, const char *key,
                                   const char *const *words, int *index, bd_error *err)
{
    *index = 0;
    return bd_json_is_null(json, key) ? BD_OK : bd_json_get_word(json, key, words, index, err);
}

bd_status bd_dataset_config_from_json(bd_dataset_config *config, const bd_json *json,
                                      bd_error *err)
{
    bd_dataset_config *p = config;
    int strategy, long_policy, part, codec;
    const bd_json *tokenizer;
    const char *name, *fingerprint;
    *p = (bd_dataset_config){.bos = BD_NO_BOS, .shuffle = BD_NO_SHUFFLE};
    BD_TRY(
        bd_json_get_integer(json, "seq_len", BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN, &p->seq_len, err));
    BD_TRY(bd_json_get_integer(json, "vocab_size", 1, INT64_C(1) << 32, &p->vocab_size, err));
    const int64_t last = p->vocab_size - 1;
    BD_TRY(bd_json_get_integer(json, "separator", 0, last, &p->separator, err));
    BD_TRY(get_optional(json, "bos", 0, last, &p->bos, err));
    BD_TRY(bd_json_get_integer(json, "padding", 0, last, &p->padding, err));
    BD_TRY(bd_json_get_integer(json, "batch_rows", 1, INT32_MAX, &p->batch_rows, err));
    BD_TRY(bd_json_get_word(json, "strategy", bd_strategy_names, &strategy, err));
    BD_TRY(bd_json_get_word(json, "long", bd_long_policy_names, &long_policy, err));
    BD_TRY(get_optional(json, "max_documents", 1, BD_MAX_SEQ_LEN, &p->max_documents, err));
    BD_TRY(get_optional(json, "min_tokens", 0, UINT32_MAX, &p->min_tokens, err));
    BD_TRY(get_optional(json, "shuffle", 0, INT64_MAX, &p->shuffle, err));
    BD_TRY(get_optional(json, "holdout", 0, BD_MILLION, &p->holdout, err));
    BD_TRY(get_optional_word(json, "part", bd_part_names, &part, err));
    BD_TRY(get_optional_word(json, "codec", bd_shard_codec_names, &codec, err));
    if (!bd_json_is_null(json, "loss_mask"))
        BD_TRY(bd_json_get_bool(json, "loss_mask", &p->loss_mask, err));
    p->strategy = (bd_strategy)strategy;
    p->long_policy = (bd_long_policy)long_policy;
    p->part = (bd_part)part;
    p->codec = (bd_shard_codec)codec;
    if ((p->holdout > 0) != (p->part != BD_PART_ALL))
        return bd_fail(err, BD_ERR_FORMAT, "'holdout' and 'part' contradict each other");
    BD_TRY(bd_json_get_object(json, "tokenizer", &tokenizer, err));
    BD_TRY(bd_json_get_string(tokenizer, "name", &name, err));
    BD_TRY(bd_json_get_string(tokenizer, "fingerprint", &fingerprint, err));
    if (strlen(name) >= sizeof p->tokenizer)
        return bd_fail(err, BD_ERR_FORMAT, "the tokenizer's name is too long");
    strcpy(p->tokenizer, name);
    return bd_digest_parse(&p->fingerprint, fingerprint, err);
}

bd_status bd_format_check(const bd_json *json, bd_error *err)
{
    const char *format;
    const bd_json *packing;
    bool loss_mask = false;
    BD_TRY(bd_json_get_string(json, "format", &format, err));
    const bool is_masked = strncmp(format, "2.", 2) == 0;
    if (!is_masked && strncmp(format, "1.", 2) != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "format '%.20s' is not one that this version reads (1.x and 2.x)",
                       format);
    if (is_masked || !bd_json_is_null(json, "packing")) {
        BD_TRY(bd_json_get_object(json, "packing", &packing, err));
        if (!bd_json_is_null(packing, "loss_mask"))
            BD_TRY(bd_json_get_bool(packing, "loss_mask", &loss_mask, err));
    }
    if (loss_mask != is_masked)
        return bd_fail(err, BD_ERR_FORMAT,
                       "format '%.20s' contradicts 'loss_mask', which is %s", format,
                       loss_mask ? "true" : "not true");
    return BD_OK;
}

bd_json *bd_unit_to_json(const bd_unit *unit)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "input", unit->input);
    bd_json_set_integer(json, "slice", unit->slice);
    bd_json_set_integer(json, "inputs", unit->n_inputs);
    bd_json_set_bool(json, "last", unit->last);
    return json;
}

bd_status bd_unit_from_json(bd_unit *unit, const bd_json *json, bd_error *err)
{
    BD_TRY(bd_json_get_integer(json, "input", 0, INT32_MAX, &unit->input, err));
    BD_TRY(bd_json_get_integer(json, "slice", 0, INT32_MAX, &unit->slice, err));
    BD_TRY(bd_json_get_integer(json, "inputs", 1, INT32_MAX, &unit->n_inputs, err));
    unit->last = true;  // absent in format 1.0, where the sizes of all inputs are known
    if (bd_json_is_null(json, "last"))
        return BD_OK;
    return bd_json_get_bool(json, "last", &unit->last, err);
}

bd_shard_name bd_unit_shard_name(const bd_unit *unit)
{
    bd_shard_name name;
    snprintf(name.text, sizeof name.text, "%05" PRId64 "-%05" PRId64 ".arrow", unit->input,
             unit->slice);
    return name;
}

bool bd_unit_from_name(bd_unit *unit, const char *name, const char *suffix)
{
    char *end;
    *unit = (bd_unit){.input = strtoll(name, &end, 10)};
    if (*end != '-')
        return false;
    unit->slice = strtoll(end + 1, &end, 10);
    if (strcmp(end, suffix) != 0)
        return false;
    // The same number has other spellings ("+1", " 1", "00001"), but only one is a name.
    const bd_shard_name shard = bd_unit_shard_name(unit);
    const size_t n_stem = strlen(shard.text) - strlen(".arrow");
    return strlen(name) == n_stem + strlen(suffix) && memcmp(name, shard.text, n_stem) == 0;
}
