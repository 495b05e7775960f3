// pretrained.h - a model as Hugging Face's transformers save it, read.
//
//   config.json                  the shape (model_config.h)
//   model.safetensors            the weights, or an index of several files
//                                (pretrained_files.h), under names with or without prefixes
//                                (pretrained_names.h), in F32, F16 or BF16
//
// Matrices lie as transformers keep them: OPT's [out][in], GPT-2's [in][out]. So do ours.
#ifndef BINDERY_TRAINER_WEIGHTS_PRETRAINED_H
#define BINDERY_TRAINER_WEIGHTS_PRETRAINED_H

#include "common/base/error.h"
#include "trainer/model/model_config.h"
#include "trainer/model/parameters.h"

// The shape of the model in `folder`.
bd_status bd_pretrained_config(bd_model_config *config, const char *folder, bd_error *err);

// Its vocabulary must have all the ids that the data were tokenised with, and may have more;
// BD_ERR_ARGUMENT says what can be done if it has fewer.
bd_status bd_pretrained_check_vocabulary(const bd_model_config *config, const char *folder,
                                         int64_t n_vocabulary, bd_error *err);

// The options `asked` for a model: BD_ERR_ARGUMENT if it is another one than that in `folder`.
bd_status bd_pretrained_refuse_other(const bd_model_config *config,
                                     const bd_model_config *asked, const char *folder,
                                     bd_error *err);

// Its weights into weights [n_total]; NULL only checks that the files hold them. `parameters`
// are those of its config. Every parameter must be there once, in its shape, and finite, and
// nothing else but an lm_head.weight that equals the token table, and GPT-2's stored masks; the
// message names file and tensor. Memory: the token table if there is an lm_head.weight.
bd_status bd_pretrained_read(const char *folder, const bd_parameters *parameters,
                             float *weights, bd_error *err);

// The same into memory that is malloc'd, the caller's to free, once the files are known to hold
// as many. On failure *weights is NULL.
bd_status bd_pretrained_load(const char *folder, const bd_parameters *parameters,
                             float **weights, bd_error *err);

#endif
