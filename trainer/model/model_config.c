#include "trainer/model/model_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/human.h"

// Family, layers, channels, heads, feed-forward channels, positions; the vocabulary is the
// dataset's. Heads have 64 channels, which bf16 takes (attention.h).
#define PRESETS(X)                               \
    X("tiny", opt, 4, 128, 2, 512, 512)          \
    X("tiny-gpt2", gpt2, 4, 128, 2, 512, 512)    \
    X("small", opt, 4, 256, 4, 1024, 1024)       \
    X("small-gpt2", gpt2, 4, 256, 4, 1024, 1024) \
    X("opt-125m", opt, 12, 768, 12, 3072, 2048)  \
    X("gpt2-124m", gpt2, 12, 768, 12, 3072, 1024)

#define PRESET_NAME(name, ...)           name,
#define PRESET_CONFIG(name, family, ...) {&bd_family_##family, __VA_ARGS__, 0},
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
    return 4 * c->n_channels * c->n_channels + 2 * c->n_channels * c->n_feed_forward;
}

void bd_model_preset_describe(int preset, char *text, size_t size_bytes)
{
    const bd_model_config *config = &preset_configs[preset];
    snprintf(text, size_bytes, "%s, %" PRId64 " x %" PRId64 ", %" PRId64 " heads, %s",
             config->family->name, config->n_layers, config->n_channels, config->n_heads,
             bd_format_count((uint64_t)(config->n_layers * layer_weights(config))).text);
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

void bd_model_config_add_fields(bd_json *json, const bd_model_config *config, bd_field_use use)
{
    for (const bd_config_field *f = config->family->fields; f->key; f++) {
        if (f->use != use)
            continue;
        if (f->kind == BD_FIELD_NUMBER)
            bd_json_set_integer(json, f->key,
                                *(const int64_t *)((const char *)config + f->number));
        else if (f->kind == BD_FIELD_BOOL)
            bd_json_set_bool(json, f->key, f->boolean);
        else if (f->kind == BD_FIELD_REAL)
            bd_json_set_real(json, f->key, f->real);
        else
            bd_json_set_string(json, f->key, f->text);
    }
}

bd_json *bd_model_config_to_json(const bd_model_config *config)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "model_type", config->family->name);
    bd_model_config_add_fields(json, config, BD_FIELD_READ);
    bd_model_config_add_fields(json, config, BD_FIELD_FIXED);
    return json;
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
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? " or " : "",
                                  bd_families[i]->name);
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED, "'model_type' is '%.40s', not %s", name, names);
}

bd_status bd_model_config_from_json(bd_model_config *config, const bd_json *json, bd_error *err)
{
    const char *type;
    *config = (bd_model_config){0};
    BD_TRY(bd_json_get_string(json, "model_type", &type, err));
    BD_TRY(find_family(&config->family, type, err));
    for (const bd_config_field *f = config->family->fields; f->key; f++) {
        int64_t *number = (int64_t *)((char *)config + f->number);
        if (f->use != BD_FIELD_READ)
            continue;
        if (f->default_channels > 0 && bd_json_is_null(json, f->key))
            *number = f->default_channels * config->n_channels;
        else
            BD_TRY(bd_json_get_integer(json, f->key, 1, INT64_C(1) << 32, number, err));
    }
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

double bd_model_flop(const bd_model_config *config, int64_t n_tokens, int64_t n_pairs)
{
    const double width = (double)config->n_channels, layers = (double)config->n_layers;
    const double weights =
        layers * (double)layer_weights(config) + width * (double)config->n_vocabulary;
    return 6 * weights * (double)n_tokens + 12 * width * layers * (double)n_pairs;
}
