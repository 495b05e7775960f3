#include "common/packing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const bd_strategy_words[] = {"best-fit", "concat", NULL};
const char *const bd_long_policy_words[] = {"split", "truncate", "drop", "error", NULL};

int bd_packing_id_bytes(const bd_packing *packing)
{
    return packing->vocab_size <= 65536 ? 2 : 4;
}

int64_t bd_packing_default_batch_rows(const bd_packing *packing)
{
    const int64_t rows = (INT64_C(4) << 20) / (packing->seq_len * bd_packing_id_bytes(packing));
    return rows > 0 ? rows : 1;
}

bd_json *bd_packing_to_json(const bd_packing *packing)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "seq_len", packing->seq_len);
    bd_json_set_integer(json, "vocab_size", packing->vocab_size);
    bd_json_set_integer(json, "separator", packing->separator);
    if (packing->bos == BD_NO_BOS)
        bd_json_set_null(json, "bos");
    else
        bd_json_set_integer(json, "bos", packing->bos);
    bd_json_set_integer(json, "padding", packing->padding);
    bd_json_set_integer(json, "batch_rows", packing->batch_rows);
    bd_json_set_string(json, "strategy", bd_strategy_words[packing->strategy]);
    bd_json_set_string(json, "long", bd_long_policy_words[packing->long_policy]);
    bd_json *tokenizer = bd_json_object();
    bd_json_set_string(tokenizer, "name", packing->tokenizer);
    bd_json_set_string(tokenizer, "fingerprint", packing->fingerprint.hex);
    bd_json_set(json, "tokenizer", tokenizer);
    return json;
}

static bd_status get_word(const bd_json *json, const char *key, const char *const *words,
                          int *index, bd_error *err)
{
    const char *word;
    BD_TRY(bd_json_get_string(json, key, &word, err));
    for (*index = 0; words[*index]; ++*index)
        if (strcmp(words[*index], word) == 0)
            return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT, "'%s' is '%.40s', which this version does not know", key,
                   word);
}

static bd_status get_tokenizer(bd_packing *packing, const bd_json *json, bd_error *err)
{
    const bd_json *tokenizer;
    const char *name, *fingerprint;
    BD_TRY(bd_json_get_object(json, "tokenizer", &tokenizer, err));
    BD_TRY(bd_json_get_string(tokenizer, "name", &name, err));
    BD_TRY(bd_json_get_string(tokenizer, "fingerprint", &fingerprint, err));
    if (strlen(name) >= sizeof packing->tokenizer)
        return bd_fail(err, BD_ERR_FORMAT, "the tokenizer's name is too long");
    strcpy(packing->tokenizer, name);
    return bd_digest_parse(&packing->fingerprint, fingerprint, err);
}

bd_status bd_packing_from_json(bd_packing *packing, const bd_json *json, bd_error *err)
{
    *packing = (bd_packing){.bos = BD_NO_BOS};
    BD_TRY(bd_json_get_integer(json, "seq_len", BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN,
                               &packing->seq_len, err));
    BD_TRY(bd_json_get_integer(json, "vocab_size", 1, INT64_C(1) << 32, &packing->vocab_size,
                               err));
    const int64_t last = packing->vocab_size - 1;
    BD_TRY(bd_json_get_integer(json, "separator", 0, last, &packing->separator, err));
    if (!bd_json_is_null(json, "bos"))
        BD_TRY(bd_json_get_integer(json, "bos", 0, last, &packing->bos, err));
    BD_TRY(bd_json_get_integer(json, "padding", 0, last, &packing->padding, err));
    BD_TRY(bd_json_get_integer(json, "batch_rows", 1, INT32_MAX, &packing->batch_rows, err));
    int index;
    BD_TRY(get_word(json, "strategy", bd_strategy_words, &index, err));
    packing->strategy = (bd_strategy)index;
    BD_TRY(get_word(json, "long", bd_long_policy_words, &index, err));
    packing->long_policy = (bd_long_policy)index;
    return get_tokenizer(packing, json, err);
}

bd_status bd_format_check(const bd_json *json, bd_error *err)
{
    const char *format;
    BD_TRY(bd_json_get_string(json, "format", &format, err));
    if (strncmp(format, "1.", 2) != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "format '%.20s' is not one that this version reads (1.x)", format);
    return BD_OK;
}

bd_json *bd_unit_to_json(const bd_unit *unit)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "input", unit->input);
    bd_json_set_integer(json, "slice", unit->slice);
    bd_json_set_integer(json, "inputs", unit->n_inputs);
    return json;
}

bd_status bd_unit_from_json(bd_unit *unit, const bd_json *json, bd_error *err)
{
    BD_TRY(bd_json_get_integer(json, "input", 0, INT32_MAX, &unit->input, err));
    BD_TRY(bd_json_get_integer(json, "slice", 0, INT32_MAX, &unit->slice, err));
    return bd_json_get_integer(json, "inputs", 1, INT32_MAX, &unit->n_inputs, err);
}

bd_shard_name bd_unit_shard_name(const bd_unit *unit)
{
    bd_shard_name name;
    snprintf(name.text, sizeof name.text, "%05" PRId64 "-%05" PRId64 ".arrow", unit->input,
             unit->slice);
    return name;
}
