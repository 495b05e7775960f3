// parameters.h - every parameter of a model by name, and where it lies in one flat array.
//
// Weights, gradients and first moments are arrays of `n_total` floats with the same layout. Names
// and shapes are Hugging Face's, so that files can be exchanged. Where q, k and v are three
// parameters (all but GPT-2), they lie side by side and are used as one matrix; so do the gate and
// the up projection of a gated feed-forward block.
#ifndef BINDERY_TRAINER_MODEL_PARAMETERS_H
#define BINDERY_TRAINER_MODEL_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "trainer/model/model_config.h"

typedef enum bd_parameter_role {
    BD_ROLE_MATRIX,    // drawn from a normal distribution
    BD_ROLE_RESIDUAL,  // the same; its results are added to the residual stream
    BD_ROLE_TABLE,  // the same; a vector for each id or position, or for the logit of each id
    BD_ROLE_BIAS,   // 0 at first
    BD_ROLE_KEY_BIAS,  // the same; without rotation it adds the same number to all scores of a
                       // query, so that its gradient is 0 by mathematics
    BD_ROLE_GAIN,      // a factor of 1 at first
} bd_parameter_role;

typedef struct bd_parameter {
    char name[80];
    int64_t offset;  // in the flat arrays, floats
    int64_t n;
    int n_dimensions;  // 1 or 2
    int64_t shape[2];
    bd_parameter_role role;
} bd_parameter;

// Where the parts of a model lie in the flat arrays, floats. BD_NO_PARAMETER: it has no such part.
enum { BD_NO_PARAMETER = -1 };

typedef struct bd_norm_offsets {
    int64_t gain, shift;  // only layer norms have a shift
} bd_norm_offsets;

static inline bool bd_norm_exists(const bd_norm_offsets *norm)
{
    return norm->gain != BD_NO_PARAMETER;
}

typedef struct bd_linear_offsets {
    int64_t weight, bias;
} bd_linear_offsets;

typedef struct bd_layer_offsets {
    bd_norm_offsets attention_norm;
    bd_linear_offsets qkv;  // n_channels -> bd_qkv_width()
    bd_norm_offsets query_norm, key_norm;
    bd_linear_offsets projection;
    bd_norm_offsets attention_post_norm;
    bd_norm_offsets feed_forward_norm;
    bd_linear_offsets expand;    // n_channels -> bd_expanded_width(): the gate, then up
    bd_linear_offsets contract;  // n_feed_forward -> n_channels
    bd_norm_offsets feed_forward_post_norm;
} bd_layer_offsets;

typedef struct bd_parameters {
    bd_model_config config;
    bd_parameter *items;  // [n], owned, in the order of their offsets
    size_t n, capacity;
    int64_t n_total;  // floats
    int64_t token_table, position_table;
    int64_t head;  // the output matrix [n_vocabulary][n_channels]; the token table if tied
    int64_t n_position_rows;
    bd_layer_offsets *layers;  // [config.n_layers], owned
    bd_norm_offsets final_norm;
} bd_parameters;

// Completes a copy of the config (bd_model_config_complete) and lays out the parameters of such a
// model. Release the result.
bd_status bd_parameters_init(bd_parameters *parameters, const bd_model_config *config,
                             bd_error *err);
// Safe on an empty struct and safe twice.
void bd_parameters_release(bd_parameters *parameters);

// What optimizers distinguish.
typedef enum bd_parameter_kind {
    BD_KIND_MATRIX,  // of a linear layer
    BD_KIND_TABLE,   // of ids or positions, or the head
    BD_KIND_VECTOR,  // a bias or a gain
    BD_PARAMETER_KINDS,
} bd_parameter_kind;

bd_parameter_kind bd_parameter_kind_of(const bd_parameter *parameter);

// Whether weight decay applies: to matrices (tables included), not to biases and gains.
bool bd_parameter_decays(const bd_parameter *parameter);

// Writes the originals' initial weights into weights [n_total] (host memory): normal with
// standard deviation 0.02, smaller where the family scales residual projections; biases 0,
// gains such that the factor is 1.
void bd_parameters_draw(const bd_parameters *parameters, uint64_t seed, float *weights);

#endif
