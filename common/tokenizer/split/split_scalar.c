#include "common/tokenizer/split/split_scalar.h"

#include "common/tokenizer/split/unicode_class.h"

// The classes that the characters of a run share; 0 for [^\s\p{L}\p{N}].
enum { KINDS = BD_LETTER | BD_NUMBER | BD_WHITE };

static uint32_t kind_at(const uint8_t *s, size_t n)
{
    return bd_character_at(s, n).classes & KINDS;
}

// The end of the run of `kind` from `at`.
static size_t run_end(const uint8_t *s, size_t n, size_t at, uint32_t kind)
{
    while (at < n) {
        const bd_character c = bd_character_at(s + at, n - at);
        if ((c.classes & KINDS) != kind)
            break;
        at += c.length;
    }
    return at;
}

// The end of the characters from `at` that have one of the bits `classes`.
static size_t class_end(const uint8_t *s, size_t n, size_t at, uint32_t classes)
{
    while (at < n) {
        const bd_character c = bd_character_at(s + at, n - at);
        if (!(c.classes & classes))
            break;
        at += c.length;
    }
    return at;
}

size_t bd_contraction(const uint8_t *s, size_t n, bool any_case)
{
    if (n < 2 || s[0] != '\'')
        return 0;
    if (any_case && n >= 3 && s[1] == 0xC5 && s[2] == 0xBF)  // U+017F
        return 3;
    const uint8_t to_lower = any_case ? 0x20 : 0;
    const uint8_t a = s[1] | to_lower;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    const uint8_t b = n >= 3 ? s[2] | to_lower : 0;
    const bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? 3 : 0;
}

// ---- White space ------------------------------------------------------------------

// \s+(?!\S)|\s+ : all of it at the end of the text, else all but the last character, but at
// least one.
static size_t blank_word(const uint8_t *s, size_t n)
{
    size_t at = 0, last = 0;
    while (at < n) {
        const bd_character c = bd_character_at(s + at, n - at);
        if (!(c.classes & BD_WHITE))
            return last > 0 ? last : at;
        last = at;
        at += c.length;
    }
    return at;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ , and before it \s+\z for cl100k.
static size_t white_word(bd_pattern pattern, const uint8_t *s, size_t n)
{
    const size_t end = run_end(s, n, 0, BD_WHITE);
    if (pattern == BD_PATTERN_CL100K && end == n)
        return end;
    for (size_t at = end; at > 0; at--)
        if (s[at - 1] == '\r' || s[at - 1] == '\n')
            return at;
    return blank_word(s, n);
}

// ---- GPT-2 ------------------------------------------------------------------------

static size_t gpt2_word(const uint8_t *s, size_t n)
{
    const size_t contraction = bd_contraction(s, n, false);
    if (contraction > 0)
        return contraction;
    const size_t space = s[0] == ' ' && n > 1 ? 1 : 0;
    const uint32_t kind = kind_at(s + space, n - space);
    return kind == BD_WHITE ? blank_word(s, n) : run_end(s, n, space, kind);
}

// ---- cl100k and its like ----------------------------------------------------------

// \p{N}{1,3}, or with `most` = 1 \p{N}. The first is known to be a number.
static size_t numbers_word(const uint8_t *s, size_t n, int most)
{
    size_t at = 0;
    for (int i = 0; i < most && at < n; i++) {
        const bd_character c = bd_character_at(s + at, n - at);
        if (!(c.classes & BD_NUMBER))
            break;
        at += c.length;
    }
    return at;
}

//  ?[^\s\p{L}\p{N}]+[\r\n]* , for o200k [\r\n/]* at the end; 0 if there is none.
static size_t punctuation_word(const uint8_t *s, size_t n, bool slash)
{
    const size_t space = s[0] == ' ' ? 1 : 0;
    size_t end = run_end(s, n, space, 0);
    if (end == space)
        return 0;
    while (end < n && (s[end] == '\r' || s[end] == '\n' || (slash && s[end] == '/')))
        end++;
    return end;
}

// Whether [^\r\n\p{L}\p{N}] takes the character.
static bool is_prefix(bd_character c)
{
    return !(c.classes & (BD_LETTER | BD_NUMBER | BD_LINE_BREAK));
}

// [^\r\n\p{L}\p{N}]?\p{L}+ ; 0 if there is none.
static size_t letters_word(const uint8_t *s, size_t n)
{
    const bd_character c = bd_character_at(s, n);
    const size_t prefix = is_prefix(c) ? c.length : 0;
    const size_t end = run_end(s, n, prefix, BD_LETTER);
    return end > prefix ? end : 0;
}

static size_t cl100k_word(bd_pattern pattern, const uint8_t *s, size_t n)
{
    size_t length = bd_contraction(s, n, true);
    if (length == 0)
        length = letters_word(s, n);
    if (length == 0)
        length = numbers_word(s, n, pattern == BD_PATTERN_QWEN2 ? 1 : 3);
    if (length == 0)
        length = punctuation_word(s, n, false);
    return length > 0 ? length : white_word(pattern, s, n);
}

// ---- o200k ------------------------------------------------------------------------

// [upper]*[lower]+ from `at`, where letters without case and marks are both; 0 if there is
// none. The run of [upper] is followed by something that is lower only, or it gives back what
// comes after its last character without case:
//
//   ABcd.  all      AB漢C.  AB漢      ABC.  nothing
static size_t lower_end(const uint8_t *s, size_t n, size_t at)
{
    size_t caseless_end = 0;
    while (at < n) {
        const bd_character c = bd_character_at(s + at, n - at);
        if (!(c.classes & BD_UPPER))
            break;
        at += c.length;
        if (c.classes & BD_LOWER)
            caseless_end = at;
    }
    const size_t end = class_end(s, n, at, BD_LOWER);
    return end > at ? end : caseless_end;
}

// The two alternatives for words, each with the character before them if that helps.
static size_t cased_word(const uint8_t *s, size_t n)
{
    const bd_character c = bd_character_at(s, n);
    const size_t prefix = is_prefix(c) ? c.length : 0;
    size_t end = lower_end(s, n, prefix);
    if (end == 0 && prefix > 0)  // a mark is a prefix and a beginning
        end = lower_end(s, n, 0);
    if (end == 0) {
        // [upper]+[lower]* : no lower one follows, or the first alternative had found it.
        end = class_end(s, n, prefix, BD_UPPER);
        if (end == prefix)
            return 0;
    }
    return end + bd_contraction(s + end, n - end, true);
}

static size_t o200k_word(const uint8_t *s, size_t n)
{
    size_t length = cased_word(s, n);
    if (length == 0)
        length = numbers_word(s, n, 3);
    if (length == 0)
        length = punctuation_word(s, n, true);
    return length > 0 ? length : white_word(BD_PATTERN_O200K, s, n);
}

// ---- Digits -----------------------------------------------------------------------

static size_t digit_word(const uint8_t *s, size_t n)
{
    size_t at = numbers_word(s, n, 1);
    if (at > 0)
        return at;
    while (at < n) {
        const bd_character c = bd_character_at(s + at, n - at);
        if (c.classes & BD_NUMBER)
            break;
        at += c.length;
    }
    return at;
}

// GPT-2's words between digits: white space before a digit is at the end of its piece.
static size_t digit_gpt2_word(const uint8_t *s, size_t n)
{
    const uint32_t kind = kind_at(s, n);
    if (kind == BD_NUMBER)
        return numbers_word(s, n, 1);
    if (kind == BD_WHITE) {
        const size_t end = run_end(s, n, 0, BD_WHITE);
        if (end < n && kind_at(s + end, n - end) == BD_NUMBER)
            return end;
    }
    return gpt2_word(s, n);
}

size_t bd_scalar_word(bd_pattern pattern, const uint8_t *s, size_t n)
{
    if (pattern == BD_PATTERN_DIGIT_GPT2)
        return digit_gpt2_word(s, n);
    switch (pattern) {
    case BD_PATTERN_GPT2:
        return gpt2_word(s, n);
    case BD_PATTERN_CL100K:
    case BD_PATTERN_LLAMA3:
    case BD_PATTERN_QWEN2:
        return cl100k_word(pattern, s, n);
    case BD_PATTERN_O200K:
        return o200k_word(s, n);
    case BD_PATTERN_DIGIT:
        return digit_word(s, n);
    case BD_PATTERN_OTHER:
        break;
    }
    return n;
}
