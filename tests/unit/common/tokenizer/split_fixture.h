// split_fixture.h - finds words in tests, and compares them.
#ifndef BINDERY_TESTS_SPLIT_FIXTURE_H
#define BINDERY_TESTS_SPLIT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/tokenizer/split/splitter.h"

enum { FEWEST = 64, MOST_WORDS = 4096 };

typedef struct words {
    size_t n;
    uint32_t ends[MOST_WORDS];
} words;

static inline bd_word_reader *reader_of(const bd_split_step *steps, size_t n_steps,
                                        bd_splitter **splitter)
{
    bd_error err = {0};
    bd_word_reader *reader;
    if (bd_splitter_new(steps, n_steps, splitter, &err) != BD_OK ||
        bd_word_reader_new(*splitter, &reader, &err) != BD_OK)
        fail_msg("%s", err.message);
    return reader;
}

static inline void read_words(bd_word_reader *reader, const char *text, size_t size_bytes,
                              size_t capacity, words *found)
{
    bd_error err = {0};
    size_t got;
    found->n = 0;
    if (bd_word_reader_begin(reader, text, size_bytes, &err) != BD_OK)
        fail_msg("%s", err.message);
    do {
        assert_true(found->n + capacity <= MOST_WORDS);
        if (bd_word_reader_next(reader, found->ends + found->n, capacity, &got, &err) != BD_OK)
            fail_msg("%s", err.message);
        assert_true(got <= capacity);
        found->n += got;
    } while (got > 0);
}

static inline void print_words(const char *who, const char *text, const words *w)
{
    print_error("%s:", who);
    for (size_t i = 0, at = 0; i < w->n; at = w->ends[i++]) {
        print_error(" [");
        for (size_t b = at; b < w->ends[i]; b++)
            print_error(text[b] > ' ' && text[b] < 0x7F ? "%c" : "\\x%02x", (uint8_t)text[b]);
        print_error("]");
    }
    print_error("\n");
}

static inline void assert_same(const char *what, const char *text, const words *a,
                               const words *b)
{
    if (a->n == b->n && memcmp(a->ends, b->ends, a->n * sizeof *a->ends) == 0)
        return;
    print_words("expected", text, a);
    print_words("   found", text, b);
    fail_msg("%s", what);
}

// Cuts the text of `cut` without its |, and expects a word's end at each |.
static inline void check_steps(const bd_split_step *steps, size_t n_steps, const char *cut)
{
    static words expected, found;
    char text[256];
    size_t n = 0;
    expected.n = 0;
    for (const char *c = cut; *c; c++)
        if (*c == '|')
            expected.ends[expected.n++] = (uint32_t)n;
        else
            text[n++] = *c;
    if (n > 0)
        expected.ends[expected.n++] = (uint32_t)n;
    bd_splitter *splitter;
    bd_word_reader *reader = reader_of(steps, n_steps, &splitter);
    bd_error err;
    assert_int_equal(bd_word_reader_begin(reader, "unread text", 11, &err), BD_OK);
    read_words(reader, text, n, FEWEST, &found);
    assert_same(cut, text, &expected, &found);
    bd_word_reader_free(reader);
    bd_splitter_free(splitter);
}

#endif
