// family.h - what distinguishes one model family from another, as data.
//
// A family is one file that defines a bd_family (opt.c, gpt2.c) and one name in the list below.
// Its config.json, its parameters and their names in files, the export, the double-precision
// reference and the kernels' arguments are all derived from that description: no other code
// asks which family a model belongs to.
//
// All families so far are decoders with layer norms before each block, learned positions,
// biases, and a head that is the token table. A family that differs in one of these adds a
// member for it here, which the others leave empty.
#ifndef BINDERY_TRAINER_MODEL_FAMILY_H
#define BINDERY_TRAINER_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/activation.h"
#include "kernels/linear.h"

// ---- config.json ------------------------------------------------------------------------

// How one field of config.json is treated. A file that is read may leave out every field but
// those of BD_FIELD_READ; null counts as left out.
typedef enum bd_field_use {
    BD_FIELD_READ,      // part of the shape: read and written
    BD_FIELD_FIXED,     // written; a file with another value is refused as a variant
    BD_FIELD_IMPLIED,   // the same, but not written: it is the default in transformers
    BD_FIELD_EXPORTED,  // written by an export only; a file may have any value
} bd_field_use;

typedef struct bd_config_field {
    const char *key;  // NULL ends a list
    bd_field_use use;
    enum { BD_FIELD_NUMBER, BD_FIELD_BOOL, BD_FIELD_REAL, BD_FIELD_TEXT } kind;
    size_t number;  // where the int64_t lies in a bd_model_config
    bool boolean;
    double real;
    const char *text;
    int64_t default_channels;  // a number that is left out is this multiple of n_channels;
                               // 0: it must be there
} bd_config_field;

// The last part of an initializer: {"n_embd", BD_FIELD_READ, BD_CONFIG_NUMBER(n_channels)}.
#define BD_CONFIG_NUMBER(member) \
    .kind = BD_FIELD_NUMBER, .number = offsetof(bd_model_config, member)
#define BD_CONFIG_BOOL(value) .kind = BD_FIELD_BOOL, .boolean = (value)
#define BD_CONFIG_REAL(value) .kind = BD_FIELD_REAL, .real = (value)
#define BD_CONFIG_TEXT(value) .kind = BD_FIELD_TEXT, .text = (value)

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
    const char *position_table;
    const char *attention_norm;
    const char *qkv[3];  // q, k and v; or one matrix that has the three side by side
    const char *projection;
    const char *feed_forward_norm;
    const char *expand, *contract;  // the two matrices of a feed-forward block
    const char *final_norm;
    const char *buffers[3];  // tensors of a layer that are not learned, ended by NULL

    bd_weight_layout layout;  // of every matrix but the tables
    int64_t first_position;   // the row of the position table for a document's first token
    double norm_epsilon;
    bd_activation activation;
    bool scales_residual;  // initial weights of what is added to the residual stream are
                           // divided by sqrt(2 n_layers)
} bd_family;

// ---- All of them ------------------------------------------------------------------------

// X is given each family's name.
#define BD_FOR_EACH_FAMILY(X) \
    X(opt)                    \
    X(gpt2)

#define BD_DECLARE_FAMILY(name) extern const bd_family bd_family_##name;
BD_FOR_EACH_FAMILY(BD_DECLARE_FAMILY)
#undef BD_DECLARE_FAMILY

extern const bd_family *const bd_families[];  // ended by NULL
extern const char *const bd_family_names[];   // in the same order, ended by NULL

#endif
