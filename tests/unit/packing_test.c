#include "common/packing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FINGERPRINT "0123456789abcdef0123456789abcdef"

static const bd_packing example = {
    .seq_len = 17,
    .vocab_size = 257,
    .separator = 256,
    .bos = BD_NO_BOS,
    .padding = 3,
    .batch_rows = 1000,
    .strategy = BD_STRATEGY_CONCAT,
    .long_policy = BD_LONG_DROP,
    .tokenizer = "bytes",
    .fingerprint = {FINGERPRINT},
};
static const char example_text[] =
    "{\"seq_len\":17,\"vocab_size\":257,\"separator\":256,\"bos\":null,\"padding\":3,"
    "\"batch_rows\":1000,\"strategy\":\"concat\",\"long\":\"drop\","
    "\"tokenizer\":{\"name\":\"bytes\",\"fingerprint\":\"" FINGERPRINT "\"}}";

static char *printed(bd_json *json)
{
    char *text;
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    bd_json_free(json);
    return text;
}

// Reads a packing (or a unit, or a format) from `text`.
static bd_status read_packing(bd_packing *packing, const char *text, bd_error *err)
{
    bd_json *json;
    assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
    const bd_status status = bd_packing_from_json(packing, json, err);
    bd_json_free(json);
    return status;
}

static void packing_has_one_text(void **state)
{
    (void)state;
    char *text = printed(bd_packing_to_json(&example));
    assert_string_equal(text, example_text);
    free(text);
}

static void packing_comes_back_from_json(void **state)
{
    (void)state;
    for (int64_t bos = BD_NO_BOS; bos < 257; bos += 257)
        for (int strategy = 0; bd_strategy_words[strategy]; strategy++)
            for (int policy = 0; bd_long_policy_words[policy]; policy++) {
                bd_packing packing = example, again;
                packing.bos = bos;
                packing.strategy = (bd_strategy)strategy;
                packing.long_policy = (bd_long_policy)policy;
                char *text = printed(bd_packing_to_json(&packing));
                assert_int_equal(read_packing(&again, text, NULL), BD_OK);
                char *text_again = printed(bd_packing_to_json(&again));
                assert_string_equal(text_again, text);
                assert_int_equal(again.bos, bos);
                assert_int_equal(again.strategy, strategy);
                assert_int_equal(again.long_policy, policy);
                assert_string_equal(again.tokenizer, "bytes");
                free(text);
                free(text_again);
            }
}

static void words_are_those_of_the_command_line(void **state)
{
    (void)state;
    assert_string_equal(bd_strategy_words[BD_STRATEGY_BEST_FIT], "best-fit");
    assert_string_equal(bd_strategy_words[BD_STRATEGY_CONCAT], "concat");
    assert_string_equal(bd_long_policy_words[BD_LONG_SPLIT], "split");
    assert_string_equal(bd_long_policy_words[BD_LONG_TRUNCATE], "truncate");
    assert_string_equal(bd_long_policy_words[BD_LONG_DROP], "drop");
    assert_string_equal(bd_long_policy_words[BD_LONG_ERROR], "error");
}

// example_text with the first occurrence of `old` replaced.
static void edit(char *text, size_t size, const char *old, const char *new)
{
    const char *at = strstr(example_text, old);
    assert_non_null(at);
    snprintf(text, size, "%.*s%s%s", (int)(at - example_text), example_text, new,
             at + strlen(old));
}

static void limit_is_the_last_value_taken(void **state)
{
    (void)state;
    // What replaces what, and the message; NULL if it is taken.
    static const char *const cases[][3] = {
        {"\"seq_len\":17", "\"seq_len\":2", NULL},
        {"\"seq_len\":17", "\"seq_len\":1", "'seq_len': not an integer from 2 to 1073741824"},
        {"\"seq_len\":17", "\"seq_len\":1073741824", NULL},
        {"\"seq_len\":17", "\"seq_len\":1073741825",
         "'seq_len': not an integer from 2 to 1073741824"},
        {"\"seq_len\":17", "\"seq_len\":17.0",
         "'seq_len': not an integer from 2 to 1073741824"},
        {"\"seq_len\":17,", "", "'seq_len': not an integer from 2 to 1073741824"},
        {"\"vocab_size\":257", "\"vocab_size\":4294967296", NULL},
        {"\"vocab_size\":257", "\"vocab_size\":4294967297",
         "'vocab_size': not an integer from 1 to 4294967296"},
        {"\"vocab_size\":257", "\"vocab_size\":0",
         "'vocab_size': not an integer from 1 to 4294967296"},
        {"\"vocab_size\":257", "\"vocab_size\":256",
         "'separator': not an integer from 0 to 255"},
        {"\"separator\":256", "\"separator\":257", "'separator': not an integer from 0 to 256"},
        {"\"separator\":256", "\"separator\":-1", "'separator': not an integer from 0 to 256"},
        {"\"bos\":null", "\"bos\":256", NULL},
        {"\"bos\":null,", "", NULL},
        {"\"bos\":null", "\"bos\":257", "'bos': not an integer from 0 to 256"},
        {"\"bos\":null", "\"bos\":-1", "'bos': not an integer from 0 to 256"},
        {"\"bos\":null", "\"bos\":\"x\"", "'bos': not an integer from 0 to 256"},
        {"\"padding\":3", "\"padding\":256", NULL},
        {"\"padding\":3", "\"padding\":257", "'padding': not an integer from 0 to 256"},
        {"\"padding\":3,", "", "'padding': not an integer from 0 to 256"},
        {"\"batch_rows\":1000", "\"batch_rows\":1", NULL},
        {"\"batch_rows\":1000", "\"batch_rows\":2147483647", NULL},
        {"\"batch_rows\":1000", "\"batch_rows\":0",
         "'batch_rows': not an integer from 1 to 2147483647"},
        {"\"batch_rows\":1000", "\"batch_rows\":2147483648",
         "'batch_rows': not an integer from 1 to 2147483647"},
        {"\"concat\"", "\"best\"", "'strategy' is 'best', which this version does not know"},
        {"\"concat\"", "\"\"", "'strategy' is '', which this version does not know"},
        {"\"concat\"", "7", "'strategy' is not a string"},
        {"\"drop\"", "\"Drop\"", "'long' is 'Drop', which this version does not know"},
        {"\"name\":", "\"nam\":", "'name' is not a string"},
        {"\"fingerprint\":", "\"f\":", "'fingerprint' is not a string"},
        {"cdef\"", "cdeF\"",
         "'0123456789abcdef0123456789abcdeF' is not a checksum of 32 digits"},
        {"\"tokenizer\":", "\"t\":", "'tokenizer' is not an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        bd_packing packing;
        bd_error err = {0};
        edit(text, sizeof text, cases[i][0], cases[i][1]);
        assert_int_equal(read_packing(&packing, text, &err),
                         cases[i][2] ? BD_ERR_FORMAT : BD_OK);
        assert_string_equal(err.message, cases[i][2] ? cases[i][2] : "");
    }
}

static void name_of_the_tokenizer_fits_or_is_refused(void **state)
{
    (void)state;
    for (int n = 60; n < 70; n++) {
        char name[80], quoted[84], text[700];
        memset(name, 'n', sizeof name);
        name[n] = '\0';
        snprintf(quoted, sizeof quoted, "\"%s\"", name);
        edit(text, sizeof text, "\"bytes\"", quoted);
        bd_packing packing;
        bd_error err = {0};
        const bd_status status = read_packing(&packing, text, &err);
        assert_int_equal(status, n < 64 ? BD_OK : BD_ERR_FORMAT);
        if (n < 64)
            assert_string_equal(packing.tokenizer, name);
        else
            assert_string_equal(err.message, "the tokenizer's name is too long");
    }
}

static void id_is_two_bytes_while_all_of_them_fit(void **state)
{
    (void)state;
    assert_int_equal(bd_packing_id_bytes(&(bd_packing){.vocab_size = 1}), 2);
    assert_int_equal(bd_packing_id_bytes(&(bd_packing){.vocab_size = 65536}), 2);
    assert_int_equal(bd_packing_id_bytes(&(bd_packing){.vocab_size = 65537}), 4);
}

static void batch_is_about_four_mebibytes_and_at_least_a_row(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        {2048, 257, 1024}, {2048, 65537, 512},      {2, 257, 1 << 20},  {1000, 257, 2097},
        {1 << 21, 257, 1}, {(1 << 21) + 1, 257, 1}, {1 << 30, 70000, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bd_packing packing = {.seq_len = cases[i][0], .vocab_size = cases[i][1]};
        assert_int_equal(bd_packing_default_batch_rows(&packing), cases[i][2]);
    }
}

static void other_major_version_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bd_status status;
    } cases[] = {
        {"{\"format\":\"1.0\"}", BD_OK},
        {"{\"format\":\"1.17\",\"later\":1}", BD_OK},
        {"{\"format\":\"2.0\"}", BD_ERR_UNSUPPORTED},
        {"{\"format\":\"10.0\"}", BD_ERR_UNSUPPORTED},
        {"{\"format\":\"0.1\"}", BD_ERR_UNSUPPORTED},
        {"{\"format\":\"1\"}", BD_ERR_UNSUPPORTED},
        {"{\"format\":\"\"}", BD_ERR_UNSUPPORTED},
        {"{\"format\":1.0}", BD_ERR_FORMAT},
        {"{}", BD_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_json *json;
        bd_error err = {0};
        assert_int_equal(bd_json_parse(cases[i].text, strlen(cases[i].text), &json, NULL),
                         BD_OK);
        assert_int_equal(bd_format_check(json, &err), cases[i].status);
        bd_json_free(json);
        if (cases[i].status == BD_ERR_UNSUPPORTED)
            assert_non_null(strstr(err.message, "is not one that this version reads (1.x)"));
    }
}

static void unit_comes_back_from_json_and_names_its_shard(void **state)
{
    (void)state;
    static const struct {
        bd_unit unit;
        const char *text, *name;
    } cases[] = {
        {{0, 0, 1}, "{\"input\":0,\"slice\":0,\"inputs\":1}", "00000-00000.arrow"},
        {{12, 3, 1}, "{\"input\":12,\"slice\":3,\"inputs\":1}", "00012-00003.arrow"},
        {{99999, 0, 44}, "{\"input\":99999,\"slice\":0,\"inputs\":44}", "99999-00000.arrow"},
        {{2147483647, 2147483647, 2147483647},
         "{\"input\":2147483647,\"slice\":2147483647,\"inputs\":2147483647}",
         "2147483647-2147483647.arrow"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = printed(bd_unit_to_json(&cases[i].unit));
        assert_string_equal(text, cases[i].text);
        assert_string_equal(bd_unit_shard_name(&cases[i].unit).text, cases[i].name);
        bd_json *json;
        assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
        bd_unit unit;
        assert_int_equal(bd_unit_from_json(&unit, json, NULL), BD_OK);
        assert_int_equal(unit.input, cases[i].unit.input);
        assert_int_equal(unit.slice, cases[i].unit.slice);
        assert_int_equal(unit.n_inputs, cases[i].unit.n_inputs);
        bd_json_free(json);
        free(text);
    }
}

static void unit_out_of_range_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"input\":-1,\"slice\":0,\"inputs\":1}", "'input'"},
        {"{\"input\":2147483648,\"slice\":0,\"inputs\":1}", "'input'"},
        {"{\"input\":0,\"slice\":-1,\"inputs\":1}", "'slice'"},
        {"{\"input\":0,\"slice\":2147483648,\"inputs\":1}", "'slice'"},
        {"{\"input\":0,\"slice\":0,\"inputs\":0}", "'inputs'"},
        {"{\"input\":0,\"slice\":0,\"inputs\":2147483648}", "'inputs'"},
        {"{\"input\":0,\"slice\":0}", "'inputs'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_json *json;
        bd_unit unit;
        bd_error err;
        assert_int_equal(bd_json_parse(cases[i][0], strlen(cases[i][0]), &json, NULL), BD_OK);
        assert_int_equal(bd_unit_from_json(&unit, json, &err), BD_ERR_FORMAT);
        assert_memory_equal(err.message, cases[i][1], strlen(cases[i][1]));
        bd_json_free(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_has_one_text),
        cmocka_unit_test(packing_comes_back_from_json),
        cmocka_unit_test(words_are_those_of_the_command_line),
        cmocka_unit_test(limit_is_the_last_value_taken),
        cmocka_unit_test(name_of_the_tokenizer_fits_or_is_refused),
        cmocka_unit_test(id_is_two_bytes_while_all_of_them_fit),
        cmocka_unit_test(batch_is_about_four_mebibytes_and_at_least_a_row),
        cmocka_unit_test(other_major_version_is_refused),
        cmocka_unit_test(unit_comes_back_from_json_and_names_its_shard),
        cmocka_unit_test(unit_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
