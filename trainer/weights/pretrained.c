#include "trainer/weights/pretrained.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "trainer/weights/pretrained_files.h"
#include "trainer/weights/pretrained_names.h"

bd_status bd_pretrained_config(bd_model_config *config, const char *folder, bd_error *err)
{
    char *path = bd_path_join(folder, BD_PRETRAINED_CONFIG);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    const bd_status status = bd_model_config_read(config, path, err);
    free(path);
    return status;
}

bd_status bd_pretrained_check_vocabulary(const bd_model_config *config, const char *folder,
                                         int64_t n_vocabulary, bd_error *err)
{
    if (config->n_vocabulary >= n_vocabulary)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "the model in '%s' has a vocabulary of %" PRId64
                   ", the dataset's tokenizer one of %" PRId64
                   ": pack with the model's --tokenizer; or, if its ids are the same and only "
                   "tokens were added, have transformers make room for them: "
                   "model.resize_token_embeddings(%" PRId64 ")",
                   folder, config->n_vocabulary, n_vocabulary, n_vocabulary);
}

bd_status bd_pretrained_refuse_other(const bd_model_config *config,
                                     const bd_model_config *asked, const char *folder,
                                     bd_error *err)
{
    char where[256];
    bd_json *here = bd_model_config_to_json(asked), *there = bd_model_config_to_json(config);
    const bool differs = bd_json_difference(here, there, where, sizeof where);
    bd_json_free(here);
    bd_json_free(there);
    if (differs)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the options ask for another model than the one in '%s': %s; --init "
                       "takes it as it is",
                       folder, where);
    return BD_OK;
}

// The file and the tensor that hold a parameter.
typedef struct source {
    const bd_safetensors *file;  // borrowed; NULL until it is found
    const char *name;            // in that file, borrowed
} source;

typedef struct sources {
    bd_pretrained_files files;  // owned
    bd_pretrained_names names;  // owned
    source *parameters;         // [names.parameters->n], owned
    source head;
} sources;

// ---- Finding ------------------------------------------------------------------------------

static bd_status take_tensor(source *to, const bd_safetensors *file, const char *name,
                             bd_error *err)
{
    if (to->file)
        return bd_fail(err, BD_ERR_FORMAT,
                       "tensor '%.80s' of '%s' is unexpected: '%.80s' is the same parameter",
                       name, bd_safetensors_path(file), to->name);
    *to = (source){file, name};
    return BD_OK;
}

static bd_status assign(sources *s, const bd_safetensors *file, const char *name, bd_error *err)
{
    size_t index;
    switch (bd_pretrained_meaning(&s->names, name, &index)) {
    case BD_TENSOR_PARAMETER:
        return take_tensor(&s->parameters[index], file, name, err);
    case BD_TENSOR_TIED_HEAD:
        return take_tensor(&s->head, file, name, err);
    case BD_TENSOR_BUFFER:
        return BD_OK;
    case BD_TENSOR_UNKNOWN:
        break;
    }
    return bd_fail(
        err, BD_ERR_FORMAT,
        "tensor '%.80s' of '%s' is unexpected: the model of its " BD_PRETRAINED_CONFIG
        " has no such parameter",
        name, bd_safetensors_path(file));
}

static bd_status convert(const source *from, const bd_parameter *parameter, float *to,
                         bd_error *err)
{
    return bd_safetensors_convert(from->file, from->name, parameter->n_dimensions,
                                  parameter->shape, to, err);
}

// Checks types and shapes before anything is allocated for the model.
static bd_status check_tensors(const sources *s, bd_error *err)
{
    const bd_parameters *parameters = s->names.parameters;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        if (!s->parameters[i].file)
            return bd_fail(err, BD_ERR_FORMAT, "'%s' has no tensor '%s'", s->files.path,
                           parameter->name);
        BD_TRY(convert(&s->parameters[i], parameter, NULL, err));
    }
    return s->head.file ? convert(&s->head, &parameters->items[0], NULL, err) : BD_OK;
}

static bd_status find_tensors(sources *s, const char *folder, const bd_parameters *parameters,
                              bd_error *err)
{
    BD_TRY(bd_pretrained_names_init(&s->names, parameters, err));
    BD_TRY(bd_pretrained_files_open(&s->files, folder, err));
    s->parameters = calloc(parameters->n, sizeof *s->parameters);
    if (!s->parameters)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the names of %zu parameters",
                       parameters->n);
    for (size_t f = 0; f < s->files.n; f++) {
        const bd_safetensors *file = s->files.items[f];
        for (size_t t = 0; t < bd_safetensors_count(file); t++)
            BD_TRY(assign(s, file, bd_safetensors_at(file, t)->name, err));
    }
    return check_tensors(s, err);
}

// ---- Copying ------------------------------------------------------------------------------

// An output matrix of its own cannot be dropped without changing the model, so it is refused.
static bd_status check_tied_head(const source *head, const bd_parameter *table,
                                 const float *tokens, bd_error *err)
{
    if (!head->file)
        return BD_OK;
    float *values = malloc((size_t)table->n * sizeof *values);
    if (!values)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for '%s'", head->name);
    bd_status status = convert(head, table, values, err);
    if (status == BD_OK && memcmp(values, tokens, (size_t)table->n * sizeof *values) != 0)
        status =
            bd_fail(err, BD_ERR_UNSUPPORTED,
                    "tensor '%s' of '%s' is not the token table '%s', but " BD_PRETRAINED_CONFIG
                    " says that they are tied",
                    head->name, bd_safetensors_path(head->file), table->name);
    free(values);
    return status;
}

static bd_status copy_tensors(const sources *s, float *weights, bd_error *err)
{
    const bd_parameters *parameters = s->names.parameters;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        const source *from = &s->parameters[i];
        float *to = weights + parameter->offset;
        BD_TRY(convert(from, parameter, to, err));
        BD_TRY(bd_tensor_check_finite(from->file, from->name, to, parameter->n, err));
    }
    // The token table is the first parameter.
    return check_tied_head(&s->head, &parameters->items[0], weights + parameters->token_table,
                           err);
}

bd_status bd_pretrained_read(const char *folder, const bd_parameters *parameters,
                             float *weights, bd_error *err)
{
    sources s = {0};
    bd_status status = find_tensors(&s, folder, parameters, err);
    if (status == BD_OK && weights)
        status = copy_tensors(&s, weights, err);
    free(s.parameters);
    bd_pretrained_names_release(&s.names);
    bd_pretrained_files_close(&s.files);
    return status;
}
