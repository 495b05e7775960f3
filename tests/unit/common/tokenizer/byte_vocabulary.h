// byte_vocabulary.h - small tokenizer files for tests; the id of every byte is its value.
#ifndef BINDERY_TESTS_UNIT_COMMON_TOKENIZER_BYTE_VOCABULARY_H
#define BINDERY_TESTS_UNIT_COMMON_TOKENIZER_BYTE_VOCABULARY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/tokenizer/model/byte_alphabet.h"

// "\"!\": 33, …" for all bytes but `left_out` (-1: none), then `more`. Malloc'd.
static inline char *byte_entries(int left_out, const char *more)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    const char *comma = "";
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        char symbol[BD_MAX_SYMBOL_BYTES + 1];
        if (byte == left_out)
            continue;
        symbol[bd_symbols_of_bytes(&c, 1, symbol)] = '\0';
        fprintf(out, "%s\"%s%s\": %d", comma, byte == '"' || byte == '\\' ? "\\" : "", symbol,
                byte);
        comma = ", ";
    }
    fprintf(out, "%s", more);
    fclose(out);
    return text;
}

// A tokenizer.json; NULL members have their usual values. Malloc'd.
typedef struct tokenizer_text {
    const char *entries;   // after the bytes: ", \"ab\": 256"
    const char *merges;    // "\"a b\""
    const char *added;     // objects
    const char *document;  // more members: ", \"padding\": 1"
    const char *model;     // more members of "model"
    const char *pre_tokenizer;
    int left_out;  // a byte without a token; 0: all have one
} tokenizer_text;

#define GPT2_STEP "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define ADDED(id, text, flags)                                                                 \
    "{\"id\": " #id ", \"content\": \"" text "\", \"single_word\": false, \"lstrip\": false, " \
    "\"rstrip\": false, \"normalized\": false, \"special\": true" flags "}"

static inline const char *or_empty(const char *text)
{
    return text ? text : "";
}

static inline char *tokenizer_json(tokenizer_text t)
{
    char *entries = byte_entries(t.left_out ? t.left_out : -1, or_empty(t.entries)), *text;
    const int n =
        asprintf(&text,
                 "{\"version\": \"1.0\", \"added_tokens\": [%s], \"pre_tokenizer\": "
                 "%s, \"model\": {\"type\": \"BPE\", \"vocab\": {%s}, \"merges\": "
                 "[%s]%s}%s}",
                 or_empty(t.added), t.pre_tokenizer ? t.pre_tokenizer : GPT2_STEP, entries,
                 or_empty(t.merges), or_empty(t.model), or_empty(t.document));
    free(entries);
    return n < 0 ? NULL : text;
}

// ---- Rank files -------------------------------------------------------------------

// A line of a .tiktoken file.
static inline void put_rank(FILE *out, const char *bytes, size_t n, size_t rank)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < n ? (unsigned char)bytes[i + j] : 0);
        for (size_t j = 0; j < 4; j++)
            putc(i + j > n ? '=' : digits[bits >> (18 - 6 * j) & 63], out);
    }
    fprintf(out, " %zu\n", rank);
}

static inline void put_byte_ranks(FILE *out)
{
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        put_rank(out, &c, 1, (size_t)byte);
    }
}

#endif
