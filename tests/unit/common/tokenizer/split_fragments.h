// split_fragments.h - fragments for text that is hard to cut.
#ifndef BINDERY_TESTS_SPLIT_FRAGMENTS_H
#define BINDERY_TESTS_SPLIT_FRAGMENTS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// clang-format off
static const char *const split_fragments[] = {
    " ", " ", "  ", "\n", "\r", "\r\n", "\t", "\u00a0", "\xC2\x85", "\u2028", "\u3000",
    "\u200b", "\u180e", "'", "'s", "'t", "'re", "'ve", "'ll", "'m", "'D", "'RE", "'\u017f",
    "'r", "s", "S", "\u017f", "re", "l", "e", "a", "b", "Z", "1", "12", "9", "\u0663",
    "\u00bd", "\u2167", "\U0001d7d8", "\u00e9", "\u00c9", "\u01c5", "\u02b0", "\u6f22",
    "\u3042", "\u0e01", "\u0301", "\u0903", "\U0001f600", "\U0001f44d\U0001f3fd", "!", "/",
    "-", "_", "...", "\u2014", "\U0001d49c", "\U00020000", "\U00031350", "\xC3", "\xE2\x82",
    "\xF0\x9F\x98", "\x80", "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
    "",  // stands for NUL
};
// clang-format on
enum {
    N_FRAGMENTS = sizeof split_fragments / sizeof *split_fragments,
    MOST_FRAGMENT_BYTES = 8,
};

// Writes fragment number `i` to `at` and returns its end.
static inline size_t add_fragment(char *text, size_t at, uint32_t i)
{
    const size_t n = strlen(split_fragments[i]);
    if (n == 0)
        text[at] = '\0';
    memcpy(text + at, split_fragments[i], n);
    return at + (n > 0 ? n : 1);
}

#endif
