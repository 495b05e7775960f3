#include "common/tokenizer/split/split_library_kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"
#include "common/tokenizer/split/split_expression.h"
#include "common/tokenizer/split/split_properties.h"

enum { N_CODE_POINTS = 0x110000, MOST_BYTES = 4 };

// All code points but the surrogates. Returns the bytes.
static size_t write_all_characters(char *text)
{
    size_t n = 0;
    for (int32_t code = 0; code < N_CODE_POINTS; code++)
        if (code < 0xD800 || code > 0xDFFF)
            n += bd_utf8_put(text + n, code);
    return n;
}

// The matches of an expression that is PCRE2's own, one after the other.
typedef struct kind_search {
    bd_expression *expression;
    bd_finder *finder;
    bd_match match;
} kind_search;

static void search_close(kind_search *s)
{
    bd_finder_free(s->finder);
    bd_expression_free(s->expression);
}

static bool search_open(kind_search *s, const char *expression)
{
    *s = (kind_search){0};
    if (bd_expression_new_translated(expression, expression, &s->expression, NULL) == BD_OK &&
        bd_finder_new(s->expression, 1, &s->finder, NULL) == BD_OK)
        return true;
    search_close(s);
    return false;
}

static bool search_next(kind_search *s, const char *text, size_t n, size_t from)
{
    bool found;
    return bd_finder_find(s->finder, text, n, from, &s->match, &found, NULL) == BD_OK && found;
}

// Keeps the few characters of `text` that are of any kind, so that the rest is read only once.
// Returns the bytes.
static size_t keep_those_of_kinds(char *text, size_t n)
{
    kind_search s;
    if (!search_open(&s, "[\\p{L}\\p{M}\\p{N}\\p{Z}]+"))
        return 0;
    size_t kept = 0;
    for (size_t at = 0; search_next(&s, text, n, at); at = s.match.end) {
        memmove(text + kept, text + s.match.begin, s.match.end - s.match.begin);
        kept += s.match.end - s.match.begin;
    }
    search_close(&s);
    return kept;
}

static void mark_kind(uint32_t kind, const char *text, size_t n, uint16_t *kinds)
{
    char expression[16];
    snprintf(expression, sizeof expression, "\\p{%s}+", bd_property_of_kind(kind));
    kind_search s;
    if (!search_open(&s, expression))
        return;
    for (size_t at = 0; search_next(&s, text, n, at);) {
        size_t length;
        for (at = s.match.begin; at < s.match.end; at += length)
            kinds[bd_utf8_character(text + at, n - at, &length)] |= (uint16_t)kind;
    }
    search_close(&s);
}

void bd_library_kinds(uint16_t *kinds)
{
    char *text = malloc((size_t)N_CODE_POINTS * MOST_BYTES);
    if (!text)
        return;
    const size_t n = keep_those_of_kinds(text, write_all_characters(text));
    for (uint32_t kind = 1; kind < BD_KIND_WHITE; kind *= 2)
        mark_kind(kind, text, n, kinds);
    free(text);
}
