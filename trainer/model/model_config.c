#include "trainer/model/model_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/human.h"
#include "kernels/attention.h"
#include "trainer/model/layer_rules.h"

// ---- Presets ----------------------------------------------------------------------------

#define SHAPE(layers, channels, heads, kv_heads, size, feed_forward, positions)      \
    .n_layers = (layers), .n_channels = (channels), .n_heads = (heads),              \
    .n_kv_heads = (kv_heads), .head_size = (size), .n_feed_forward = (feed_forward), \
    .n_positions = (positions)
#define RMS_ROTARY(epsilon, value) .norm_epsilon = (epsilon), .rotation.theta = (value)

// The vocabulary is the dataset's. Heads have 64 or 128 channels, which bf16 takes
// (attention.h).
#define PRESETS(X)                                                                          \
    X("tiny", opt, SHAPE(4, 128, 2, 2, 64, 512, 512))                                       \
    X("tiny-gpt2", gpt2, SHAPE(4, 128, 2, 2, 64, 512, 512))                                 \
    X("small", opt, SHAPE(4, 256, 4, 4, 64, 1024, 1024))                                    \
    X("small-gpt2", gpt2, SHAPE(4, 256, 4, 4, 64, 1024, 1024))                              \
    X("opt-125m", opt, SHAPE(12, 768, 12, 12, 64, 3072, 2048))                              \
    X("gpt2-124m", gpt2, SHAPE(12, 768, 12, 12, 64, 3072, 1024))                            \
    X("llama-tiny", llama, SHAPE(4, 128, 2, 1, 64, 384, 2048), RMS_ROTARY(1e-5, 1e4))       \
    X("smollm2-135m", llama, SHAPE(30, 576, 9, 3, 64, 1536, 8192), RMS_ROTARY(1e-5, 1e5))   \
    X("llama-350m", llama, SHAPE(24, 1024, 16, 4, 64, 2816, 8192), RMS_ROTARY(1e-5, 5e5))   \
    X("qwen3-0.6b", qwen3, SHAPE(28, 1024, 16, 8, 128, 3072, 40960), RMS_ROTARY(1e-6, 1e6)) \
    X("llama-1b", llama, SHAPE(16, 2048, 32, 8, 64, 8192, 131072), RMS_ROTARY(1e-5, 5e5))   \
    X("llama-3b", llama, SHAPE(28, 3072, 24, 8, 128, 8192, 131072), RMS_ROTARY(1e-5, 5e5))  \
    X("llama-8b", llama, SHAPE(32, 4096, 32, 8, 128, 14336, 131072), RMS_ROTARY(1e-5, 5e5), \
      .has_head = true)

#define PRESET_NAME(name, ...)          name,
#define PRESET_CONFIG(name, which, ...) {.family = &bd_family_##which, __VA_ARGS__},
const char *const bd_model_presets[] = {PRESETS(PRESET_NAME) NULL};
static const bd_model_config preset_configs[] = {PRESETS(PRESET_CONFIG)};

bd_status bd_model_config_preset(bd_model_config *config, const char *name, bd_error *err)
{
    for (size_t i = 0; bd_model_presets[i]; i++) {
        if (strcmp(bd_model_presets[i], name) == 0) {
            *config = preset_configs[i];
            return BD_OK;
        }
    }
    return bd_fail(err, BD_ERR_ARGUMENT, "no preset '%s'", name);
}

// The weights of one layer's matrices.
static int64_t layer_weights(const bd_model_config *c)
{
    const int64_t attended = c->n_heads * c->head_size;
    return c->n_channels *
           (bd_qkv_width(c) + attended + bd_expanded_width(c) + c->n_feed_forward);
}

void bd_model_preset_describe(int preset, char *text, size_t size_bytes)
{
    const bd_model_config *c = &preset_configs[preset];
    char groups[32] = "";
    if (c->n_kv_heads != c->n_heads)
        snprintf(groups, sizeof groups, "/%" PRId64, c->n_kv_heads);
    snprintf(
        text, size_bytes,
        "%s, %" PRId64 " x %" PRId64 ", %" PRId64 "%s heads of %" PRId64 ", %" PRId64 ", %s",
        c->family->name, c->n_layers, c->n_channels, c->n_heads, groups, c->head_size,
        c->n_feed_forward, bd_format_count((uint64_t)(c->n_layers * layer_weights(c))).text);
}

// ---- Limits -----------------------------------------------------------------------------

static void take_usual_values(bd_model_config *c)
{
    if (c->n_kv_heads == 0)
        c->n_kv_heads = c->n_heads;
    if (c->head_size == 0 && c->n_heads > 0 && c->n_channels % c->n_heads == 0)
        c->head_size = c->n_channels / c->n_heads;
    if (c->n_feed_forward == 0 && c->n_channels <= 1 << 16)
        c->n_feed_forward = 4 * c->n_channels;
    if (c->query_scale == 0)
        c->query_scale = (double)c->head_size;
    for (const bd_config_field *f = c->family->fields; f->key; f++) {
        double *measure = (double *)((char *)c + f->member);
        if (f->kind == BD_FIELD_REAL_MEMBER && *measure == 0)
            *measure = f->real;
    }
    if (c->norm_epsilon == 0)
        c->norm_epsilon = c->family->norm_epsilon;
}

#define AT(member) offsetof(bd_model_config, member)

// Whether config.json of the family can say what the member at this place is.
static bool has_field(const bd_family *family, size_t member)
{
    for (const bd_config_field *f = family->fields; f->key; f++)
        if (f->use == BD_FIELD_READ && f->member == member)
            return true;
    return false;
}

bd_status bd_model_config_complete(bd_model_config *config, bd_error *err)
{
    const struct {
        const char *what;
        const int64_t *value;
        int64_t min, max;
    } limits[] = {
        {"layers", &config->n_layers, 1, BD_MOST_LAYERS},
        {"channels", &config->n_channels, 1, 1 << 16},
        {"heads", &config->n_heads, 1, 1 << 10},
        {"heads of keys", &config->n_kv_heads, 1, 1 << 10},
        {"channels in a head", &config->head_size, 1, BD_MOST_HEAD_SIZE},
        {"feed-forward channels", &config->n_feed_forward, 1, 1 << 18},
        {"positions", &config->n_positions, 1, 1 << 24},
        {"ids", &config->n_vocabulary, 1, INT64_C(1) << 32},
        {"keys in a window", &config->window, 0, INT64_C(1) << 32},
    };
    take_usual_values(config);
    if (config->head_size == 0 && config->n_heads > 0 && config->n_channels > 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "%" PRId64 " channels cannot be divided among %" PRId64
                       " heads: --heads must divide --channels",
                       config->n_channels, config->n_heads);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (*limits[i].value < limits[i].min || *limits[i].value > limits[i].max)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "a model cannot have %" PRId64 " %s: from %" PRId64 " to %" PRId64,
                           *limits[i].value, limits[i].what, limits[i].min, limits[i].max);
    if (config->n_heads % config->n_kv_heads != 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "%" PRId64 " heads cannot share %" PRId64
                       " heads of keys: --kv-heads must divide --heads",
                       config->n_heads, config->n_kv_heads);
    if ((config->n_kv_heads != config->n_heads && !has_field(config->family, AT(n_kv_heads))) ||
        (config->head_size * config->n_heads != config->n_channels &&
         !has_field(config->family, AT(head_size))))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "a model of '%s' has as many heads of keys as heads, which divide its "
                       "channels: leave out --kv-heads and --head-size",
                       config->family->name);
    if (!config->family->position_table && config->head_size % 2 != 0)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "heads of %" PRId64 " channels cannot be rotated, which takes pairs: "
                       "--head-size must be even",
                       config->head_size);
    // Pairs turn by at most one radian from one position to the next (rotation.c).
    if (!config->family->position_table && !(config->rotation.theta >= 1))
        return bd_fail(err, BD_ERR_ARGUMENT, "a rotation cannot have theta %g: at least 1",
                       config->rotation.theta);
    if (config->family->has_local_rotation && !(config->local_theta >= 1))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the rotation of windows cannot have theta %g: at least 1",
                       config->local_theta);
    return BD_OK;
}

// ---- config.json ------------------------------------------------------------------------

// Fields of any family that do not change what a model computes.
static const char *const harmless_fields[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_model_name_or_path",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "init_std",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "repetition_penalty",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
};

static bool is_known(const bd_family *family, const char *key)
{
    for (size_t i = 0; i < sizeof harmless_fields / sizeof harmless_fields[0]; i++)
        if (strcmp(key, harmless_fields[i]) == 0)
            return true;
    for (const bd_config_field *f = family->fields; f->key; f++)
        if (strcmp(key, f->key) == 0)
            return true;
    const bool rotates = !family->position_table;
    return (rotates &&
            (strcmp(key, "rope_scaling") == 0 || strcmp(key, "rope_parameters") == 0)) ||
           bd_layer_rules_know(family, key);
}

static bd_status refuse_unknown(const bd_model_config *config, const bd_json *json,
                                bd_error *err)
{
    for (bd_json_member m = bd_json_first(json); m.key; m = bd_json_next(json, m)) {
        bool value = true;
        if (is_known(config->family, m.key) || bd_json_is_null(json, m.key) ||
            (bd_json_get_bool(json, m.key, &value, NULL) == BD_OK && !value))
            continue;
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'%.80s' is not known for '%s' and may change what the model computes: "
                       "if it does not, take it out of the file",
                       m.key, config->family->name);
    }
    return BD_OK;
}

void bd_model_config_add_fields(bd_json *json, const bd_model_config *config, bd_field_use use)
{
    for (const bd_config_field *f = config->family->fields; f->key; f++) {
        const void *member = (const char *)config + f->member;
        if (f->use != use)
            continue;
        switch (f->kind) {
        case BD_FIELD_INTEGER_MEMBER:
            bd_json_set_integer(json, f->key, *(const int64_t *)member);
            break;
        case BD_FIELD_REAL_MEMBER:
            if (f->whole && *(const double *)member == floor(*(const double *)member))
                bd_json_set_integer(json, f->key, (int64_t) * (const double *)member);
            else
                bd_json_set_real(json, f->key, *(const double *)member);
            break;
        case BD_FIELD_BOOL_MEMBER:
            bd_json_set_bool(json, f->key, *(const bool *)member != f->inverted);
            break;
        case BD_FIELD_BOOL:
            bd_json_set_bool(json, f->key, f->boolean);
            break;
        case BD_FIELD_REAL:
            bd_json_set_real(json, f->key, f->real);
            break;
        case BD_FIELD_TEXT:
            bd_json_set_string(json, f->key, f->text);
            break;
        }
    }
}

bd_json *bd_model_config_to_json(const bd_model_config *config)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "model_type", config->family->name);
    bd_model_config_add_fields(json, config, BD_FIELD_READ);
    bd_model_config_add_fields(json, config, BD_FIELD_FIXED);
    bd_json *scaling = bd_rotation_scaling_json(&config->rotation);
    if (scaling)
        bd_json_set(json, "rope_scaling", scaling);
    bd_layer_rules_write(json, config);
    return json;
}

// 1 and 1.0 are the same number.
static bool same_number(const bd_json *a, const bd_json *b, const char *key)
{
    double x, y;
    return bd_json_get_real(a, key, -INFINITY, INFINITY, &x, NULL) == BD_OK &&
           bd_json_get_real(b, key, -INFINITY, INFINITY, &y, NULL) == BD_OK && x == y;
}

// Fails if `json` has one of the fields that we do not leave open, with another value than
// ours.
static bd_status refuse_variants(const bd_model_config *config, const bd_json *json,
                                 bd_error *err)
{
    char where[64], *text = NULL;
    bd_status status = BD_OK;
    bd_json *ours = bd_json_object();
    bd_model_config_add_fields(ours, config, BD_FIELD_FIXED);
    bd_model_config_add_fields(ours, config, BD_FIELD_IMPLIED);
    for (bd_json_member m = bd_json_first(ours); status == BD_OK && m.key;
         m = bd_json_next(ours, m))
        for (bd_json_member n = bd_json_first(json); status == BD_OK && n.key;
             n = bd_json_next(json, n)) {
            if (strcmp(n.key, m.key) != 0 || bd_json_is_null(json, n.key) ||
                same_number(json, ours, m.key) ||
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

static bd_status find_family(const bd_family **family, const char *name, bd_error *err)
{
    char names[256] = "";
    size_t n = 0;
    for (int i = 0; bd_families[i]; i++) {
        if (strcmp(bd_families[i]->name, name) == 0) {
            *family = bd_families[i];
            return BD_OK;
        }
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "",
                                  bd_families[i]->name);
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED, "'model_type' is '%.40s'; known are %s", name,
                   names);
}

void bd_model_config_set_defaults(bd_model_config *config)
{
    for (const bd_config_field *f = config->family->fields; f->key; f++) {
        void *member = (char *)config + f->member;
        if (f->kind == BD_FIELD_REAL_MEMBER)
            *(double *)member = f->real;
        if (f->kind == BD_FIELD_BOOL_MEMBER)
            *(bool *)member = f->boolean != f->inverted;
    }
}

static bd_status read_field(bd_model_config *config, const bd_config_field *f,
                            const bd_json *json, bd_error *err)
{
    void *member = (char *)config + f->member;
    const bool is_there = !bd_json_is_null(json, f->key);
    if (!is_there && (f->kind != BD_FIELD_INTEGER_MEMBER || f->optional))
        return BD_OK;
    if (f->kind == BD_FIELD_INTEGER_MEMBER)
        return bd_json_get_integer(json, f->key, 1, INT64_C(1) << 32, member, err);
    if (f->kind == BD_FIELD_REAL_MEMBER)
        return bd_json_get_real(json, f->key, 1e-30, 1e12, member, err);
    bool value;
    BD_TRY(bd_json_get_bool(json, f->key, &value, err));
    *(bool *)member = value != f->inverted;
    return BD_OK;
}

// Whether a file says nothing by this field. transformers take an empty object for none.
static bool is_null_or_empty(const bd_json *json, const char *key)
{
    const bd_json *object;
    return bd_json_is_null(json, key) ||
           (bd_json_get_object(json, key, &object, NULL) == BD_OK &&
            !bd_json_first(object).key);
}

// Files of transformers before version 5 have "rope_theta" and "rope_scaling", newer ones both in
// "rope_parameters"; Gemma 3's has one such object for each type of layer. transformers prefer
// the old form where a file has both.
static bd_status read_rotation(bd_model_config *config, const bd_json *json, bd_error *err)
{
    const bd_json *object = NULL;
    const bool has_old_form = !is_null_or_empty(json, "rope_scaling");
    if (config->family->has_local_rotation && has_old_form &&
        !bd_json_is_null(json, "rope_parameters"))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "'rope_scaling' and 'rope_parameters' are two forms of one thing: leave "
                       "one of them out");
    if (has_old_form)
        BD_TRY(bd_json_get_object(json, "rope_scaling", &object, err));
    else if (!bd_json_is_null(json, "rope_parameters"))
        BD_TRY(bd_json_get_object(json, "rope_parameters", &object, err));
    if (object && config->family->has_local_rotation &&
        !bd_json_is_null(object, "sliding_attention")) {
        const bd_json *parts = object, *local;
        bd_rotation rotation = {.theta = config->local_theta};
        BD_TRY(bd_json_get_object(parts, "full_attention", &object, err));
        BD_TRY(bd_json_get_object(parts, "sliding_attention", &local, err));
        BD_TRY(bd_rotation_read_scaling(&rotation, local, config->n_positions, err));
        if (rotation.scaling != BD_SCALING_NONE)
            return bd_fail(err, BD_ERR_UNSUPPORTED,
                           "the rotation of sliding_attention is scaled");
        config->local_theta = rotation.theta;
    }
    if (!object)
        return BD_OK;
    return bd_rotation_read_scaling(&config->rotation, object, config->n_positions, err);
}

bd_status bd_model_config_from_json(bd_model_config *config, const bd_json *json, bd_error *err)
{
    const char *type;
    *config = (bd_model_config){0};
    BD_TRY(bd_json_get_string(json, "model_type", &type, err));
    BD_TRY(find_family(&config->family, type, err));
    bd_model_config_set_defaults(config);
    for (const bd_config_field *f = config->family->fields; f->key; f++)
        if (f->use == BD_FIELD_READ)
            BD_TRY(read_field(config, f, json, err));
    BD_TRY(bd_model_config_complete(config, err));
    if (!config->family->position_table)
        BD_TRY(read_rotation(config, json, err));
    BD_TRY(bd_layer_rules_read(config, json, err));
    BD_TRY(refuse_variants(config, json, err));
    return refuse_unknown(config, json, err);
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

bd_status bd_check_fit(const bd_model_config *config, const bd_rows *rows, bd_error *err)
{
    const bd_dataset_config *dataset = bd_rows_config(rows);
    const int64_t longest = bd_rows_longest_segment(rows);
    if (dataset->vocab_size > config->n_vocabulary)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model has a vocabulary of %" PRId64
                       ", the dataset's tokenizer (%s) of %" PRId64
                       ": a new model takes --vocab-size %" PRId64,
                       config->n_vocabulary, bd_dataset_tokenizer(dataset).text,
                       dataset->vocab_size, dataset->vocab_size);
    if (longest > config->n_positions)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model has %" PRId64 " positions, the dataset a segment of %" PRId64
                       " tokens: bindery repack --seq-len %" PRId64 " makes shorter ones",
                       config->n_positions, longest, config->n_positions);
    return BD_OK;
}

double bd_model_flop(const bd_model_config *config, const bd_step_work *work)
{
    const double attended = (double)(config->n_heads * config->head_size);
    const double weights = (double)config->n_layers * (double)layer_weights(config) +
                           (double)config->n_channels * (double)config->n_vocabulary;
    double pairs = 0.0;
    for (int64_t l = 0; l < config->n_layers; l++)
        pairs +=
            (double)(bd_layer_window(config, l) > 0 ? work->n_window_pairs : work->n_pairs);
    return 6 * weights * (double)work->n_used + 12 * attended * pairs;
}
