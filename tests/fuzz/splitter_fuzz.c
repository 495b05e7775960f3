// The scalar code, the code of each instruction set and PCRE2 cut any text into the same words.
// The input is the text; its first byte chooses the pattern.
#include <string.h>

#include "common/tokenizer/split/splitter.h"
#include "common/tokenizer/split/unicode_class.h"
#include "tests/fuzz/memory_file.h"
#include "tests/unit/common/tokenizer/known_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_BYTES = 4096 };

typedef struct words {
    size_t n;
    uint32_t ends[MOST_BYTES + ENDS_AT_A_TIME];
} words;

// Returns false if the expression was given up, which may happen with any.
static bool expression_words(bd_pattern pattern, const uint8_t *text, size_t size, words *w)
{
    static bd_word_reader *readers[BD_PATTERN_OTHER];  // never freed
    static bd_splitter *splitters[BD_PATTERN_OTHER];
    if (!readers[pattern]) {
        const bd_split_step step = {BD_PATTERN_OTHER, (char *)bd_pattern_expression(pattern)};
        REQUIRE(bd_splitter_new(&step, 1, &splitters[pattern], NULL) == BD_OK);
        REQUIRE(bd_word_reader_new(splitters[pattern], &readers[pattern], NULL) == BD_OK);
    }
    size_t got;
    w->n = 0;
    REQUIRE(bd_word_reader_begin(readers[pattern], (const char *)text, size, NULL) == BD_OK);
    do {
        if (bd_word_reader_next(readers[pattern], w->ends + w->n, ENDS_AT_A_TIME, &got, NULL) !=
            BD_OK)
            return false;
        w->n += got;
    } while (got > 0);
    return true;
}

// PCRE2 10.42 knows Unicode 14, so texts with newer characters are not compared. Such
// characters have four bytes or lie in the few blocks of three bytes that have grown since
// then.
static bool may_be_young(const uint8_t *text, size_t size)
{
    static const uint16_t grown[] = {0x08, 0x0C, 0x0E, 0x1B, 0x1C, 0x24, 0x2F, 0x31, 0xA7};
    for (size_t at = 0; at < size;) {
        const bd_character c = bd_character_at(text + at, size - at);
        if (c.length == 4)
            return true;
        const uint32_t high =
            c.length == 3 ? (text[at] & 0x0Fu) << 4 | (text[at + 1] & 0x3Fu) >> 2 : 0;
        for (size_t i = 0; c.length == 3 && i < sizeof grown / sizeof *grown; i++)
            if (high == grown[i])
                return true;
        at += c.length;
    }
    return false;
}

static bool same(const words *a, const words *b)
{
    return a->n == b->n && memcmp(a->ends, b->ends, a->n * sizeof *a->ends) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static words expected, found;
    if (size == 0 || size > MOST_BYTES)
        return 0;
    const bd_pattern pattern = (bd_pattern)(data[0] % BD_PATTERN_OTHER);
    const uint8_t *text = data + 1;
    size--;
    expected.n = scalar_ends(pattern, (const char *)text, size, expected.ends);
    for (int isa = 0; isa < BD_SPLIT_N_ISA; isa++)
        if (bd_split_isa_serves((bd_split_isa)isa)) {
            found.n =
                isa_ends((bd_split_isa)isa, pattern, (const char *)text, size, found.ends);
            REQUIRE(same(&expected, &found));
        }
    if (!may_be_young(text, size) && expression_words(pattern, text, size, &found))
        REQUIRE(same(&expected, &found));
    return 0;
}
