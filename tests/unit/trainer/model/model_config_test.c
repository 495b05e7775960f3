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

static bd_model_config parsed(const char *text)
{
    bd_error err = {0};
    bd_model_config config;
    if (parse(text, &config, &err) != BD_OK)
        fail_msg("%s: %s", text, err.message);
    return config;
}

// All members of a config are the same. (Compared one by one: there are gaps between them.)
static void assert_same(const bd_model_config *a, const bd_model_config *b)
{
    assert_ptr_equal(a->family, b->family);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->n_channels, b->n_channels);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_feed_forward, b->n_feed_forward);
    assert_int_equal(a->n_positions, b->n_positions);
    assert_int_equal(a->n_vocabulary, b->n_vocabulary);
    assert_int_equal(a->n_kv_heads, b->n_kv_heads);
    assert_int_equal(a->head_size, b->head_size);
    assert_int_equal(a->has_head, b->has_head);
    assert_true(a->norm_epsilon == b->norm_epsilon);
    assert_true(a->query_scale == b->query_scale);
    assert_true(a->rotation.theta == b->rotation.theta);
    assert_int_equal(a->rotation.scaling, b->rotation.scaling);
    assert_true(a->rotation.factor == b->rotation.factor);
    assert_true(a->rotation.original_positions == b->rotation.original_positions);
    assert_true(a->rotation.low_frequency_factor == b->rotation.low_frequency_factor);
    assert_true(a->rotation.high_frequency_factor == b->rotation.high_frequency_factor);
    assert_true(a->rotation.beta_fast == b->rotation.beta_fast);
    assert_true(a->rotation.beta_slow == b->rotation.beta_slow);
    assert_true(a->rotation.attention_factor == b->rotation.attention_factor);
    assert_int_equal(a->rotation.truncates, b->rotation.truncates);
    assert_int_equal(a->attention_bias, b->attention_bias);
    assert_int_equal(a->feed_forward_bias, b->feed_forward_bias);
    assert_true(a->local_theta == b->local_theta);
    assert_int_equal(a->window, b->window);
    assert_memory_equal(&a->windowed, &b->windowed, sizeof a->windowed);
    assert_memory_equal(&a->unrotated, &b->unrotated, sizeof a->unrotated);
}

static void assert_shape(const bd_model_config *config, bd_model_config expected)
{
    bd_error err;
    check(bd_model_config_complete(&expected, &err), &err);
    assert_same(config, &expected);
}

// The layers of a set as digits: "0110".
static const char *layers_of(const bd_layer_set *set, int64_t n_layers)
{
    static char text[BD_MOST_LAYERS + 1];
    for (int64_t l = 0; l < n_layers; l++)
        text[l] = bd_layer_set_has(set, l) ? '1' : '0';
    text[n_layers] = '\0';
    return text;
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
        bd_model_config without = config;
        assert_int_equal(bd_model_config_complete(&without, NULL), BD_ERR_ARGUMENT);
        config.n_vocabulary = 257;
        check(bd_model_config_complete(&config, &err), &err);
        // What attention in bf16 takes.
        assert_true(config.head_size == 64 || config.head_size == 128);
        assert_int_equal(config.rotation.theta > 0, config.family->position_table == NULL);
    }
}

static void the_originals_have_their_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bd_model_config config;
    } originals[] = {
        {"opt-125m",
         {.family = &bd_family_opt,
          .n_layers = 12,
          .n_channels = 768,
          .n_heads = 12,
          .n_feed_forward = 3072,
          .n_positions = 2048}},
        {"gpt2-124m",
         {.family = &bd_family_gpt2,
          .n_layers = 12,
          .n_channels = 768,
          .n_heads = 12,
          .n_feed_forward = 3072,
          .n_positions = 1024}},
        {"smollm2-135m",
         {.family = &bd_family_llama,
          .n_layers = 30,
          .n_channels = 576,
          .n_heads = 9,
          .n_kv_heads = 3,
          .n_feed_forward = 1536,
          .n_positions = 8192,
          .norm_epsilon = 1e-5,
          .rotation.theta = 1e5}},
        {"qwen3-0.6b",
         {.family = &bd_family_qwen3,
          .n_layers = 28,
          .n_channels = 1024,
          .n_heads = 16,
          .n_kv_heads = 8,
          .head_size = 128,
          .n_feed_forward = 3072,
          .n_positions = 40960,
          .rotation.theta = 1e6}},
        // Llama 3.2 1B and 3B, and 3.1 8B.
        {"llama-1b",
         {.family = &bd_family_llama,
          .n_layers = 16,
          .n_channels = 2048,
          .n_heads = 32,
          .n_kv_heads = 8,
          .head_size = 64,
          .n_feed_forward = 8192,
          .n_positions = 131072,
          .norm_epsilon = 1e-5,
          .rotation.theta = 5e5}},
        {"llama-3b",
         {.family = &bd_family_llama,
          .n_layers = 28,
          .n_channels = 3072,
          .n_heads = 24,
          .n_kv_heads = 8,
          .head_size = 128,
          .n_feed_forward = 8192,
          .n_positions = 131072,
          .norm_epsilon = 1e-5,
          .rotation.theta = 5e5}},
        {"llama-8b",
         {.family = &bd_family_llama,
          .n_layers = 32,
          .n_channels = 4096,
          .n_heads = 32,
          .n_kv_heads = 8,
          .head_size = 128,
          .n_feed_forward = 14336,
          .n_positions = 131072,
          .norm_epsilon = 1e-5,
          .rotation.theta = 5e5,
          .has_head = true}},
        // Ours, between those of the others.
        {"llama-350m",
         {.family = &bd_family_llama,
          .n_layers = 24,
          .n_channels = 1024,
          .n_heads = 16,
          .n_kv_heads = 4,
          .head_size = 64,
          .n_feed_forward = 2816,
          .n_positions = 8192,
          .norm_epsilon = 1e-5,
          .rotation.theta = 5e5}},
    };
    for (size_t i = 0; i < sizeof originals / sizeof originals[0]; i++) {
        bd_error err;
        bd_model_config config, expected = originals[i].config;
        check(bd_model_config_preset(&config, originals[i].name, &err), &err);
        config.n_vocabulary = expected.n_vocabulary = 257;
        check(bd_model_config_complete(&config, &err), &err);
        assert_shape(&config, expected);
    }
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
    static const bd_family *const families[] = {&bd_family_opt, &bd_family_gpt2};
    static const char *const files[] = {"opt/config.json", "gpt2/config.json"};
    for (int i = 0; i < 2; i++) {
        bd_error err;
        bd_model_config config;
        bd_json *json = read_golden(files[i]);
        check(bd_model_config_from_json(&config, json, &err), &err);
        assert_shape(&config, (bd_model_config){.family = families[i],
                                                .n_layers = 2,
                                                .n_channels = 24,
                                                .n_heads = 3,
                                                .n_feed_forward = 96,
                                                .n_positions = 64,
                                                .n_vocabulary = 257});
        bd_json_free(json);
    }
    for (size_t i = 0; bd_families[i]; i++)
        assert_string_equal(bd_families[i]->name, bd_family_names[i]);
}

// Presets, and models whose layers differ.
static void a_written_config_is_read_again(void **state)
{
    (void)state;
    static const bd_model_config special[] = {
        {.family = &bd_family_mistral,
         .rotation.theta = 1e6,
         .window = 5,
         .windowed = {{0x1f}}},
        {.family = &bd_family_mistral, .rotation.theta = 1e6, .has_head = true},
        {.family = &bd_family_qwen2,
         .rotation = {.theta = 1e5, .scaling = BD_SCALING_LINEAR, .factor = 3},
         .window = 7,
         .windowed = {{0x14}}},
        {.family = &bd_family_qwen3, .rotation.theta = 1e6, .head_size = 10, .n_kv_heads = 1},
        {.family = &bd_family_olmo2, .rotation.theta = 5e5, .norm_epsilon = 1e-4},
        {.family = &bd_family_smollm3,
         .rotation.theta = 2e6,
         .window = 9,
         .windowed = {{0x1}},
         .unrotated = {{0x12}}},
        {.family = &bd_family_gemma3_text,
         .rotation = {.theta = 1e6, .scaling = BD_SCALING_LINEAR, .factor = 8},
         .local_theta = 2e4,
         .query_scale = 168,
         .head_size = 8,
         .window = 4,
         .windowed = {{0x17}}},
    };
    bd_model_config configs[64];
    size_t n = 0;
    bd_error err;
    for (; bd_model_presets[n]; n++) {
        check(bd_model_config_preset(&configs[n], bd_model_presets[n], &err), &err);
        configs[n].n_feed_forward = 1000;
    }
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        bd_model_config *c = &configs[n++];
        *c = special[i];
        c->n_layers = 5;
        c->n_channels = 12;
        c->n_heads = 3;
        c->n_feed_forward = 20;
        c->n_positions = 33;
    }
    for (size_t i = 0; i < n; i++) {
        bd_model_config again;
        configs[i].n_vocabulary = 50272;
        check(bd_model_config_complete(&configs[i], &err), &err);
        bd_json *json = bd_model_config_to_json(&configs[i]);
        check(bd_model_config_from_json(&again, json, &err), &err);
        assert_same(&again, &configs[i]);
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
        {"{\"model_type\": \"llama4\"}", BD_ERR_UNSUPPORTED, "'llama4'; known are opt, gpt2"},
        {"{\"model_type\": \"gemma3\"}", BD_ERR_UNSUPPORTED, "'gemma3'; known are opt, gpt2"},
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

// ---- Families that rotate -------------------------------------------------------------------

// A file of the family with four layers, and more fields.
#define ROTARY(family, more)                                                           \
    "{\"model_type\": \"" family "\", \"vocab_size\": 300, \"num_hidden_layers\": 4, " \
    "\"hidden_size\": 24, \"num_attention_heads\": 6, \"num_key_value_heads\": 2, "    \
    "\"intermediate_size\": 40, \"max_position_embeddings\": 64, \"head_dim\": 8" more "}"

static void a_field_that_is_left_out_is_as_in_transformers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool has_head;
        double theta, epsilon, query_scale;
        const char *windowed, *unrotated;
    } cases[] = {
        {ROTARY("llama", ""), true, 1e4, 1e-6, 8, "0000", "0000"},
        {ROTARY("mistral", ""), true, 1e4, 1e-6, 8, "1111", "0000"},
        {ROTARY("qwen2", ""), true, 1e4, 1e-6, 8, "0000", "0000"},
        {ROTARY("qwen3", ""), true, 1e4, 1e-6, 8, "0000", "0000"},
        {ROTARY("olmo2", ""), true, 1e4, 1e-5, 8, "0000", "0000"},
        {ROTARY("smollm3", ""), false, 2e6, 1e-6, 8, "0000", "0001"},
        {ROTARY("gemma3_text", ""), false, 1e6, 1e-6, 256, "1111", "0000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bd_model_config c = parsed(cases[i].text);
        const bool windowed = strchr(cases[i].windowed, '1') != NULL;
        assert_int_equal(c.has_head, cases[i].has_head);
        assert_true(c.rotation.theta == cases[i].theta);
        assert_true(c.norm_epsilon == cases[i].epsilon);
        assert_true(c.query_scale == cases[i].query_scale);
        assert_int_equal(c.rotation.scaling, BD_SCALING_NONE);
        assert_int_equal(c.window, windowed ? 4096 : 0);
        assert_string_equal(layers_of(&c.windowed, 4), cases[i].windowed);
        assert_string_equal(layers_of(&c.unrotated, 4), cases[i].unrotated);
        assert_int_equal(c.n_kv_heads, 2);
        assert_int_equal(c.head_size, 8);
        assert_true(c.local_theta == (i == 6 ? 1e4 : 0));
    }
}

// What the fields of each family say about its layers.
static void layers_are_as_the_fields_say(void **state)
{
    (void)state;
#define SLIDING "\"sliding_attention\""
#define FULL    "\"full_attention\""
    static const struct {
        const char *text;
        int64_t window;
        const char *windowed, *unrotated;
    } cases[] = {
        {ROTARY("mistral", ", \"sliding_window\": 5"), 5, "1111", "0000"},
        {ROTARY("mistral", ", \"sliding_window\": null"), 0, "0000", "0000"},
        {ROTARY("qwen2", ", \"sliding_window\": 5"), 0, "0000", "0000"},
        {ROTARY("qwen2", ", \"sliding_window\": 5, \"use_sliding_window\": false, "
                         "\"max_window_layers\": 1"),
         0, "0000", "0000"},
        {ROTARY("qwen2", ", \"sliding_window\": 5, \"use_sliding_window\": true, "
                         "\"max_window_layers\": 1"),
         5, "0111", "0000"},
        {ROTARY("qwen2", ", \"use_sliding_window\": true, \"max_window_layers\": 0"), 4096,
         "1111", "0000"},
        {ROTARY("qwen3", ", \"sliding_window\": 5, \"use_sliding_window\": true"), 0, "0000",
         "0000"},  // the first layer with a window is the 28th
        {ROTARY("qwen3", ", \"sliding_window\": 5, \"use_sliding_window\": true, "
                         "\"max_window_layers\": 0, \"layer_types\": [" FULL ", " SLIDING
                         ", " SLIDING ", " FULL "]"),
         5, "0110", "0000"},
        {ROTARY("smollm3", ", \"no_rope_layers\": [1, 0, 0, 1, 0]"), 0, "0000", "0110"},
        {ROTARY("smollm3", ", \"no_rope_layer_interval\": 2"), 0, "0000", "0101"},
        {ROTARY("smollm3", ", \"no_rope_layers\": null, \"no_rope_layer_interval\": 3"), 0,
         "0000", "0010"},
        {ROTARY("smollm3", ", \"use_sliding_window\": true, \"sliding_window\": 6"), 6, "0001",
         "0001"},
        {ROTARY("smollm3", ", \"use_sliding_window\": true"), 0, "0000", "0001"},
        {ROTARY("smollm3", ", \"use_sliding_window\": true, \"sliding_window\": 6, "
                           "\"layer_types\": [" SLIDING ", " FULL ", " FULL ", " FULL "]"),
         6, "1000", "0001"},
        {ROTARY("gemma3_text", ", \"sliding_window\": 7, \"sliding_window_pattern\": 2"), 7,
         "1010", "0000"},
        // transformers write this field and do not read it: the pattern is the usual one of 6.
        {ROTARY("gemma3_text", ", \"sliding_window\": 7, \"_sliding_window_pattern\": 3"), 7,
         "1111", "0000"},
        {ROTARY("gemma3_text", ", \"sliding_window\": 7, \"_sliding_window_pattern\": 3, "
                               "\"layer_types\": [" FULL ", " FULL ", " SLIDING ", " FULL "]"),
         7, "0010", "0000"},
        {ROTARY("gemma3_text", ", \"sliding_window\": 7, \"layer_types\": [" FULL ", " FULL
                               ", " FULL ", " FULL "]"),
         0, "0000", "0000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bd_model_config c = parsed(cases[i].text);
        if (c.window != cases[i].window ||
            strcmp(layers_of(&c.windowed, 4), cases[i].windowed) != 0 ||
            strcmp(layers_of(&c.unrotated, 4), cases[i].unrotated) != 0)
            fail_msg("%s: window %d in %s", cases[i].text, (int)c.window,
                     layers_of(&c.windowed, 4));
        for (int64_t l = 0; l < 4; l++)
            assert_int_equal(bd_layer_window(&c, l),
                             cases[i].windowed[l] == '1' ? cases[i].window : 0);
    }
}

// transformers 4 write rope_theta and rope_scaling, 5 writes rope_parameters; a file with both
// follows the old form.
static void both_forms_of_the_rotation_are_read(void **state)
{
    (void)state;
#define LINEAR "\"rope_type\": \"linear\", \"factor\": 2"
    static const struct {
        const char *text;
        bd_rotation_scaling scaling;
        double theta, local_theta;
    } cases[] = {
        {ROTARY("llama", ", \"rope_theta\": 5e5, \"rope_scaling\": null"), BD_SCALING_NONE, 5e5,
         0},
        {ROTARY("llama", ", \"rope_theta\": 5e5, \"rope_scaling\": {" LINEAR "}"),
         BD_SCALING_LINEAR, 5e5, 0},
        {ROTARY("llama", ", \"rope_parameters\": {" LINEAR ", \"rope_theta\": 7e5}"),
         BD_SCALING_LINEAR, 7e5, 0},
        {ROTARY("llama", ", \"rope_theta\": 5e5, \"rope_parameters\": {\"rope_type\": "
                         "\"default\"}"),
         BD_SCALING_NONE, 5e5, 0},
        {ROTARY("llama", ", \"rope_theta\": 5e5, \"rope_scaling\": {" LINEAR "}, "
                         "\"rope_parameters\": {\"rope_type\": \"default\", "
                         "\"rope_theta\": 7e5}"),
         BD_SCALING_LINEAR, 5e5, 0},
        // An empty object says nothing, as in transformers.
        {ROTARY("llama", ", \"rope_scaling\": {}, \"rope_parameters\": {" LINEAR
                         ", \"rope_theta\": 7e5}"),
         BD_SCALING_LINEAR, 7e5, 0},
        {ROTARY("gemma3_text", ", \"rope_scaling\": {}, \"rope_parameters\": {"
                               "\"full_attention\": {" LINEAR ", \"rope_theta\": 7e5}, "
                               "\"sliding_attention\": {\"rope_theta\": 2e4}}"),
         BD_SCALING_LINEAR, 7e5, 2e4},
        {ROTARY("llama", ", \"rope_parameters\": {" LINEAR ", \"rope_theta\": 7e5, "
                         "\"partial_rotary_factor\": 1.0}"),
         BD_SCALING_LINEAR, 7e5, 0},
        {ROTARY("gemma3_text", ", \"rope_theta\": 5e5, \"rope_local_base_freq\": 3e4, "
                               "\"rope_scaling\": {" LINEAR "}"),
         BD_SCALING_LINEAR, 5e5, 3e4},
        {ROTARY("gemma3_text", ", \"rope_parameters\": {\"full_attention\": {" LINEAR
                               ", \"rope_theta\": 7e5}, \"sliding_attention\": {"
                               "\"rope_type\": \"default\", \"rope_theta\": 2e4}}"),
         BD_SCALING_LINEAR, 7e5, 2e4},
        {ROTARY("gemma3_text", ", \"rope_parameters\": {\"full_attention\": {}, "
                               "\"sliding_attention\": {}}"),
         BD_SCALING_NONE, 1e6, 1e4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bd_model_config c = parsed(cases[i].text);
        assert_int_equal(c.rotation.scaling, cases[i].scaling);
        assert_true(c.rotation.theta == cases[i].theta);
        assert_true(c.local_theta == cases[i].local_theta);
    }
}

// Of every family: a field that nobody knows is refused by its name, unless it is off.
static void unknown_fields_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t f = 0; bd_families[f]; f++) {
        if (bd_families[f]->position_table)
            continue;
        static const struct {
            const char *field;
            bool is_refused;
        } cases[] = {
            {"\"clip_qkv\": 8.0", true},
            {"\"clip_qkv\": null", false},
            {"\"use_mup\": true", true},
            {"\"use_mup\": false", false},
            {"\"experts\": {\"n\": 8}", true},
            {"\"logit_scale\": 0", true},
            {"\"dtype\": \"bfloat16\"", false},
            {"\"_attn_implementation_autoset\": true", false},
            {"\"unsloth_fixed\": true", false},
            {"\"unsloth_version\": \"2025.11.3\"", false},
            {"\"eos_token_id\": [1, 2]", false},
            {"\"attention_dropout\": 0.5", false},
            {"\"partial_rotary_factor\": 0.5", true},
            {"\"partial_rotary_factor\": 1.0", false},
            {"\"rope_scaling\": {}", false},
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            char text[1024], name[64];
            bd_error err = {0};
            bd_model_config config;
            snprintf(text, sizeof text, ROTARY("%s", ", %s"), bd_families[f]->name,
                     cases[i].field);
            snprintf(name, sizeof name, "'%.*s'", (int)strcspn(cases[i].field + 1, "\""),
                     cases[i].field + 1);
            const bd_status status = parse(text, &config, &err);
            if (status != (cases[i].is_refused ? BD_ERR_UNSUPPORTED : BD_OK))
                fail_msg("%s: %s", text, err.message);
            if (cases[i].is_refused)
                assert_mentions(&err, name);
        }
    }
}

static void hostile_fields_of_rotary_families_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bd_status status;
        const char *mentions;
    } cases[] = {
        {ROTARY("llama", ", \"hidden_act\": \"gelu\""), BD_ERR_UNSUPPORTED,
         "'hidden_act' is not \"silu\""},
        {ROTARY("llama", ", \"rms_norm_eps\": 0"), BD_ERR_FORMAT, "rms_norm_eps"},
        {ROTARY("llama", ", \"rms_norm_eps\": -1e-6"), BD_ERR_FORMAT, "rms_norm_eps"},
        {ROTARY("llama", ", \"rms_norm_eps\": \"1e-6\""), BD_ERR_FORMAT, "rms_norm_eps"},
        {ROTARY("llama", ", \"rope_theta\": 0.1"), BD_ERR_ARGUMENT, "cannot have theta 0.1"},
        {ROTARY("gemma3_text", ", \"rope_local_base_freq\": 0.1"), BD_ERR_ARGUMENT,
         "windows cannot have theta 0.1"},
        {ROTARY("llama", ", \"rope_scaling\": []"), BD_ERR_FORMAT, "rope_scaling"},
        {ROTARY("llama", ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}"),
         BD_ERR_UNSUPPORTED, "'dynamic'"},
        {ROTARY("llama", ", \"rope_parameters\": {\"partial_rotary_factor\": 0.25}"),
         BD_ERR_UNSUPPORTED, "'partial_rotary_factor' of the rotation is not 1"},
        {ROTARY("llama", ", \"tie_word_embeddings\": 1"), BD_ERR_FORMAT, "tie_word_embeddings"},
        {ROTARY("llama", ", \"sliding_window\": 5"), BD_ERR_UNSUPPORTED, "'sliding_window'"},
        {ROTARY("llama", ", \"layer_types\": [\"full_attention\"]"), BD_ERR_UNSUPPORTED,
         "'layer_types'"},
        {ROTARY("mistral", ", \"sliding_window\": 0"), BD_ERR_FORMAT, "sliding_window"},
        {ROTARY("mistral", ", \"sliding_window\": -3"), BD_ERR_FORMAT, "sliding_window"},
        {ROTARY("mistral", ", \"sliding_window\": 4.5"), BD_ERR_FORMAT, "sliding_window"},
        {ROTARY("qwen2", ", \"use_sliding_window\": 1"), BD_ERR_FORMAT, "use_sliding_window"},
        {ROTARY("qwen2", ", \"max_window_layers\": -1"), BD_ERR_FORMAT, "max_window_layers"},
        {ROTARY("qwen3", ", \"layer_types\": [" FULL "]"), BD_ERR_FORMAT,
         "'layer_types' has only 1 entries for 4 layers"},
        {ROTARY("qwen3", ", \"layer_types\": \"full\""), BD_ERR_FORMAT, "layer_types"},
        {ROTARY("qwen3", ", \"layer_types\": [" FULL ", 1, 2, 3]"), BD_ERR_FORMAT, ""},
        {ROTARY("qwen3",
                ", \"layer_types\": [" FULL ", " FULL ", \"chunked_attention\", " FULL "]"),
         BD_ERR_UNSUPPORTED, "layer 2 is of type 'chunked_attention'"},
        {ROTARY("qwen3", ", \"layer_types\": [" FULL ", " FULL ", " FULL ", " SLIDING "]"),
         BD_ERR_FORMAT, "there is no window"},
        {ROTARY("smollm3", ", \"no_rope_layers\": [1, 0, 0]"), BD_ERR_FORMAT,
         "'no_rope_layers' has only 3 entries"},
        {ROTARY("smollm3", ", \"no_rope_layers\": [1, 0, 0, 2]"), BD_ERR_FORMAT, ""},
        {ROTARY("smollm3", ", \"no_rope_layers\": [1, 0, 0, true]"), BD_ERR_FORMAT, ""},
        {ROTARY("smollm3", ", \"no_rope_layer_interval\": 0"), BD_ERR_FORMAT,
         "no_rope_layer_interval"},
        {ROTARY("gemma3_text", ", \"sliding_window_pattern\": 0"), BD_ERR_FORMAT,
         "sliding_window_pattern"},
        {ROTARY("gemma3_text", ", \"final_logit_softcapping\": 30.0"), BD_ERR_UNSUPPORTED,
         "'final_logit_softcapping'"},
        {ROTARY("gemma3_text", ", \"use_bidirectional_attention\": true"), BD_ERR_UNSUPPORTED,
         "'use_bidirectional_attention'"},
        {ROTARY("gemma3_text", ", \"query_pre_attn_scalar\": 0"), BD_ERR_FORMAT,
         "query_pre_attn_scalar"},
        {ROTARY("gemma3_text", ", \"rope_parameters\": {\"sliding_attention\": {}}"),
         BD_ERR_FORMAT, "full_attention"},
        {ROTARY("gemma3_text", ", \"rope_parameters\": {\"full_attention\": {}, "
                               "\"sliding_attention\": {" LINEAR "}}"),
         BD_ERR_UNSUPPORTED, "sliding_attention is scaled"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bd_error err = {0};
        bd_model_config config;
        if (parse(cases[i].text, &config, &err) != cases[i].status)
            fail_msg("%s: %s", cases[i].text, err.message);
        assert_mentions(&err, cases[i].mentions);
    }
}

static void every_number_has_its_limits(void **state)
{
    (void)state;
    static const bd_model_config good = {.family = &bd_family_llama,
                                         .n_layers = 2,
                                         .n_channels = 24,
                                         .n_heads = 3,
                                         .n_feed_forward = 96,
                                         .n_positions = 64,
                                         .n_vocabulary = 257,
                                         .rotation.theta = 1e4};
    static const struct {
        size_t at;
        bool has_usual;  // 0 means the usual value
    } fields[] = {
        {offsetof(bd_model_config, n_layers), false},
        {offsetof(bd_model_config, n_channels), false},
        {offsetof(bd_model_config, n_heads), false},
        {offsetof(bd_model_config, n_feed_forward), true},
        {offsetof(bd_model_config, n_positions), false},
        {offsetof(bd_model_config, n_vocabulary), false},
        {offsetof(bd_model_config, n_kv_heads), true},
        {offsetof(bd_model_config, head_size), true},
        {offsetof(bd_model_config, window), true},
    };
    static const int64_t bad[] = {0, -1, INT64_MIN, INT64_C(1) << 40, INT64_MAX};
    bd_error err;
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            bd_model_config config = good;
            memcpy((char *)&config + fields[f].at, &bad[i], sizeof bad[i]);
            assert_int_equal(bd_model_config_complete(&config, &err),
                             bad[i] == 0 && fields[f].has_usual ? BD_OK : BD_ERR_ARGUMENT);
        }
    bd_model_config config = good;
    check(bd_model_config_complete(&config, &err), &err);
    assert_int_equal(config.n_kv_heads, 3);
    assert_int_equal(config.head_size, 8);
    assert_true(config.norm_epsilon == 1e-6 && config.query_scale == 8);
    config = good;
    config.n_heads = 4;
    config.n_kv_heads = 3;
    assert_int_equal(bd_model_config_complete(&config, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "4 heads cannot share 3 heads of keys: --kv-heads must "
                                     "divide --heads");
    config = good;
    config.head_size = 7;
    assert_int_equal(bd_model_config_complete(&config, &err), BD_ERR_ARGUMENT);
    assert_mentions(&err, "heads of 7 channels cannot be rotated");
    // A shape that config.json of the family cannot say would be lost in a checkpoint.
    static const int64_t others[][2] = {{7, 3}, {8, 1}};  // channels of a head, heads of keys
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        config = good;
        config.head_size = others[i][0];
        config.n_kv_heads = others[i][1];
        config.family = &bd_family_opt;
        assert_int_equal(bd_model_config_complete(&config, &err), BD_ERR_ARGUMENT);
        assert_mentions(&err, "leave out --kv-heads and --head-size");
    }
}

// What a file says is still there when it was written and read again.
static void every_field_of_rotary_families_is_written(void **state)
{
    (void)state;
    static const char *const texts[] = {
        ROTARY("llama",
               ", \"attention_bias\": true, \"mlp_bias\": true, \"rope_scaling\": "
               "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
               "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32}"),
        ROTARY("smollm3", ", \"attention_bias\": true, \"mlp_bias\": true"),
        ROTARY("qwen3", ", \"attention_bias\": true, \"tie_word_embeddings\": true"),
        ROTARY("olmo2", ", \"attention_bias\": true, \"rope_parameters\": {\"rope_type\": "
                        "\"default\", \"rope_theta\": 5e5}"),
        ROTARY("gemma3_text", ", \"attention_bias\": true, \"sliding_window\": 7"),
        ROTARY("mistral", ", \"sliding_window\": 5"),
        ROTARY("qwen2",
               ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"mscale\": 0.7, "
               "\"mscale_all_dim\": 0.3, \"beta_fast\": 16, \"beta_slow\": 2, "
               "\"truncate\": false}"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bd_error err;
        bd_model_config config, again;
        check(parse(texts[i], &config, &err), &err);
        bd_json *json = bd_model_config_to_json(&config);
        check(bd_model_config_from_json(&again, json, &err), &err);
        assert_same(&config, &again);
        bd_json_free(json);
    }
}

// Fields of published files that say nothing about the mathematics.
static void published_files_are_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        ROTARY("llama",
               ", \"is_llama_config\": true, \"rope_interleaved\": false, "
               "\"transformers.js_config\": {\"dtype\": \"q4\"}, \"pretraining_tp\": 1"),
        ROTARY("smollm3", ", \"max_window_layers\": 28, \"use_sliding_window\": false"),
        ROTARY("gemma3_text",
               ", \"sliding_window\": 512, \"cache_implementation\": \"hybrid\""),
        ROTARY("qwen3", ", \"max_window_layers\": 28, \"partial_rotary_factor\": 1"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bd_error err;
        bd_model_config config;
        check(parse(texts[i], &config, &err), &err);
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
        cmocka_unit_test(a_field_that_is_left_out_is_as_in_transformers),
        cmocka_unit_test(layers_are_as_the_fields_say),
        cmocka_unit_test(both_forms_of_the_rotation_are_read),
        cmocka_unit_test(unknown_fields_are_refused_by_name),
        cmocka_unit_test(every_field_of_rotary_families_is_written),
        cmocka_unit_test(published_files_are_read),
        cmocka_unit_test(hostile_fields_of_rotary_families_are_refused),
        cmocka_unit_test(every_number_has_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
