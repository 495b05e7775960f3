// family.h - what distinguishes one model family from another, as data.
//
// A family is one file that defines a bd_family (opt.c, llama.c) and one name in the list below.
// Its config.json, its parameters and their names in files, the export, the double-precision
// reference and the kernels' arguments are all derived from that description: no other code
// asks which family a model belongs to.
//
// A part that a family does not have has no name (NULL). So the names also say where norms
// stand (before a block, after it, or both), whether queries and keys are normalised, whether
// the feed-forward block is gated, and whether positions are learned or rotated.
#ifndef BINDERY_TRAINER_MODEL_FAMILY_H
#define BINDERY_TRAINER_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/linear.h"

// ---- config.json ------------------------------------------------------------------------

// How one field of config.json is treated. null counts as left out.
typedef enum bd_field_use {
    BD_FIELD_READ,      // part of the model: read and written
    BD_FIELD_FIXED,     // written; a file with another value is refused as a variant
    BD_FIELD_IMPLIED,   // the same, but not written: it is the default in transformers
    BD_FIELD_EXPORTED,  // written by an export only; a file may have any value
    BD_FIELD_IGNORED,   // never written; a file may have any value
} bd_field_use;

typedef enum bd_field_kind {
    BD_FIELD_INTEGER_MEMBER,  // an int64_t of the bd_model_config
    BD_FIELD_REAL_MEMBER,     // a double of it
    BD_FIELD_BOOL_MEMBER,     // a bool of it
    BD_FIELD_BOOL,            // a constant, as are the two below
    BD_FIELD_REAL,
    BD_FIELD_TEXT,
} bd_field_kind;

typedef struct bd_config_field {
    const char *key;  // NULL ends a list
    bd_field_use use;
    bd_field_kind kind;
    size_t member;  // where the member lies in a bd_model_config
    bool optional;  // a number that is left out is 0, for bd_model_config_complete() to decide
    bool whole;     // a measure that transformers take as an integer only
    bool inverted;  // a switch that says the opposite of its member
    bool boolean;   // the constant; or what a file says that leaves the switch out
    double real;    // likewise for a measure
    const char *text;
} bd_config_field;

// The last part of an initializer: {"n_embd", BD_FIELD_READ, BD_CONFIG_NUMBER(n_channels)}.
#define BD_CONFIG_NUMBER(name) \
    .kind = BD_FIELD_INTEGER_MEMBER, .member = offsetof(bd_model_config, name)
#define BD_CONFIG_OPTIONAL(name) BD_CONFIG_NUMBER(name), .optional = true
#define BD_CONFIG_MEASURE(name, usual) \
    .kind = BD_FIELD_REAL_MEMBER, .member = offsetof(bd_model_config, name), .real = (usual)
#define BD_CONFIG_SWITCH(name, usual) \
    .kind = BD_FIELD_BOOL_MEMBER, .member = offsetof(bd_model_config, name), .boolean = (usual)
#define BD_CONFIG_TIED(usual) BD_CONFIG_SWITCH(has_head, usual), .inverted = true
#define BD_CONFIG_BOOL(value) .kind = BD_FIELD_BOOL, .boolean = (value)
#define BD_CONFIG_REAL(value) .kind = BD_FIELD_REAL, .real = (value)
#define BD_CONFIG_TEXT(value) .kind = BD_FIELD_TEXT, .text = (value)

// A whole initializer of a field that may have any value.
#define BD_CONFIG_IGNORED(name)                       \
    {                                                 \
        name, BD_FIELD_IGNORED, .kind = BD_FIELD_TEXT \
    }

// Which layers have a window, and which fields of config.json say so (layer_rules.c).
typedef enum bd_window_rule {
    BD_WINDOWS_NONE,
    BD_WINDOWS_ALL,    // "sliding_window" is the window of every layer (Mistral)
    BD_WINDOWS_LATER,  // with "use_sliding_window", layers from "max_window_layers" on (Qwen)
    BD_WINDOWS_MOST,   // all but every "sliding_window_pattern"th layer (Gemma 3)
    BD_WINDOWS_UNROTATED,  // with "use_sliding_window", layers that are not rotated (SmolLM3)
} bd_window_rule;

// ---- The family -------------------------------------------------------------------------

// Names of parameters are Hugging Face's, without the prefix, the layer's number and the final
// ".weight" or ".bias": model.decoder.layers.3.fc1.bias is prefixes[0], layers and expand.
typedef struct bd_family {
    const char *name;               // "model_type" in config.json
    const char *architecture;       // the class in transformers
    const bd_config_field *fields;  // in the order in which they are written

    const char *prefixes[4];  // that names in files may have, ended by NULL; ours is the first
    const char *layers;
    const char *token_table;
    const char *position_table;  // NULL: positions are rotated
    const char *attention_norm;  // before attention
    const char *qkv[3];          // q, k and v; or one matrix that has the three side by side
    const char *query_norm, *key_norm;
    const char *projection;
    const char *attention_post_norm;  // after attention, before it is added to the stream
    const char *feed_forward_norm;
    const char *gate;               // NULL: the block is not gated
    const char *expand, *contract;  // the two matrices of a feed-forward block
    const char *feed_forward_post_norm;
    const char *final_norm;
    const char *buffers[3];  // tensors of a layer that are not learned, ended by NULL

    bd_weight_layout layout;  // of every matrix but the tables and the head
    int64_t first_position;   // the row of the position table for a document's first token
    bool has_layer_norms;     // with a shift; otherwise all norms are RMS norms
    bool gains_from_one;      // a gain is stored minus 1
    bool norms_whole_width;   // query and key norms span all heads; otherwise each head
    double norm_epsilon;      // if no field of config.json says it
    bool qkv_bias, projection_bias, feed_forward_bias;  // that all its models have
    bd_activation activation;
    bool scales_tokens;    // token vectors are multiplied by sqrt(n_channels)
    bool scales_residual;  // initial weights of what is added to the residual stream are
                           // divided by sqrt(2 n_layers)
    bd_window_rule windows;
    bool has_local_rotation;    // layers with a window have a theta of their own, unscaled
    bool has_unrotated_layers;  // "no_rope_layers" lists them
} bd_family;

// The output matrix, in every family; outside the prefix.
#define BD_HEAD_NAME "lm_head.weight"

// ---- All of them ------------------------------------------------------------------------

// X is given each family's name.
#define BD_FOR_EACH_FAMILY(X) \
    X(opt)                    \
    X(gpt2)                   \
    X(llama)                  \
    X(mistral)                \
    X(qwen2)                  \
    X(qwen3)                  \
    X(olmo2)                  \
    X(smollm3)                \
    X(gemma3_text)

#define BD_DECLARE_FAMILY(name) extern const bd_family bd_family_##name;
BD_FOR_EACH_FAMILY(BD_DECLARE_FAMILY)
#undef BD_DECLARE_FAMILY

extern const bd_family *const bd_families[];  // ended by NULL
extern const char *const bd_family_names[];   // in the same order, ended by NULL

#endif
