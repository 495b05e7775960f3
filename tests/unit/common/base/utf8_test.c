#include "common/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/checksum.h"

// Third and fourth bytes on both sides of every limit.
static const uint8_t edges[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F,
                                0xA0, 0xBF, 0xC0, 0xC3, 0xE1, 0xF1, 0xFF};
enum { N_EDGES = sizeof edges };

// Calls `visit` with every sequence of one byte and of two, every lead and second byte with
// each edge, and every lead from E0 on and second byte with each pair of edges.
static void visit_sequences(void (*visit)(const uint8_t *s, size_t n, void *context),
                            void *context)
{
    uint8_t s[4] = {0};
    for (int a = 0; a < 256; a++) {
        s[0] = (uint8_t)a;
        visit(s, 1, context);
    }
    for (int ab = 0; ab < 256 * 256; ab++) {
        s[0] = (uint8_t)(ab >> 8);
        s[1] = (uint8_t)ab;
        visit(s, 2, context);
    }
    for (int ab = 0; ab < 256 * 256; ab++) {
        s[0] = (uint8_t)(ab >> 8);
        s[1] = (uint8_t)ab;
        for (int c = 0; c < N_EDGES; c++) {
            s[2] = edges[c];
            visit(s, 3, context);
        }
    }
    for (int ab = 0xE000; ab < 256 * 256; ab++) {
        s[0] = (uint8_t)(ab >> 8);
        s[1] = (uint8_t)ab;
        for (int cd = 0; cd < N_EDGES * N_EDGES; cd++) {
            s[2] = edges[cd / N_EDGES];
            s[3] = edges[cd % N_EDGES];
            visit(s, 4, context);
        }
    }
}

// ---- The oracle: by arithmetic on code points, without a table of byte ranges -----

// Returns the length of the character at s, 0 if it is invalid.
static size_t character_length(const uint8_t *s, size_t n)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (s[0] < 0x80)
        return 1;
    size_t length = 0;  // the number of leading ones
    while (length < 8 && (s[0] >> (7 - length)) & 1)
        length++;
    if (length < 2 || length > 4 || length > n)
        return 0;
    uint32_t code = s[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        code = code << 6 | (s[i] & 0x3F);
    }
    const bool surrogate = code >> 11 == 0xD800 >> 11;
    return code < smallest[length] || surrogate || code > 0x10FFFF ? 0 : length;
}

static size_t oracle_valid_prefix(const uint8_t *s, size_t n)
{
    size_t at = 0, length;
    while (at < n && (length = character_length(s + at, n - at)) > 0)
        at += length;
    return at;
}

// ---- Validity ---------------------------------------------------------------------

static void check_valid_prefix(const uint8_t *s, size_t n, void *context)
{
    (void)context;
    const size_t expected = oracle_valid_prefix(s, n);
    const size_t found = bd_utf8_valid_prefix((const char *)s, n);
    if (found != expected)
        fail_msg("%02x %02x %02x %02x, %zu bytes: %zu instead of %zu", s[0], s[1], s[2], s[3],
                 n, found, expected);
}

static void exactly_the_well_formed_sequences_are_valid(void **state)
{
    (void)state;
    visit_sequences(check_valid_prefix, NULL);
}

static void every_code_point_is_valid_and_no_surrogate(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x110100; code++) {
        char s[4];
        size_t n = 0;
        if (code < 0x80) {
            s[n++] = (char)code;
        } else {
            const int extra = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
            s[n++] = (char)(0xF80u >> extra | code >> 6 * extra);
            for (int i = extra - 1; i >= 0; i--)
                s[n++] = (char)(0x80 | (code >> 6 * i & 0x3F));
        }
        const bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
        assert_int_equal(bd_utf8_valid_prefix(s, n) == n, valid);
        size_t length;
        assert_int_equal(bd_utf8_character(s, n, &length), valid ? (int32_t)code : -1);
        assert_int_equal(length, valid ? n : 1);
        if (n > 1)
            assert_int_equal(bd_utf8_character(s, n - 1, &length), -1);
    }
}

// Makes a copy of exactly that size, so that reading past its end is noticed.
static char *exact_copy(const char *text, size_t n)
{
    char *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    return copy;
}

static void bad_byte_is_found_wherever_it_lies_among_plain_text(void **state)
{
    (void)state;
    static const char plain[] = "The quick brown fox jumps over th";
    for (size_t n = 0; n <= 33; n++) {
        char *text = exact_copy(plain, n);
        assert_int_equal(bd_utf8_valid_prefix(text, n), n);
        for (size_t at = 0; at < n; at++) {
            text[at] = '\x80';
            assert_int_equal(bd_utf8_valid_prefix(text, n), at);
            text[at] = plain[at];
        }
        free(text);
    }
}

static void character_is_whole_or_refused_wherever_it_lies(void **state)
{
    (void)state;
    static const char plain[] = "The quick brown fox jumps over th";
    static const char *const characters[] = {"\u00e9", "\u20ac", "\U0001f600"};
    for (size_t n = 0; n <= 33; n++)
        for (size_t at = 0; at < n; at++)
            for (size_t c = 0; c < 3; c++) {
                const size_t length = strlen(characters[c]);
                const size_t kept = length < n - at ? length : n - at;
                char *text = exact_copy(plain, n);
                memcpy(text + at, characters[c], kept);
                assert_int_equal(bd_utf8_valid_prefix(text, n), kept == length ? n : at);
                free(text);
            }
}

// ---- Replacement ------------------------------------------------------------------

// Replaces into a buffer of exactly the promised bound. The caller frees it.
static char *replaced(const char *text, size_t n, size_t *n_out)
{
    char *in = exact_copy(text, n);
    char *out = malloc(bd_utf8_replaced_bound(n));
    assert_non_null(out);
    *n_out = bd_utf8_replace(in, n, out);
    assert_true(*n_out <= bd_utf8_replaced_bound(n));
    free(in);
    return out;
}

static void each_maximal_part_becomes_one_replacement(void **state)
{
    (void)state;
    // Results of Python's errors="replace", with ? for U+FFFD. The last four of the first six
    // lines are the examples in chapter 3.9 of the Unicode standard.
    static const char *const cases[][2] = {
        {"", ""},
        {"plain text", "plain text"},
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
        {"\xC3(", "?("},
        {"\xE2\x82", "?"},
        {"\xE2(\xA1", "?(?"},
        {"\xF0\x9F\x98", "?"},
        {"\xF0(\x8C\xBC", "?(??"},
        {"\xF0\x90(\xBC", "?(?"},
        {"\xF0\x90\x8C(", "?("},
        {"a\x80z\xBF\xC3\xA9\xFF", "a?z?\xC3\xA9?"},
        {"\xF8\x88\x80\x80\x80", "?????"},
        {"\xF4\x8F\xBF\xBF\xF4\x90\x80\x80", "\xF4\x8F\xBF\xBF????"},
        {"\xED\x9F\xBF\xEE\x80\x80", "\xED\x9F\xBF\xEE\x80\x80"},
        {"\xE0\xA0\x80\xE0\x9F\x80", "\xE0\xA0\x80???"},
        {"\xEF\xBB\xBFx\xEF\xBB", "\xEF\xBB\xBFx?"},
        {"\xC3\xC3\xA9", "?\xC3\xA9"},
        {"\xF1\x80\x80\xF1\x80\x80\x80", "?\xF1\x80\x80\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[64];
        size_t n_expected = 0;
        for (const char *c = cases[i][1]; *c; c++) {
            const bool replaced_here = *c == '?';
            memcpy(expected + n_expected, replaced_here ? "\uFFFD" : c, replaced_here ? 3 : 1);
            n_expected += replaced_here ? 3 : 1;
        }
        size_t n;
        char *text = replaced(cases[i][0], strlen(cases[i][0]), &n);
        assert_int_equal(n, n_expected);
        assert_memory_equal(text, expected, n);
        free(text);
    }
}

static void digest_replaced(const uint8_t *s, size_t n, void *context)
{
    char out[16];
    const size_t length = bd_utf8_replace((const char *)s, n, out);
    assert_true(length <= bd_utf8_replaced_bound(n));
    assert_int_equal(bd_utf8_valid_prefix(out, length), length);
    bd_hasher_add(context, out, length);
    bd_hasher_add(context, "\n", 1);
}

// The digest is Python's, over bytes(s).decode("utf-8", "replace").encode() + b"\n" for the
// same sequences s in the same order.
static void replacement_is_that_of_python(void **state)
{
    (void)state;
    bd_hasher *hasher = bd_hasher_new();
    assert_non_null(hasher);
    visit_sequences(digest_replaced, hasher);
    assert_string_equal(bd_hasher_take128(hasher).hex, "203fe112edbdf32b4b11ded1a2af07af");
    bd_hasher_free(hasher);
}

static void worst_case_fits_the_bound(void **state)
{
    (void)state;
    char bad[100];
    memset(bad, 0xFF, sizeof bad);
    for (size_t n = 0; n <= sizeof bad; n++) {
        size_t n_out;
        char *text = replaced(bad, n, &n_out);
        assert_int_equal(n_out, 3 * n);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_the_well_formed_sequences_are_valid),
        cmocka_unit_test(every_code_point_is_valid_and_no_surrogate),
        cmocka_unit_test(bad_byte_is_found_wherever_it_lies_among_plain_text),
        cmocka_unit_test(character_is_whole_or_refused_wherever_it_lies),
        cmocka_unit_test(each_maximal_part_becomes_one_replacement),
        cmocka_unit_test(replacement_is_that_of_python),
        cmocka_unit_test(worst_case_fits_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
