#include "common/tokenizer/normal_form.h"

#include "tests/unit/temporary_folder.h"

static void assert_normal_form(const char *text, const char *expected)
{
    char *out;
    size_t n;
    assert_int_equal(bd_normal_form(text, strlen(text), &out, &n, NULL), BD_OK);
    assert_int_equal(n, strlen(expected));
    assert_memory_equal(out, expected, n);
    if (strcmp(text, expected) != 0)
        assert_false(bd_is_normal_form(text, strlen(text)));
    free(out);
}

static void text_is_composed(void **state)
{
    (void)state;
    assert_normal_form("", "");
    assert_normal_form("plain", "plain");
    assert_normal_form("xe\u0301y", "x\u00e9y");
    assert_normal_form("\u0301e", "\u0301e");
    assert_normal_form("a\u0301\u0323", "\u1ea1\u0301");  // must be put in order first
    assert_normal_form("\u212b\u1f71", "\u00c5\u03ac");   // characters that others replace
    assert_normal_form("\u1112\u1161\u11ab", "\ud55c");
    assert_normal_form("\ud558\u11ab", "\ud55c");
    assert_normal_form("\u09c7\u09be", "\u09cb");
    assert_normal_form("\ufb1d", "\u05d9\u05b4");  // is not composed
    assert_normal_form("\u4e16\u754c\u304b\u3099", "\u4e16\u754c\u304c");
}

static void stable_text_is_seen_at_once(void **state)
{
    (void)state;
    static const char *const texts[] = {"",       "plain",   "\u00e9\u02ff", "\u4e16\u754c",
                                        "\ud55c", "\x80\xFF"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(bd_is_normal_form(texts[i], strlen(texts[i])));
    assert_false(bd_is_normal_form("e\u0301", 3));
}

static void bytes_that_are_not_utf8_stay_and_keep_apart(void **state)
{
    (void)state;
    assert_normal_form("e\x80\u0301", "e\x80\u0301");
    assert_normal_form("\xFF"
                       "e\u0301\xC3",
                       "\xFF\u00e9\xC3");
    assert_normal_form("e\xCC", "e\xCC");
    assert_normal_form("\xED\xA0\x80"
                       "e\u0301",
                       "\xED\xA0\x80\u00e9");
}

// Not in Unicode 9.0, which the reference uses: it is not a mark there.
static void newer_marks_are_left_alone(void **state)
{
    (void)state;
    assert_normal_form("a\u08d3\u0301", "a\u08d3\u0301");
    assert_normal_form("e\u1acf\u0301", "e\u1acf\u0301");
    assert_normal_form("\u08d3e\u0301", "\u08d3\u00e9");
}

static void a_long_run_of_marks_is_put_into_order(void **state)
{
    (void)state;
    enum { N = 300000 };  // of each of two marks; one by one this would take hours
    char *text = malloc(4 * N + 1), *expected = malloc(4 * N + 1), *out;
    for (size_t i = 0; i < N; i++) {
        memcpy(text + 4 * i, "\u0316\u0334", 4);  // combining classes 220 and 1
        memcpy(expected + 2 * i, "\u0334", 2);
        memcpy(expected + 2 * (N + i), "\u0316", 2);
    }
    size_t n;
    assert_int_equal(bd_normal_form(text, 4 * N, &out, &n, NULL), BD_OK);
    assert_int_equal(n, 4 * N);
    assert_memory_equal(out, expected, n);
    free(out);
    free(text);
    free(expected);
}

static void words_are_made_of_word_characters(void **state)
{
    (void)state;
    static const int32_t words[] = {'a',    'Z',    '0',    '_',    0xE9,   0x301,
                                    0x4E16, 0x200D, 0x24B6, 0x2160, 0x2EBF0};
    static const int32_t others[] = {' ', '-', 0xA0, 0xB2, 0x2028, 0x1F600, 0x3000, 0x10FFFF};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_true(bd_is_word_character(words[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(bd_is_word_character(others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_composed),
        cmocka_unit_test(stable_text_is_seen_at_once),
        cmocka_unit_test(bytes_that_are_not_utf8_stay_and_keep_apart),
        cmocka_unit_test(newer_marks_are_left_alone),
        cmocka_unit_test(a_long_run_of_marks_is_put_into_order),
        cmocka_unit_test(words_are_made_of_word_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
