// model_config.h - the shape of a model: from a preset, a Hugging Face config.json, or a
// checkpoint.
#ifndef BINDERY_TRAINER_MODEL_MODEL_CONFIG_H
#define BINDERY_TRAINER_MODEL_MODEL_CONFIG_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "trainer/data/rows.h"
#include "trainer/data/step_work.h"
#include "trainer/model/family.h"
#include "trainer/model/rotation.h"

enum { BD_MOST_LAYERS = 1024 };

// Some of a model's layers, by their numbers.
typedef struct bd_layer_set {
    uint64_t bits[BD_MOST_LAYERS / 64];
} bd_layer_set;

static inline bool bd_layer_set_has(const bd_layer_set *set, int64_t layer)
{
    return set->bits[layer / 64] >> layer % 64 & 1;
}

static inline void bd_layer_set_add(bd_layer_set *set, int64_t layer)
{
    set->bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

// Members that are 0 and have a usual value get it from bd_model_config_complete().
typedef struct bd_model_config {
    const bd_family *family;  // borrowed, one of bd_families
    int64_t n_layers;
    int64_t n_channels;
    int64_t n_heads;
    int64_t n_feed_forward;  // channels inside a feed-forward block; usually 4 n_channels
    int64_t n_positions;     // the longest segment that it can read
    int64_t n_vocabulary;
    int64_t n_kv_heads;  // heads of keys and values, each for n_heads / n_kv_heads heads of
                         // queries; usually n_heads
    int64_t head_size;   // channels of a head; usually n_channels / n_heads
    bool attention_bias, feed_forward_bias;  // biases that not all models of the family have
    bool has_head;  // the output matrix is a parameter of its own, not the token table
    double norm_epsilon;
    double query_scale;      // scores are q·k / sqrt(query_scale); usually head_size
    bd_rotation rotation;    // theta is 0 if positions are learned
    double local_theta;      // of layers with a window, if the family has such a theta
    int64_t window;          // keys that a query sees in the layers below; 0: no layer has one
    bd_layer_set windowed;   // empty without a window
    bd_layer_set unrotated;  // layers whose queries and keys are not rotated
} bd_model_config;

// The width of q, k and v of a token side by side.
static inline int64_t bd_qkv_width(const bd_model_config *config)
{
    return (config->n_heads + 2 * config->n_kv_heads) * config->head_size;
}

// The width of what a feed-forward block's first matrix gives: gate and up side by side, or one.
static inline int64_t bd_expanded_width(const bd_model_config *config)
{
    return (config->family->gate ? 2 : 1) * config->n_feed_forward;
}

// The factor of a token's vector.
static inline float bd_token_scale(const bd_model_config *config)
{
    return config->family->scales_tokens ? sqrtf((float)config->n_channels) : 1.0f;
}

// The keys that a query of layer `l` sees at most; 0: no limit.
static inline int64_t bd_layer_window(const bd_model_config *config, int64_t l)
{
    return bd_layer_set_has(&config->windowed, l) ? config->window : 0;
}

// Whether queries and keys of layer `l` are rotated.
static inline bool bd_layer_rotates(const bd_model_config *config, int64_t l)
{
    return !config->family->position_table && !bd_layer_set_has(&config->unrotated, l);
}

// Whether they are rotated by local_theta instead of `rotation`.
static inline bool bd_layer_has_local_rotation(const bd_model_config *config, int64_t l)
{
    return config->family->has_local_rotation && bd_layer_window(config, l) > 0;
}

// The factor of q·k.
static inline float bd_score_scale(const bd_model_config *config)
{
    return (float)(1.0 / sqrt(config->query_scale));
}

// What is added to the gain of an RMS norm before it is used.
static inline float bd_gain_offset(const bd_model_config *config)
{
    return config->family->gains_from_one ? 1.0f : 0.0f;
}

// Presets by name, "tiny" to "llama-8b", ended by NULL; each takes the vocabulary of its
// dataset.
extern const char *const bd_model_presets[];
// Describes one in a line: family, layers and channels, heads and their size, channels inside a
// feed-forward block, weights of its matrix products.
void bd_model_preset_describe(int preset, char *text, size_t size_bytes);
bd_status bd_model_config_preset(bd_model_config *config, const char *name, bd_error *err);

// Gives every measure and switch the value of a config.json of the family that leaves it out.
void bd_model_config_set_defaults(bd_model_config *config);

// Gives members that are 0 their usual values, then checks that every number is positive and
// bounded and that heads, groups and pairs come out even.
bd_status bd_model_config_complete(bd_model_config *config, bd_error *err);

// Hugging Face's config.json, with the field names of its family. A variant that is computed
// otherwise (OPT-350m's post-layer-norm, another activation) is BD_ERR_UNSUPPORTED, and so is a
// field that is not known, unless it is null or false: it may change the mathematics.
bd_status bd_model_config_from_json(bd_model_config *config, const bd_json *json,
                                    bd_error *err);
bd_json *bd_model_config_to_json(const bd_model_config *config);
// Adds to `json` the fields of that use.
void bd_model_config_add_fields(bd_json *json, const bd_model_config *config, bd_field_use use);
// The same from a file; the message names it.
bd_status bd_model_config_read(bd_model_config *config, const char *path, bd_error *err);

// Whether a model can be trained or proved on datasets: it has all of their ids, maybe more (a
// table that was padded to a round number of rows), and positions for the longest segment.
bd_status bd_check_fit(const bd_model_config *config, const bd_rows *rows, bd_error *err);

// The floating-point operations, forward and backward, of training on what `work` counts: 6 for
// each token and weight of a matrix product (2 forward, 4 backward; the head is such a matrix),
// and 12 for each layer, channel of its heads of queries, and pair of tokens that attend to each
// other in it. Recomputed operations do not count.
double bd_model_flop(const bd_model_config *config, const bd_step_work *work);

#endif
