#include "common/base/json.h"

#include <jansson.h>
#include <math.h>

#include "common/base/checksum.h"
#include "tests/unit/temporary_folder.h"

static bd_json *parsed(const char *text)
{
    bd_json *json = NULL;
    bd_error err = {0};
    const bd_status status = bd_json_parse(text, strlen(text), &json, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(status, BD_OK);
    return json;
}

// ---- Building and printing --------------------------------------------------------

static bd_json *example(void)
{
    bd_json *array = bd_json_array();
    bd_json_append(array, bd_json_integer(INT64_MIN));
    bd_json_append(array, bd_json_integer(INT64_MAX));
    for (int i = 0; i < 9; i++)  // enough elements to make the array grow
        bd_json_append(array, bd_json_integer(i));
    bd_json_append(array, bd_json_string("\u00e9"));
    bd_json *inner = bd_json_object();
    bd_json_set_null(inner, "nothing");
    bd_json_set_bool(inner, "yes", true);
    bd_json_set_bool(inner, "no", false);
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "z", -7);
    bd_json_set_string(json, "a", "quote \" slash / tab \t \u00e9");
    bd_json_set_string(json, "broken", "a\xFF");
    bd_json_set_real(json, "real", 0.5);
    bd_json_set(json, "array", array);
    bd_json_set(json, "inner", inner);
    return json;
}

static const char example_text[] =
    "{\"z\":-7,\"a\":\"quote \\\" slash / tab \\t \u00e9\",\"broken\":\"a\uFFFD\",\"real\":0.5,"
    "\"array\":[-9223372036854775808,9223372036854775807,0,1,2,3,4,5,6,7,8,\"\u00e9\"],"
    "\"inner\":{\"nothing\":null,\"yes\":true,\"no\":false}}";

static void keys_are_printed_in_the_order_they_were_set(void **state)
{
    (void)state;
    char *text;
    bd_json *json = example();
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    assert_string_equal(text, example_text);
    free(text);
    bd_json_free(json);
    bd_json_free(NULL);
}

static void indented_text_has_one_value_per_line(void **state)
{
    (void)state;
    char *text;
    bd_json *json = parsed("{\"b\":[1,2],\"a\":{}}");
    assert_int_equal(bd_json_print(json, BD_JSON_INDENTED, &text, NULL), BD_OK);
    assert_string_equal(text, "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": {}\n}");
    free(text);
    bd_json_free(json);
}

static void string_that_is_not_utf8_is_repaired(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"\xFF", "\uFFFD"},
                                           {"caf\xE9.txt", "caf\uFFFD.txt"},
                                           {"\xE2\x82", "\uFFFD"},
                                           {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
                                           {"", ""},
                                           {"\u00e9", "\u00e9"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_json *json = bd_json_object();
        const char *value;
        bd_json_set_string(json, "key", cases[i][0]);
        assert_int_equal(bd_json_get_string(json, "key", &value, NULL), BD_OK);
        assert_string_equal(value, cases[i][1]);
        bd_json_free(json);
    }
}

static void shared_value_lives_in_both_documents(void **state)
{
    (void)state;
    bd_json *value = parsed("{\"a\":[1]}");
    bd_json *first = bd_json_object(), *second = bd_json_object();
    bd_json_set(first, "x", bd_json_share(value));
    bd_json_set(second, "y", bd_json_share(value));
    bd_json_free(value);
    bd_json_free(first);
    char *text;
    assert_int_equal(bd_json_print(second, BD_JSON_COMPACT, &text, NULL), BD_OK);
    assert_string_equal(text, "{\"y\":{\"a\":[1]}}");
    free(text);
    bd_json_free(second);
}

// ---- Memory that runs out ---------------------------------------------------------

static int allocations_before_failure;

// Fails once: later allocations succeed again.
static void *failing_malloc(size_t size_bytes)
{
    return allocations_before_failure-- == 0 ? NULL : malloc(size_bytes);
}

static void lost_value_is_never_missing_from_a_printed_text(void **state)
{
    (void)state;
    int n_refused = 0;
    bd_status status = BD_ERR_MEMORY;
    for (int n_before = 0; status != BD_OK; n_before++) {
        assert_true(n_before < 1000);
        char *text;
        bd_error err = {0};
        allocations_before_failure = n_before;
        json_set_alloc_funcs(failing_malloc, free);
        bd_json *json = example();
        status = bd_json_print(json, BD_JSON_COMPACT, &text, &err);
        json_set_alloc_funcs(malloc, free);
        if (status == BD_OK) {
            assert_true(allocations_before_failure >= 0);  // none has failed
            assert_string_equal(text, example_text);
        } else {
            assert_int_equal(status, BD_ERR_MEMORY);
            assert_string_equal(err.message, "no memory to print JSON");
            assert_null(text);
            n_refused++;
        }
        free(text);
        bd_json_free(json);
    }
    assert_true(n_refused > 20);

    char *text;  // the failure is forgotten
    bd_json *json = parsed("{}");
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    free(text);
    bd_json_free(json);
}

// ---- Parsing ----------------------------------------------------------------------

static void refuses(const char *text, size_t size_bytes, const char *part)
{
    bd_json *json = (bd_json *)&json;
    bd_error err;
    assert_int_equal(bd_json_parse(text, size_bytes, &json, &err), BD_ERR_FORMAT);
    assert_null(json);
    if (!strstr(err.message, part))
        fail_msg("'%s' is not in '%s'", part, err.message);
}

static void text_that_is_not_json_is_refused_with_its_place(void **state)
{
    (void)state;
    refuses("{\"a\": 1,\n \"b\" 2}", 16, "line 2, column 6: ");
    static const char *const bad[] = {"",
                                      "{",
                                      "{}x",
                                      "{} {}",
                                      "[1,]",
                                      "{'a':1}",
                                      "nul",
                                      "7",
                                      "\"text\"",
                                      "null",
                                      "[01]",
                                      "[NaN]",
                                      "[9223372036854775808]",
                                      "[1e999]",
                                      "[\"\\u0000\"]",
                                      "[\"\\ud800\"]",
                                      "[\"\n\"]",
                                      "\xEF\xBB\xBF{}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(bad[i], strlen(bad[i]), "line 1, column ");
    refuses("{}\0", 3, "line 1");
}

static void key_that_occurs_twice_is_refused(void **state)
{
    (void)state;
    refuses("{\"a\":1,\"b\":2,\"a\":1}", 19, "duplicate");
    refuses("[{\"k\":{\"a\":1,\"a\":1}}]", 21, "duplicate");
}

static void bytes_that_are_not_utf8_are_refused(void **state)
{
    (void)state;
    refuses("[\"\xFF\"]", 5, "unable to decode byte 0x");
    refuses("[\"\xED\xA0\x80\"]", 7, "unable to decode byte 0x");
    refuses("[\"\xC0\x80\"]", 6, "unable to decode byte 0x");
}

static void nesting_without_end_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    static char text[2 * DEPTH];
    memset(text, '[', DEPTH);
    memset(text + DEPTH, ']', DEPTH);
    refuses(text, sizeof text, "maximum parsing depth");
    for (int i = 0; i + 5 <= DEPTH; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    refuses(text, DEPTH, "maximum parsing depth");
    static char shallow[200];
    memset(shallow, '[', 100);
    memset(shallow + 100, ']', 100);
    bd_json *json;
    assert_int_equal(bd_json_parse(shallow, sizeof shallow, &json, NULL), BD_OK);
    bd_json_free(json);
}

static void text_is_read_up_to_its_size_alone(void **state)
{
    (void)state;
    char *text = malloc(4);  // without a NUL
    assert_non_null(text);
    memcpy(text, "[12]", 4);
    bd_json *json;
    assert_int_equal(bd_json_parse(text, 4, &json, NULL), BD_OK);
    assert_int_equal(bd_json_length(json), 1);
    bd_json_free(json);
    free(text);
}

static void file_that_is_not_json_is_named(void **state)
{
    const char *path = in(*state, "plan.json");
    bd_json *json;
    bd_error err;
    char expected[5000];
    write_file(path, "{\"a\":[1,2]}", 11);
    assert_int_equal(bd_json_read_file(path, 11, &json, &err), BD_OK);
    const bd_json *array;
    assert_int_equal(bd_json_get_array(json, "a", &array, &err), BD_OK);
    assert_int_equal(bd_json_length(array), 2);
    bd_json_free(json);

    assert_int_equal(bd_json_read_file(path, 10, &json, &err), BD_ERR_FORMAT);
    snprintf(expected, sizeof expected, "cannot read '%s': 11 bytes, more than the 10 allowed",
             path);
    assert_string_equal(err.message, expected);

    write_file(path, "{\"a\" 7}", 7);
    assert_int_equal(bd_json_read_file(path, 10, &json, &err), BD_ERR_FORMAT);
    snprintf(expected, sizeof expected, "'%s' is not valid JSON: line 1, column 6: ", path);
    assert_memory_equal(err.message, expected, strlen(expected));

    assert_int_equal(bd_json_read_file(in(*state, "missing"), 10, &json, &err), BD_ERR_IO);
}

// ---- Getting ----------------------------------------------------------------------

static const char one_of_each[] =
    "{\"integer\":7,\"real\":7.0,\"string\":\"s\",\"object\":{},\"array\":[1,\"x\"],"
    "\"null\":null,\"true\":true,\"false\":false}";

static void getter_that_fails_names_the_key(void **state)
{
    (void)state;
    static const char *const keys[] = {"integer", "real", "string", "object", "array",
                                       "null",    "true", "false",  "missing"};
    bd_json *json = parsed(one_of_each);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *key = keys[i], *text = NULL;
        const bd_json *value = NULL;
        int64_t number = -1;
        char expected[100];
        bd_error err = {0};

        const bool integer = strcmp(key, "integer") == 0;
        assert_int_equal(bd_json_get_integer(json, key, 0, 9, &number, &err),
                         integer ? BD_OK : BD_ERR_FORMAT);
        snprintf(expected, sizeof expected, "'%s': not an integer from 0 to 9", key);
        assert_string_equal(err.message, integer ? "" : expected);
        assert_int_equal(number, integer ? 7 : -1);

        err.message[0] = '\0';
        const bool yes = strcmp(key, "true") == 0, boolean = yes || strcmp(key, "false") == 0;
        bool truth = !yes;
        assert_int_equal(bd_json_get_bool(json, key, &truth, &err),
                         boolean ? BD_OK : BD_ERR_FORMAT);
        snprintf(expected, sizeof expected, "'%s' is not a boolean", key);
        assert_string_equal(err.message, boolean ? "" : expected);
        assert_true(truth == yes);

        err.message[0] = '\0';
        const bool string = strcmp(key, "string") == 0;
        assert_int_equal(bd_json_get_string(json, key, &text, &err),
                         string ? BD_OK : BD_ERR_FORMAT);
        snprintf(expected, sizeof expected, "'%s' is not a string", key);
        assert_string_equal(err.message, string ? "" : expected);

        err.message[0] = '\0';
        const bool object = strcmp(key, "object") == 0;
        assert_int_equal(bd_json_get_object(json, key, &value, &err),
                         object ? BD_OK : BD_ERR_FORMAT);
        snprintf(expected, sizeof expected, "'%s' is not an object", key);
        assert_string_equal(err.message, object ? "" : expected);

        err.message[0] = '\0';
        const bool array = strcmp(key, "array") == 0;
        assert_int_equal(bd_json_get_array(json, key, &value, &err),
                         array ? BD_OK : BD_ERR_FORMAT);
        snprintf(expected, sizeof expected, "'%s' is not an array", key);
        assert_string_equal(err.message, array ? "" : expected);

        const bool null = strcmp(key, "null") == 0 || strcmp(key, "missing") == 0;
        assert_int_equal(bd_json_is_null(json, key), null);
    }
    bd_json_free(json);
}

static void figure_that_is_no_number_is_null(void **state)
{
    (void)state;
    char *text;
    bd_json *json = bd_json_object();
    bd_json_set_figure(json, "a", 0.5);
    bd_json_set_figure(json, "b", (double)NAN);
    bd_json_set_figure(json, "c", -(double)INFINITY);
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    assert_string_equal(text, "{\"a\":0.5,\"b\":null,\"c\":null}");
    free(text);
    bd_json_free(json);
}

static void real_is_held_to_its_range(void **state)
{
    (void)state;
    static const char text[] = "{\"half\":0.5,\"two\":2,\"word\":\"1\"}";
    double value;
    bd_error err;
    bd_json *json;
    assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
    assert_int_equal(bd_json_get_real(json, "half", 0.5, 1, &value, NULL), BD_OK);
    assert_true(value == 0.5);
    assert_int_equal(bd_json_get_real(json, "two", 0, 2, &value, NULL), BD_OK);
    assert_true(value == 2);
    assert_int_equal(bd_json_get_real(json, "half", 0.6, 1, &value, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, "'half' is not a number from 0.6 to 1");
    assert_int_equal(bd_json_get_real(json, "two", 0, 1.5, &value, NULL), BD_ERR_FORMAT);
    assert_int_equal(bd_json_get_real(json, "word", 0, 2, &value, NULL), BD_ERR_FORMAT);
    assert_int_equal(bd_json_get_real(json, "none", 0, 2, &value, NULL), BD_ERR_FORMAT);
    bd_json_free(json);
}

static void integer_is_held_to_its_range(void **state)
{
    (void)state;
    bd_json *json = parsed("{\"low\":-9223372036854775808,\"n\":5}");
    int64_t value;
    bd_error err;
    assert_int_equal(bd_json_get_integer(json, "n", 5, 5, &value, NULL), BD_OK);
    assert_int_equal(value, 5);
    assert_int_equal(bd_json_get_integer(json, "n", 6, 9, &value, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, "'n': not an integer from 6 to 9");
    assert_int_equal(bd_json_get_integer(json, "n", 0, 4, &value, &err), BD_ERR_FORMAT);
    assert_int_equal(bd_json_get_integer(json, "low", INT64_MIN, 0, &value, NULL), BD_OK);
    assert_true(value == INT64_MIN);
    bd_json_free(json);
}

static void elements_of_an_array_are_counted_and_found(void **state)
{
    (void)state;
    bd_json *json = parsed("[4,\"x\"]");
    int64_t value;
    assert_int_equal(bd_json_length(json), 2);
    assert_int_equal(bd_json_as_integer(bd_json_at(json, 0), 0, 9, &value, NULL), BD_OK);
    assert_int_equal(value, 4);
    assert_int_equal(bd_json_as_integer(bd_json_at(json, 1), 0, 9, &value, NULL),
                     BD_ERR_FORMAT);
    assert_null(bd_json_at(json, 2));
    assert_int_equal(bd_json_as_integer(NULL, 0, 9, &value, NULL), BD_ERR_FORMAT);
    bd_json_free(json);
}

static void members_come_in_their_order(void **state)
{
    (void)state;
    static const char *const keys[] = {"z", "a", "m"};
    bd_json *json = parsed("{\"z\":0,\"a\":1,\"m\":2}"), *array = parsed("[1]");
    int64_t n = 0, value;
    for (bd_json_member m = bd_json_first(json); m.key; m = bd_json_next(json, m)) {
        assert_true(n < 3);
        assert_string_equal(m.key, keys[n]);
        assert_int_equal(bd_json_as_integer(m.value, 0, 9, &value, NULL), BD_OK);
        assert_int_equal(value, n++);
    }
    assert_int_equal(n, 3);
    assert_null(bd_json_first(array).key);
    assert_null(bd_json_first(NULL).key);
    bd_json_free(json);
    bd_json_free(array);
}

// A value that is not an object has no members, and NULL is not an array.
static void wrong_container_is_refused_and_not_followed(void **state)
{
    (void)state;
    bd_json *array = parsed("[1]"), *object = parsed("{}");
    const char *text;
    assert_int_equal(bd_json_get_string(array, "a", &text, NULL), BD_ERR_FORMAT);
    assert_true(bd_json_is_null(array, "a"));
    assert_int_equal(bd_json_length(object), 0);
    assert_null(bd_json_at(object, 0));
    assert_int_equal(bd_json_get_string(NULL, "a", &text, NULL), BD_ERR_FORMAT);
    bd_json_free(array);
    bd_json_free(object);
}

// ---- Sealing -----------------------------------------------------------------------

static char *sealed_example(size_t *n)
{
    char *text;
    bd_json *json = parsed("{\"a\":[1,{}],\"b\":\"\u00e9\"}");
    assert_int_equal(bd_json_seal(json, &text, n, NULL), BD_OK);
    bd_json_free(json);
    return text;
}

static void sealed_text_ends_with_the_checksum_of_what_is_before(void **state)
{
    (void)state;
    static const char body[] = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"\u00e9\"";
    char expected[300];
    size_t n;
    char *text = sealed_example(&n);
    snprintf(expected, sizeof expected, "%s,\n  \"checksum\": \"%s\"\n}\n", body,
             bd_digest_of(body, strlen(body)).hex);
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(text));
    bd_json *json;
    const char *value;
    assert_int_equal(bd_json_unseal(text, n, &json, NULL), BD_OK);
    assert_int_equal(bd_json_get_string(json, "b", &value, NULL), BD_OK);
    assert_string_equal(value, "\u00e9");
    bd_json_free(json);
    free(text);
}

static void broken_seal_is_refused(void **state)
{
    (void)state;
    size_t n;
    char *text = sealed_example(&n);
    bd_json *json;
    bd_error err;
    for (size_t at = 0; at < n; at++)
        for (int change = 1; change < 256; change++) {
            text[at] = (char)(text[at] ^ change);
            assert_int_equal(bd_json_unseal(text, n, &json, &err), BD_ERR_FORMAT);
            assert_string_equal(err.message, "its checksum does not match: damaged or edited");
            assert_null(json);
            text[at] = (char)(text[at] ^ change);
        }
    for (size_t kept = 0; kept < n; kept++) {
        char *part = malloc(kept + 1);
        assert_non_null(part);
        memcpy(part + 1, text, kept);  // at its end, so that reading past it is noticed
        assert_int_equal(bd_json_unseal(part + 1, kept, &json, NULL), BD_ERR_FORMAT);
        free(part);
    }
    free(text);
}

// ---- Differences ------------------------------------------------------------------

static void first_difference_is_described_by_its_path(void **state)
{
    (void)state;
    static const struct {
        const char *here, *there, *where;  // NULL: none
    } cases[] = {
        {"{\"a\":1,\"b\":[1,{}]}", "{\"b\":[1,{}],\"a\":1}", NULL},
        {"[]", "[]", NULL},
        {"{\"a\":1}", "{\"a\":2}", "a: 1 here, 2 there"},
        {"{\"a\":{\"b\":{\"c\":\"x\"}}}", "{\"a\":{\"b\":{\"c\":\"y\"}}}",
         "a.b.c: \"x\" here, \"y\" there"},
        {"{\"a\":[0,{\"b\":10}]}", "{\"a\":[0,{\"b\":12}]}", "a[1].b: 10 here, 12 there"},
        {"{\"a\":[{\"name\":\"x.txt\",\"b\":10}]}", "{\"a\":[{\"name\":\"x.txt\",\"b\":12}]}",
         "a[0 'x.txt'].b: 10 here, 12 there"},
        {"{\"a\":[[0],[1]]}", "{\"a\":[[0],[2]]}", "a[1][0]: 1 here, 2 there"},
        {"{\"a\":1,\"b\":2}", "{\"a\":1}", "b: 2 here, nothing there"},
        {"{\"a\":1}", "{\"a\":1,\"b\":2}", "b: nothing here, 2 there"},
        {"{\"a\":null}", "{}", "a: null here, nothing there"},
        {"[1,2]", "[1]", "[1]: 2 here, nothing there"},
        {"[1]", "[1,2]", "[1]: nothing here, 2 there"},
        {"{\"a\":[]}", "{\"a\":{}}", "a: [] here, {} there"},
        {"{\"a\":1}", "{\"a\":1.0}", "a: 1 here, 1.0 there"},
        {"{}", "[]", "the document: {} here, [] there"},
        {"{\"a\":{\"x\":1},\"b\":1}", "{\"a\":{\"x\":1},\"b\":2}", "b: 1 here, 2 there"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_json *here = parsed(cases[i].here), *there = parsed(cases[i].there);
        char where[256] = "untouched";
        assert_int_equal(bd_json_difference(here, there, where, sizeof where),
                         cases[i].where != NULL);
        assert_string_equal(where, cases[i].where ? cases[i].where : "untouched");
        bd_json_free(here);
        bd_json_free(there);
    }
}

static void difference_that_is_too_long_is_cut(void **state)
{
    (void)state;
    enum { DEPTH = 200 };
    static char here_text[20 * DEPTH], there_text[20 * DEPTH];
    for (int i = 0; i < DEPTH; i++)
        strcat(here_text, "{\"a long key\":");
    strcpy(there_text, here_text);
    strcat(here_text, "1");
    strcat(there_text, "2");
    for (int i = 0; i < DEPTH; i++) {
        strcat(here_text, "}");
        strcat(there_text, "}");
    }
    bd_json *here = parsed(here_text), *there = parsed(there_text);
    for (size_t size = 1; size <= 300; size++) {
        char *where = malloc(size);  // exactly this long, so that one byte more is noticed
        assert_non_null(where);
        assert_true(bd_json_difference(here, there, where, size));
        assert_true(strlen(where) < size);
        assert_memory_equal(where, "a long key.a long key.a long key",
                            strlen(where) < 32 ? strlen(where) : 32);
        free(where);
    }
    bd_json_free(here);
    bd_json_free(there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_printed_in_the_order_they_were_set),
        cmocka_unit_test(indented_text_has_one_value_per_line),
        cmocka_unit_test(string_that_is_not_utf8_is_repaired),
        cmocka_unit_test(shared_value_lives_in_both_documents),
        cmocka_unit_test(lost_value_is_never_missing_from_a_printed_text),
        cmocka_unit_test(text_that_is_not_json_is_refused_with_its_place),
        cmocka_unit_test(key_that_occurs_twice_is_refused),
        cmocka_unit_test(bytes_that_are_not_utf8_are_refused),
        cmocka_unit_test(nesting_without_end_is_refused),
        cmocka_unit_test(text_is_read_up_to_its_size_alone),
        test_in_folder(file_that_is_not_json_is_named),
        cmocka_unit_test(getter_that_fails_names_the_key),
        cmocka_unit_test(figure_that_is_no_number_is_null),
        cmocka_unit_test(real_is_held_to_its_range),
        cmocka_unit_test(integer_is_held_to_its_range),
        cmocka_unit_test(elements_of_an_array_are_counted_and_found),
        cmocka_unit_test(wrong_container_is_refused_and_not_followed),
        cmocka_unit_test(members_come_in_their_order),
        cmocka_unit_test(sealed_text_ends_with_the_checksum_of_what_is_before),
        cmocka_unit_test(broken_seal_is_refused),
        cmocka_unit_test(first_difference_is_described_by_its_path),
        cmocka_unit_test(difference_that_is_too_long_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
