#include "common/base/json_reader.h"

#include "tests/unit/temporary_folder.h"

static bd_json_reader reader_of(const char *text)
{
    bd_json_reader reader;
    bd_json_reader_init(&reader, text, strlen(text));
    return reader;
}

static void a_document_is_read_part_by_part(void **state)
{
    (void)state;
    bd_json_reader reader = reader_of(" {\"a\" : [1, -20,\n3], \"\\u00e9\\ud83d\\ude00\\n\": "
                                      "{\"deep\": [\"]\"]}, \"skipped\": [{\"}\": null}]} ");
    const char *text;
    size_t n;
    int64_t number;
    bool more;
    assert_int_equal(bd_json_reader_enter(&reader, '{', NULL), BD_OK);
    assert_int_equal(bd_json_reader_more(&reader, '}', &more, NULL), BD_OK);
    assert_int_equal(bd_json_reader_key(&reader, &text, &n, NULL), BD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(bd_json_reader_peek(&reader), '[');
    assert_int_equal(bd_json_reader_enter(&reader, '[', NULL), BD_OK);
    static const int64_t numbers[] = {1, -20, 3};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bd_json_reader_more(&reader, ']', &more, NULL), BD_OK);
        assert_int_equal(bd_json_reader_integer(&reader, &number, NULL), BD_OK);
        assert_int_equal(number, numbers[i]);
    }
    assert_int_equal(bd_json_reader_more(&reader, ']', &more, NULL), BD_OK);
    assert_false(more);
    assert_int_equal(bd_json_reader_more(&reader, '}', &more, NULL), BD_OK);
    assert_int_equal(bd_json_reader_key(&reader, &text, &n, NULL), BD_OK);
    assert_int_equal(n, 7);
    assert_memory_equal(text, "\u00e9\U0001f600\n", n);
    bd_json *value;
    assert_int_equal(bd_json_reader_value(&reader, 100, &value, NULL), BD_OK);
    const bd_json *array;
    assert_int_equal(bd_json_get_array(value, "deep", &array, NULL), BD_OK);
    bd_json_free(value);
    assert_int_equal(bd_json_reader_more(&reader, '}', &more, NULL), BD_OK);
    assert_int_equal(bd_json_reader_key(&reader, &text, &n, NULL), BD_OK);
    assert_int_equal(bd_json_reader_skip(&reader, NULL), BD_OK);
    assert_int_equal(bd_json_reader_more(&reader, '}', &more, NULL), BD_OK);
    assert_false(more);
    assert_int_equal(bd_json_reader_end(&reader, NULL), BD_OK);
    bd_json_reader_release(&reader);
    bd_json_reader_release(&reader);
}

static void assert_string_fails(const char *text, const char *message)
{
    bd_json_reader reader = reader_of(text);
    bd_error err = {0};
    const char *string;
    size_t n;
    assert_int_equal(bd_json_reader_string(&reader, &string, &n, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, message);
    bd_json_reader_release(&reader);
}

static void bad_strings_are_refused(void **state)
{
    (void)state;
    assert_string_fails("", "it ends where a string is expected");
    assert_string_fails("7", "byte 0: a string is expected");
    assert_string_fails("\"abc", "it ends inside a string");
    assert_string_fails("\"abc\\", "it ends inside a string");
    assert_string_fails("\"abc\\\"", "it ends inside a string");
    assert_string_fails("\"a\nb\"", "byte 2: a control character in a string");
    assert_string_fails("\"a\xFF\"", "byte 2: not valid UTF-8");
    assert_string_fails("\"\\x\"", "byte 1: not a valid escape");
    assert_string_fails("\"\\u00g0\"", "byte 1: not a valid escape");
    assert_string_fails("\"\\u00\"", "byte 1: not a valid escape");
    assert_string_fails("\"\\ud800\"", "byte 1: not a valid escape");
    assert_string_fails("\"\\ud800\\u0041\"", "byte 1: not a valid escape");
    assert_string_fails("\"\\udc00\"", "byte 1: not a valid escape");
}

static void integers_have_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"01", false, 0},
        {"1.0", false, 0},
        {"1e3", false, 0},
        {"-", false, 0},
        {"\"1\"", false, 0},
        {"", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_json_reader reader = reader_of(cases[i].text);
        int64_t value;
        const bd_status status = bd_json_reader_integer(&reader, &value, NULL);
        assert_int_equal(status, cases[i].good ? BD_OK : BD_ERR_FORMAT);
        if (cases[i].good)
            assert_int_equal(value, cases[i].value);
    }
}

static void commas_and_brackets_must_be_right(void **state)
{
    (void)state;
    static const char *const bad[] = {"[1 2]", "[1,]", "[1}", "[1", "[,1]", "{1]", "[1,,2]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bd_json_reader reader = reader_of(bad[i]);
        bd_status status = bd_json_reader_enter(&reader, '[', NULL);
        for (bool more = true; status == BD_OK && more;) {
            int64_t value;
            status = bd_json_reader_more(&reader, ']', &more, NULL);
            if (status == BD_OK && more)
                status = bd_json_reader_integer(&reader, &value, NULL);
        }
        assert_int_equal(status, BD_ERR_FORMAT);
    }
}

static void values_are_checked_by_the_parser(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"a\" 1}", "[1 2]", "nul",   "[1}", "{\"a\":1,\"a\":1}",
                                      "\"\\x\"",   "1 2x",  "}",     "]",   "[[[[",
                                      "",          "[1,]",  "{1:2}", ","};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bd_json_reader reader = reader_of(bad[i]);
        bd_json *value = NULL;
        bd_status status = bd_json_reader_value(&reader, 100, &value, NULL);
        if (status == BD_OK)
            status = bd_json_reader_end(&reader, NULL);
        assert_int_equal(status, BD_ERR_FORMAT);
        bd_json_free(value);
    }
    bd_json_reader reader = reader_of("[1, 2, 3]");
    bd_json *value;
    bd_error err = {0};
    assert_int_equal(bd_json_reader_value(&reader, 8, &value, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, "byte 0: more than 8 bytes");
    assert_null(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_read_part_by_part),
        cmocka_unit_test(bad_strings_are_refused),
        cmocka_unit_test(integers_have_64_bits),
        cmocka_unit_test(commas_and_brackets_must_be_right),
        cmocka_unit_test(values_are_checked_by_the_parser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
