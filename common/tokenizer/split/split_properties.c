#include "common/tokenizer/split/split_properties.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/tokenizer/split/split_library_kinds.h"
#include "common/tokenizer/split/unicode_class.h"

enum {
    N_CODE_POINTS = 0x110000,
    DIGITS = 10,            // follow each other, from each zero
    MOST_RANGE_BYTES = 24,  // \x{10ffff}-\x{10ffff} and what ends it
};

typedef struct run {
    uint32_t first;    // up to the next run's
    uint16_t kinds;    // by our tables
    uint16_t library;  // by PCRE2's
} run;

struct bd_kind_runs {
    size_t n;
    run at[];  // n, and one more that begins after the last code point
};

// ---- Kinds ------------------------------------------------------------------------

// The first name of a kind is the one that is written.
static const struct {
    const char *name;
    uint32_t kind;
} properties[] = {
    {"L", BD_KIND_L},    {"Letter", BD_KIND_L}, {"Lu", BD_KIND_LU},    {"Ll", BD_KIND_LL},
    {"Lt", BD_KIND_LT},  {"Lm", BD_KIND_LM},    {"Lo", BD_KIND_LO},    {"M", BD_KIND_M},
    {"Mark", BD_KIND_M}, {"N", BD_KIND_N},      {"Number", BD_KIND_N}, {"Nd", BD_KIND_ND},
    {"Z", BD_KIND_Z},
};
enum { N_PROPERTIES = sizeof properties / sizeof *properties };

uint32_t bd_kind_of_property(const char *name, size_t n)
{
    for (size_t i = 0; i < N_PROPERTIES; i++)
        if (strlen(properties[i].name) == n && strncasecmp(properties[i].name, name, n) == 0)
            return properties[i].kind;
    return 0;
}

const char *bd_property_of_kind(uint32_t kind)
{
    for (size_t i = 0; i < N_PROPERTIES; i++)
        if (properties[i].kind == kind)
            return properties[i].name;
    return NULL;
}

// The few letters that are neither upper nor lower: the tables count them as upper.
static bool is_title(uint32_t code)
{
    return code == 0x1C5 || code == 0x1C8 || code == 0x1CB || code == 0x1F2 ||
           (code >= 0x1F88 && code <= 0x1FAF && code % 16 >= 8) || code == 0x1FBC ||
           code == 0x1FCC || code == 0x1FFC;
}

static bool is_decimal(uint32_t code)
{
    static const uint32_t zeros[] = {
        0x30,    0x660,   0x6F0,   0x7C0,   0x966,   0x9E6,   0xA66,   0xAE6,   0xB66,
        0xBE6,   0xC66,   0xCE6,   0xD66,   0xDE6,   0xE50,   0xED0,   0xF20,   0x1040,
        0x1090,  0x17E0,  0x1810,  0x1946,  0x19D0,  0x1A80,  0x1A90,  0x1B50,  0x1BB0,
        0x1C40,  0x1C50,  0xA620,  0xA8D0,  0xA900,  0xA9D0,  0xA9F0,  0xAA50,  0xABF0,
        0xFF10,  0x104A0, 0x10D30, 0x10D40, 0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0,
        0x11450, 0x114D0, 0x11650, 0x116C0, 0x116D0, 0x116DA, 0x11730, 0x118E0, 0x11950,
        0x11BF0, 0x11C50, 0x11D50, 0x11DA0, 0x11F50, 0x16130, 0x16A60, 0x16AC0, 0x16B50,
        0x16D70, 0x1CCF0, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0,
        0x1E4F0, 0x1E5F1, 0x1E950, 0x1FBF0,
    };
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
        if (code - zeros[i] < DIGITS)
            return true;
    return false;
}

static uint32_t kinds_of_letter(uint32_t code, uint32_t classes)
{
    if ((classes & BD_UPPER) && (classes & BD_LOWER))
        return BD_KIND_L | BD_KIND_LM | BD_KIND_LO;
    if (classes & BD_LOWER)
        return BD_KIND_L | BD_KIND_LL;
    return BD_KIND_L | (is_title(code) ? BD_KIND_LT : BD_KIND_LU);
}

static uint32_t kinds_of(uint32_t code)
{
    const uint32_t classes = bd_unicode_classes[bd_unicode_blocks[code / 64]][code % 64];
    if (classes & BD_LETTER)
        return kinds_of_letter(code, classes);
    if (classes & BD_MARK)
        return BD_KIND_M;
    if (classes & BD_NUMBER)
        return BD_KIND_N | (is_decimal(code) ? BD_KIND_ND : 0);
    if (classes & BD_WHITE) {
        const bool control = code < 0x20 || code == 0x85;
        return BD_KIND_WHITE | (control ? 0 : BD_KIND_Z);
    }
    return 0;
}

bool bd_kind_set_is_known(bd_kind_set set)
{
    const uint32_t both = BD_KIND_LM | BD_KIND_LO;
    return !(set.lacks & both) && (!(set.has & both) || (set.has & both) == both);
}

// ---- Runs -------------------------------------------------------------------------

// Writes the runs to `at` unless it is NULL; returns how many.
static size_t find_runs(const uint16_t *library, run *at)
{
    size_t n = 0;
    run before = {0};
    for (uint32_t code = 0; code < N_CODE_POINTS; code++) {
        const run here = {code, (uint16_t)kinds_of(code), library[code]};
        if (code == 0 || here.kinds != before.kinds || here.library != before.library) {
            if (at)
                at[n] = here;
            n++;
        }
        before = here;
    }
    return n;
}

bd_kind_runs *bd_kind_runs_new(void)
{
    uint16_t *library = calloc(N_CODE_POINTS, sizeof *library);
    if (!library)
        return NULL;
    bd_library_kinds(library);
    const size_t n = find_runs(library, NULL);
    bd_kind_runs *runs = malloc(sizeof *runs + (n + 1) * sizeof *runs->at);
    if (runs) {
        runs->n = find_runs(library, runs->at);
        runs->at[n] = (run){.first = N_CODE_POINTS};
    }
    free(library);
    return runs;
}

void bd_kind_runs_free(bd_kind_runs *runs)
{
    free(runs);
}

// ---- Sets -------------------------------------------------------------------------

static bool is_in(const run *r, bd_kind_set set)
{
    return (r->kinds & set.has) || (~(uint32_t)r->kinds & set.lacks);
}

// The kinds of `set` whose characters in PCRE2's tables are all in the set.
static uint32_t shared_kinds(const bd_kind_runs *runs, bd_kind_set set)
{
    uint32_t shared = set.has & (BD_KIND_WHITE - 1);
    for (size_t i = 0; i < runs->n; i++)
        if (!is_in(&runs->at[i], set))
            shared &= ~(uint32_t)runs->at[i].library;
    return shared;
}

typedef struct range {
    uint32_t first, last;
} range;

static int longer_first(const void *a, const void *b)
{
    const range *x = a, *y = b;
    const uint32_t x_length = x->last - x->first, y_length = y->last - y->first;
    if (x_length != y_length)
        return x_length > y_length ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

// The ranges of the characters that are in `set` and not in `shared`.
static size_t find_ranges(const bd_kind_runs *runs, bd_kind_set set, uint32_t shared,
                          range *ranges)
{
    size_t n = 0;
    for (const run *r = runs->at; r < runs->at + runs->n; r++) {
        if (!is_in(r, set) || (r->library & shared))
            continue;
        if (n > 0 && ranges[n - 1].last + 1 == r->first)
            ranges[n - 1].last = r[1].first - 1;
        else
            ranges[n++] = (range){r->first, r[1].first - 1};
    }
    qsort(ranges, n, sizeof *ranges, longer_first);
    return n;
}

static size_t write_members(uint32_t shared, const range *ranges, size_t n, char *text)
{
    size_t used = 0;
    for (uint32_t kind = 1; kind < BD_KIND_WHITE; kind *= 2)
        if (shared & kind)
            used += (size_t)sprintf(text + used, "\\p{%s}", bd_property_of_kind(kind));
    for (const range *r = ranges; r < ranges + n; r++)
        used += (size_t)(r->first == r->last
                             ? sprintf(text + used, "\\x{%x}", r->first)
                             : sprintf(text + used, "\\x{%x}-\\x{%x}", r->first, r->last));
    return used;
}

char *bd_kind_set_members(const bd_kind_runs *runs, bd_kind_set set)
{
    range *ranges = malloc(runs->n * sizeof *ranges);
    char *text = malloc((N_PROPERTIES + runs->n) * MOST_RANGE_BYTES);
    if (ranges && text) {
        const uint32_t shared = shared_kinds(runs, set);
        const size_t n = find_ranges(runs, set, shared, ranges);
        text[write_members(shared, ranges, n, text)] = '\0';
    } else {
        free(text);
        text = NULL;
    }
    free(ranges);
    return text;
}
