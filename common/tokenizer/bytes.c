// The built-in byte tokenizer. Its tokenizer.json is one that Hugging Face's `tokenizers`
// opens: a byte-level BPE with 256 symbols and no merges.
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/tokenizer/model/byte_alphabet.h"
#include "common/tokenizer/tokenizer.h"

enum { N_BYTES = 256, SEPARATOR = 256, VOCAB_SIZE = 257 };

static const char separator_text[] = "<|endoftext|>";

static char every_byte[N_BYTES];  // every_byte[b] == b, for bytes_token_bytes()
static bd_tokenizer bytes_tokenizer;

static size_t bytes_max_ids(const bd_tokenizer *tokenizer, size_t size_bytes)
{
    (void)tokenizer;
    return size_bytes;
}

static bd_status bytes_encode(bd_encoder *encoder, const char *text, size_t size_bytes,
                              uint32_t *ids, size_t *n, bd_error *err)
{
    (void)encoder;
    (void)err;
    for (size_t i = 0; i < size_bytes; i++)
        ids[i] = (unsigned char)text[i];
    *n = size_bytes;
    return BD_OK;
}

static const char *bytes_token_bytes(const bd_tokenizer *tokenizer, uint32_t id,
                                     size_t *size_bytes)
{
    (void)tokenizer;
    *size_bytes = id < N_BYTES;
    return id < N_BYTES ? &every_byte[id] : NULL;
}

static bool bytes_find_token(const bd_tokenizer *tokenizer, const char *text, size_t size_bytes,
                             uint32_t *id)
{
    (void)tokenizer;
    const bool is_separator =
        size_bytes == strlen(separator_text) && memcmp(text, separator_text, size_bytes) == 0;
    *id = is_separator ? SEPARATOR : (unsigned char)text[0];
    return is_separator || size_bytes == 1;
}

static bd_json *byte_level(void)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "type", "ByteLevel");
    bd_json_set_bool(json, "add_prefix_space", false);
    bd_json_set_bool(json, "trim_offsets", true);
    bd_json_set_bool(json, "use_regex", false);
    return json;
}

static bd_status bytes_to_file(const bd_tokenizer *tokenizer, char **text, bd_error *err)
{
    (void)tokenizer;
    bd_json *vocabulary = bd_json_object();
    for (int byte = 0; byte < N_BYTES; byte++) {
        char symbol[BD_MAX_SYMBOL_BYTES + 1];
        symbol[bd_symbols_of_bytes(&every_byte[byte], 1, symbol)] = '\0';
        bd_json_set_integer(vocabulary, symbol, byte);
    }
    bd_json_set_integer(vocabulary, separator_text, SEPARATOR);
    bd_json *model = bd_json_object();
    bd_json_set_string(model, "type", "BPE");
    bd_json_set(model, "vocab", vocabulary);
    bd_json_set(model, "merges", bd_json_array());

    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
    bd_json *separator = bd_json_object();
    bd_json_set_integer(separator, "id", SEPARATOR);
    bd_json_set_string(separator, "content", separator_text);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        bd_json_set_bool(separator, flags[i], false);
    bd_json_set_bool(separator, "special", true);
    bd_json *added_tokens = bd_json_array();
    bd_json_append(added_tokens, separator);

    bd_json *json = bd_json_object();
    bd_json_set_string(json, "version", "1.0");
    bd_json_set_null(json, "truncation");
    bd_json_set_null(json, "padding");
    bd_json_set(json, "added_tokens", added_tokens);
    bd_json_set_null(json, "normalizer");
    bd_json_set(json, "pre_tokenizer", byte_level());
    bd_json_set_null(json, "post_processor");
    bd_json_set(json, "decoder", byte_level());
    bd_json_set(json, "model", model);
    const bd_status status = bd_json_print(json, BD_JSON_INDENTED, text, err);
    bd_json_free(json);
    return status;
}

static void make_bytes_tokenizer(void)
{
    static const bd_tokenizer_kind kind = {.max_ids = bytes_max_ids,
                                           .encode = bytes_encode,
                                           .token_bytes = bytes_token_bytes,
                                           .find_token = bytes_find_token,
                                           .to_file = bytes_to_file};
    for (int byte = 0; byte < N_BYTES; byte++)
        every_byte[byte] = (char)byte;
    // The fingerprint is over the meaning of the ids: the bytes of each token in the order of
    // ids, then the special token.
    char meaning[N_BYTES + sizeof separator_text];
    memcpy(meaning, every_byte, N_BYTES);
    memcpy(meaning + N_BYTES, separator_text, sizeof separator_text);
    bytes_tokenizer = (bd_tokenizer){
        .kind = &kind,
        .name = "bytes",
        .vocab_size = VOCAB_SIZE,
        .separator = SEPARATOR,
        .takes_text = true,
        .tokens_per_byte = 1.0,
        .fingerprint = bd_digest_of(meaning, sizeof meaning),
    };
}

const bd_tokenizer *bd_tokenizer_bytes(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_bytes_tokenizer);
    return &bytes_tokenizer;
}
