// model_config.h - the shape of a model: from a preset, a Hugging Face config.json, or a
// checkpoint.
#ifndef BINDERY_TRAINER_MODEL_MODEL_CONFIG_H
#define BINDERY_TRAINER_MODEL_MODEL_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "trainer/data/rows.h"
#include "trainer/model/family.h"

typedef struct bd_model_config {
    const bd_family *family;  // borrowed, one of bd_families
    int64_t n_layers;
    int64_t n_channels;
    int64_t n_heads;
    int64_t n_feed_forward;  // channels inside a feed-forward block
    int64_t n_positions;     // the longest segment that it can read
    int64_t n_vocabulary;
} bd_model_config;

// Presets by name, "tiny" to "gpt2-124m", ended by NULL; each takes the vocabulary of its
// dataset.
extern const char *const bd_model_presets[];
// Describes one in a line: family, layers and channels, heads, weights of its matrix products.
void bd_model_preset_describe(int preset, char *text, size_t size_bytes);
bd_status bd_model_config_preset(bd_model_config *config, const char *name, bd_error *err);

// Checks that every number is positive and bounded and that the heads divide the channels.
bd_status bd_model_config_check(const bd_model_config *config, bd_error *err);

// Hugging Face's config.json, with the field names of its family. A variant that is computed
// otherwise (OPT-350m's post-layer-norm, another activation) is BD_ERR_UNSUPPORTED.
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

// The floating-point operations, forward and backward, of training on `n_tokens` tokens with
// `n_pairs` pairs of tokens that attend to each other: 6 for each token and weight of a matrix
// product (2 forward, 4 backward; the head, which is the token table, is such a matrix), and 12
// for each pair, channel and layer. Recomputed operations do not count.
double bd_model_flop(const bd_model_config *config, int64_t n_tokens, int64_t n_pairs);

#endif
