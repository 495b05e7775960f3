#include "trainer/model/parameters.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/weights/safetensors.h"

static const bd_model_config OPT = {.family = &bd_family_opt,
                                    .n_layers = 3,
                                    .n_channels = 32,
                                    .n_heads = 4,
                                    .n_feed_forward = 100,
                                    .n_positions = 50,
                                    .n_vocabulary = 257};

// The same shape in another family. Families that rotate get one head of keys for two of queries,
// and heads that do not divide the channels.
static bd_model_config as(const bd_family *family)
{
    bd_model_config config = OPT;
    config.family = family;
    if (family->position_table)
        return config;
    config.n_kv_heads = 2;
    config.head_size = 10;
    config.rotation.theta = config.local_theta = 1e4;
    return config;
}

static bd_parameters lay_out(bd_model_config config)
{
    bd_error err;
    bd_parameters parameters;
    check(bd_model_config_complete(&config, &err), &err);
    check(bd_parameters_init(&parameters, &config, &err), &err);
    return parameters;
}

static const bd_parameter *find(const bd_parameters *parameters, const char *name)
{
    for (size_t i = 0; i < parameters->n; i++)
        if (strcmp(parameters->items[i].name, name) == 0)
            return &parameters->items[i];
    fail_msg("no parameter '%s'", name);
    return NULL;
}

static float *draw(const bd_parameters *parameters, uint64_t seed)
{
    float *weights = malloc((size_t)parameters->n_total * sizeof *weights);
    assert_non_null(weights);
    bd_parameters_draw(parameters, seed, weights);
    return weights;
}

// ---- Layout ---------------------------------------------------------------------------------

static void assert_names_of(const bd_model_config *config, const char *const *names, size_t n)
{
    bd_parameters parameters = lay_out(*config);
    assert_int_equal(parameters.n, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(parameters.items[i].name, names[i]);
    bd_parameters_release(&parameters);
    bd_parameters_release(&parameters);
}

#define LAYER(name)      "model.layers.0." name
#define OPT_LAYER(name)  "model.decoder.layers.0." name
#define GPT2_LAYER(name) "transformer.h.0." name

static void names_and_their_order_are_as_always(void **state)
{
    (void)state;
    static const char *const opt[] = {
        "model.decoder.embed_tokens.weight",
        "model.decoder.embed_positions.weight",
        OPT_LAYER("self_attn_layer_norm.weight"),
        OPT_LAYER("self_attn_layer_norm.bias"),
        OPT_LAYER("self_attn.q_proj.weight"),
        OPT_LAYER("self_attn.k_proj.weight"),
        OPT_LAYER("self_attn.v_proj.weight"),
        OPT_LAYER("self_attn.q_proj.bias"),
        OPT_LAYER("self_attn.k_proj.bias"),
        OPT_LAYER("self_attn.v_proj.bias"),
        OPT_LAYER("self_attn.out_proj.weight"),
        OPT_LAYER("self_attn.out_proj.bias"),
        OPT_LAYER("final_layer_norm.weight"),
        OPT_LAYER("final_layer_norm.bias"),
        OPT_LAYER("fc1.weight"),
        OPT_LAYER("fc1.bias"),
        OPT_LAYER("fc2.weight"),
        OPT_LAYER("fc2.bias"),
        "model.decoder.final_layer_norm.weight",
        "model.decoder.final_layer_norm.bias",
    };
    static const char *const gpt2[] = {
        "transformer.wte.weight",         "transformer.wpe.weight",
        GPT2_LAYER("ln_1.weight"),        GPT2_LAYER("ln_1.bias"),
        GPT2_LAYER("attn.c_attn.weight"), GPT2_LAYER("attn.c_attn.bias"),
        GPT2_LAYER("attn.c_proj.weight"), GPT2_LAYER("attn.c_proj.bias"),
        GPT2_LAYER("ln_2.weight"),        GPT2_LAYER("ln_2.bias"),
        GPT2_LAYER("mlp.c_fc.weight"),    GPT2_LAYER("mlp.c_fc.bias"),
        GPT2_LAYER("mlp.c_proj.weight"),  GPT2_LAYER("mlp.c_proj.bias"),
        "transformer.ln_f.weight",        "transformer.ln_f.bias",
    };
    bd_model_config config = OPT;
    config.n_layers = 1;
    assert_names_of(&config, opt, sizeof opt / sizeof opt[0]);
    config.family = &bd_family_gpt2;
    assert_names_of(&config, gpt2, sizeof gpt2 / sizeof gpt2[0]);
}

// Each name that a layer of Llama's relatives may have, in order, and which families have it.
static void names_of_llamas_relatives(void **state)
{
    (void)state;
    enum { LLAMA = 1, QWEN2 = 2, QWEN3 = 4, OLMO2 = 8, GEMMA3 = 16, ALL = 31 };
    static const struct {
        const char *name;
        unsigned families;
    } parts[] = {
        {"model.embed_tokens.weight", ALL},
        {LAYER("input_layernorm.weight"), LLAMA | QWEN2 | QWEN3 | GEMMA3},
        {LAYER("self_attn.q_proj.weight"), ALL},
        {LAYER("self_attn.k_proj.weight"), ALL},
        {LAYER("self_attn.v_proj.weight"), ALL},
        {LAYER("self_attn.q_proj.bias"), QWEN2},
        {LAYER("self_attn.k_proj.bias"), QWEN2},
        {LAYER("self_attn.v_proj.bias"), QWEN2},
        {LAYER("self_attn.q_norm.weight"), QWEN3 | OLMO2 | GEMMA3},
        {LAYER("self_attn.k_norm.weight"), QWEN3 | OLMO2 | GEMMA3},
        {LAYER("self_attn.o_proj.weight"), ALL},
        {LAYER("post_attention_layernorm.weight"), ALL},
        {LAYER("pre_feedforward_layernorm.weight"), GEMMA3},
        {LAYER("mlp.gate_proj.weight"), ALL},
        {LAYER("mlp.up_proj.weight"), ALL},
        {LAYER("mlp.down_proj.weight"), ALL},
        {LAYER("post_feedforward_layernorm.weight"), OLMO2 | GEMMA3},
        {"model.norm.weight", ALL},
        {"lm_head.weight", LLAMA | OLMO2},
    };
    enum { N_PARTS = sizeof parts / sizeof parts[0] };
    static const bd_family *const families[] = {&bd_family_llama, &bd_family_qwen2,
                                                &bd_family_qwen3, &bd_family_olmo2,
                                                &bd_family_gemma3_text};
    for (int f = 0; f < 5; f++) {
        bd_model_config config = as(families[f]);
        const char *names[N_PARTS];
        size_t n = 0;
        config.n_layers = 1;
        config.has_head = (LLAMA | OLMO2) & 1u << f;
        for (size_t i = 0; i < N_PARTS; i++)
            if (parts[i].families & 1u << f)
                names[n++] = parts[i].name;
        assert_names_of(&config, names, n);
    }
}

static void assert_part(const bd_parameters *parameters, const char *name, int64_t rows,
                        int64_t columns, int64_t offset)
{
    const bd_parameter *p = find(parameters, name);
    assert_int_equal(p->n_dimensions, columns > 0 ? 2 : 1);
    assert_int_equal(p->shape[0], rows);
    assert_int_equal(p->shape[1], columns);
    assert_int_equal(p->offset, offset);
}

// The same for a part of the first layer, by the family's word for it.
static void assert_layer_part(const bd_parameters *parameters, const char *part, int64_t rows,
                              int64_t columns, int64_t offset)
{
    const bd_family *family = parameters->config.family;
    char name[80];
    snprintf(name, sizeof name, "%s%s.0.%s.weight", family->prefixes[0], family->layers, part);
    assert_part(parameters, name, rows, columns, offset);
}

// Queries of 4 heads of 10 channels, keys and values of 2; the gate before what it gates.
static void parts_of_rotary_families_have_their_shapes_and_places(void **state)
{
    (void)state;
    for (size_t f = 0; bd_families[f]; f++) {
        const bd_family *family = bd_families[f];
        if (family->position_table)
            continue;
        bd_model_config config = as(family);
        config.has_head = f % 2;
        bd_parameters p = lay_out(config);
        const bd_layer_offsets *at = &p.layers[0];
        assert_int_equal(p.position_table, BD_NO_PARAMETER);
        assert_int_equal(p.n_position_rows, 0);
        assert_layer_part(&p, family->qkv[0], 40, 32, at->qkv.weight);
        assert_layer_part(&p, family->qkv[1], 20, 32, at->qkv.weight + 40 * 32);
        assert_layer_part(&p, family->qkv[2], 20, 32, at->qkv.weight + 60 * 32);
        assert_layer_part(&p, family->projection, 32, 40, at->projection.weight);
        assert_layer_part(&p, family->gate, 100, 32, at->expand.weight);
        assert_layer_part(&p, family->expand, 100, 32, at->expand.weight + 100 * 32);
        assert_layer_part(&p, family->contract, 32, 100, at->contract.weight);
        assert_int_equal(p.final_norm.shift, BD_NO_PARAMETER);
        assert_int_equal(at->contract.bias, BD_NO_PARAMETER);
        assert_int_equal(at->qkv.bias == BD_NO_PARAMETER, family != &bd_family_qwen2);
        if (family->query_norm) {
            const bool whole = family == &bd_family_olmo2;
            assert_layer_part(&p, family->query_norm, whole ? 40 : 10, 0, at->query_norm.gain);
            assert_layer_part(&p, family->key_norm, whole ? 20 : 10, 0, at->key_norm.gain);
        } else {
            assert_int_equal(at->query_norm.gain, BD_NO_PARAMETER);
            assert_int_equal(at->key_norm.gain, BD_NO_PARAMETER);
        }
        char norm[80];
        snprintf(norm, sizeof norm, "%s%s.weight", family->prefixes[0], family->final_norm);
        assert_part(&p, norm, 32, 0, p.final_norm.gain);
        if (config.has_head)
            assert_part(&p, "lm_head.weight", 257, 32, p.head);
        else
            assert_int_equal(p.head, p.token_table);
        bd_parameters_release(&p);
    }
}

// A key's bias adds the same to all scores of a query, unless keys are rotated.
static void only_without_rotation_a_key_bias_has_no_gradient(void **state)
{
    (void)state;
    bd_parameters opt = lay_out(OPT), qwen2 = lay_out(as(&bd_family_qwen2));
    assert_int_equal(find(&opt, OPT_LAYER("self_attn.k_proj.bias"))->role, BD_ROLE_KEY_BIAS);
    assert_int_equal(find(&qwen2, LAYER("self_attn.k_proj.bias"))->role, BD_ROLE_BIAS);
    bd_parameters_release(&opt);
    bd_parameters_release(&qwen2);
}

static void assert_names_and_shapes_of_file(const char *model)
{
    bd_error err;
    bd_model_config config;
    bd_safetensors *file;
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", model);
    bd_json *json = read_golden(path);
    check(bd_model_config_from_json(&config, json, &err), &err);
    bd_parameters parameters = lay_out(config);
    snprintf(path, sizeof path, BINDERY_GOLDEN "/train-1/%s/weights.safetensors", model);
    check(bd_safetensors_open(&file, path, &err), &err);
    assert_int_equal(bd_safetensors_count(file), parameters.n);
    for (size_t i = 0; i < parameters.n; i++) {
        const bd_parameter *ours = &parameters.items[i];
        const bd_tensor_view *theirs = bd_safetensors_find(file, ours->name);
        assert_non_null(theirs);
        assert_int_equal(ours->n_dimensions, theirs->n_dimensions);
        for (int d = 0; d < ours->n_dimensions; d++)
            assert_int_equal(ours->shape[d], theirs->shape[d]);
        assert_int_equal(ours->n, theirs->n);
    }
    bd_safetensors_close(file);
    bd_parameters_release(&parameters);
    bd_json_free(json);
}

static void names_and_shapes_are_hugging_faces(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2", "llama", "qwen3", "olmo2"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        assert_names_and_shapes_of_file(models[i]);
}

static void parameters_lie_end_to_end(void **state)
{
    (void)state;
    for (size_t f = 0; bd_families[f]; f++) {
        bd_parameters parameters = lay_out(as(bd_families[f]));
        int64_t end = 0;
        for (size_t i = 0; i < parameters.n; i++) {
            const bd_parameter *p = &parameters.items[i];
            assert_int_equal(p->offset, end);
            assert_int_equal(p->n, p->shape[0] * (p->n_dimensions == 2 ? p->shape[1] : 1));
            assert_int_equal(bd_parameter_decays(p), p->n_dimensions == 2);
            end += p->n;
        }
        assert_int_equal(parameters.n_total, end);
        bd_parameters_release(&parameters);
    }
}

static void assert_at(const bd_parameters *parameters, int64_t offset, const char *format,
                      int64_t l)
{
    char name[80];
    snprintf(name, sizeof name, format, (int)l);
    assert_int_equal(offset, find(parameters, name)->offset);
}

static void the_model_finds_its_parts(void **state)
{
    (void)state;
    bd_parameters opt = lay_out(OPT), gpt2 = lay_out(as(&bd_family_gpt2));
    assert_int_equal(opt.n_position_rows, 52);
    assert_int_equal(gpt2.n_position_rows, 50);
    for (int64_t l = 0; l < 3; l++) {
        const bd_layer_offsets *o = &opt.layers[l], *g = &gpt2.layers[l];
        assert_at(&opt, o->attention_norm.gain,
                  "model.decoder.layers.%d.self_attn_layer_norm.weight", l);
        assert_at(&opt, o->attention_norm.shift,
                  "model.decoder.layers.%d.self_attn_layer_norm.bias", l);
        assert_at(&opt, o->qkv.weight, "model.decoder.layers.%d.self_attn.q_proj.weight", l);
        assert_at(&opt, o->qkv.weight + 32 * 32,
                  "model.decoder.layers.%d.self_attn.k_proj.weight", l);
        assert_at(&opt, o->qkv.weight + 2 * 32 * 32,
                  "model.decoder.layers.%d.self_attn.v_proj.weight", l);
        assert_at(&opt, o->qkv.bias, "model.decoder.layers.%d.self_attn.q_proj.bias", l);
        assert_at(&opt, o->qkv.bias + 32, "model.decoder.layers.%d.self_attn.k_proj.bias", l);
        assert_at(&opt, o->qkv.bias + 64, "model.decoder.layers.%d.self_attn.v_proj.bias", l);
        assert_at(&opt, o->projection.weight,
                  "model.decoder.layers.%d.self_attn.out_proj.weight", l);
        assert_at(&opt, o->feed_forward_norm.gain,
                  "model.decoder.layers.%d.final_layer_norm.weight", l);
        assert_at(&opt, o->expand.weight, "model.decoder.layers.%d.fc1.weight", l);
        assert_at(&opt, o->contract.bias, "model.decoder.layers.%d.fc2.bias", l);
        assert_at(&gpt2, g->qkv.weight, "transformer.h.%d.attn.c_attn.weight", l);
        assert_at(&gpt2, g->qkv.bias, "transformer.h.%d.attn.c_attn.bias", l);
        assert_at(&gpt2, g->projection.weight, "transformer.h.%d.attn.c_proj.weight", l);
        assert_at(&gpt2, g->feed_forward_norm.shift, "transformer.h.%d.ln_2.bias", l);
        assert_at(&gpt2, g->expand.weight, "transformer.h.%d.mlp.c_fc.weight", l);
        assert_at(&gpt2, g->contract.weight, "transformer.h.%d.mlp.c_proj.weight", l);
    }
    assert_at(&opt, opt.final_norm.gain, "model.decoder.final_layer_norm.weight", 0);
    assert_at(&gpt2, gpt2.final_norm.shift, "transformer.ln_f.bias", 0);
    assert_at(&opt, opt.position_table, "model.decoder.embed_positions.weight", 0);
    assert_at(&gpt2, gpt2.token_table, "transformer.wte.weight", 0);
    bd_parameters_release(&opt);
    bd_parameters_release(&gpt2);
}

static void the_largest_model_is_counted_without_overflow(void **state)
{
    (void)state;
    for (size_t f = 0; bd_families[f]; f++) {
        const bd_model_config largest = {.family = bd_families[f],
                                         .n_layers = 1024,
                                         .n_channels = 1 << 16,
                                         .n_heads = 1 << 10,
                                         .head_size = bd_families[f]->position_table ? 64 : 256,
                                         .n_feed_forward = 1 << 18,
                                         .n_positions = 1 << 24,
                                         .n_vocabulary = INT64_C(1) << 32,
                                         .has_head = true,
                                         .rotation.theta = 1e4,
                                         .local_theta = 1e4};
        bd_parameters parameters = lay_out(largest);
        assert_true(parameters.n_total > INT64_C(1) << 48);
        assert_true(parameters.n_total <= INT64_MAX / 16);
        bd_parameters_release(&parameters);
    }
}

// ---- Initial weights ------------------------------------------------------------------------

// Mean 0 and the given standard deviation, within 5 standard errors.
static void assert_normal(const bd_parameter *p, const float *weights, double deviation)
{
    const double n = (double)p->n;
    double sum = 0, squares = 0;
    for (int64_t j = p->offset; j < p->offset + p->n; j++) {
        sum += weights[j];
        squares += (double)weights[j] * weights[j];
    }
    const double mean = sum / n, found = sqrt(squares / n - mean * mean);
    if (!(fabs(mean) <= 5 * deviation / sqrt(n) &&
          fabs(found - deviation) <= 5 * deviation / sqrt(2 * n)))
        fail_msg("%s: mean %g, standard deviation %g instead of %g", p->name, mean, found,
                 deviation);
}

static bool is_part(const bd_parameter *p, const char *part)
{
    char ending[80];
    snprintf(ending, sizeof ending, ".%s.weight", part);
    const size_t n = strlen(p->name), length = strlen(ending);
    return n > length && strcmp(p->name + n - length, ending) == 0;
}

static void assert_drawn_as_the_originals(bd_model_config config)
{
    bd_parameters parameters = lay_out(config);
    float *weights = draw(&parameters, 42);
    const double residual = config.family == &bd_family_gpt2 ? 0.02 / sqrt(2.0 * 3) : 0.02;
    int n_scaled = 0;
    for (size_t i = 0; i < parameters.n; i++) {
        const bd_parameter *p = &parameters.items[i];
        const bool projects = p->n_dimensions == 2 && (is_part(p, config.family->projection) ||
                                                       is_part(p, config.family->contract));
        const bool gain = strstr(p->name, ".weight") && p->n_dimensions == 1 &&
                          config.family != &bd_family_gemma3_text;
        n_scaled += projects;
        if (p->n_dimensions == 2)
            assert_normal(p, weights, projects ? residual : 0.02);
        else
            for (int64_t j = p->offset; j < p->offset + p->n; j++)
                assert_true(weights[j] == (gain ? 1.0f : 0.0f));
    }
    assert_int_equal(n_scaled, 2 * 3);
    free(weights);
    bd_parameters_release(&parameters);
}

static void weights_are_drawn_as_the_originals(void **state)
{
    (void)state;
    for (size_t f = 0; bd_families[f]; f++)
        assert_drawn_as_the_originals(as(bd_families[f]));
}

static void no_two_parameters_are_alike(void **state)
{
    (void)state;
    bd_parameters parameters = lay_out(OPT);
    float *weights = draw(&parameters, 3);
    for (size_t i = 0; i < parameters.n; i++)
        for (size_t j = 0; j < i; j++)
            if (parameters.items[i].n_dimensions == 2 && parameters.items[j].n_dimensions == 2)
                assert_memory_not_equal(weights + parameters.items[i].offset,
                                        weights + parameters.items[j].offset,
                                        16 * sizeof *weights);
    free(weights);
    bd_parameters_release(&parameters);
}

static void weights_do_not_depend_on_the_other_parameters_sizes(void **state)
{
    (void)state;
    bd_model_config other = OPT;
    other.n_vocabulary = 1000;
    other.n_positions = 99;
    bd_parameters small = lay_out(OPT), large = lay_out(other);
    float *a = draw(&small, 9), *b = draw(&large, 9);
    for (size_t i = 0; i < small.n; i++)  // the tables, up to the end of the smaller one
        assert_memory_equal(a + small.items[i].offset, b + large.items[i].offset,
                            (size_t)small.items[i].n * sizeof *a);
    free(a);
    free(b);
    bd_parameters_release(&small);
    bd_parameters_release(&large);
}

// Computed by a separate Python program: splitmix64, Box-Muller, times 0.02.
static void a_seed_gives_the_same_weights_for_ever(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double first[3];
    } expected[] = {
        {"model.decoder.embed_tokens.weight",
         {-0.0030750178379933676, -0.015659992406994786, -0.004281037381555973}},
        {"model.decoder.embed_positions.weight",
         {0.018007900100196955, 0.03347634764971356, -0.004106233405411391}},
        {"model.decoder.layers.0.self_attn.q_proj.weight",
         {-0.013515033768730646, -0.021278844782243893, -0.02905441714943212}},
    };
    bd_parameters parameters = lay_out(OPT);
    float *weights = draw(&parameters, 1234);
    for (size_t i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const float found = weights[find(&parameters, expected[i].name)->offset + j];
            // Another libm may round the last bit of the double differently, which a float
            // hardly shows.
            assert_true(fabs(found - expected[i].first[j]) <= 4e-9);
        }
    float *other = draw(&parameters, 1235);
    assert_memory_not_equal(weights, other, 64);
    free(weights);
    free(other);
    bd_parameters_release(&parameters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_their_order_are_as_always),
        cmocka_unit_test(names_of_llamas_relatives),
        cmocka_unit_test(parts_of_rotary_families_have_their_shapes_and_places),
        cmocka_unit_test(only_without_rotation_a_key_bias_has_no_gradient),
        cmocka_unit_test(names_and_shapes_are_hugging_faces),
        cmocka_unit_test(parameters_lie_end_to_end),
        cmocka_unit_test(the_model_finds_its_parts),
        cmocka_unit_test(the_largest_model_is_counted_without_overflow),
        cmocka_unit_test(weights_are_drawn_as_the_originals),
        cmocka_unit_test(no_two_parameters_are_alike),
        cmocka_unit_test(weights_do_not_depend_on_the_other_parameters_sizes),
        cmocka_unit_test(a_seed_gives_the_same_weights_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
