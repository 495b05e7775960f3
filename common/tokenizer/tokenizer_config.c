#include "common/tokenizer/tokenizer_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json_reader.h"

enum { MAX_ADDED_TOKENS_BYTES = 1 << 24 };

// The rest of the file may be large and is passed over. *added is NULL if there is no list.
static bd_status find_added_tokens(bd_json_reader *reader, bd_json **added, bd_error *err)
{
    static const char name[] = "added_tokens";
    *added = NULL;
    BD_TRY(bd_json_reader_enter(reader, '{', err));
    for (;;) {
        const char *key;
        size_t n;
        bool more;
        BD_TRY(bd_json_reader_more(reader, '}', &more, err));
        if (!more)
            return BD_OK;
        BD_TRY(bd_json_reader_key(reader, &key, &n, err));
        if (n == strlen(name) && memcmp(key, name, n) == 0)
            return bd_json_reader_value(reader, MAX_ADDED_TOKENS_BYTES, added, err);
        BD_TRY(bd_json_reader_skip(reader, err));
    }
}

static void set_added_token(bd_json *json, const char *key, const bd_json *added, int64_t id)
{
    for (size_t i = 0; i < bd_json_length(added); i++) {
        const char *content;
        int64_t its_id;
        const bd_json *token = bd_json_at(added, i);
        if (bd_json_get_integer(token, "id", 0, UINT32_MAX, &its_id, NULL) == BD_OK &&
            its_id == id && bd_json_get_string(token, "content", &content, NULL) == BD_OK)
            bd_json_set_string(json, key, content);
    }
}

static bd_json *config_to_json(const bd_tokenizer_config *config, const bd_json *added)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "tokenizer_class", "PreTrainedTokenizerFast");
    if (config->max_length != BD_NO_MAX_LENGTH)
        bd_json_set_integer(json, "model_max_length", config->max_length);
    bd_json_set_bool(json, "clean_up_tokenization_spaces", false);
    set_added_token(json, "eos_token", added, config->eos);
    set_added_token(json, "bos_token", added, config->bos);
    set_added_token(json, "pad_token", added, config->pad);
    return json;
}

bd_status bd_tokenizer_config_print(const bd_tokenizer_config *config, char **text,
                                    bd_error *err)
{
    bd_json_reader reader;
    bd_json *added = NULL;
    bd_json_reader_init(&reader, config->tokenizer, strlen(config->tokenizer));
    bd_status status = find_added_tokens(&reader, &added, err);
    if (status == BD_OK) {
        bd_json *json = config_to_json(config, added);
        char *printed = NULL;
        status = bd_json_print(json, BD_JSON_INDENTED, &printed, err);
        if (status == BD_OK && asprintf(text, "%s\n", printed) < 0)
            status = bd_fail(err, BD_ERR_MEMORY, "no memory to print JSON");
        free(printed);
        bd_json_free(json);
    }
    bd_json_free(added);
    bd_json_reader_release(&reader);
    return status;
}
