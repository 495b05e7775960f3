// The files of tiktoken: a line for each token, its bytes in base64 and its rank, which is its
// id. Special tokens are not in them but in tiktoken's own registry, by the name of the
// encoding; a file that does not have that encoding's number of ranks is another vocabulary and
// gets none.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tokenizer/model/loaders.h"

// ---- Lines ------------------------------------------------------------------------

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Decodes into `out`, which has room for 3 bytes of every 4. False if it is not base64 with its
// padding; but "=" alone is no bytes, as tiktoken reads it.
static bool decode_base64(const char *text, size_t n, char *out, size_t *n_out)
{
    size_t padding = 0;
    while (padding < 2 && padding < n && text[n - 1 - padding] == '=')
        padding++;
    *n_out = 0;
    if (n == 1 && padding == 1)
        return true;
    if (n == 0 || n % 4 != 0)
        return false;
    *n_out = n / 4 * 3 - padding;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t bits = 0;
        for (size_t j = i; j < i + 4; j++) {
            const int digit = j < n - padding ? base64_digit(text[j]) : 0;
            if (digit < 0)
                return false;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (size_t j = 0; j < 3; j++)
            out[i / 4 * 3 + j] = (char)(bits >> (16 - 8 * j));
    }
    return true;
}

static bool parse_rank(const char *text, size_t n, int64_t *rank)
{
    *rank = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || i > 9)
            return false;
        *rank = *rank * 10 + (text[i] - '0');
    }
    return n > 0;
}

static bd_status read_rank_line(bd_model_parts *parts, const char *line, size_t n,
                                bd_error *err)
{
    enum { MAX_TEXT = (BD_MAX_TOKEN_BYTES + 2) / 3 * 4 };
    char bytes[MAX_TEXT / 4 * 3];
    size_t n_bytes;
    int64_t rank;
    if (n > 0 && line[n - 1] == '\r')
        n--;
    const char *space = memchr(line, ' ', n);
    const size_t n_text = space ? (size_t)(space - line) : 0;
    if (!space || n_text > MAX_TEXT || !decode_base64(line, n_text, bytes, &n_bytes) ||
        !parse_rank(space + 1, n - n_text - 1, &rank))
        return bd_fail(err, BD_ERR_FORMAT, "not a token in base64, a space and a rank");
    // Whisper's file ends with a token without bytes: an id that nothing becomes.
    return n_bytes == 0 ? BD_OK : bd_vocabulary_add(&parts->tokens, rank, bytes, n_bytes, err);
}

// ---- Special tokens ---------------------------------------------------------------

typedef struct special {
    const char *text;
    uint32_t id;
} special;

typedef struct known_encoding {
    const char *pattern_name;
    size_t n_ranks;
    special specials[8];
} known_encoding;

static const known_encoding encodings[] = {
    {"gpt2", 50256, {{"<|endoftext|>", 50256}}},
    {"gpt2", 50280, {{"<|endoftext|>", 50256}}},  // p50k_base
    {"cl100k",
     100256,
     {{"<|endoftext|>", 100257},
      {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259},
      {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k", 199998, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
    {"llama3",
     128000,
     {{"<|begin_of_text|>", 128000},
      {"<|end_of_text|>", 128001},
      {"<|start_header_id|>", 128006},
      {"<|end_header_id|>", 128007},
      {"<|eot_id|>", 128009}}},
};

enum { LLAMA3_SPECIALS = 256 };

// Passed over if its id or its text is a token already.
static bd_status add_special(bd_model_parts *parts, const char *text, uint32_t id,
                             bd_error *err)
{
    uint32_t token;
    if (bd_vocabulary_has(&parts->tokens, id) || bd_vocabulary_has(&parts->added_texts, id) ||
        bd_vocabulary_find(&parts->tokens, text, strlen(text), &token))
        return BD_OK;
    return bd_model_parts_add_token(parts, (bd_added_token){.special = true}, id, text,
                                    strlen(text), err);
}

// Llama 3 names all 256 ids after its ranks; those without a use are numbered.
static bd_status add_reserved(bd_model_parts *parts, bd_error *err)
{
    int number = 0;
    for (uint32_t i = 0; i < LLAMA3_SPECIALS; i++) {
        char text[64];
        const uint32_t id = (uint32_t)parts->tokens.n_tokens + i;
        if (bd_vocabulary_has(&parts->added_texts, id))
            continue;
        snprintf(text, sizeof text, "<|reserved_special_token_%d|>", number++);
        BD_TRY(add_special(parts, text, id, err));
    }
    return BD_OK;
}

static bd_status add_specials(bd_model_parts *parts, bd_pattern pattern, size_t n_ranks,
                              bd_error *err)
{
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++) {
        const known_encoding *known = &encodings[i];
        bd_pattern known_pattern;
        if (n_ranks != known->n_ranks ||
            !bd_pattern_by_name(known->pattern_name, &known_pattern) ||
            known_pattern != pattern)
            continue;
        for (const special *s = known->specials; s->text; s++)
            BD_TRY(add_special(parts, s->text, s->id, err));
        if (strcmp(known->pattern_name, "llama3") == 0)
            BD_TRY(add_reserved(parts, err));
    }
    return BD_OK;
}

bd_status bd_load_tiktoken(bd_model_parts *parts, const char *text, size_t size_bytes,
                           const char *pattern_name, bd_error *err)
{
    bd_pattern pattern;
    if (!bd_pattern_by_name(pattern_name, &pattern))
        return bd_fail(err, BD_ERR_ARGUMENT, "no pattern is named '%.60s': there are %s",
                       pattern_name, bd_pattern_names());
    size_t line = 1;
    for (size_t at = 0; at < size_bytes; line++) {
        const char *newline = memchr(text + at, '\n', size_bytes - at);
        const size_t end = newline ? (size_t)(newline - text) : size_bytes;
        const bd_status status = read_rank_line(parts, text + at, end - at, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "line %zu", line);
        at = end + 1;
    }
    parts->ids_are_ranks = true;
    parts->whole_words = true;
    BD_TRY(add_specials(parts, pattern, line - 1, err));
    return bd_model_parts_add_step(parts, pattern, NULL, err);
}
