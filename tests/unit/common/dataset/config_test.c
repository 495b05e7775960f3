#include "common/dataset/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FINGERPRINT "0123456789abcdef0123456789abcdef"

static const bd_dataset_config example = {
    .seq_len = 17,
    .vocab_size = 257,
    .separator = 256,
    .bos = BD_NO_BOS,
    .padding = 3,
    .batch_rows = 1000,
    .strategy = BD_STRATEGY_CONCAT,
    .long_policy = BD_LONG_DROP,
    .max_documents = 9,
    .min_tokens = 4,
    .shuffle = 42,
    .holdout = 5000,
    .part = BD_PART_TRAINING,
    .codec = BD_SHARD_ZSTD,
    .tokenizer = "bytes",
    .fingerprint = {FINGERPRINT},
};
static const char example_text[] =
    "{\"seq_len\":17,\"vocab_size\":257,\"separator\":256,\"bos\":null,\"padding\":3,"
    "\"batch_rows\":1000,\"strategy\":\"concat\",\"long\":\"drop\","
    "\"max_documents\":9,\"min_tokens\":4,\"shuffle\":42,\"holdout\":5000,"
    "\"part\":\"training\",\"codec\":\"zstd\","
    "\"tokenizer\":{\"name\":\"bytes\",\"fingerprint\":\"" FINGERPRINT "\"}}";

static char *printed(bd_json *json)
{
    char *text;
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    bd_json_free(json);
    return text;
}

// Reads a config (or a unit, or a format) from `text`.
static bd_status read_config(bd_dataset_config *config, const char *text, bd_error *err)
{
    bd_json *json;
    assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
    const bd_status status = bd_dataset_config_from_json(config, json, err);
    bd_json_free(json);
    return status;
}

static void config_has_one_text(void **state)
{
    (void)state;
    char *text = printed(bd_dataset_config_to_json(&example));
    assert_string_equal(text, example_text);
    free(text);
}

static void absent_options_are_null_or_0(void **state)
{
    (void)state;
    const bd_dataset_config plain = {.seq_len = 2,
                                     .vocab_size = 1,
                                     .bos = BD_NO_BOS,
                                     .batch_rows = 1,
                                     .shuffle = BD_NO_SHUFFLE,
                                     .tokenizer = "bytes",
                                     .fingerprint = {FINGERPRINT}};
    char *text = printed(bd_dataset_config_to_json(&plain));
    assert_non_null(strstr(
        text, "\"long\":\"split\",\"max_documents\":null,\"min_tokens\":0,\"shuffle\":null,"
              "\"holdout\":0,\"part\":\"all\",\"codec\":\"none\",\"tokenizer\":"));
    bd_dataset_config again;
    assert_int_equal(read_config(&again, text, NULL), BD_OK);
    assert_int_equal(again.bos, BD_NO_BOS);
    assert_int_equal(again.max_documents, 0);
    assert_int_equal(again.shuffle, BD_NO_SHUFFLE);
    free(text);
}

static void selection_comes_back_from_json(void **state)
{
    (void)state;
    static const int64_t seeds[] = {BD_NO_SHUFFLE, 0, 1, INT64_MAX};
    for (int part = 0; bd_part_names[part]; part++)
        for (int codec = 0; bd_shard_codec_names[codec]; codec++)
            for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
                bd_dataset_config config = example, again;
                config.part = (bd_part)part;
                config.holdout = part == BD_PART_ALL ? 0 : BD_MILLION - codec;
                config.codec = (bd_shard_codec)codec;
                config.shuffle = seeds[s];
                config.max_documents = part * (INT64_C(1) << 29);
                config.min_tokens = codec * (int64_t)UINT32_MAX;
                char *text = printed(bd_dataset_config_to_json(&config));
                assert_int_equal(read_config(&again, text, NULL), BD_OK);
                assert_int_equal(again.part, part);
                assert_int_equal(again.holdout, config.holdout);
                assert_int_equal(again.codec, codec);
                assert_true(again.shuffle == seeds[s]);
                assert_int_equal(again.max_documents, config.max_documents);
                assert_int_equal(again.min_tokens, config.min_tokens);
                free(text);
            }
}

// As released versions wrote it.
static void config_of_format_1_0_selects_everything(void **state)
{
    (void)state;
    static const char text[] =
        "{\"seq_len\":17,\"vocab_size\":257,\"separator\":256,\"bos\":null,\"padding\":3,"
        "\"batch_rows\":1000,\"strategy\":\"concat\",\"long\":\"drop\","
        "\"tokenizer\":{\"name\":\"bytes\",\"fingerprint\":\"" FINGERPRINT "\"}}";
    bd_dataset_config config;
    memset(&config, 0xFF, sizeof config);
    assert_int_equal(read_config(&config, text, NULL), BD_OK);
    assert_int_equal(config.seq_len, 17);
    assert_int_equal(config.max_documents, 0);
    assert_int_equal(config.min_tokens, 0);
    assert_int_equal(config.shuffle, BD_NO_SHUFFLE);
    assert_int_equal(config.holdout, 0);
    assert_int_equal(config.part, BD_PART_ALL);
    assert_int_equal(config.codec, BD_SHARD_UNCOMPRESSED);
    assert_string_equal(config.tokenizer, "bytes");
}

static void config_comes_back_from_json(void **state)
{
    (void)state;
    for (int64_t bos = BD_NO_BOS; bos < 257; bos += 257)
        for (int strategy = 0; bd_strategy_names[strategy]; strategy++)
            for (int policy = 0; bd_long_policy_names[policy]; policy++) {
                bd_dataset_config config = example, again;
                config.bos = bos;
                config.strategy = (bd_strategy)strategy;
                config.long_policy = (bd_long_policy)policy;
                char *text = printed(bd_dataset_config_to_json(&config));
                assert_int_equal(read_config(&again, text, NULL), BD_OK);
                char *text_again = printed(bd_dataset_config_to_json(&again));
                assert_string_equal(text_again, text);
                assert_int_equal(again.bos, bos);
                assert_int_equal(again.strategy, strategy);
                assert_int_equal(again.long_policy, policy);
                assert_string_equal(again.tokenizer, "bytes");
                free(text);
                free(text_again);
            }
}

// Returns example_text with the first occurrence of `old` replaced.
static void edit(char *text, size_t size, const char *old, const char *new)
{
    const char *at = strstr(example_text, old);
    assert_non_null(at);
    snprintf(text, size, "%.*s%s%s", (int)(at - example_text), example_text, new,
             at + strlen(old));
}

static void ids_are_of_the_vocabulary_and_a_part_is_of_a_holdout(void **state)
{
    (void)state;
    // The text to replace, its replacement, and the message; NULL if it is accepted.
    static const char *const cases[][3] = {

        {"\"vocab_size\":257", "\"vocab_size\":256",
         "'separator': not an integer from 0 to 255"},
        {"\"separator\":256", "\"separator\":257", "'separator': not an integer from 0 to 256"},
        {"\"bos\":null", "\"bos\":256", NULL},
        {"\"bos\":null,", "", NULL},
        {"\"bos\":null", "\"bos\":257", "'bos': not an integer from 0 to 256"},
        {"\"padding\":3", "\"padding\":256", NULL},
        {"\"padding\":3", "\"padding\":257", "'padding': not an integer from 0 to 256"},
        // There is a holdout if and only if this dataset is one part of it.
        {"\"holdout\":5000", "\"holdout\":0", "'holdout' and 'part' contradict each other"},
        {"\"holdout\":5000,", "", "'holdout' and 'part' contradict each other"},
        {"\"training\"", "\"all\"", "'holdout' and 'part' contradict each other"},
        {"\"part\":\"training\",", "", "'holdout' and 'part' contradict each other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[800];
        bd_dataset_config config;
        bd_error err = {0};
        edit(text, sizeof text, cases[i][0], cases[i][1]);
        assert_int_equal(read_config(&config, text, &err), cases[i][2] ? BD_ERR_FORMAT : BD_OK);
        assert_string_equal(err.message, cases[i][2] ? cases[i][2] : "");
    }
}

static void name_of_the_tokenizer_fits_or_is_refused(void **state)
{
    (void)state;
    for (int n = 60; n < 70; n++) {
        char name[80], quoted[84], text[900];
        memset(name, 'n', sizeof name);
        name[n] = '\0';
        snprintf(quoted, sizeof quoted, "\"%s\"", name);
        edit(text, sizeof text, "\"bytes\"", quoted);
        bd_dataset_config config;
        bd_error err = {0};
        const bd_status status = read_config(&config, text, &err);
        assert_int_equal(status, n < 64 ? BD_OK : BD_ERR_FORMAT);
        if (n < 64)
            assert_string_equal(config.tokenizer, name);
        else
            assert_string_equal(err.message, "the tokenizer's name is too long");
    }
}

static void id_is_two_bytes_while_all_of_them_fit(void **state)
{
    (void)state;
    assert_int_equal(bd_dataset_id_bytes(&(bd_dataset_config){.vocab_size = 1}), 2);
    assert_int_equal(bd_dataset_id_bytes(&(bd_dataset_config){.vocab_size = 65536}), 2);
    assert_int_equal(bd_dataset_id_bytes(&(bd_dataset_config){.vocab_size = 65537}), 4);
}

static void batch_is_about_four_mebibytes_and_at_least_a_row(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        {2048, 257, 1024}, {2048, 65537, 512},      {2, 257, 1 << 20},  {1000, 257, 2097},
        {1 << 21, 257, 1}, {(1 << 21) + 1, 257, 1}, {1 << 30, 70000, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bd_dataset_config config = {.seq_len = cases[i][0], .vocab_size = cases[i][1]};
        assert_int_equal(bd_dataset_default_batch_rows(&config), cases[i][2]);
    }
}

// Ranks computed by Python: xxh3_64 of struct.pack("<IQ", input, position) with the seed.
static void rank_of_a_place_is_its_hash_with_the_seed(void **state)
{
    (void)state;
    static const struct {
        int64_t seed;
        uint32_t input;
        uint64_t position, rank;
    } cases[] = {
        {0, 0, 0, UINT64_C(0xc4998f9169c2a4f0)},
        {0, 0, 1, UINT64_C(0x0f0a46aa3b388642)},
        {0, 1, 0, UINT64_C(0x1ae5c64125880f18)},
        {1, 0, 0, UINT64_C(0xcff4b20f5865b6a4)},
        {42, 3, UINT64_C(1) << 40, UINT64_C(0xc85875654b523400)},
        {INT64_MAX, UINT32_MAX, UINT64_MAX, UINT64_C(0x63b3ef1fc7f68d4d)},
    };
    bd_dataset_config config = example;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config.shuffle = cases[i].seed;
        const bd_document_place place =
            bd_dataset_place(&config, cases[i].input, cases[i].position);
        assert_true(place.rank == cases[i].rank);
        assert_true(place.input == cases[i].input);
        assert_true(place.position == cases[i].position);
    }
    config.shuffle = BD_NO_SHUFFLE;
    assert_true(bd_dataset_place(&config, 7, 8).rank == 0);
}

static void places_are_ordered_by_rank_then_input_then_position(void **state)
{
    (void)state;
    // Each place is less than all after it; unsigned, so that the largest are not negative.
    static const bd_document_place places[] = {
        {.rank = 0, .input = 0, .position = 0},
        {.rank = 0, .input = 0, .position = 1},
        {.rank = 0, .input = 0, .position = UINT64_MAX},
        {.rank = 0, .input = 1, .position = 0},
        {.rank = 0, .input = UINT32_MAX, .position = 0},
        {.rank = 1, .input = 0, .position = 0},
        {.rank = UINT64_MAX, .input = 0, .position = 0},
        {.rank = UINT64_MAX, .input = 0, .position = 1},
    };
    const int n = sizeof places / sizeof *places;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            const int order = bd_document_place_compare(&places[a], &places[b]);
            assert_int_equal((order > 0) - (order < 0), (a > b) - (a < b));
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
        {"{\"format\":\"" BD_FORMAT_VERSION "\"}", BD_OK},
        {"{\"format\":\"1.17\",\"later\":1}", BD_OK},
        {"{\"format\":\"1.2\",\"packing\":{\"loss_mask\":false}}", BD_OK},
        {"{\"format\":\"1.2\",\"packing\":{\"loss_mask\":true}}", BD_ERR_FORMAT},
        {"{\"format\":\"2.0\",\"packing\":{\"loss_mask\":true}}", BD_OK},
        {"{\"format\":\"2.7\",\"packing\":{\"loss_mask\":true}}", BD_OK},
        {"{\"format\":\"2.0\",\"packing\":{\"loss_mask\":1}}", BD_ERR_FORMAT},
        {"{\"format\":\"2.0\",\"packing\":{\"loss_mask\":false}}", BD_ERR_FORMAT},
        {"{\"format\":\"2.0\",\"packing\":{}}", BD_ERR_FORMAT},
        {"{\"format\":\"2.0\"}", BD_ERR_FORMAT},
        {"{\"format\":\"3.0\"}", BD_ERR_UNSUPPORTED},
        {"{\"format\":\"20.0\"}", BD_ERR_UNSUPPORTED},
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
            assert_non_null(
                strstr(err.message, "is not one that this version reads (1.x and 2.x)"));
    }
}

static void unit_comes_back_from_json_and_names_its_shard(void **state)
{
    (void)state;
    static const struct {
        bd_unit unit;
        const char *text, *name;
    } cases[] = {
        {{0, 0, 1, false},
         "{\"input\":0,\"slice\":0,\"inputs\":1,\"last\":false}",
         "00000-00000.arrow"},
        {{12, 3, 1, true},
         "{\"input\":12,\"slice\":3,\"inputs\":1,\"last\":true}",
         "00012-00003.arrow"},
        {{99999, 0, 44, true},
         "{\"input\":99999,\"slice\":0,\"inputs\":44,\"last\":true}",
         "99999-00000.arrow"},
        {{2147483647, 2147483647, 2147483647, false},
         "{\"input\":2147483647,\"slice\":2147483647,\"inputs\":2147483647,\"last\":false}",
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
        assert_true(unit.last == cases[i].unit.last);
        bd_json_free(json);
        free(text);
    }
}

static void unit_of_format_1_0_is_the_last(void **state)
{
    (void)state;
    static const char text[] = "{\"input\":12,\"slice\":3,\"inputs\":1}";
    bd_unit unit = {.last = false};
    bd_json *json;
    assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
    assert_int_equal(bd_unit_from_json(&unit, json, NULL), BD_OK);
    assert_int_equal(unit.slice, 3);
    assert_true(unit.last);
    bd_json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_has_one_text),
        cmocka_unit_test(absent_options_are_null_or_0),
        cmocka_unit_test(config_comes_back_from_json),
        cmocka_unit_test(selection_comes_back_from_json),
        cmocka_unit_test(config_of_format_1_0_selects_everything),
        cmocka_unit_test(ids_are_of_the_vocabulary_and_a_part_is_of_a_holdout),
        cmocka_unit_test(name_of_the_tokenizer_fits_or_is_refused),
        cmocka_unit_test(id_is_two_bytes_while_all_of_them_fit),
        cmocka_unit_test(batch_is_about_four_mebibytes_and_at_least_a_row),
        cmocka_unit_test(rank_of_a_place_is_its_hash_with_the_seed),
        cmocka_unit_test(places_are_ordered_by_rank_then_input_then_position),
        cmocka_unit_test(other_major_version_is_refused),
        cmocka_unit_test(unit_comes_back_from_json_and_names_its_shard),
        cmocka_unit_test(unit_of_format_1_0_is_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
