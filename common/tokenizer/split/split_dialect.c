#include "common/tokenizer/split/split_dialect.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/tokenizer/split/split_properties.h"

enum {
    MAX_DEPTH = 200,                  // of groups; PCRE2 has 250
    MOST_TRANSLATED_BYTES = 1 << 20,  // PCRE2's own limit, 64 KiB compiled, is reached before
    MAX_PROPERTY_BYTES = 40,          // of a property's name
};

typedef struct group {
    size_t begin;   // in `out`
    bool caseless;  // before it, and after it again
} group;

typedef struct translation {
    const char *source;
    size_t at;  // in `source`
    char *out;
    size_t used, capacity;
    bd_status written;  // not BD_OK when `out` could not grow; nothing is written from then on
    size_t atom;        // where in `out` the last thing that can be repeated begins
    group groups[MAX_DEPTH];  // those that are open
    int depth;
    bool caseless;       // here, by (?i
    char last_caseless;  // the letter before, in lower case, if it is caseless as well; else 0
    bd_kind_runs *runs;  // made when first needed
    bd_error *err;
} translation;

static bd_status refuse_because(const translation *t, size_t length, const char *why)
{
    return bd_fail(t->err, BD_ERR_UNSUPPORTED,
                   "regular expression '%.300s': '%.*s' at byte %zu is not supported%s",
                   t->source, (int)length, t->source + t->at, t->at, why);
}

static bd_status refuse_next(const translation *t, size_t length)
{
    return refuse_because(t, length, "");
}

static bd_status fail_for_memory(const translation *t)
{
    return bd_fail(t->err, BD_ERR_MEMORY, "no memory for a regular expression");
}

// Bytes of the character at `at`, of any text.
static size_t character_bytes(const translation *t, size_t at)
{
    size_t n = 1;
    while ((t->source[at + n] & 0xC0) == 0x80)
        n++;
    return n;
}

static bool make_translation_room(translation *t, size_t n)
{
    if (t->written == BD_OK && t->used + n > MOST_TRANSLATED_BYTES)
        t->written =
            bd_fail(t->err, BD_ERR_UNSUPPORTED,
                    "regular expression '%.300s' has too many sets of characters", t->source);
    if (t->written == BD_OK)
        t->written = bd_array_reserve((void **)&t->out, &t->capacity, t->used + n, 1, t->err);
    return t->written == BD_OK;
}

static void put_translated(translation *t, const char *text, size_t n)
{
    if (n == 0 || !make_translation_room(t, n))
        return;
    memcpy(t->out + t->used, text, n);
    t->used += n;
}

static void put_syntax(translation *t, const char *text)
{
    put_translated(t, text, strlen(text));
}

// Copies the next `n` bytes as they are.
static void copy_source(translation *t, size_t n)
{
    put_translated(t, t->source + t->at, n);
    t->at += n;
}

// The characters of a set, without brackets.
static bd_status put_members(translation *t, bd_kind_set set)
{
    if (!t->runs)
        t->runs = bd_kind_runs_new();
    char *members = t->runs ? bd_kind_set_members(t->runs, set) : NULL;
    if (!members)
        return fail_for_memory(t);
    put_syntax(t, members);
    free(members);
    return BD_OK;
}

// ---- Escapes ----------------------------------------------------------------------

static const char with_case[] = " with (?i";

// \p{X}, \P{X}, \p{^X}: adds X to `set`.
static bd_status read_property(translation *t, bd_kind_set *set)
{
    const char *name = t->source + t->at + 2;
    const char *end = *name == '{' ? strchr(name, '}') : NULL;
    if (!end || end - name > MAX_PROPERTY_BYTES)
        return refuse_next(t, 2);
    name++;
    const size_t whole = (size_t)(end + 1 - (t->source + t->at));
    bool negated = t->source[t->at + 1] == 'P';
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    const uint32_t kind = bd_kind_of_property(name, (size_t)(end - name));
    if (kind == 0)
        return refuse_because(t, whole, ": its characters differ between Unicode versions");
    *(negated ? &set->lacks : &set->has) |= kind;
    if (set->lacks & (BD_KIND_LM | BD_KIND_LO))
        return refuse_because(t, whole, ": the tables do not tell Lm from Lo");
    t->at += whole;
    return BD_OK;
}

// Whether the escape at `at` stands for a set of characters.
static bool is_class(const translation *t, size_t at)
{
    const char c = t->source[at] == '\\' ? t->source[at + 1] : '\0';
    return c != '\0' && strchr("pPsSdD", c);
}

// The next escape, for which is_class() is true, into `set`.
static bd_status read_class(translation *t, bd_kind_set *set)
{
    const char c = t->source[t->at + 1];
    if (c == 'p' || c == 'P')
        return read_property(t, set);
    const uint32_t kind = c == 's' || c == 'S' ? BD_KIND_WHITE : BD_KIND_ND;
    *(c == 's' || c == 'd' ? &set->has : &set->lacks) |= kind;
    t->at += 2;
    return BD_OK;
}

// Translates a class outside of brackets, where (?i does not change its meaning.
static bd_status translate_class(translation *t)
{
    const size_t start = t->at;
    bd_kind_set set = {0};
    BD_TRY(read_class(t, &set));
    if (!bd_kind_set_is_known(set)) {
        const size_t length = t->at - start;
        t->at = start;
        return refuse_because(t, length, ": the tables do not tell Lm from Lo");
    }
    const bool negated = set.lacks != 0;
    put_syntax(t, t->caseless ? "(?-i:" : "");
    put_syntax(t, negated ? "[^" : "[");
    BD_TRY(put_members(t, (bd_kind_set){.has = set.has | set.lacks}));
    put_syntax(t, t->caseless ? "])" : "]");
    return BD_OK;
}

// Without regard to case the two dialects agree on ASCII alone; and letters are compared in
// pairs, see translate_letter().
static bd_status put_code(translation *t, const char *digits, size_t n, size_t whole)
{
    const unsigned long code = strtoul(digits, NULL, 16);
    if (t->caseless && (code >= 0x80 || isalpha((int)code)))
        return refuse_because(t, whole, with_case);
    put_syntax(t, "\\x{");
    put_translated(t, digits, n);
    put_syntax(t, "}");
    t->at += whole;
    return BD_OK;
}

// \uXXXX, \x{X...} and \xXX below 0x80 (above, Oniguruma means a byte).
static bd_status translate_code(translation *t)
{
    static const char hexadecimal[] = "0123456789abcdefABCDEF";
    const char kind = t->source[t->at + 1];
    char digits[7] = "";  // of at most six, so that no more are read as a number
    const char *here = t->source + t->at + 2;
    const size_t braces = kind == 'x' && *here == '{' ? 1 : 0;
    const size_t there = strspn(here + braces, hexadecimal);
    size_t n = 0;
    if (kind == 'u' && there >= 4)
        n = 4;
    else if (braces && there >= 1 && there <= 6 && here[1 + there] == '}')
        n = there;
    else if (kind == 'x' && !braces && there >= 2 && *here < '8')
        n = 2;
    if (n == 0)
        return refuse_next(t, 2);
    memcpy(digits, here + braces, n);
    return put_code(t, digits, n, 2 + n + 2 * braces);
}

// An escape that stands for one character or one place.
static bd_status translate_escape(translation *t, bool in_brackets)
{
    const char c = t->source[t->at + 1];
    if (c == 'u' || c == 'x')
        return translate_code(t);
    if (c == 'v') {
        put_syntax(t, "\\x{b}");
        t->at += 2;
        return BD_OK;
    }
    if (c == '\0')
        return refuse_next(t, 1);
    if (!strchr(in_brackets ? "nrtfae" : "nrtfaeAz", c) && !ispunct((unsigned char)c))
        return refuse_next(t, 1 + character_bytes(t, t->at + 1));
    copy_source(t, 2);
    return BD_OK;
}

// ---- Brackets ---------------------------------------------------------------------

// Reads a class in brackets. With (?i Oniguruma adds the other cases of all its characters, and
// those may be several characters each.
static bd_status read_bracket_class(translation *t, bd_kind_set *set)
{
    const char c = t->source[t->at + 1];
    if (t->caseless && c != 's' && c != 'd')
        return refuse_because(t, 2, " in brackets with (?i");
    return read_class(t, set);
}

// Translates a minus in brackets. If it is first or last, it stands for itself; beside a class
// each dialect has a rule of its own; elsewhere it is part of a range, or follows one and
// stands for itself.
static bd_status translate_minus(translation *t, bool first, bool after_class)
{
    const bool last = t->source[t->at + 1] == ']';
    if (!first && !last && (after_class || is_class(t, t->at + 1)))
        return refuse_because(t, 1, " beside a class");
    put_syntax(t, first || last ? "\\-" : "-");
    t->at++;
    return BD_OK;
}

// The next character or escape of a set.
static bd_status translate_member(translation *t, bool first, bool after_class,
                                  bd_kind_set *set)
{
    const char c = t->source[t->at];
    if (c == '[' || (c == '&' && t->source[t->at + 1] == '&'))
        return refuse_next(t, c == '[' ? 1 : 2);
    if (c == '-')
        return translate_minus(t, first, after_class);
    if (is_class(t, t->at))
        return read_bracket_class(t, set);
    if (c == '\\')
        return translate_escape(t, true);
    const size_t n = character_bytes(t, t->at);
    if (t->caseless && (c & 0x80))
        return refuse_because(t, n, with_case);
    put_syntax(t, c == '^' ? "\\" : "");  // it may become the first: classes are written last
    copy_source(t, n);
    return BD_OK;
}

// Translates [...]. Sets in sets, intersections and POSIX names, which Oniguruma alone has, are
// refused.
static bd_status translate_brackets(translation *t)
{
    const size_t start = t->at;
    copy_source(t, 1);
    if (t->source[t->at] == '^')
        copy_source(t, 1);
    if (t->source[t->at] == ']')
        return refuse_next(t, 1);
    bd_kind_set set = {0};
    bool after_class = false;
    for (bool first = true; t->source[t->at] != ']'; first = false) {
        if (t->source[t->at] == '\0') {
            t->at = start;
            return refuse_next(t, 1);
        }
        const bool class_next = is_class(t, t->at);
        BD_TRY(translate_member(t, first, after_class, &set));
        after_class = class_next;
    }
    if (!bd_kind_set_is_known(set)) {
        const size_t length = t->at + 1 - start;
        t->at = start;
        return refuse_because(t, length, ": the tables do not tell Lm from Lo");
    }
    if (set.has || set.lacks)
        BD_TRY(put_members(t, set));
    copy_source(t, 1);
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
    // At any other place (?i) would bind differently among alternatives.
    if (t->at == 0 && strncmp(here, "(?i)", 4) == 0) {
        copy_source(t, 4);
        t->caseless = true;
        return BD_OK;
    }
    if (length == 0 || t->depth == MAX_DEPTH)
        return refuse_next(t, strnlen(here, 3));
    t->groups[t->depth++] = (group){t->used, t->caseless};
    if (here[length - 1] == ':' && here[length - 2] == 'i')
        t->caseless = here[length - 3] != '-';
    copy_source(t, length);
    return BD_OK;
}

static bd_status close_group(translation *t)
{
    if (t->depth == 0)
        return refuse_next(t, 1);
    t->depth--;
    t->atom = t->groups[t->depth].begin;
    t->caseless = t->groups[t->depth].caseless;
    copy_source(t, 1);
    return BD_OK;
}

// ---- Repetition -------------------------------------------------------------------

// Translates {n}, {n,}, {n,m} and {,m} (Oniguruma: {0,m}); any other { stands for itself in
// both. A + behind it repeats the whole in Oniguruma; in PCRE2 it would make the interval
// possessive.
static bd_status translate_interval(translation *t)
{
    const char *here = t->source + t->at;
    const size_t low = strspn(here + 1, "0123456789");
    const size_t comma = here[1 + low] == ',' ? 1 : 0;
    const size_t high = comma ? strspn(here + 2 + low, "0123456789") : 0;
    const size_t length = 2 + low + comma + high;
    if (here[length - 1] != '}' || low + high == 0) {
        t->atom = t->used;
        put_syntax(t, "\\{");
        t->at++;
        return BD_OK;
    }
    const char after = here[length];
    if ((after == '?' && !comma) || after == '{' || after == '*')
        return refuse_next(t, length + 1);
    if (after == '+') {
        if (!make_translation_room(t, 3))
            return t->written;
        memmove(t->out + t->atom + 3, t->out + t->atom, t->used - t->atom);
        memcpy(t->out + t->atom, "(?:", 3);
        t->used += 3;
    }
    put_syntax(t, low == 0 ? "{0" : "{");
    put_translated(t, here + 1, length - 1);
    t->at += length;
    if (after == '+') {
        put_syntax(t, ")+");
        t->at++;
    }
    return BD_OK;
}

// ---- The whole --------------------------------------------------------------------

// Translates a character that stands for itself. Without regard to case, Oniguruma also takes
// one character for several, such as U+00DF for ss. In ASCII these are the pairs below, which
// are found even if a group begins or ends between them.
static bd_status translate_letter(translation *t)
{
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};
    const char c = t->source[t->at];
    const size_t n = character_bytes(t, t->at);
    if (t->caseless && (c & 0x80))
        return refuse_because(t, n, with_case);
    const char before = t->last_caseless;
    t->last_caseless = t->caseless ? (char)tolower((unsigned char)c) : '\0';
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (before == pairs[i][0] && t->last_caseless == pairs[i][1])
            return bd_fail(t->err, BD_ERR_UNSUPPORTED,
                           "regular expression '%.300s': '%s' before byte %zu is not "
                           "supported with (?i",
                           t->source, pairs[i], t->at + 1);
    copy_source(t, n);
    return BD_OK;
}

static bd_status translate_next(translation *t)
{
    const char c = t->source[t->at];
    if (c == '(')
        return open_group(t);
    if (c == ')')
        return close_group(t);
    if (c == '{')
        return translate_interval(t);
    if (strchr("*+?", c)) {
        copy_source(t, 1);
        return BD_OK;
    }
    if (c != '[' && c != '\\' && c != '|') {
        t->atom = t->used;
        return translate_letter(t);
    }
    t->last_caseless = '\0';
    if (c == '|') {
        copy_source(t, 1);
        return BD_OK;
    }
    t->atom = t->used;
    if (c == '[')
        return translate_brackets(t);
    return is_class(t, t->at) ? translate_class(t) : translate_escape(t, false);
}

bd_status bd_dialect_translate(const char *expression, char **translated, bd_error *err)
{
    *translated = NULL;
    const size_t n = strlen(expression);
    if (n > BD_MAX_EXPRESSION_BYTES)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "regular expression '%.60s…' has %zu bytes",
                       expression, n);
    translation t = {.source = expression, .err = err};
    bd_status status = BD_OK;
    while (status == BD_OK && t.written == BD_OK && expression[t.at] != '\0')
        status = translate_next(&t);
    put_translated(&t, "", 1);
    bd_kind_runs_free(t.runs);
    if (status == BD_OK)
        status = t.written;
    if (status != BD_OK) {
        free(t.out);
        return status;
    }
    *translated = t.out;
    return BD_OK;
}
