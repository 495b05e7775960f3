// pretrained.h - reads a model as Hugging Face's transformers save it.
//
//   config.json                  the shape (model_config.h)
//   model.safetensors            the weights, or an index of several files
//                                (pretrained_files.h), under names with or without prefixes
//                                (pretrained_names.h), in F32, F16 or BF16
//
// Matrices are kept in the layout that transformers uses, which depends on the family
// (family.h).
#ifndef BINDERY_TRAINER_WEIGHTS_PRETRAINED_H
#define BINDERY_TRAINER_WEIGHTS_PRETRAINED_H

#include "common/base/error.h"
#include "trainer/model/model_config.h"
#include "trainer/model/parameters.h"

// The shape of the model in `folder`.
bd_status bd_pretrained_config(bd_model_config *config, const char *folder, bd_error *err);

// The model's vocabulary must have all the ids of the dataset's tokenizer and may have more; if
// it has fewer, BD_ERR_ARGUMENT says what can be done.
bd_status bd_pretrained_check_vocabulary(const bd_model_config *config, const char *folder,
                                         int64_t n_vocabulary, bd_error *err);

// BD_ERR_ARGUMENT if the model that the options `asked` for is not the one in `folder`.
bd_status bd_pretrained_refuse_other(const bd_model_config *config,
                                     const bd_model_config *asked, const char *folder,
                                     bd_error *err);

// Reads the weights into weights [n_total]; with NULL it only checks that the files hold them.
// `parameters` are those of the folder's config. Every parameter must occur once, in its shape,
// and finite; besides them there may be an lm_head.weight that equals the token table, and the
// family's buffers. The message names file and tensor. Memory: the token table if there is an
// lm_head.weight.
bd_status bd_pretrained_read(const char *folder, const bd_parameters *parameters,
                             float *weights, bd_error *err);

#endif
