#include "trainer/model/model_config.h"

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"

static bd_status parse(const char *text, bd_model_config *config, bd_error *err)
{
    bd_json *json;
    check(bd_json_parse(text, strlen(text), &json, err), err);
    const bd_status status = bd_model_config_from_json(config, json, err);
    bd_json_free(json);
    return status;
}

static void assert_shape(const bd_model_config *config, bd_model_config expected)
{
    assert_ptr_equal(config->family, expected.family);
    assert_int_equal(config->n_layers, expected.n_layers);
    assert_int_equal(config->n_channels, expected.n_channels);
    assert_int_equal(config->n_heads, expected.n_heads);
    assert_int_equal(config->n_feed_forward, expected.n_feed_forward);
    assert_int_equal(config->n_positions, expected.n_positions);
    assert_int_equal(config->n_vocabulary, expected.n_vocabulary);
}

// ---- Presets --------------------------------------------------------------------------------

static void every_listed_preset_is_a_model(void **state)
{
    (void)state;
    bd_error err;
    for (size_t i = 0; bd_model_presets[i]; i++) {
        bd_model_config config;
        check(bd_model_config_preset(&config, bd_model_presets[i], &err), &err);
        assert_int_equal(config.n_vocabulary, 0);  // from the dataset
        assert_int_equal(bd_model_config_check(&config, NULL), BD_ERR_ARGUMENT);
        config.n_vocabulary = 257;
        check(bd_model_config_check(&config, &err), &err);
        const int64_t head_size = config.n_channels / config.n_heads;
        assert_true(head_size == 64 || head_size == 128);  // what attention in bf16 takes
        const bd_family *named = &bd_family_opt;
        for (size_t f = 0; bd_families[f]; f++)
            named = strstr(bd_model_presets[i], bd_families[f]->name) ? bd_families[f] : named;
        assert_ptr_equal(config.family, named);
    }
}

static void the_originals_have_their_shapes(void **state)
{
    (void)state;
    bd_error err;
    bd_model_config config;
    check(bd_model_config_preset(&config, "opt-125m", &err), &err);
    assert_shape(&config, (bd_model_config){&bd_family_opt, 12, 768, 12, 3072, 2048, 0});
    check(bd_model_config_preset(&config, "gpt2-124m", &err), &err);
    assert_shape(&config, (bd_model_config){&bd_family_gpt2, 12, 768, 12, 3072, 1024, 0});
}

static void an_unknown_preset_is_refused(void **state)
{
    (void)state;
    bd_error err;
    bd_model_config config;
    assert_int_equal(bd_model_config_preset(&config, "opt-125", &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "no preset 'opt-125'");
}

// ---- config.json ----------------------------------------------------------------------------

static void hugging_faces_files_are_read(void **state)
{
    (void)state;
    bd_error err;
    bd_model_config config;
    bd_json *opt = read_golden("opt/config.json"), *gpt2 = read_golden("gpt2/config.json");
    check(bd_model_config_from_json(&config, opt, &err), &err);
    assert_shape(&config, (bd_model_config){&bd_family_opt, 2, 24, 3, 96, 64, 257});
    check(bd_model_config_from_json(&config, gpt2, &err), &err);
    assert_shape(&config, (bd_model_config){&bd_family_gpt2, 2, 24, 3, 96, 64, 257});
    for (size_t i = 0; bd_families[i]; i++)
        assert_string_equal(bd_families[i]->name, bd_family_names[i]);
    bd_json_free(opt);
    bd_json_free(gpt2);
}

static void a_written_config_is_read_again(void **state)
{
    (void)state;
    bd_error err;
    for (size_t i = 0; bd_model_presets[i]; i++) {
        bd_model_config config, again;
        check(bd_model_config_preset(&config, bd_model_presets[i], &err), &err);
        config.n_vocabulary = 50272;
        config.n_feed_forward = 1000;
        bd_json *json = bd_model_config_to_json(&config);
        check(bd_model_config_from_json(&again, json, &err), &err);
        assert_shape(&again, config);
        bd_json_free(json);
    }
}

#define OPT_BUT(changed)                                                        \
    "{\"model_type\": \"opt\", \"vocab_size\": 300, \"num_hidden_layers\": 2, " \
    "\"max_position_embeddings\": 64" changed "}"
#define OPT_REST ", \"hidden_size\": 24, \"num_attention_heads\": 3, \"ffn_dim\": 96"
#define GPT2_BUT(changed)                                                               \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 300, \"n_layer\": 2, \"n_positions\": " \
    "64, \"n_embd\": 24, \"n_head\": 3" changed "}"

static void gpt2s_inner_width_has_a_default(void **state)
{
    (void)state;
    bd_error err;
    bd_model_config config;
    static const char *const texts[] = {GPT2_BUT(""), GPT2_BUT(", \"n_inner\": null"),
                                        GPT2_BUT(", \"n_inner\": 96")};
    for (size_t i = 0; i < 3; i++) {
        check(parse(texts[i], &config, &err), &err);
        assert_int_equal(config.n_feed_forward, 4 * 24);
    }
    check(parse(GPT2_BUT(", \"n_inner\": 7"), &config, &err), &err);
    assert_int_equal(config.n_feed_forward, 7);
}

static void hostile_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bd_status status;
        const char *mentions;
    } cases[] = {
        {"{}", BD_ERR_FORMAT, "model_type"},
        {"{\"model_type\": 5}", BD_ERR_FORMAT, "model_type"},
        {"{\"model_type\": \"llama\"}", BD_ERR_UNSUPPORTED, "'llama', not opt"},
        {"{\"model_type\": \"\"}", BD_ERR_UNSUPPORTED, "model_type"},
        {"{\"model_type\": \"opt\"}", BD_ERR_FORMAT, "vocab_size"},
        {"[]", BD_ERR_FORMAT, "model_type"},
        {OPT_BUT(", \"num_attention_heads\": 3, \"ffn_dim\": 96"), BD_ERR_FORMAT,
         "hidden_size"},
        {OPT_BUT(", \"hidden_size\": 24, \"ffn_dim\": 96"), BD_ERR_FORMAT,
         "num_attention_heads"},
        {OPT_BUT(", \"hidden_size\": 24, \"num_attention_heads\": 3"), BD_ERR_FORMAT,
         "ffn_dim"},
        {OPT_BUT(", \"hidden_size\": 24, \"num_attention_heads\": 3, \"ffn_dim\": null"),
         BD_ERR_FORMAT, "ffn_dim"},
        {OPT_BUT(", \"hidden_size\": 24, \"num_attention_heads\": 0, \"ffn_dim\": 96"),
         BD_ERR_FORMAT, "num_attention_heads"},
        {OPT_BUT(", \"hidden_size\": 24, \"num_attention_heads\": -3, \"ffn_dim\": 96"),
         BD_ERR_FORMAT, "num_attention_heads"},
        {OPT_BUT(", \"hidden_size\": 24, \"num_attention_heads\": 5, \"ffn_dim\": 96"),
         BD_ERR_ARGUMENT, "24 channels cannot be divided among 5 heads"},
        {OPT_BUT(
             ", \"hidden_size\": 1099511627776, \"num_attention_heads\": 1, \"ffn_dim\": 1"),
         BD_ERR_FORMAT, "hidden_size"},
        {OPT_BUT(", \"hidden_size\": 65537, \"num_attention_heads\": 1, \"ffn_dim\": 1"),
         BD_ERR_ARGUMENT, "65537 channels"},
        {OPT_BUT(", \"hidden_size\": 24.0, \"num_attention_heads\": 3, \"ffn_dim\": 96"),
         BD_ERR_FORMAT, "hidden_size"},
        {OPT_BUT(", \"hidden_size\": \"24\", \"num_attention_heads\": 3, \"ffn_dim\": 96"),
         BD_ERR_FORMAT, "hidden_size"},
        {"{\"model_type\": \"gpt2\", \"vocab_size\": 4294967297, \"n_layer\": 2, "
         "\"n_positions\": 64, \"n_embd\": 24, \"n_head\": 3}",
         BD_ERR_FORMAT, "vocab_size"},
        {"{\"model_type\": \"gpt2\", \"vocab_size\": 0, \"n_layer\": 2, \"n_positions\": 64, "
         "\"n_embd\": 24, \"n_head\": 3}",
         BD_ERR_FORMAT, "vocab_size"},
        {GPT2_BUT(", \"n_inner\": 0"), BD_ERR_FORMAT, "n_inner"},
        {GPT2_BUT(", \"n_inner\": \"wide\""), BD_ERR_FORMAT, "n_inner"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_error err = {0};
        bd_model_config config;
        if (parse(cases[i].text, &config, &err) != cases[i].status)
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_mentions(&err, cases[i].mentions);
    }
}

// A variant that is computed differently is refused.
static void variants_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *mentions;
    } cases[] = {
        {OPT_BUT(OPT_REST ", \"do_layer_norm_before\": false"),
         "'do_layer_norm_before' is not true"},
        {OPT_BUT(OPT_REST ", \"word_embed_proj_dim\": 12"), "'word_embed_proj_dim' is not 24"},
        {OPT_BUT(OPT_REST ", \"activation_function\": \"gelu\""),
         "'activation_function' is not \"relu\""},
        {OPT_BUT(OPT_REST ", \"tie_word_embeddings\": false"), "'tie_word_embeddings'"},
        {GPT2_BUT(", \"activation_function\": \"relu\""), "'activation_function'"},
        {GPT2_BUT(", \"tie_word_embeddings\": false"), "'tie_word_embeddings' is not true"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_error err = {0};
        bd_model_config config;
        assert_int_equal(parse(cases[i].text, &config, &err), BD_ERR_UNSUPPORTED);
        assert_mentions(&err, cases[i].mentions);
    }
    bd_error err;
    bd_model_config config;
    check(parse(OPT_BUT(OPT_REST), &config, &err), &err);
    check(parse(OPT_BUT(OPT_REST ", \"tie_word_embeddings\": true, \"dropout\": 0.1"), &config,
                &err),
          &err);
}

static void every_number_has_its_limits(void **state)
{
    (void)state;
    static const bd_model_config good = {&bd_family_opt, 2, 24, 3, 96, 64, 257};
    static const size_t fields[] = {
        offsetof(bd_model_config, n_layers),    offsetof(bd_model_config, n_channels),
        offsetof(bd_model_config, n_heads),     offsetof(bd_model_config, n_feed_forward),
        offsetof(bd_model_config, n_positions), offsetof(bd_model_config, n_vocabulary)};
    static const int64_t bad[] = {0, -1, INT64_MIN, INT64_C(1) << 40, INT64_MAX};
    bd_error err;
    check(bd_model_config_check(&good, &err), &err);
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            bd_model_config config = good;
            memcpy((char *)&config + fields[f], &bad[i], sizeof bad[i]);
            assert_int_equal(bd_model_config_check(&config, &err), BD_ERR_ARGUMENT);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_listed_preset_is_a_model),
        cmocka_unit_test(the_originals_have_their_shapes),
        cmocka_unit_test(an_unknown_preset_is_refused),
        cmocka_unit_test(hugging_faces_files_are_read),
        cmocka_unit_test(a_written_config_is_read_again),
        cmocka_unit_test(gpt2s_inner_width_has_a_default),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(variants_are_refused),
        cmocka_unit_test(every_number_has_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
