// known_words.h - finds the words of the known patterns by the scalar code and by that of each
// instruction set, for the unit test and the fuzzer. The includer defines REQUIRE(condition).
#ifndef BINDERY_TESTS_KNOWN_WORDS_H
#define BINDERY_TESTS_KNOWN_WORDS_H

#include "common/tokenizer/split/split_known.h"
#include "common/tokenizer/split/split_scalar.h"

enum { ENDS_AT_A_TIME = 64 };

// Both write the ends of the words to `ends`, which has room for size_bytes and ENDS_AT_A_TIME
// more, and return their number.

static inline size_t scalar_ends(bd_pattern pattern, const char *text, size_t size_bytes,
                                 uint32_t *ends)
{
    size_t n = 0;
    for (size_t at = 0; at < size_bytes;) {
        const size_t length =
            bd_scalar_word(pattern, (const uint8_t *)text + at, size_bytes - at);
        REQUIRE(length > 0 && length <= size_bytes - at);
        at += length;
        ends[n++] = (uint32_t)at;
    }
    return n;
}

static inline size_t isa_ends(bd_split_isa isa, bd_pattern pattern, const char *text,
                              size_t size_bytes, uint32_t *ends)
{
    bd_known_cutter cutter;
    size_t n = 0, got;
    bd_known_cutter_begin(&cutter, isa, pattern, text, 0, size_bytes);
    do {
        got = bd_known_cutter_next(&cutter, ends + n, ENDS_AT_A_TIME);
        REQUIRE(got <= ENDS_AT_A_TIME && n + got <= size_bytes);
        n += got;
    } while (got > 0);
    return n;
}

#endif
