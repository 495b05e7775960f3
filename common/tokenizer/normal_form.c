// A character is stable if the characters before it cannot change it and it does not change
// them. So text falls into pieces that each begin with a stable character, and only pieces of
// more than one character have to be normalised.
#include "common/tokenizer/normal_form.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/base/memory.h"
#include "common/base/utf8.h"

enum {
    N_HANGUL_V = 21,
    HANGUL_V = 0x1161,
    N_HANGUL_T = 27,
    HANGUL_T = 0x11A8,
    MAX_DECOMPOSED = 32,  // characters from one; Unicode has no canonical one of more than 4
    SMALL_RUN = 32,       // marks that are put into order one by one
};

// ---- Tables beside utf8proc's -----------------------------------------------------

typedef struct range {
    int32_t first, last;
} range;

// Hugging Face's `tokenizers` normalises by Unicode 9.0, where these were not assigned yet and
// so stayed as they are; by utf8proc's Unicode 15.0 they would compose or change places. A test
// goes through all characters and finds what a newer utf8proc adds.
static const range newer_marks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

// Its \w is that of Unicode 16.0. Besides the letters, marks, digits and connectors that
// utf8proc knows, it has joiners, letters in circles and squares, and characters newer than
// Unicode 15.0.
static const range other_word_characters[] = {
    {0x897, 0x897},     {0x1C89, 0x1C8A},   {0x200C, 0x200D},   {0x24B6, 0x24E9},
    {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D40, 0x10D65},
    {0x10D69, 0x10D6D}, {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x10EFC, 0x10EFC},
    {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E}, {0x11390, 0x113B5},
    {0x113B7, 0x113C0}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5}, {0x113C7, 0x113CA},
    {0x113CC, 0x113D3}, {0x113E1, 0x113E2}, {0x116D0, 0x116E3}, {0x11BC0, 0x11BE0},
    {0x11BF0, 0x11BF9}, {0x11F5A, 0x11F5A}, {0x13460, 0x143FA}, {0x16100, 0x16139},
    {0x16D40, 0x16D6C}, {0x16D70, 0x16D79}, {0x18CFF, 0x18CFF}, {0x1CCF0, 0x1CCF9},
    {0x1E5D0, 0x1E5FA}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
    {0x2EBF0, 0x2EE5D}};

static bool is_in_ranges(const range *ranges, size_t n_ranges, int32_t code)
{
    size_t low = 0, high = n_ranges;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n_ranges && ranges[low].first <= code;
}

static bool is_newer_mark(int32_t code)
{
    return is_in_ranges(newer_marks, sizeof newer_marks / sizeof *newer_marks, code);
}

// ---- Single characters ------------------------------------------------------------

// utf8proc keeps "composes with the one before it" in the high bit of this index.
static bool composes_backward(int32_t code, const utf8proc_property_t *property)
{
    if ((code >= HANGUL_V && code < HANGUL_V + N_HANGUL_V) ||
        (code >= HANGUL_T && code < HANGUL_T + N_HANGUL_T))
        return true;
    return property->comb_index != UINT16_MAX && (property->comb_index & 0x8000) != 0;
}

// Whether the character alone is in normal form: one that has a canonical decomposition is so
// only if composing leads back to it.
static bool keeps_itself(int32_t code, const utf8proc_property_t *property)
{
    if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0)
        return true;
    utf8proc_int32_t parts[MAX_DECOMPOSED];
    int last_boundclass = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(code, parts, MAX_DECOMPOSED,
                                                       UTF8PROC_DECOMPOSE, &last_boundclass);
    return utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE) == 1 &&
           parts[0] == code;
}

typedef enum character {
    STABLE,
    INERT,  // and nothing may be composed with it
    UNSTABLE,
} character;

static character compute_kind(int32_t code)
{
    const utf8proc_property_t *property = utf8proc_get_property(code);
    if (property->combining_class == 0 && !composes_backward(code, property) &&
        keeps_itself(code, property))
        return STABLE;
    return is_newer_mark(code) ? INERT : UNSTABLE;
}

// The kinds of the characters of two and three bytes, which nearly all text consists of.
static unsigned char kinds[0x10000];

static void compute_kinds(void)
{
    for (int32_t code = 0x300; code < 0x10000; code++)
        kinds[code] = (unsigned char)compute_kind(code);
}

// The kind of a character, or of -1, which is not UTF-8. The table must have been computed.
static character kind_of_character(int32_t code)
{
    if (code < 0)
        return INERT;
    return code < 0x10000 ? (character)kinds[code] : compute_kind(code);
}

// How many ASCII bytes a text begins with.
static size_t ascii_run(const char *text, size_t size_bytes)
{
    size_t n = 0;
    uint64_t eight;
    for (; size_bytes - n >= sizeof eight; n += sizeof eight) {
        memcpy(&eight, text + n, sizeof eight);
        if ((eight & UINT64_C(0x8080808080808080)) != 0)
            break;
    }
    while (n < size_bytes && (unsigned char)text[n] < 0x80)
        n++;
    return n;
}

// bd_utf8_character() without a call for the characters from U+1000 to U+CFFF: Asia's scripts.
static inline int32_t next_character(const char *text, size_t size_bytes, size_t *length)
{
    const unsigned char *s = (const unsigned char *)text;
    if (size_bytes < 3 || s[0] < 0xE1 || s[0] > 0xEC || (s[1] & 0xC0) != 0x80 ||
        (s[2] & 0xC0) != 0x80)
        return bd_utf8_character(text, size_bytes, length);
    *length = 3;
    return (s[0] & 0xF) << 12 | (s[1] & 0x3F) << 6 | (s[2] & 0x3F);
}

// The first character from `at` on that is not stable. *piece is where its piece begins: at the
// stable character before it, if there is one from `at` on.
static size_t find_unstable(const char *text, size_t size_bytes, size_t at, size_t *piece)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, compute_kinds);
    *piece = at;
    while (at < size_bytes) {
        const size_t ascii = ascii_run(text + at, size_bytes - at);
        if (ascii > 0) {
            at += ascii;
            *piece = at - 1;
            continue;
        }
        size_t length;
        const character kind =
            kind_of_character(next_character(text + at, size_bytes - at, &length));
        if (kind == UNSTABLE)
            return at;
        *piece = kind == STABLE ? at : at + length;
        at += length;
    }
    return at;
}

bool bd_is_normal_form(const char *text, size_t size_bytes)
{
    size_t piece;
    return find_unstable(text, size_bytes, 0, &piece) == size_bytes;
}

bool bd_is_word_character(int32_t code_point)
{
    switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return is_in_ranges(other_word_characters,
                            sizeof other_word_characters / sizeof *other_word_characters,
                            code_point);
    }
}

// ---- Pieces -----------------------------------------------------------------------

typedef struct output {
    char *text;
    size_t n, capacity;
    utf8proc_int32_t *codes;  // of one piece
    size_t n_codes, code_capacity;
    utf8proc_int32_t *sorted;  // of one long run of marks
    size_t sorted_capacity;
} output;

static bd_status append_normal(output *out, const char *text, size_t size_bytes, bd_error *err)
{
    BD_TRY(
        bd_array_reserve((void **)&out->text, &out->capacity, out->n + size_bytes + 1, 1, err));
    memcpy(out->text + out->n, text, size_bytes);
    out->n += size_bytes;
    return BD_OK;
}

static bd_status decompose(output *out, const char *text, size_t size_bytes, bd_error *err)
{
    out->n_codes = 0;
    for (size_t at = 0, length; at < size_bytes; at += length) {
        const int32_t code = bd_utf8_character(text + at, size_bytes - at, &length);
        int last_boundclass = 0;
        BD_TRY(bd_array_reserve((void **)&out->codes, &out->code_capacity,
                                out->n_codes + MAX_DECOMPOSED, sizeof *out->codes, err));
        const utf8proc_ssize_t n =
            utf8proc_decompose_char(code, out->codes + out->n_codes, MAX_DECOMPOSED,
                                    UTF8PROC_DECOMPOSE, &last_boundclass);
        if (n < 0 || n > MAX_DECOMPOSED)
            return bd_fail(err, BD_ERR_FORMAT, "cannot normalise U+%04X: %s", (unsigned)code,
                           utf8proc_errmsg(n));
        out->n_codes += (size_t)n;
    }
    return BD_OK;
}

static int class_of(utf8proc_int32_t code)
{
    return utf8proc_get_property(code)->combining_class;
}

// Sorts marks by their class and keeps the order of equal ones. Long runs, which may be as long
// as the text, are sorted by counting.
static bd_status sort_marks(output *out, size_t begin, size_t n, bd_error *err)
{
    utf8proc_int32_t *codes = out->codes + begin;
    for (size_t i = 1; n <= SMALL_RUN && i < n; i++) {
        const utf8proc_int32_t code = codes[i];
        size_t at = i;
        for (; at > 0 && class_of(codes[at - 1]) > class_of(code); at--)
            codes[at] = codes[at - 1];
        codes[at] = code;
    }
    if (n <= SMALL_RUN)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&out->sorted, &out->sorted_capacity, n,
                            sizeof *out->sorted, err));
    size_t begins[257] = {0};
    for (size_t i = 0; i < n; i++)
        begins[class_of(codes[i]) + 1]++;
    for (int class = 0; class < 256; class ++)
        begins[class + 1] += begins[class];
    for (size_t i = 0; i < n; i++)
        out->sorted[begins[class_of(codes[i])]++] = codes[i];
    memcpy(codes, out->sorted, n * sizeof *codes);
    return BD_OK;
}

static bd_status order_marks(output *out, bd_error *err)
{
    for (size_t i = 0; i < out->n_codes;) {
        size_t end = i;
        while (end < out->n_codes && class_of(out->codes[end]) != 0)
            end++;
        if (end > i)
            BD_TRY(sort_marks(out, i, end - i, err));
        i = end > i ? end : i + 1;
    }
    return BD_OK;
}

static bd_status normalise_piece(output *out, const char *text, size_t size_bytes,
                                 bd_error *err)
{
    BD_TRY(decompose(out, text, size_bytes, err));
    BD_TRY(order_marks(out, err));
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(
        out->codes, (utf8proc_ssize_t)out->n_codes, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0)
        return bd_fail(err, BD_ERR_FORMAT, "cannot normalise: %s", utf8proc_errmsg(n));
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        utf8proc_uint8_t bytes[4];
        const utf8proc_ssize_t length = utf8proc_encode_char(out->codes[i], bytes);
        BD_TRY(append_normal(out, (const char *)bytes, (size_t)length, err));
    }
    return BD_OK;
}

static bd_status normalise(output *out, const char *text, size_t size_bytes, bd_error *err)
{
    for (size_t at = 0; at < size_bytes;) {
        size_t piece, length;
        size_t end = find_unstable(text, size_bytes, at, &piece);
        if (end == size_bytes)
            return append_normal(out, text + at, size_bytes - at, err);
        BD_TRY(append_normal(out, text + at, piece - at, err));
        while (end < size_bytes && kind_of_character(bd_utf8_character(
                                       text + end, size_bytes - end, &length)) == UNSTABLE)
            end += length;
        BD_TRY(normalise_piece(out, text + piece, end - piece, err));
        at = end;
    }
    return append_normal(out, "", 0, err);  // so that an empty text has memory, too
}

bd_status bd_normal_form(const char *text, size_t size_bytes, char **out_text,
                         size_t *out_bytes, bd_error *err)
{
    output out = {0};
    const bd_status status = normalise(&out, text, size_bytes, err);
    free(out.codes);
    free(out.sorted);
    if (status != BD_OK) {
        free(out.text);
        out = (output){0};
    }
    *out_text = out.text;
    *out_bytes = out.n;
    return status;
}
