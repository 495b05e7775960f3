#include "common/cli/settings_file.h"

#include "tests/unit/temporary_folder.h"

static bd_settings_file read_text(const char *text)
{
    bd_settings_file file;
    bd_error err = {.message = ""};
    write_text("s.yaml", text);
    assert_int_equal(bd_settings_file_read(&file, "s.yaml", &err), BD_OK);
    assert_string_equal(err.message, "");
    return file;
}

static void refuses_bytes(const char *text, size_t size_bytes, const char *message)
{
    bd_settings_file file;
    bd_error err = {.message = ""};
    write_file("s.yaml", text, size_bytes);
    assert_int_not_equal(bd_settings_file_read(&file, "s.yaml", &err), BD_OK);
    // Another version of libyaml may use other words after the line number.
    assert_memory_equal(err.message, message, strlen(message));
    assert_null(file.items);
    assert_null(file.path);
}

static void refuses(const char *text, const char *message)
{
    refuses_bytes(text, strlen(text), message);
}

// ---- Accepted files ------------------------------------------------------------------------

static void is_setting(const bd_setting *setting, const char *name, size_t line,
                       const char *value)
{
    assert_string_equal(setting->name, name);
    assert_int_equal(setting->line, line);
    assert_int_equal(setting->n, 1);
    assert_false(setting->is_list);
    assert_string_equal(setting->values[0], value);
}

static void values_are_texts_with_their_lines(void **state)
{
    (void)state;
    bd_settings_file file = read_text("# first\r\n"
                                      "steps: 300\n"
                                      "learning-rate: 1e-3  # as typed\n"
                                      "\n"
                                      "quoted: \"a\\n\\u00e9\"\n"
                                      "single: 'it''s # no comment'\n"
                                      "flag: true\n"
                                      "empty: ''\n"
                                      "word: 'null'\n"
                                      "folded: one\n  two\n");
    assert_int_equal(file.n, 8);
    is_setting(&file.items[0], "steps", 2, "300");
    is_setting(&file.items[1], "learning-rate", 3, "1e-3");
    is_setting(&file.items[2], "quoted", 5, "a\n\xc3\xa9");
    is_setting(&file.items[3], "single", 6, "it's # no comment");
    is_setting(&file.items[4], "flag", 7, "true");
    is_setting(&file.items[5], "empty", 8, "");
    is_setting(&file.items[6], "word", 9, "null");
    is_setting(&file.items[7], "folded", 10, "one two");
    bd_settings_file_release(&file);
    bd_settings_file_release(&file);  // safe twice
}

static void lists_are_told_from_values(void **state)
{
    (void)state;
    bd_settings_file file = read_text("a: [x, 'y, z']\n"
                                      "b:\n"
                                      "- one\n"
                                      "c: []\n");
    assert_int_equal(file.n, 3);
    assert_true(file.items[0].is_list && file.items[1].is_list && file.items[2].is_list);
    assert_int_equal(file.items[0].n, 2);
    assert_string_equal(file.items[0].values[0], "x");
    assert_string_equal(file.items[0].values[1], "y, z");
    assert_int_equal(file.items[1].n, 1);
    assert_string_equal(file.items[1].values[0], "one");
    assert_int_equal(file.items[2].n, 0);
    bd_settings_file_release(&file);
}

static void a_file_of_nothing_has_no_settings(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n\n", "# a comment", "\xef\xbb\xbf# a mark\n",
                                        "{}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bd_settings_file file = read_text(texts[i]);
        assert_int_equal(file.n, 0);
        bd_settings_file_release(&file);
    }
}

// ---- Refused files -------------------------------------------------------------------------

static void other_features_of_yaml_are_refused_with_their_line(void **state)
{
    (void)state;
    static const char anchor[] = "anchors are not supported: write the value where it is used";
    static const char alias[] = "aliases are not supported: write the value where it is used";
    static const char tag[] = "tags are not supported: the option knows the type of its value";
    static const char missing[] = "a value is missing (an empty text is written '')";
    static const char list[] = "a list holds plain values, not lists or mappings";
    static const char names[] = "expected names with values, such as 'steps: 300'";
    static const struct {
        const char *text;
        size_t line;
        const char *message;
    } cases[] = {
        {"a: 1\nb: &x 2\n", 2, anchor},
        {"a: &x [1]\n", 1, anchor},
        {"&x a: 1\n", 1, anchor},
        {"--- &x\na: 1\n", 1, anchor},
        {"a: 1\nb: *x\n", 2, alias},
        {"a: [1,\n*x]\n", 2, alias},
        {"*x : 1\n", 1, alias},
        {"a: !!int 1\n", 1, tag},
        {"a: !!python/object:os.system [x]\n", 1, tag},
        {"a: 1\nb: {c: 1}\n", 2, "the value of an option cannot be a mapping"},
        {"b:\n  c: 1\n", 2, "the value of an option cannot be a mapping"},
        {"a: [1, [2]]\n", 1, list},
        {"a:\n- 1\n- b: 2\n", 3, list},
        {"[a]: 1\n", 1, "expected the name of an option"},
        {"? {a: 1}\n: 1\n", 1, "expected the name of an option"},
        {"- a\n", 1, names},
        {"300\n", 1, names},
        {"---\n", 2, names},
        {"a: 1\n---\nb: 2\n", 2, "a second document begins here; a file has one"},
        {"a:\nb: 1\n", 1, missing},
        {"a: ~\n", 1, missing},
        {"a: null\n", 1, missing},
        {"a: [1, ]\nb: [ , 1]\n", 2, ""},
        {"a: \"x\\0y\"\n", 1, "a value cannot contain a NUL"},
        {"a: [1\nb: 2\n", 2, ""},
        {"a: 1\n\tb: 2\n", 2, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char message[256];
        snprintf(message, sizeof message, "s.yaml:%zu: %s", cases[i].line, cases[i].message);
        refuses(cases[i].text, message);
    }
}

static void values_that_are_no_text_are_refused_with_their_line(void **state)
{
    (void)state;
    refuses("a: 1\nb: \xff\n", "s.yaml:2: ");
    refuses_bytes("a: 1\n\nb: \0\n", 11, "s.yaml:3: ");
    refuses_bytes("\xff\xfe\x61\0:\0 \0\x31\0", 10, "s.yaml:1: ");  // "a: 1" in UTF-16
}

// A megabyte of very deep nesting or very long text: reading it ends, and soon.
static void reading_huge_files_ends(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        bool is_taken;
    } cases[] = {{"[", false},  {"{", false},   {"a: ", false}, {"? ", false},
                 {"- ", false}, {"&a ", false}, {"x", false},   {"a: 1\n", true},
                 {"#", true},   {"\n", true},   {"[a,", false}, {"{a: ", false},
                 {"'", false},  {" ", true},    {"%A\n", false}};
    enum { BYTES = BD_MAX_SETTINGS_BYTES - 8 };
    char *text = malloc(BYTES + 16);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t length = strlen(cases[i].unit);
        size_t n = 0;
        for (; n + length <= BYTES; n += length)
            memcpy(text + n, cases[i].unit, length);
        write_file("s.yaml", text, n);
        bd_settings_file file;
        const bd_status status = bd_settings_file_read(&file, "s.yaml", NULL);
        assert_int_equal(status == BD_OK, cases[i].is_taken);
        bd_settings_file_release(&file);
    }
    memset(text, '\n', BYTES + 16);
    write_file("s.yaml", text, BYTES + 16);
    bd_settings_file file;
    assert_int_not_equal(bd_settings_file_read(&file, "s.yaml", NULL), BD_OK);
    free(text);
}

// ---- Printing ------------------------------------------------------------------------------

static void printed_settings_are_read_as_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "null",
                                        "true",
                                        "- a",
                                        "a: b",
                                        " #",
                                        "\"\\'",
                                        "a\nb\n",
                                        "\t",
                                        "\x01\x7f",
                                        "\xc3\xa9",
                                        "\xef\xbb\xbf",
                                        "\xe2\x80\xa8x",
                                        "\xf0\x9f\x98\x80",
                                        "\xc2\x85",
                                        "*x",
                                        "&x",
                                        "!x",
                                        "%x"};
    enum { N_TEXTS = sizeof texts / sizeof texts[0] };
    bd_settings_file file = {0};
    bd_setting *setting;
    assert_int_equal(bd_settings_file_add(&file, "list", &setting, NULL), BD_OK);
    setting->is_list = setting->is_text = true;
    for (size_t i = 0; i < N_TEXTS; i++)
        assert_int_equal(bd_setting_add(setting, texts[i], NULL), BD_OK);
    assert_int_equal(bd_settings_file_add(&file, "dropped", &setting, NULL), BD_OK);
    assert_int_equal(bd_setting_add(setting, "x", NULL), BD_OK);
    bd_settings_file_drop_last(&file);
    assert_int_equal(bd_settings_file_add(&file, "steps", &setting, NULL), BD_OK);
    assert_int_equal(bd_setting_add(setting, "300", NULL), BD_OK);

    char *text;
    size_t size_bytes;
    assert_int_equal(bd_settings_file_print(&file, &text, &size_bytes, NULL), BD_OK);
    assert_int_equal(strlen(text), size_bytes);
    bd_settings_file again = read_text(text);
    assert_int_equal(again.n, 2);
    assert_true(again.items[0].is_list);
    assert_int_equal(again.items[0].n, N_TEXTS);
    for (size_t i = 0; i < N_TEXTS; i++)
        assert_string_equal(again.items[0].values[i], texts[i]);
    assert_string_equal(again.items[1].name, "steps");
    assert_string_equal(again.items[1].values[0], "300");
    free(text);
    bd_settings_file_release(&again);
    bd_settings_file_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(values_are_texts_with_their_lines),
        test_inside_folder(lists_are_told_from_values),
        test_inside_folder(a_file_of_nothing_has_no_settings),
        test_inside_folder(other_features_of_yaml_are_refused_with_their_line),
        test_inside_folder(values_that_are_no_text_are_refused_with_their_line),
        test_inside_folder(reading_huge_files_ends),
        test_inside_folder(printed_settings_are_read_as_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
