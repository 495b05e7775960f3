#include "trainer/weights/pretrained.h"

#include <math.h>

#include "common/base/json.h"
#include "kernels/type.h"
#include "tests/unit/temporary_folder.h"
#include "trainer/weights/safetensors.h"

#define SMALL(name)               \
    {.family = &bd_family_##name, \
     .n_layers = 2,               \
     .n_channels = 6,             \
     .n_heads = 3,                \
     .n_feed_forward = 5,         \
     .n_positions = 7,            \
     .n_vocabulary = 9},
static const bd_model_config families[] = {BD_FOR_EACH_FAMILY(SMALL)};
enum { N_FAMILIES = sizeof families / sizeof families[0], MORE_VIEWS = 4 };

// A model in which all weights are different, as the tensors that a file will contain; a test
// changes them before it writes them.
typedef struct model {
    bd_parameters parameters;
    float *weights;
    bd_tensor_view *views;  // [n_views], room for MORE_VIEWS more
    size_t n_views;
} model;

static void make_model(model *m, const bd_model_config *config)
{
    assert_int_equal(bd_parameters_init(&m->parameters, config, NULL), BD_OK);
    m->weights = malloc((size_t)m->parameters.n_total * sizeof *m->weights);
    m->n_views = m->parameters.n;
    m->views = calloc(m->n_views + MORE_VIEWS, sizeof *m->views);
    assert_true(m->weights && m->views);
    for (int64_t i = 0; i < m->parameters.n_total; i++)
        m->weights[i] = (float)(i + 1) / 8;
    for (size_t i = 0; i < m->n_views; i++) {
        const bd_parameter *p = &m->parameters.items[i];
        m->views[i] = (bd_tensor_view){.name = p->name,
                                       .n_dimensions = p->n_dimensions,
                                       .shape = {p->shape[0], p->shape[1]},
                                       .data = m->weights + p->offset};
    }
}

static void free_model(model *m)
{
    bd_parameters_release(&m->parameters);
    free(m->weights);
    free(m->views);
}

static void write_tensors(const char *path, const bd_tensor_view *views, size_t n)
{
    bd_error err = {0};
    const bd_safetensors_content content = {views, n, NULL, 0};
    if (bd_safetensors_write(path, &content, NULL, &err) != BD_OK)
        fail_msg("%s", err.message);
}

static void write_model(const char *folder, const model *m)
{
    write_tensors(in(folder, "model.safetensors"), m->views, m->n_views);
}

static bd_tensor_view *view_of(model *m, const char *ending)
{
    for (size_t i = 0; i < m->n_views; i++) {
        const char *name = m->views[i].name;
        if (strlen(name) >= strlen(ending) &&
            strcmp(name + strlen(name) - strlen(ending), ending) == 0)
            return &m->views[i];
    }
    fail_msg("no tensor '%s'", ending);
    return NULL;
}

static void assert_loads(const char *folder, const model *m)
{
    bd_error err = {0};
    const size_t size_bytes = (size_t)m->parameters.n_total * sizeof *m->weights;
    float *weights = malloc(size_bytes);
    if (bd_pretrained_read(folder, &m->parameters, weights, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_memory_equal(weights, m->weights, size_bytes);
    free(weights);
}

static void assert_refused(const char *folder, const model *m, bd_status status,
                           const char *file, const char *reason)
{
    bd_error err = {0};
    float *weights = malloc((size_t)m->parameters.n_total * sizeof *weights);
    const bd_status actual = bd_pretrained_read(folder, &m->parameters, weights, &err);
    if (actual != status || !strstr(err.message, reason) || !strstr(err.message, file))
        fail_msg("expected status %d and '%s' of '%s', not %d and '%s'", status, reason, file,
                 actual, err.message);
    free(weights);
}

// ---- What is read ---------------------------------------------------------------------------

static void weights_are_read_as_they_lie(void **state)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        model m;
        make_model(&m, &families[f]);
        // Not square: [in][out] in GPT-2, [out][in] in OPT.
        const bool out_in = families[f].family->layout == BD_WEIGHT_OUT_IN;
        char name[80];
        snprintf(name, sizeof name, "0.%s.weight", families[f].family->expand);
        const bd_tensor_view *expand = view_of(&m, name);
        assert_int_equal(expand->shape[0], out_in ? 5 : 6);
        assert_int_equal(expand->shape[1], out_in ? 6 : 5);
        write_model(*state, &m);
        assert_loads(*state, &m);
        free_model(&m);
    }
}

static void names_may_lack_their_prefixes(void **state)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        model m;
        make_model(&m, &families[f]);
        for (size_t i = 0; i < m.n_views; i++)
            m.views[i].name += strlen(families[f].family->prefixes[0]);
        write_model(*state, &m);
        assert_loads(*state, &m);
        free_model(&m);
    }
    model m;
    make_model(&m, &families[0]);
    for (size_t i = 0; i < m.n_views; i += 2)  // every second keeps "model."
        m.views[i].name += strlen("model.");
    write_model(*state, &m);
    assert_loads(*state, &m);
    free_model(&m);
}

static void a_head_that_is_the_token_table_is_accepted(void **state)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        model m;
        make_model(&m, &families[f]);
        m.views[m.n_views] = m.views[0];
        m.views[m.n_views++].name = "lm_head.weight";
        write_model(*state, &m);
        assert_loads(*state, &m);

        float head[9 * 6];
        memcpy(head, m.weights, sizeof head);
        head[53] = nextafterf(head[53], 0);
        m.views[m.n_views - 1].data = head;
        write_model(*state, &m);
        assert_refused(*state, &m, BD_ERR_UNSUPPORTED, "model.safetensors", "'lm_head.weight'");
        m.views[m.n_views - 1].shape[0] = 8;
        write_model(*state, &m);
        assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors", "'lm_head.weight' of");
        free_model(&m);
    }
}

static void stored_masks_are_passed_over(void **state)
{
    model m;
    make_model(&m, &families[1]);
    float mask[7 * 7] = {NAN};
    m.views[m.n_views++] = (bd_tensor_view){.name = "transformer.h.1.attn.bias",
                                            .n_dimensions = 4,
                                            .shape = {1, 1, 7, 7},
                                            .data = mask};
    m.views[m.n_views++] = (bd_tensor_view){.name = "h.0.attn.masked_bias", .data = mask};
    write_model(*state, &m);
    assert_loads(*state, &m);
    m.views[m.n_views - 1].name = "h.2.attn.masked_bias";
    write_model(*state, &m);
    assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors", "'h.2.attn.masked_bias' of");
    free_model(&m);
}

static void bf16_becomes_float(void **state)
{
    model m;
    make_model(&m, &families[1]);
    uint16_t *halves = malloc((size_t)m.parameters.n_total * sizeof *halves);
    assert_non_null(halves);
    for (int64_t i = 0; i < m.parameters.n_total; i++) {
        halves[i] = bd_bf16_of_float(m.weights[i]);
        m.weights[i] = bd_float_of_bf16(halves[i]);
    }
    for (size_t i = 0; i < m.n_views; i += 2) {  // a file may mix types
        m.views[i].dtype = BD_DTYPE_BF16;
        m.views[i].data = halves + m.parameters.items[i].offset;
    }
    write_model(*state, &m);
    assert_loads(*state, &m);
    free(halves);
    free_model(&m);
}

// ---- Several files --------------------------------------------------------------------------

enum { N_SHARDS = 3 };
static const char *const shard_names[N_SHARDS] = {"a.safetensors", "b.safetensors",
                                                  "c.safetensors"};

// Puts every third tensor into each file.
static void write_shards(const char *folder, const model *m)
{
    for (size_t s = 0; s < N_SHARDS; s++) {
        bd_tensor_view *part = calloc(m->n_views, sizeof *part);
        size_t n = 0;
        for (size_t i = s; i < m->n_views; i += N_SHARDS)
            part[n++] = m->views[i];
        write_tensors(in(folder, shard_names[s]), part, n);
        free(part);
    }
}

static bd_json *index_of(const model *m)
{
    bd_json *weight_map = bd_json_object(), *json = bd_json_object();
    for (size_t i = 0; i < m->n_views; i++)
        bd_json_set_string(weight_map, m->views[i].name, shard_names[i % N_SHARDS]);
    bd_json_set(json, "weight_map", weight_map);
    return json;
}

// Sets `key` of the weight map to `value`, or removes it if that is NULL.
static void write_index(const char *folder, const model *m, const char *key, const char *value)
{
    bd_json *json = index_of(m), *changed = bd_json_object(), *again = bd_json_object();
    const bd_json *weight_map;
    assert_int_equal(bd_json_get_object(json, "weight_map", &weight_map, NULL), BD_OK);
    for (bd_json_member e = bd_json_first(weight_map); e.key; e = bd_json_next(weight_map, e))
        if (!key || strcmp(e.key, key) != 0)
            bd_json_set(changed, e.key, bd_json_share(e.value));
    if (key && value)
        bd_json_set_string(changed, key, value);
    bd_json_set(again, "weight_map", changed);
    char *text;
    assert_int_equal(bd_json_print(again, BD_JSON_INDENTED, &text, NULL), BD_OK);
    write_text(in(folder, "model.safetensors.index.json"), text);
    free(text);
    bd_json_free(again);
    bd_json_free(json);
}

static void files_of_an_index_are_read_together(void **state)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        model m;
        make_model(&m, &families[f]);
        write_shards(*state, &m);
        write_index(*state, &m, NULL, NULL);
        assert_loads(*state, &m);
        free_model(&m);
    }
}

static void an_index_that_lies_is_refused(void **state)
{
    static const char index[] = "model.safetensors.index.json";
    model m;
    make_model(&m, &families[1]);
    write_shards(*state, &m);
    add_folder(in(*state, "below"));
    write_tensors(in(*state, "below/d.safetensors"), m.views, m.n_views);
    const char *first = m.views[0].name;  // it lies in a.safetensors
    static const struct {
        const char *value;
        bd_status status;
        const char *reason;
    } cases[] = {
        {"../a.safetensors", BD_ERR_FORMAT, "not a file of this folder"},
        {"below/d.safetensors", BD_ERR_FORMAT, "not a file of this folder"},
        {"/a.safetensors", BD_ERR_FORMAT, "not a file of this folder"},
        {"..", BD_ERR_FORMAT, "not a file of this folder"},
        {".", BD_ERR_FORMAT, "not a file of this folder"},
        {"", BD_ERR_FORMAT, "not a file of this folder"},
        {"b.safetensors", BD_ERR_FORMAT, "'b.safetensors' has no tensor"},
        {"z.safetensors", BD_ERR_IO, "z.safetensors"},
        {"below", BD_ERR_IO, "below"},
        {index, BD_ERR_FORMAT, index},
        {NULL, BD_ERR_FORMAT, "unexpected"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_index(*state, &m, first, cases[i].value);
        bd_error err = {0};
        const bd_status status = bd_pretrained_read(*state, &m.parameters, NULL, &err);
        if (status == BD_OK || !strstr(err.message, cases[i].reason) ||
            !strstr(err.message, index) || status != cases[i].status)
            fail_msg("'%s': %d, '%s'", cases[i].value ? cases[i].value : "absent", status,
                     err.message);
    }
    write_index(*state, &m, "transformer.nothing", "a.safetensors");
    assert_refused(*state, &m, BD_ERR_FORMAT, index, "has no tensor 'transformer.nothing'");
    free_model(&m);
}

static void an_index_of_the_wrong_kind_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"weight_map\": []}",
        "{\"weight_map\": {\"x\": 1}}",
        "{\"weight_map\": {\"x\": \"a.safetensors\", \"x\": \"a.safetensors\"}}",
    };
    model m;
    make_model(&m, &families[0]);
    write_shards(*state, &m);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_text(in(*state, "model.safetensors.index.json"), texts[i]);
        assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors.index.json", "");
    }
    write_text(in(*state, "model.safetensors.index.json"), "{\"weight_map\": {}}");
    assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors.index.json",
                   "has no tensor 'model.decoder.embed_tokens.weight'");
    free_model(&m);
}

static void too_many_files_are_refused(void **state)
{
    model m;
    make_model(&m, &families[0]);
    bd_json *weight_map = bd_json_object(), *json = bd_json_object();
    for (int i = 0; i <= 256; i++) {
        char name[32], tensor[32];
        snprintf(name, sizeof name, "%d.safetensors", i);
        snprintf(tensor, sizeof tensor, "t%d", i);
        const bd_tensor_view view = {.name = tensor, .data = m.weights};
        write_tensors(in(*state, name), &view, 1);
        bd_json_set_string(weight_map, tensor, name);
    }
    bd_json_set(json, "weight_map", weight_map);
    char *text;
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    write_text(in(*state, "model.safetensors.index.json"), text);
    free(text);
    bd_json_free(json);
    assert_refused(*state, &m, BD_ERR_UNSUPPORTED, "index.json", "more than 256 files");
    free_model(&m);
}

// ---- What is wrong --------------------------------------------------------------------------

static void a_tensor_that_is_missing_is_named(void **state)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        model m;
        make_model(&m, &families[f]);
        for (size_t i = 0; i < m.n_views; i++) {
            const bd_tensor_view kept = m.views[i];
            char reason[120];
            snprintf(reason, sizeof reason, "has no tensor '%s'", kept.name);
            m.views[i] = m.views[m.n_views - 1];
            m.n_views--;
            write_model(*state, &m);
            assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors", reason);
            m.n_views++;
            m.views[m.n_views - 1] = m.views[i];
            m.views[i] = kept;
        }
        free_model(&m);
    }
}

static void a_tensor_too_many_is_named(void **state)
{
    static const char *const more[] = {"extra", "model.decoder.layers.2.fc1.bias",
                                       "decoder.layers.1.fc1.bias", "layers.1.fc1.bias",
                                       "h.0.attn.bias"};
    model m;
    make_model(&m, &families[0]);
    m.n_views++;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        char reason[120];
        snprintf(reason, sizeof reason, "tensor '%s' of '%s' is unexpected", more[i],
                 in(*state, "model.safetensors"));
        m.views[m.n_views - 1] = *view_of(&m, "model.decoder.layers.1.fc1.bias");
        m.views[m.n_views - 1].name = more[i];
        write_model(*state, &m);
        // If a parameter has two names, the second in alphabetical order is unexpected.
        const bool twice = strstr(more[i], "layers.1") != NULL;
        assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors",
                       twice ? "is the same parameter" : reason);
    }
    free_model(&m);
}

static void another_shape_or_type_is_refused(void **state)
{
    model m;
    make_model(&m, &families[1]);
    bd_tensor_view *view = view_of(&m, "h.1.mlp.c_fc.weight");  // [6][5]
    const bd_tensor_view good = *view;
    view->shape[0] = 5, view->shape[1] = 6;
    write_model(*state, &m);
    assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors",
                   "tensor 'transformer.h.1.mlp.c_fc.weight' of");
    assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors",
                   "has the shape [5, 6] instead of [6, 5]");
    *view = good;
    view->n_dimensions = 1, view->shape[0] = 30, view->shape[1] = 0;
    write_model(*state, &m);
    assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors", "[30] instead of [6, 5]");
    *view = good;
    double numbers[30] = {0};
    view->dtype = BD_DTYPE_F64, view->data = numbers;
    write_model(*state, &m);
    assert_refused(*state, &m, BD_ERR_UNSUPPORTED, "model.safetensors",
                   "is F64, not F32, F16 or BF16");
    free_model(&m);
}

static void a_weight_that_is_not_finite_is_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        model m;
        make_model(&m, &families[0]);
        bd_tensor_view *view = view_of(&m, "decoder.final_layer_norm.bias");
        m.weights[m.parameters.n_total - 1] = bad[i];
        write_model(*state, &m);
        assert_refused(*state, &m, BD_ERR_FORMAT, view->name, "not finite: number 5 is");
        free_model(&m);
    }
}

static void a_model_that_is_not_there_costs_no_memory(void **state)
{
    model m;
    make_model(&m, &families[0]);
    write_model(*state, &m);
    bd_model_config config = families[0];
    config.n_vocabulary = INT64_C(1) << 32;  // 96 GiB
    bd_parameters absurd;
    assert_int_equal(bd_parameters_init(&absurd, &config, NULL), BD_OK);
    bd_error err;
    assert_int_equal(bd_pretrained_read(*state, &absurd, NULL, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "[9, 6] instead of [4294967296, 6]"));
    bd_parameters_release(&absurd);
    free_model(&m);
}

static void a_folder_without_weights_is_refused(void **state)
{
    model m;
    make_model(&m, &families[0]);
    assert_refused(*state, &m, BD_ERR_ARGUMENT, *state, "neither model.safetensors nor");
    write_text(in(*state, "pytorch_model.bin"), "PK");
    assert_refused(*state, &m, BD_ERR_UNSUPPORTED, *state, "safe_serialization=True");
    write_text(in(*state, "model.safetensors"), "PK");
    assert_refused(*state, &m, BD_ERR_FORMAT, "model.safetensors", "too few");
    free_model(&m);
}

// ---- The shape ------------------------------------------------------------------------------

static void a_config_is_read_from_its_folder(void **state)
{
    bd_error err = {0};
    bd_model_config config;
    assert_int_equal(bd_pretrained_config(&config, *state, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "config.json"));
    write_text(in(*state, "config.json"), "{\"model_type\": \"gpt2\", \"n_layer\": 1, "
                                          "\"n_embd\": 48, \"n_head\": 3, \"n_positions\": 33, "
                                          "\"vocab_size\": 257}");
    assert_int_equal(bd_pretrained_config(&config, *state, &err), BD_OK);
    assert_int_equal(config.n_feed_forward, 192);
    write_text(in(*state, "config.json"), "{\"model_type\": \"bloom\"}");
    assert_int_equal(bd_pretrained_config(&config, *state, &err), BD_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, in(*state, "config.json")));
}

static void a_smaller_vocabulary_is_refused_with_advice(void **state)
{
    (void)state;
    bd_error err = {0};
    const bd_model_config *config = &families[0];
    assert_int_equal(bd_pretrained_check_vocabulary(config, "x", 9, &err), BD_OK);
    assert_int_equal(bd_pretrained_check_vocabulary(config, "x", 8, &err), BD_OK);
    assert_int_equal(bd_pretrained_check_vocabulary(config, "x", 10, &err), BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'x' has a vocabulary of 9"));
    assert_non_null(strstr(err.message, "model.resize_token_embeddings(10)"));
}

static void options_may_repeat_a_shape_but_not_change_it(void **state)
{
    (void)state;
    bd_error err = {0};
    bd_model_config asked = families[0];
    assert_int_equal(bd_pretrained_refuse_other(&families[0], &asked, "x", &err), BD_OK);
    asked.n_layers = 3;
    assert_int_equal(bd_pretrained_refuse_other(&families[0], &asked, "x", &err),
                     BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "num_hidden_layers: 3 here, 2 there"));
    assert_int_equal(bd_pretrained_refuse_other(&families[0], &families[1], "x", &err),
                     BD_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(weights_are_read_as_they_lie),
        test_in_folder(names_may_lack_their_prefixes),
        test_in_folder(a_head_that_is_the_token_table_is_accepted),
        test_in_folder(stored_masks_are_passed_over),
        test_in_folder(bf16_becomes_float),
        test_in_folder(files_of_an_index_are_read_together),
        test_in_folder(an_index_that_lies_is_refused),
        test_in_folder(an_index_of_the_wrong_kind_is_refused),
        test_in_folder(too_many_files_are_refused),
        test_in_folder(a_tensor_that_is_missing_is_named),
        test_in_folder(a_tensor_too_many_is_named),
        test_in_folder(another_shape_or_type_is_refused),
        test_in_folder(a_weight_that_is_not_finite_is_refused),
        test_in_folder(a_model_that_is_not_there_costs_no_memory),
        test_in_folder(a_folder_without_weights_is_refused),
        test_in_folder(a_config_is_read_from_its_folder),
        cmocka_unit_test(a_smaller_vocabulary_is_refused_with_advice),
        cmocka_unit_test(options_may_repeat_a_shape_but_not_change_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
