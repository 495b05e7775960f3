#include "common/tokenizer/split/split_expression.h"

#include <stdlib.h>

#include "tests/unit/common/tokenizer/split_fixture.h"

static void matches_and_what_lies_between_are_words(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        // Cut as by Hugging Face's Split(Regex(...), "isolated").
        {"b+", "a|bb|c"},
        {"", "a|é|b"},
        {"a{,3}", "aaa|a|b|c"},
        {"\\p{N}{1,3}+", "a|1234567|b"},
        {"\\p{N}{2}|x{1", "12|34|5|x{1"},
        {"a$", "a|\n|a|\n"},
        {"^b", "a\n|b"},
        {".", "a|\n|b"},
        {"\\s+\\z", "a b| \n "},
        {"\\S+", "a\u180eb| |c"},
        {"[^\\S\n]+", "a| |b\nc"},
        {"[\\u4e00-\\u9fff]+", "a|漢字|b"},
        {"\\x{e9}\\x41", "x|éA|y"},
        {"\\p{Letter}+|\\p{Number}|\\p{mark}", "ab|1|\u0301|!"},
        // Assigned since Unicode 14: letters, an upper and a lower one, a mark and digits.
        {"\\p{L}+", "!|\U0001df25\U00031350\U0002ebf0a|!"},
        {"[^\\p{L}]+", "\U0001df25|!|\U00031350"},
        {"\\P{L}+", "\U0001df25|!|\U00031350"},
        {"[\\P{L}]+", "\U0001df25|!|\U00031350"},
        {"\\p{Lu}\\p{Ll}", "a|\ua7cb\ua7cd|a"},
        {"\\p{Lt}", "A|\u01c5|\u01c6\u1f87|\u1f88|\u1fb0"},
        {"[\\p{Lm}\\p{Lo}]+", "a|\U0001e030\U00031350|\U0001df25"},
        {"a\\p{M}", "!|a\u0897|!"},
        {"\\p{N}", "a|\U00011bf0|\u00bd|a"},
        {"\\d", "a|\U00011bf0|\u00bda"},
        {"[\\D!]+", "\U00011bf0|\u00bda|1"},
        {"\\p{Z}", "\n|\u2028|a| "},
        // If case is ignored, properties do not change.
        {"(?i:\\p{Lu})x(?-i:é)", "ax|Axé|AX"},
        {"(?i:a(?-i:[\\p{L}é]))é", "AAé|é"},
        {"(?i:a[\\s\\d])[é]ss", "ß|A1éss"},
        // A minus that is first or last, or beside an escape that is no class.
        {"[-\\p{N}]+|[b\\s-]", "a|-1|b| |c"},
        {"[^-\\s]", "-|a| -"},
        {"[\\d^~]", "a|1|^|b"},
        {"[\\x41-\\x{43}-e]+", "ABC-e|dD"},
        {"\\p{^L}|\\P{N}", "a|1|b"},
        {"(?i:'s)", "a|'S|b|'ſ|c"},
        {"(?<=a)b|(?<!a)c", "a|b|b|c|ac"},
        {"\\v", "a|\x0b|\nb"},
        {"\\$|\\{|[\\]\\-]", "a|$|{|]|-|b"},
        {"(ab)+", "x|abab|a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bd_split_step step = {BD_PATTERN_OTHER, (char *)cases[i][0]};
        check_steps(&step, 1, cases[i][1]);
    }
}

static void features_of_other_dialects_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *expression, *named;
        bd_status status;
    } cases[] = {
        {"a\\h", "'\\h' at byte 1", BD_ERR_UNSUPPORTED},
        {"\\w+", "'\\w' at byte 0", BD_ERR_UNSUPPORTED},
        {"\\b", "'\\b'", BD_ERR_UNSUPPORTED},
        {"[a-z&&[^b]]", "'&&' at byte 4", BD_ERR_UNSUPPORTED},
        {"[[:alpha:]]", "'[' at byte 1", BD_ERR_UNSUPPORTED},
        {"(?m:.)", "'(?m' at byte 0", BD_ERR_UNSUPPORTED},
        {"a(?i)b", "'(?i' at byte 1", BD_ERR_UNSUPPORTED},
        {"(*UTF)a", "'(*U' at byte 0", BD_ERR_UNSUPPORTED},
        {"(a)\\1", "'\\1' at byte 3", BD_ERR_UNSUPPORTED},
        {"(?i:ss)", "'ss'", BD_ERR_UNSUPPORTED},
        {"(?i:s(?:t))", "'st' before byte 9", BD_ERR_UNSUPPORTED},
        {"(?i)\\x66\\x66", "'\\x66' at byte 4 is not supported with (?i", BD_ERR_UNSUPPORTED},
        {"(?i)\\u00e9", "'\\u00e9' at byte 4 is not supported with (?i", BD_ERR_UNSUPPORTED},
        {"(?i:a|é)", "'é' at byte 6 is not supported with (?i", BD_ERR_UNSUPPORTED},
        {"(?i:(?:a)[aé])", "'é' at byte 11 is not supported with (?i", BD_ERR_UNSUPPORTED},
        {"(?i:[\\p{Lu}])", "'\\p' at byte 5 is not supported in brackets with (?i",
         BD_ERR_UNSUPPORTED},
        {"(?i:(?-i:é)[\\S])", "'\\S' at byte 13 is not supported in brackets with (?i",
         BD_ERR_UNSUPPORTED},
        {"\\p{P}", "'\\p{P}' at byte 0 is not supported: its characters differ between Unicode",
         BD_ERR_UNSUPPORTED},
        {"[a\\P{^Nl}]", "'\\P{^Nl}' at byte 2 is not supported: its char", BD_ERR_UNSUPPORTED},
        {"\\p{Yi}", "'\\p{Yi}' at byte 0 is not supported: its char", BD_ERR_UNSUPPORTED},
        {"\\p{Han}", "'\\p{Han}' at byte 0 is not supported: its char", BD_ERR_UNSUPPORTED},
        {"\\pL", "'\\p' at byte 0", BD_ERR_UNSUPPORTED},
        {"\\p{L", "'\\p' at byte 0", BD_ERR_UNSUPPORTED},
        {"\\p{Lm}", "'\\p{Lm}' at byte 0 is not supported: the tables", BD_ERR_UNSUPPORTED},
        {"[\\p{Lo}a]", "'[\\p{Lo}a]' at byte 0 is not supported: the", BD_ERR_UNSUPPORTED},
        {"[\\P{Lm}\\P{Lo}]", "'\\P{Lm}' at byte 1 is not supported: the", BD_ERR_UNSUPPORTED},
        {"[\\s-一]", "'-' at byte 3 is not supported beside a class", BD_ERR_UNSUPPORTED},
        {"[\\x01-\\s]", "'-' at byte 5 is not supported beside a class", BD_ERR_UNSUPPORTED},
        {"[a-z-\\d]", "'-' at byte 4 is not supported beside a class", BD_ERR_UNSUPPORTED},
        {"\\é", "'\\é' at byte 0", BD_ERR_UNSUPPORTED},
        {"a{2}?", "'{2}?' at byte 1", BD_ERR_UNSUPPORTED},
        {"a\\", "'\\' at byte 1", BD_ERR_UNSUPPORTED},
        {"[a", "'[' at byte 0", BD_ERR_UNSUPPORTED},
        {"a)", "')' at byte 1", BD_ERR_UNSUPPORTED},
        {"(a", "missing closing parenthesis", BD_ERR_FORMAT},
        {"*a", "quantifier does not follow", BD_ERR_FORMAT},
        {"a\xFFz", "UTF-8", BD_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bd_split_step step = {BD_PATTERN_OTHER, (char *)cases[i].expression};
        bd_splitter *splitter;
        bd_error err = {0};
        assert_int_equal(bd_splitter_new(&step, 1, &splitter, &err), cases[i].status);
        assert_null(splitter);
        if (!strstr(err.message, cases[i].named))
            fail_msg("'%s' does not name %s", err.message, cases[i].named);
    }
}

// As long as an expression may be, with the largest sets.
static void too_many_sets_end_in_an_error(void **state)
{
    (void)state;
    enum { N_SETS = 2000 };
    static const char set[] = "[\\P{L}]";
    char *expression = malloc(N_SETS * (sizeof set - 1) + 1);
    assert_non_null(expression);
    for (size_t i = 0; i < N_SETS; i++)
        memcpy(expression + i * (sizeof set - 1), set, sizeof set);
    const bd_split_step step = {BD_PATTERN_OTHER, expression};
    bd_splitter *splitter;
    bd_error err = {0};
    assert_int_equal(bd_splitter_new(&step, 1, &splitter, &err), BD_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "too many sets of characters"));
    free(expression);
}

static void too_many_ways_to_match_end_in_an_error(void **state)
{
    (void)state;
    static const char *const hostile[] = {"(a+)+b", "(a|aa)+b", "(?:a?){30}a{30}b"};
    for (size_t i = 0; i < 3; i++) {
        const bd_split_step step = {BD_PATTERN_OTHER, (char *)hostile[i]};
        bd_splitter *splitter;
        bd_word_reader *reader = reader_of(&step, 1, &splitter);
        char text[200];
        uint32_t ends[FEWEST];
        size_t n;
        bd_error err = {0};
        memset(text, 'a', sizeof text);
        text[sizeof text - 2] = 'c';
        text[sizeof text - 1] = 'b';
        assert_int_equal(bd_word_reader_begin(reader, text, sizeof text, &err), BD_OK);
        assert_int_equal(bd_word_reader_next(reader, ends, FEWEST, &n, &err), BD_ERR_LIMIT);
        assert_non_null(strstr(err.message, hostile[i]));
        assert_non_null(strstr(err.message, "limit"));
        bd_word_reader_free(reader);
        bd_splitter_free(splitter);
    }
}

// Slow at each of many places, though at none of them for long.
static void too_many_places_to_match_at_end_in_an_error(void **state)
{
    (void)state;
    enum { SIZE = 1 << 17 };
    static const char *const hostile[] = {
        "a{0,65535}b", "a+b", "(?:(?!a*b)a)+", "a{60000}c?b", "[^b]*b", "(?:a{0,250}b?){60}c",
    };
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        const bd_split_step step = {BD_PATTERN_OTHER, (char *)hostile[i]};
        bd_splitter *splitter;
        bd_word_reader *reader = reader_of(&step, 1, &splitter);
        uint32_t ends[FEWEST];
        size_t n;
        bd_error err = {0};
        assert_int_equal(bd_word_reader_begin(reader, text, SIZE, &err), BD_OK);
        assert_int_equal(bd_word_reader_next(reader, ends, FEWEST, &n, &err), BD_ERR_LIMIT);
        assert_non_null(strstr(err.message, hostile[i]));
        assert_non_null(strstr(err.message, "match limit exceeded"));
        bd_word_reader_free(reader);
        bd_splitter_free(splitter);
    }
    free(text);
}

// The limit is for all texts of a document together, however short they are.
static void texts_of_a_document_share_its_limit(void **state)
{
    (void)state;
    const bd_split_step step = {BD_PATTERN_OTHER, "(?:a?){7}a{7}b"};
    bd_splitter *splitter;
    bd_word_reader *reader = reader_of(&step, 1, &splitter);
    bd_status status = BD_OK;
    int n_texts = 0;
    bd_word_reader_begin_document(reader, 24);
    for (; status == BD_OK && n_texts < 1000; n_texts++) {
        uint32_t ends[FEWEST];
        size_t n;
        bd_error err = {0};
        assert_int_equal(bd_word_reader_begin(reader, "aaaaaaaaaaaaaaaaaaaaaacb", 24, &err),
                         BD_OK);
        status = bd_word_reader_next(reader, ends, FEWEST, &n, &err);
    }
    assert_int_equal(status, BD_ERR_LIMIT);
    assert_in_range(n_texts, 2, 999);
    bd_word_reader_free(reader);
    bd_splitter_free(splitter);
}

// Texts that are one long word, or have hardly any, for each kind of character.
static size_t fill_torture(char *text, size_t size, int kind)
{
    static const char *const units[] = {
        "a",         " ",      "\n", "1",        "'s",       "...", "\xe4\xb8\x96", "aB ",
        "e\xcc\x81", "a1 \n'", "A",  "\xc2\xa0", "\r\n  \t", "x'",  "word two, ",
    };
    const char *unit = units[(size_t)kind % (sizeof units / sizeof *units)];
    const size_t n = strlen(unit);
    size_t at = 0;
    for (; at + n <= size; at += n)
        memcpy(text + at, unit, n);
    return at;
}

static void patterns_in_use_need_a_hundredth_of_the_limit(void **state)
{
    (void)state;
    enum { SIZE = 1 << 16, KINDS = 15 };
    static const char *const patterns[] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{M}]*[\\p{Ll}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|"
        "'d)?"
        "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{M}]+[\\p{Ll}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'"
        "ll|'d)?"
        "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "[\\r\\n]",
        "\\s?\\p{L}+",
        "\\s+$",
        "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb7\xbf]+",
        "\\p{N}{1,3}",
        "[0-9][0-9][0-9]",
    };
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            const size_t n = fill_torture(text, SIZE, kind);
            bd_expression *expression;
            bd_finder *finder;
            bd_error err = {0};
            if (bd_expression_new(patterns[i], &expression, &err) != BD_OK)
                fail_msg("%s: %s", patterns[i], err.message);
            assert_int_equal(bd_finder_new(expression, 1, &finder, &err), BD_OK);
            bd_finder_allow(finder, n);
            const int64_t allowed = bd_finder_steps_left(finder);
            bool found = true;
            bd_match match = {0};
            for (size_t at = 0; found && at <= n; at = match.end + (match.end == match.begin))
                if (bd_finder_find(finder, text, n, at, &match, &found, &err) != BD_OK)
                    fail_msg("%s: %s", patterns[i], err.message);
            const int64_t used = allowed - bd_finder_steps_left(finder);
            if (used > allowed / 100)
                fail_msg("%s, text %d: %lld of %lld steps", patterns[i], kind, (long long)used,
                         (long long)allowed);
            bd_finder_free(finder);
            bd_expression_free(expression);
        }
    free(text);
}

static void word_of_ten_megabytes_is_one_word(void **state)
{
    (void)state;
    enum { SIZE = 10 << 20 };
    static const bd_split_step steps[] = {
        {BD_PATTERN_OTHER, "\\p{L}+"}, {BD_PATTERN_OTHER, " ?[^\\s\\p{N}]+[\\r\\n]*|\\s+"},
        {BD_PATTERN_OTHER, "a+?\\z"},  {BD_PATTERN_GPT2, NULL},
        {BD_PATTERN_CL100K, NULL},     {BD_PATTERN_O200K, NULL},
        {BD_PATTERN_DIGIT, NULL},
    };
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    static words found;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        bd_splitter *splitter;
        bd_word_reader *reader = reader_of(&steps[i], 1, &splitter);
        read_words(reader, text, SIZE, FEWEST, &found);
        assert_int_equal(found.n, 1);
        assert_int_equal(found.ends[0], SIZE);
        bd_word_reader_free(reader);
        bd_splitter_free(splitter);
    }
    free(text);
}

// A stack that grows with the text ends in an error, not in a crash.
static void stack_of_a_long_match_is_bounded(void **state)
{
    (void)state;
    enum { SIZE = 10 << 20 };
    const bd_split_step step = {BD_PATTERN_OTHER, "(?:ab|a|b)+c"};
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    bd_splitter *splitter;
    bd_word_reader *reader = reader_of(&step, 1, &splitter);
    uint32_t ends[FEWEST];
    size_t n;
    bd_error err = {0};
    assert_int_equal(bd_word_reader_begin(reader, text, SIZE, &err), BD_OK);
    assert_int_equal(bd_word_reader_next(reader, ends, FEWEST, &n, &err), BD_ERR_LIMIT);
    assert_non_null(strstr(err.message, "(?:ab|a|b)+c"));
    bd_word_reader_free(reader);
    bd_splitter_free(splitter);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_and_what_lies_between_are_words),
        cmocka_unit_test(features_of_other_dialects_are_refused_by_name),
        cmocka_unit_test(too_many_sets_end_in_an_error),
        cmocka_unit_test(too_many_ways_to_match_end_in_an_error),
        cmocka_unit_test(too_many_places_to_match_at_end_in_an_error),
        cmocka_unit_test(texts_of_a_document_share_its_limit),
        cmocka_unit_test(patterns_in_use_need_a_hundredth_of_the_limit),
        cmocka_unit_test(word_of_ten_megabytes_is_one_word),
        cmocka_unit_test(stack_of_a_long_match_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
