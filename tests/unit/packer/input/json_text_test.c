#include "packer/input/json_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packer/input/records.h"

// A record of `n` bytes with exactly the padding that the parser may read.
static char *padded(const char *json, size_t n)
{
    char *record = malloc(n + BD_RECORD_PADDING);
    assert_non_null(record);
    memcpy(record, json, n);
    memset(record + n, 'x', BD_RECORD_PADDING);  // the bytes after it are not part of it
    return record;
}

static bd_json_problem extract(const char *path, const char *json, size_t n, char **text,
                               size_t *text_bytes, bd_error *err)
{
    bd_json_text *parser = bd_json_text_new(path);
    assert_non_null(parser);
    char *record = padded(json, n);
    const char *found;
    bd_json_problem problem;
    const bd_status status =
        bd_json_text_extract(parser, record, n, &found, text_bytes, &problem, err);
    assert_int_equal(status, problem == BD_JSON_FINE ? BD_OK : BD_ERR_FORMAT);
    *text = NULL;
    if (status == BD_OK) {
        *text = malloc(*text_bytes + 1);
        assert_non_null(*text);
        memcpy(*text, found, *text_bytes);
    }
    free(record);
    bd_json_text_free(parser);
    return problem;
}

static void assert_text_of(const char *path, const char *json, const char *expected, size_t n)
{
    char *text;
    size_t text_bytes;
    bd_error err = {0};
    if (extract(path, json, strlen(json), &text, &text_bytes, &err) != BD_JSON_FINE)
        fail_msg("%s: %s", json, err.message);
    assert_int_equal(text_bytes, n);
    assert_memory_equal(text, expected, n);
    free(text);
}

static void assert_text(const char *path, const char *json, const char *expected)
{
    assert_text_of(path, json, expected, strlen(expected));
}

static void assert_problem(const char *path, const char *json, bd_json_problem problem,
                           const char *message)
{
    char *text;
    size_t n;
    bd_error err = {0};
    assert_int_equal(extract(path, json, strlen(json), &text, &n, &err), problem);
    if (!strstr(err.message, message))
        fail_msg("%s gives '%s' instead of '%s'", json, err.message, message);
    free(text);
}

static void the_field_is_found_wherever_it_stands(void **state)
{
    (void)state;
    assert_text("text", "{\"text\":\"a\"}", "a");
    assert_text("text", "  {\t\"text\" : \"a\" }\r", "a");
    assert_text("text",
                "{\"n\":1,\"deep\":{\"text\":\"no\",\"more\":[{\"text\":\"no\"}]},"
                "\"list\":[[],[1,{\"text\":\"no\"}]],\"text\":\"yes\",\"last\":null}",
                "yes");
    assert_text("text", "{\"te\\u0078t\":\"escaped key\"}", "escaped key");
    assert_text("", "{\"\":\"nameless\"}", "nameless");
    assert_text("text", "{\"text\":\"\"}", "");
}

static void dots_lead_into_objects(void **state)
{
    (void)state;
    assert_text("a.b", "{\"b\":\"no\",\"a\":{\"a\":\"no\",\"b\":\"yes\"}}", "yes");
    assert_text("a.b.c", "{\"a\":{\"b\":{\"c\":\"yes\"},\"c\":\"no\"},\"c\":\"no\"}", "yes");
    assert_text("a..c", "{\"a\":{\"\":{\"c\":\"yes\"}}}", "yes");
    assert_problem("a.b", "{\"a.b\":\"no\"}", BD_JSON_NO_TEXT, "no field 'a.b'");
    assert_problem("a.b", "{\"a\":{\"c\":\"no\"}}", BD_JSON_NO_TEXT, "no field 'a.b'");
    assert_problem("a.b", "{\"a\":\"b\"}", BD_JSON_NO_TEXT, "no field 'a.b'");
    assert_problem("a.b", "{\"a\":[{\"b\":\"no\"}]}", BD_JSON_NO_TEXT, "no field 'a.b'");
}

static void a_field_that_is_not_one_string_is_refused(void **state)
{
    (void)state;
    assert_problem("text", "{}", BD_JSON_NO_TEXT, "no field 'text'");
    assert_problem("text", "{\"Text\":\"a\"}", BD_JSON_NO_TEXT, "no field 'text'");
    assert_problem("text", "{\"texts\":\"a\",\"tex\":\"b\"}", BD_JSON_NO_TEXT,
                   "no field 'text'");
    static const char *const VALUES[] = {"1",    "1.5",     "true",
                                         "null", "[\"a\"]", "{\"a\":\"b\"}"};
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"text\":%s}", VALUES[i]);
        assert_problem("text", json, BD_JSON_NO_TEXT, "the field 'text' is not a string");
    }
    assert_problem("text", "{\"text\":\"a\",\"text\":\"a\"}", BD_JSON_OTHER,
                   "the field 'text' occurs twice");
    assert_problem("text", "{\"text\":\"a\",\"b\":1,\"te\\u0078t\":2}", BD_JSON_OTHER,
                   "the field 'text' occurs twice");
    assert_problem("a.b", "{\"a\":{\"b\":\"x\"},\"a\":{}}", BD_JSON_OTHER, "occurs twice");
    assert_problem("text", "[\"text\"]", BD_JSON_NO_TEXT, "no field 'text'");
    assert_problem("text", "\"text\"", BD_JSON_NO_TEXT, "no field 'text'");
}

static void invalid_json_is_refused(void **state)
{
    (void)state;
    static const char *const RECORDS[] = {
        "",
        "x",
        "{",
        "{\"text\":\"a\"",
        "{\"text\":\"a\"}}",
        "{\"text\":\"a\"} {}",
        "{\"text\":\"a\"}x",
        "{\"text\":\"a\",}",
        "{'text':'a'}",
        "{\"text\":\"a}",
        "{text:\"a\"}",
        "{\"text\":\"a\nb\"}",
        "{\"text\":\"a\tb\"}",
        "{\"text\":\"a\",\"n\":01}",
        "{\"text\":\"a\",\"n\":NaN}",
        "{\"text\":\"a\" /* why */}",
    };
    for (size_t i = 0; i < sizeof RECORDS / sizeof *RECORDS; i++)
        assert_problem("text", RECORDS[i], BD_JSON_OTHER, "not valid JSON: ");
    const char with_nul[] = "{\"text\":\"a\0b\"}";
    char *text;
    size_t n;
    assert_int_equal(extract("text", with_nul, sizeof with_nul - 1, &text, &n, NULL),
                     BD_JSON_OTHER);
}

// Wherever a number may be, and where digits are no number: in a key, in the text.
static void numbers_of_any_size_are_valid(void **state)
{
    (void)state;
    static const char *const NUMBERS[] = {
        "0",
        "-0",
        "123456789012345678901234567890",
        "-123456789012345678901234567890",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "1e999",
        "-1E+999",
        "1e-999",
        "0.5e309",
        "1e99999999999999999999999999",
        "1e-99999999999999999999999999",
        "123456789012345678901234567890.5e400",
        "0.000000000000000000000000000000000000000000000000000001",
    };
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
        const char *number = NUMBERS[i];
        char json[1024], expected[128];
        snprintf(json, sizeof json, "{\"id\":%s,\"text\":\"x\"}", number);
        assert_text("text", json, "x");
        snprintf(json, sizeof json, "{\"text\":\"x\",\"a\":[%s,{\"b\": %s\t},[ %s ]]} ", number,
                 number, number);
        assert_text("text", json, "x");
        snprintf(json, sizeof json, "{\"\\\\\":\",%s,\\\",%s\",\"n\":1e999}", number, number);
        snprintf(expected, sizeof expected, ",%s,\",%s", number, number);
        assert_text("\\", json, expected);
        snprintf(json, sizeof json, "{\"n\":1e999,\":%s\":\"x\"}", number);
        snprintf(expected, sizeof expected, ":%s", number);
        if (!strchr(number, '.'))  // a dot would lead into an object
            assert_text(expected, json, "x");
        snprintf(json, sizeof json, "{\"text\":%s}", number);
        assert_problem("text", json, BD_JSON_NO_TEXT, "the field 'text' is not a string");
        assert_problem("text", number, BD_JSON_NO_TEXT, "no field 'text'");
    }
}

static void malformed_numbers_are_refused_beside_large_ones(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "1.2.3", "01",   "-01",    "-",         "+1",   "1e",    "1e+",  "1.",
        ".5",    "1.e5", "--1",    "1-2",       "1e5.", "1e5e5", "0x10", "1_000",
        "00",    "1\\",  "1\"a\"", "\"a\"1",    "1 2",  "1a",    "a1",   "Infinity",
        "-inf",  "NaN",  "1\f",    "1e999e999", "1e-",  "-e5",   "1,,2", "1\x01",
    };
    static const char *const FORMATS[] = {
        "{\"n\":%s,\"text\":\"x\"}",
        "{\"n\":%s,\"text\":\"x\",\"m\":123456789012345678901234567890}",
        "{\"m\":123456789012345678901234567890,\"n\":[1e999,%s],\"text\":\"x\"}",
        "{\"m\":1e999,\"text\":\"x\",\"n\":%s}",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        for (size_t f = 0; f < sizeof FORMATS / sizeof *FORMATS; f++) {
            char json[128];
            snprintf(json, sizeof json, FORMATS[f], BAD[i]);
            assert_problem("text", json, BD_JSON_OTHER, "not valid JSON: ");
        }
    }
    static const char *const CUT[] = {
        "{\"n\":1e999",      "{\"n\":1e999,", "{\"n\":1e999,\"",
        "{\"n\":1e999,\"\\", "{1e999:1}",     "1e999\\",
    };
    for (size_t i = 0; i < sizeof CUT / sizeof *CUT; i++)
        assert_problem("text", CUT[i], BD_JSON_OTHER, "not valid JSON: ");
}

static void a_large_number_hides_no_other_problem(void **state)
{
    (void)state;
    assert_problem("text", "{\"n\":1e999,\"text\":\"\\ud800\"}", BD_JSON_BAD_SURROGATE,
                   "not valid JSON: ");
    assert_problem("text", "{\"n\":1e999,\"text\":\"\xff\"}", BD_JSON_BAD_UTF8,
                   "not valid JSON: ");
    assert_problem("text", "{\"n\":1e999,\"text\":\"a\",\"text\":\"b\"}", BD_JSON_OTHER,
                   "the field 'text' occurs twice");
}

static void escapes_become_their_characters(void **state)
{
    (void)state;
    assert_text("text", "{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t");
    assert_text("text", "{\"text\":\"\\u0041\\u00e9\\u20AC\"}", "A\xc3\xa9\xe2\x82\xac");
    assert_text("text", "{\"text\":\"\\ud83d\\ude00\\uD83D\\uDE00\"}",
                "\xf0\x9f\x98\x80\xf0\x9f\x98\x80");
    assert_text("text", "{\"text\":\"\\uffff\\ufffd\"}", "\xef\xbf\xbf\xef\xbf\xbd");
    assert_text_of("text", "{\"text\":\"a\\u0000b\"}", "a\0b", 3);
    assert_text("text", "{\"text\":\"\\\\u0041\"}", "\\u0041");
    assert_text("text", "{\"text\":\"\xc3\xa9 \x7f\xf0\x9f\x98\x80\"}",
                "\xc3\xa9 \x7f\xf0\x9f\x98\x80");
}

// The characters of these are valid, so no policy for characters helps.
static void escapes_that_json_does_not_know_are_refused(void **state)
{
    (void)state;
    static const char *const ESCAPES[] = {"\\q", "\\u12", "\\u12g4", "\\U0041", "\\x41", "\\u"};
    for (size_t i = 0; i < sizeof ESCAPES / sizeof *ESCAPES; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"text\":\"%s\"}", ESCAPES[i]);
        assert_problem("text", json, BD_JSON_OTHER, "not valid JSON: ");
    }
}

static void bytes_that_are_not_utf8_are_told_apart(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "\xff", "\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"text\":\"a%sb\"}", BAD[i]);
        assert_problem("text", json, BD_JSON_BAD_UTF8, "");
        snprintf(json, sizeof json, "{\"other\":\"%s\",\"text\":\"a\"}", BAD[i]);
        assert_problem("text", json, BD_JSON_BAD_UTF8, "");
    }
}

// Every string of up to 4 of these parts: surrogate halves, and parts that look like one.
static void halves_of_characters_are_told_apart_and_replaced(void **state)
{
    (void)state;
    static const char *const PARTS[] = {"\\ud83d", "\\uDE00", "\\\\", "ud83d", "\\u0041", "a"};
    enum { N_PARTS = 6, MAX_PARTS = 4, HIGH = 0, LOW = 1 };
    for (int n = 0; n <= MAX_PARTS; n++) {
        int n_strings = 1;
        for (int i = 0; i < n; i++)
            n_strings *= N_PARTS;
        for (int number = 0; number < n_strings; number++) {
            int parts[MAX_PARTS + 1], left = number;
            for (int i = 0; i < n; i++, left /= N_PARTS)
                parts[i] = left % N_PARTS;
            parts[n] = -1;
            char json[96] = "{\"text\":\"", repaired[96] = "{\"text\":\"";
            bool half = false;
            for (int i = 0; i < n; i++) {
                const bool pair = parts[i] == HIGH && parts[i + 1] == LOW;
                if (pair || (parts[i] != HIGH && parts[i] != LOW)) {
                    strcat(repaired, PARTS[parts[i]]);
                } else {
                    strcat(repaired, "\\ufffd");
                    half = true;
                }
                strcat(json, PARTS[parts[i]]);
                if (pair) {
                    strcat(repaired, PARTS[LOW]);
                    strcat(json, PARTS[LOW]);
                    i++;
                }
            }
            strcat(json, "\"}");
            strcat(repaired, "\"}");
            assert_problem("text", json, half ? BD_JSON_BAD_SURROGATE : BD_JSON_FINE, "");
            char *record = padded(json, strlen(json));
            bd_json_replace_surrogates(record, strlen(json));
            assert_memory_equal(record, repaired, strlen(repaired));
            free(record);
            assert_problem("text", repaired, BD_JSON_FINE, "");
        }
    }
}

static void replacing_halves_stays_within_the_record(void **state)
{
    (void)state;
    static const char *const RECORDS[] = {"",
                                          "\\",
                                          "\\u",
                                          "\\ud83",
                                          "\\ud83d",
                                          "\\ud83d\\",
                                          "\\ud83d\\ude0",
                                          "\\\\\\",
                                          "\\ud83d\\ude00"};
    for (size_t i = 0; i < sizeof RECORDS / sizeof *RECORDS; i++) {
        const size_t n = strlen(RECORDS[i]);
        char *record = malloc(n + (n == 0));  // no padding: the sanitizer sees any excess
        assert_non_null(record);
        memcpy(record, RECORDS[i], n);
        bd_json_replace_surrogates(record, n);
        free(record);
    }
}

static void a_parser_takes_record_after_record(void **state)
{
    (void)state;
    bd_json_text *parser = bd_json_text_new("text");
    assert_non_null(parser);
    for (size_t n = 0; n < 5000; n = 3 * n + 1) {
        char *json = malloc(n + 64);
        assert_non_null(json);
        strcpy(json, "{\"text\":\"");
        memset(json + strlen("{\"text\":\""), 'a', n);
        strcpy(json + strlen("{\"text\":\"") + n, "\"}");
        char *record = padded(json, strlen(json));
        const char *text;
        size_t text_bytes;
        bd_json_problem problem;
        assert_int_equal(bd_json_text_extract(parser, record, strlen(json), &text, &text_bytes,
                                              &problem, NULL),
                         BD_OK);
        assert_int_equal(text_bytes, n);
        assert_int_equal(
            bd_json_text_extract(parser, record, 3, &text, &text_bytes, &problem, NULL),
            BD_ERR_FORMAT);  // a bad record does not affect the next
        free(record);
        free(json);
    }
    bd_json_text_free(parser);
    bd_json_text_free(NULL);
}

static void a_string_is_its_text_where_that_is_wanted(void **state)
{
    (void)state;
    static const char JSON[] = "\"a\\n\"";
    char record[sizeof JSON + BD_RECORD_PADDING] = {0};
    bd_json_text *parser = bd_json_text_new("text");
    bd_json_problem problem;
    const char *text;
    size_t n;
    memcpy(record, JSON, sizeof JSON);
    for (int take = 0; take < 3; take++) {
        bd_json_text_take_strings(parser, take == 1);
        const bd_status status =
            bd_json_text_extract(parser, record, sizeof JSON - 1, &text, &n, &problem, NULL);
        assert_int_equal(status, take == 1 ? BD_OK : BD_ERR_FORMAT);
        assert_int_equal(problem, take == 1 ? BD_JSON_FINE : BD_JSON_NO_TEXT);
        if (take == 1)
            assert_true(n == 2 && memcmp(text, "a\n", 2) == 0);
    }
    bd_json_text_free(parser);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_string_is_its_text_where_that_is_wanted),
        cmocka_unit_test(the_field_is_found_wherever_it_stands),
        cmocka_unit_test(dots_lead_into_objects),
        cmocka_unit_test(a_field_that_is_not_one_string_is_refused),
        cmocka_unit_test(invalid_json_is_refused),
        cmocka_unit_test(numbers_of_any_size_are_valid),
        cmocka_unit_test(malformed_numbers_are_refused_beside_large_ones),
        cmocka_unit_test(a_large_number_hides_no_other_problem),
        cmocka_unit_test(escapes_become_their_characters),
        cmocka_unit_test(escapes_that_json_does_not_know_are_refused),
        cmocka_unit_test(bytes_that_are_not_utf8_are_told_apart),
        cmocka_unit_test(halves_of_characters_are_told_apart_and_replaced),
        cmocka_unit_test(replacing_halves_stays_within_the_record),
        cmocka_unit_test(a_parser_takes_record_after_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
