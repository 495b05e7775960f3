#include "trainer/model/model_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/human.h"

const char *const bd_model_family_words[] = {"opt", "gpt2", NULL};

// vocabulary 0: the dataset's. Heads have 64 channels, which bf16 takes (attention.h).
static const struct {
    const char *name;
    bd_model_config config;
} presets[] = {
    {"tiny", {BD_MODEL_OPT, 4, 128, 2, 512, 512, 0}},
    {"tiny-gpt2", {BD_MODEL_GPT2, 4, 128, 2, 512, 512, 0}},
    {"small", {BD_MODEL_OPT, 4, 256, 4, 1024, 1024, 0}},
    {"small-gpt2", {BD_MODEL_GPT2, 4, 256, 4, 1024, 1024, 0}},
    {"opt-125m", {BD_MODEL_OPT, 12, 768, 12, 3072, 2048, 0}},
    {"gpt2-124m", {BD_MODEL_GPT2, 12, 768, 12, 3072, 1024, 0}},
};

const char *const bd_model_presets[] = {"tiny",     "tiny-gpt2", "small", "small-gpt2",
                                        "opt-125m", "gpt2-124m", NULL};

_Static_assert(sizeof presets / sizeof presets[0] + 1 ==
                   sizeof bd_model_presets / sizeof bd_model_presets[0],
               "every preset has its word");

bd_status bd_model_config_preset(bd_model_config *config, const char *name, bd_error *err)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            *config = presets[i].config;
            return BD_OK;
        }
    }
    return bd_fail(err, BD_ERR_ARGUMENT, "no preset '%s'", name);
}

void bd_model_preset_describe(int preset, char *text, size_t size_bytes)
{
    const bd_model_config *config = &presets[preset].config;
    const int64_t weights = config->n_layers * config->n_channels *
                            (4 * config->n_channels + 2 * config->n_feed_forward);
    snprintf(text, size_bytes, "%s, %" PRId64 " x %" PRId64 ", %" PRId64 " heads, %s",
             bd_model_family_words[config->family], config->n_layers, config->n_channels,
             config->n_heads, bd_format_count((uint64_t)weights).text);
}

bd_status bd_model_config_check(const bd_model_config *config, bd_error *err)
{
    const struct {
        const char *what;
        int64_t value, max;
    } limits[] = {
        {"layers", config->n_layers, 1024},
        {"channels", config->n_channels, 1 << 16},
        {"heads", config->n_heads, 1 << 10},
        {"feed-forward channels", config->n_feed_forward, 1 << 18},
        {"positions", config->n_positions, 1 << 24},
        {"ids", config->n_vocabulary, INT64_C(1) << 32},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i].value < 1 || limits[i].value > limits[i].max)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "a model cannot have %" PRId64 " %s: from 1 to %" PRId64,
                           limits[i].value, limits[i].what, limits[i].max);
    if (config->n_channels % config->n_heads != 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "%" PRId64 " channels cannot be divided among %" PRId64
                       " heads: --heads must divide --channels",
                       config->n_channels, config->n_heads);
    return BD_OK;
}

// The names under which each family's config.json has the numbers.
static const struct field_names {
    const char *layers, *channels, *heads, *feed_forward, *positions;
} field_names[] = {
    [BD_MODEL_OPT] = {"num_hidden_layers", "hidden_size", "num_attention_heads", "ffn_dim",
                      "max_position_embeddings"},
    [BD_MODEL_GPT2] = {"n_layer", "n_embd", "n_head", "n_inner", "n_positions"},
};

// What the families leave open and we do not.
static void add_fixed_choices(bd_json *json, bd_model_family family)
{
    if (family == BD_MODEL_OPT) {
        bd_json_set_bool(json, "enable_bias", true);
        bd_json_set_bool(json, "layer_norm_elementwise_affine", true);
        bd_json_set_bool(json, "_remove_final_layer_norm", false);
    } else {
        bd_json_set_bool(json, "scale_attn_weights", true);
        bd_json_set_bool(json, "scale_attn_by_inverse_layer_idx", false);
        bd_json_set_real(json, "layer_norm_epsilon", 1e-5);
    }
}

// What bd_model_config_to_json() says of the model, `json` must say too if it says anything: a
// variant (post-layer-norm, untied embeddings, another activation) is not taken for the model.
static bd_status refuse_variants(const bd_model_config *config, const bd_json *json,
                                 bd_error *err)
{
    char where[64], *text = NULL;
    bd_status status = BD_OK;
    bd_json *ours = bd_model_config_to_json(config);
    add_fixed_choices(ours, config->family);
    for (bd_json_member m = bd_json_first(ours); status == BD_OK && m.key;
         m = bd_json_next(ours, m))
        for (bd_json_member n = bd_json_first(json); status == BD_OK && n.key;
             n = bd_json_next(json, n)) {
            if (strcmp(n.key, m.key) != 0 || bd_json_is_null(json, n.key) ||
                !bd_json_difference(n.value, m.value, where, sizeof where))
                continue;
            status = bd_json_print(m.value, BD_JSON_COMPACT, &text, err);
            if (status == BD_OK)
                status = bd_fail(err, BD_ERR_UNSUPPORTED, "'%s' is not %s", m.key, text);
        }
    free(text);
    bd_json_free(ours);
    return status;
}

bd_status bd_model_config_from_json(bd_model_config *config, const bd_json *json, bd_error *err)
{
    const char *type;
    *config = (bd_model_config){0};
    BD_TRY(bd_json_get_string(json, "model_type", &type, err));
    while (bd_model_family_words[config->family] &&
           strcmp(bd_model_family_words[config->family], type) != 0)
        config->family++;
    if (!bd_model_family_words[config->family])
        return bd_fail(err, BD_ERR_UNSUPPORTED, "'model_type' is '%.40s', not opt or gpt2",
                       type);
    const struct field_names *names = &field_names[config->family];
    BD_TRY(bd_json_get_integer(json, names->layers, 1, INT32_MAX, &config->n_layers, err));
    BD_TRY(bd_json_get_integer(json, names->channels, 1, INT32_MAX, &config->n_channels, err));
    BD_TRY(bd_json_get_integer(json, names->heads, 1, INT32_MAX, &config->n_heads, err));
    BD_TRY(
        bd_json_get_integer(json, names->positions, 1, INT32_MAX, &config->n_positions, err));
    BD_TRY(bd_json_get_integer(json, "vocab_size", 1, INT64_C(1) << 32, &config->n_vocabulary,
                               err));
    config->n_feed_forward = 4 * config->n_channels;  // GPT-2's default when n_inner is null
    if (config->family != BD_MODEL_GPT2 || !bd_json_is_null(json, names->feed_forward))
        BD_TRY(bd_json_get_integer(json, names->feed_forward, 1, INT32_MAX,
                                   &config->n_feed_forward, err));
    BD_TRY(bd_model_config_check(config, err));
    return refuse_variants(config, json, err);
}

bd_status bd_model_config_read(bd_model_config *config, const char *path, bd_error *err)
{
    enum { MAX_BYTES = 1 << 20 };
    bd_json *json = NULL;
    BD_TRY(bd_json_read_file(path, MAX_BYTES, &json, err));
    const bd_status status = bd_model_config_from_json(config, json, err);
    bd_json_free(json);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "cannot use '%s'", path);
}

bd_json *bd_model_config_to_json(const bd_model_config *config)
{
    const struct field_names *names = &field_names[config->family];
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "model_type", bd_model_family_words[config->family]);
    bd_json_set_integer(json, "vocab_size", config->n_vocabulary);
    bd_json_set_integer(json, names->layers, config->n_layers);
    bd_json_set_integer(json, names->channels, config->n_channels);
    bd_json_set_integer(json, names->heads, config->n_heads);
    bd_json_set_integer(json, names->feed_forward, config->n_feed_forward);
    bd_json_set_integer(json, names->positions, config->n_positions);
    bd_json_set_bool(json, "tie_word_embeddings", true);
    if (config->family == BD_MODEL_OPT) {
        bd_json_set_bool(json, "do_layer_norm_before", true);
        bd_json_set_integer(json, "word_embed_proj_dim", config->n_channels);
        bd_json_set_string(json, "activation_function", "relu");
    } else {
        bd_json_set_string(json, "activation_function", "gelu_new");
    }
    return json;
}

int64_t bd_model_first_position(const bd_model_config *config)
{
    return config->family == BD_MODEL_OPT ? 2 : 0;
}

bd_activation bd_model_activation(const bd_model_config *config)
{
    return config->family == BD_MODEL_OPT ? BD_ACTIVATION_RELU : BD_ACTIVATION_GELU;
}

bd_status bd_check_fit(const bd_model_config *config, const bd_rows *rows, bd_error *err)
{
    const bd_packing *packing = bd_rows_packing(rows);
    const int64_t longest = bd_rows_longest_segment(rows);
    if (packing->vocab_size > config->n_vocabulary)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model has a vocabulary of %" PRId64
                       ", the dataset's tokenizer (%s) of %" PRId64
                       ": a new model takes --vocab-size %" PRId64,
                       config->n_vocabulary, bd_packing_tokenizer(packing).text,
                       packing->vocab_size, packing->vocab_size);
    if (longest > config->n_positions)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model has %" PRId64 " positions, the dataset a segment of %" PRId64
                       " tokens: bindery repack --seq-len %" PRId64 " makes shorter ones",
                       config->n_positions, longest, config->n_positions);
    return BD_OK;
}

double bd_model_flop(const bd_model_config *config, int64_t n_tokens, int64_t n_pairs)
{
    const double width = (double)config->n_channels, layers = (double)config->n_layers;
    const double weights =
        layers * (4 * width * width + 2 * width * (double)config->n_feed_forward) +
        width * (double)config->n_vocabulary;
    return 6 * weights * (double)n_tokens + 12 * width * layers * (double)n_pairs;
}
