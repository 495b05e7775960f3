// pretrained_names.h - which of a model's parameters a tensor of a Hugging Face file is.
//
// Our names are those that transformers writes for a model with its language-model head. Files
// of a model without the head, and old files, leave out prefixes (bd_family.prefixes):
//
//   transformer.h.0.ln_1.weight    h.0.ln_1.weight                               GPT-2
//   model.decoder.layers.0.fc1.bias    decoder.layers.0.fc1.bias    layers.0.fc1.bias    OPT
#ifndef BINDERY_TRAINER_WEIGHTS_PRETRAINED_NAMES_H
#define BINDERY_TRAINER_WEIGHTS_PRETRAINED_NAMES_H

#include <stddef.h>

#include "common/base/error.h"
#include "trainer/model/parameters.h"

typedef enum bd_tensor_meaning {
    BD_TENSOR_UNKNOWN,    // the model has no such thing
    BD_TENSOR_PARAMETER,  // one of the parameters
    BD_TENSOR_TIED_HEAD,  // the output matrix of a model that has no such parameter: it must
                          // equal the token table
    BD_TENSOR_BUFFER,     // bd_family.buffers: not learned, so it is ignored
} bd_tensor_meaning;

// A model's parameters in the order of their names.
typedef struct bd_pretrained_names {
    const bd_parameters *parameters;  // borrowed
    const bd_parameter **sorted;      // [parameters->n], owned
} bd_pretrained_names;

// Release the result; the parameters must not change until then.
bd_status bd_pretrained_names_init(bd_pretrained_names *names, const bd_parameters *parameters,
                                   bd_error *err);
void bd_pretrained_names_release(bd_pretrained_names *names);  // safe if empty, safe twice

// The meaning of the tensor `name`. If it is a parameter, *index is its index in
// parameters->items.
bd_tensor_meaning bd_pretrained_meaning(const bd_pretrained_names *names, const char *name,
                                        size_t *index);

#endif
