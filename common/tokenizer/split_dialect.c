#include "common/tokenizer/split_dialect.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// The property White_Space and the rest. PCRE2's own \s has U+180E, too.
#define WHITE_RANGES                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}" \
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define BLACK_RANGES                                                               \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"   \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}" \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"

enum {
    MAX_DEPTH = 200,          // of groups; PCRE2 has 250
    MOST_FOR_A_BYTE = 160,    // of the translation: \S in brackets, and two wrappings
    MAX_PROPERTY_BYTES = 40,  // of a property's name
};

typedef struct translation {
    const char *source;
    size_t at;  // in `source`
    char *out;
    size_t used;
    size_t atom;               // where in `out` the last thing that can be repeated begins
    size_t groups[MAX_DEPTH];  // where the open groups begin
    int depth;
    bd_error *err;
} translation;

static bd_status refuse(const translation *t, size_t length)
{
    return bd_fail(t->err, BD_ERR_UNSUPPORTED,
                   "regular expression '%.300s': '%.*s' at byte %zu is not supported",
                   t->source, (int)length, t->source + t->at, t->at);
}

static void put(translation *t, const char *text, size_t n)
{
    memcpy(t->out + t->used, text, n);
    t->used += n;
}

static void put_text(translation *t, const char *text)
{
    put(t, text, strlen(text));
}

// Copies the next `n` bytes as they are.
static void copy(translation *t, size_t n)
{
    put(t, t->source + t->at, n);
    t->at += n;
}

// ---- Escapes ----------------------------------------------------------------------

// \p{X}, \P{X}, \p{^X}: a general category as it is, all else as a script, since PCRE2 would
// take a script's name for its extensions.
static bd_status translate_property(translation *t)
{
    const char *name = t->source + t->at + 2;
    const char *end = *name == '{' ? strchr(name, '}') : NULL;
    if (!end || end - name > MAX_PROPERTY_BYTES)
        return refuse(t, 2);
    name++;
    const size_t whole = (size_t)(end + 1 - (t->source + t->at));
    bool negated = t->source[t->at + 1] == 'P';
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    const size_t n = (size_t)(end - name);
    for (size_t i = 0; i < n; i++)
        if (!isalpha((unsigned char)name[i]) && name[i] != '_')
            return refuse(t, whole);
    const bool category = n == 1 || n == 2;
    put_text(t, negated ? "\\P{" : "\\p{");
    put_text(t, category ? "" : "sc:");
    put(t, name, n);
    put_text(t, "}");
    t->at += whole;
    return BD_OK;
}

// \uXXXX, \x{X...} and \xXX below 0x80 (above, Oniguruma means a byte).
static bd_status translate_code(translation *t)
{
    const char *digits = t->source + t->at + 2;
    size_t n = strspn(digits, "0123456789abcdefABCDEF");
    if (t->source[t->at + 1] == 'u' && n >= 4) {
        put_text(t, "\\x{");
        put(t, digits, 4);
        put_text(t, "}");
        t->at += 6;
        return BD_OK;
    }
    if (t->source[t->at + 1] == 'x' && *digits == '{') {
        n = strspn(digits + 1, "0123456789abcdefABCDEF");
        if (n >= 1 && n <= 6 && digits[1 + n] == '}') {
            copy(t, n + 4);
            return BD_OK;
        }
    }
    if (t->source[t->at + 1] == 'x' && n >= 2 && digits[0] < '8') {
        copy(t, 4);
        return BD_OK;
    }
    return refuse(t, 2);
}

static bd_status translate_escape(translation *t, bool in_brackets)
{
    const char c = t->source[t->at + 1];
    if (c == 'p' || c == 'P')
        return translate_property(t);
    if (c == 'u' || c == 'x')
        return translate_code(t);
    const char *instead = NULL;
    if (c == 's')
        instead = in_brackets ? WHITE_RANGES : "[" WHITE_RANGES "]";
    else if (c == 'S')
        instead = in_brackets ? BLACK_RANGES : "[^" WHITE_RANGES "]";
    else if (c == 'v')
        instead = "\\x{b}";
    if (instead) {
        put_text(t, instead);
        t->at += 2;
        return BD_OK;
    }
    const bool same = strchr(in_brackets ? "dDnrtfae" : "dDnrtfaeAz", c) || ispunct(c);
    if (c == '\0' || !same)
        return refuse(t, c == '\0' ? 1 : 2);
    copy(t, 2);
    return BD_OK;
}

// ---- Brackets ---------------------------------------------------------------------

// Of [...]: sets in sets, their intersections and POSIX names are Oniguruma's own.
static bd_status translate_brackets(translation *t)
{
    const size_t start = t->at;
    copy(t, 1);
    if (t->source[t->at] == '^')
        copy(t, 1);
    if (t->source[t->at] == ']')
        return refuse(t, 1);
    while (t->source[t->at] != ']') {
        const char c = t->source[t->at];
        if (c == '\0') {
            t->at = start;
            return refuse(t, 1);
        }
        if (c == '[' || (c == '&' && t->source[t->at + 1] == '&'))
            return refuse(t, c == '[' ? 1 : 2);
        if (c == '\\')
            BD_TRY(translate_escape(t, true));
        else
            copy(t, 1);
    }
    copy(t, 1);
    return BD_OK;
}

// ---- Groups -----------------------------------------------------------------------

static bd_status open_group(translation *t)
{
    static const char *const kinds[] = {"(?:",  "(?=",  "(?!",  "(?>",
                                        "(?<=", "(?<!", "(?i:", "(?-i:"};
    const char *here = t->source + t->at;
    size_t length = here[1] == '?' || here[1] == '*' ? 0 : 1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(here, kinds[i], strlen(kinds[i])) == 0)
            length = strlen(kinds[i]);
    // Elsewhere it would bind differently among alternatives.
    if (t->at == 0 && strncmp(here, "(?i)", 4) == 0) {
        copy(t, 4);
        return BD_OK;
    }
    if (length == 0 || t->depth == MAX_DEPTH)
        return refuse(t, strnlen(here, 3));
    t->groups[t->depth++] = t->used;
    copy(t, length);
    return BD_OK;
}

static bd_status close_group(translation *t)
{
    if (t->depth == 0)
        return refuse(t, 1);
    t->atom = t->groups[--t->depth];
    copy(t, 1);
    return BD_OK;
}

// ---- Repetition -------------------------------------------------------------------

// {n}, {n,}, {n,m} and {,m} (Oniguruma: {0,m}); any other { stands for itself in both. A +
// after it repeats the whole there, and would forbid to give back in PCRE2.
static bd_status translate_interval(translation *t)
{
    const char *here = t->source + t->at;
    const size_t low = strspn(here + 1, "0123456789");
    const size_t comma = here[1 + low] == ',' ? 1 : 0;
    const size_t high = comma ? strspn(here + 2 + low, "0123456789") : 0;
    const size_t length = 2 + low + comma + high;
    if (here[length - 1] != '}' || low + high == 0) {
        t->atom = t->used;
        put_text(t, "\\{");
        t->at++;
        return BD_OK;
    }
    const char after = here[length];
    if ((after == '?' && !comma) || after == '{' || after == '*')
        return refuse(t, length + 1);
    if (after == '+') {
        memmove(t->out + t->atom + 3, t->out + t->atom, t->used - t->atom);
        memcpy(t->out + t->atom, "(?:", 3);
        t->used += 3;
    }
    put_text(t, low == 0 ? "{0" : "{");
    put(t, here + 1, length - 1);
    t->at += length;
    if (after == '+') {
        put_text(t, ")+");
        t->at++;
    }
    return BD_OK;
}

// ---- The whole --------------------------------------------------------------------

static bd_status translate_next(translation *t)
{
    const char c = t->source[t->at];
    if (c == '(')
        return open_group(t);
    if (c == ')')
        return close_group(t);
    if (c == '{')
        return translate_interval(t);
    if (!strchr("*+?|", c)) {
        t->atom = t->used;
        if (c == '[')
            return translate_brackets(t);
        if (c == '\\')
            return translate_escape(t, false);
        // All bytes of a character are one atom.
        copy(t, 1);
        while ((t->source[t->at] & 0xC0) == 0x80)
            copy(t, 1);
        return BD_OK;
    }
    copy(t, 1);
    return BD_OK;
}

// Without case Oniguruma also takes one character for several, as U+00DF for ss.
static bool folds_several(const char *expression)
{
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};
    if (!strstr(expression, "(?i"))
        return false;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcasestr(expression, pairs[i]))
            return true;
    return false;
}

bd_status bd_dialect_translate(const char *expression, char **translated, bd_error *err)
{
    *translated = NULL;
    const size_t n = strlen(expression);
    if (n > BD_MAX_EXPRESSION_BYTES)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "regular expression '%.60s…' has %zu bytes",
                       expression, n);
    if (folds_several(expression))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "regular expression '%.300s': 'ss', 'st', 'ff', 'fi' or 'fl' with (?i "
                       "is not supported",
                       expression);
    translation t = {.source = expression, .err = err};
    t.out = malloc(MOST_FOR_A_BYTE * (n + 1));
    if (!t.out)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a regular expression");
    bd_status status = BD_OK;
    while (status == BD_OK && expression[t.at] != '\0')
        status = translate_next(&t);
    if (status != BD_OK) {
        free(t.out);
        return status;
    }
    t.out[t.used] = '\0';
    *translated = t.out;
    return BD_OK;
}
