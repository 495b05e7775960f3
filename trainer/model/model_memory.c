// The model's buffers: which there are, and how large.
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/cli/human.h"
#include "trainer/model/model.h"
#include "trainer/model/typed_copy.h"

// Logits of one token are padded to a multiple of this, because tensor cores want rows that
// begin at a multiple of 16 bytes whatever the vocabulary; 64 numbers fill whole cache lines as
// well.
enum { LOGITS_APART = 64 };

BD_ENUM_NAMES(bd_memory_kind, BD_MEMORY_KINDS);

// Allocates n x width numbers of a type in the backend's memory and remembers them for release.
static bd_status allocate(bd_model *model, bd_memory_kind kind, void **memory, int64_t n,
                          int64_t width, bd_type type, bd_error *err)
{
    size_t count, size_bytes;
    if (!bd_size_mul((size_t)n, (size_t)width, &count) ||
        !bd_size_mul(count, bd_type_bytes(type), &size_bytes) ||
        !bd_size_add(model->memory.total, size_bytes, &model->memory.total))
        return bd_fail(err, BD_ERR_MEMORY, "the model's buffers are too large");
    model->memory.of[kind] += size_bytes;
    if (model->only_counts)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&model->allocated, &model->allocated_capacity,
                            model->n_allocated + 1, sizeof *model->allocated, err));
    BD_TRY(model->backend->operations->allocate(model->backend, size_bytes, memory, err));
    model->allocated[model->n_allocated++] = *memory;
    return BD_OK;
}

static bd_status allocate_tensor(bd_model *model, void **memory, int64_t n, int64_t width,
                                 bd_error *err)
{
    return allocate(model, BD_MEMORY_ACTIVATIONS, memory, n, width, model->type, err);
}

static bd_status allocate_floats(bd_model *model, float **memory, int64_t n, int64_t width,
                                 bd_error *err)
{
    void *block;
    BD_TRY(allocate(model, BD_MEMORY_ACTIVATIONS, &block, n, width, BD_FLOAT, err));
    *memory = block;
    return BD_OK;
}

// A float for each parameter.
static bd_status allocate_parameters(bd_model *model, bd_memory_kind kind, float **memory,
                                     bd_error *err)
{
    void *block;
    BD_TRY(allocate(model, kind, &block, model->parameters->n_total, 1, BD_FLOAT, err));
    *memory = block;
    return BD_OK;
}

static bd_status allocate_statistics(bd_model *model, bd_norm_statistics *statistics, int64_t n,
                                     bd_error *err)
{
    BD_TRY(allocate_floats(model, &statistics->rstd, n, 1, err));
    return model->parameters->config.family->has_layer_norms
               ? allocate_floats(model, &statistics->mean, n, 1, err)
               : BD_OK;
}

// Allocates everything but `out`.
static bd_status allocate_layer(bd_model *model, bd_layer_activations *layer, int64_t n,
                                bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_family *family = c->family;
    const int64_t narrow = c->n_channels;
    const bool keeps_expanded = family->gate || family->activation != BD_ACTIVATION_RELU;
    const bool whole = family->norms_whole_width;
    const struct {
        bool exists;
        void **memory;
        int64_t width;
    } tensors[] = {
        {family->attention_norm, &layer->attention_in, narrow},
        {true, &layer->qkv, bd_qkv_width(c)},
        {family->query_norm, &layer->normed, bd_qkv_width(c)},
        {true, &layer->attention_out, c->n_heads * c->head_size},
        {family->attention_post_norm, &layer->attention_branch, narrow},
        {true, &layer->middle, narrow},
        {family->feed_forward_norm, &layer->feed_forward_in, narrow},
        {keeps_expanded, &layer->expanded, bd_expanded_width(c)},
        {true, &layer->activated, c->n_feed_forward},
        {family->feed_forward_post_norm, &layer->feed_forward_branch, narrow},
    };
    const struct {
        bool exists;
        bd_norm_statistics *of;
    } norms[] = {
        {family->attention_norm, &layer->attention_norm},
        {family->attention_post_norm, &layer->attention_post_norm},
        {family->feed_forward_norm, &layer->feed_forward_norm},
        {family->feed_forward_post_norm, &layer->feed_forward_post_norm},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        if (tensors[i].exists)
            BD_TRY(allocate_tensor(model, tensors[i].memory, n, tensors[i].width, err));
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        if (norms[i].exists)
            BD_TRY(allocate_statistics(model, norms[i].of, n, err));
    if (family->query_norm) {
        BD_TRY(allocate_floats(model, &layer->query_rstd, n, whole ? 1 : c->n_heads, err));
        BD_TRY(allocate_floats(model, &layer->key_rstd, n, whole ? 1 : c->n_kv_heads, err));
    }
    return allocate_floats(model, &layer->lse, n, c->n_heads, err);
}

static int64_t larger_width(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// The angles of rotation in the backend's memory.
static bd_status make_turns(bd_model *model, uint64_t **to, const bd_rotation *rotation,
                            bd_error *err)
{
    const int64_t head_size = model->parameters->config.head_size;
    void *memory;
    // Two floats have the size of one uint64_t.
    BD_TRY(allocate(model, BD_MEMORY_WEIGHTS, &memory, head_size / 2, 2, BD_FLOAT, err));
    if (model->only_counts)
        return BD_OK;
    *to = memory;
    return bd_upload_turns(model->backend, *to, rotation, head_size, err);
}

static bd_status allocate_all(bd_model *model, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const int64_t narrow = c->n_channels;
    int64_t n;
    if (!bd_int64_mul(model->max_rows, model->seq_len, &n))
        return bd_fail(err, BD_ERR_MEMORY, "a batch is too large");
    const struct {
        void **memory;
        int64_t width;
    } tensors[] = {
        {&model->embedded, narrow},
        {&model->final_in, narrow},
        {&model->d_stream, narrow},
        {&model->d_narrow, larger_width(narrow, c->n_heads * c->head_size)},
        {&model->d_wide, larger_width(bd_qkv_width(c), bd_expanded_width(c))},
        {&model->branch, narrow},
    };
    BD_TRY(allocate_parameters(model, BD_MEMORY_WEIGHTS, &model->masters, err));
    BD_TRY(allocate_parameters(model, BD_MEMORY_GRADIENTS, &model->gradients, err));
    model->weights = model->masters;  // the same memory in float
    if (model->type != BD_FLOAT)
        BD_TRY(allocate(model, BD_MEMORY_WEIGHTS, &model->weights, model->parameters->n_total,
                        1, model->type, err));
    BD_TRY(allocate(model, BD_MEMORY_LOGITS, &model->logits, model->seq_len,
                    model->logits_stride, model->type, err));
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        BD_TRY(allocate_tensor(model, tensors[i].memory, n, tensors[i].width, err));
    model->d_activated = model->d_wide;
    if (c->family->gate)
        BD_TRY(allocate_tensor(model, &model->d_activated, n, c->n_feed_forward, err));
    BD_TRY(allocate_statistics(model, &model->final_norm, n, err));
    BD_TRY(allocate_floats(model, &model->losses, n, 1, err));
    if (!model->only_counts &&
        !(model->host_losses = calloc((size_t)n, sizeof *model->host_losses)))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " losses", n);
    if (!c->family->position_table)
        BD_TRY(make_turns(model, &model->turns, &c->rotation, err));
    if (c->family->has_local_rotation)
        BD_TRY(make_turns(model, &model->local_turns, &(bd_rotation){.theta = c->local_theta},
                          err));
    for (int64_t l = 0; l < c->n_layers; l++) {
        if (l > 0 && model->recomputes)
            model->layers[l] = model->layers[0];
        else
            BD_TRY(allocate_layer(model, &model->layers[l], n, err));
        BD_TRY(allocate_tensor(model, &model->layers[l].out, n, narrow, err));
    }
    return BD_OK;
}

// attention.h says which heads attention takes in bf16.
bd_status bd_model_check_type(const bd_backend *backend, const bd_model_config *config,
                              bd_type type, bd_error *err)
{
    const int64_t head_size = config->head_size;
    BD_TRY(bd_backend_check_type(backend, type, err));
    if (type == BD_BF16 && head_size != 64 && head_size != 128)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "attention in bf16 takes heads of 64 or 128 channels, the model's have "
                       "%" PRId64,
                       head_size);
    return BD_OK;
}

static bd_status make_buffers(bd_model *model, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    model->logits_stride = (c->n_vocabulary + LOGITS_APART - 1) / LOGITS_APART * LOGITS_APART;
    model->layers = calloc((size_t)c->n_layers, sizeof *model->layers);
    return model->layers ? allocate_all(model, err)
                         : bd_fail(err, BD_ERR_MEMORY, "no memory for the model");
}

static bd_model empty_model(bd_backend *backend, const bd_parameters *parameters,
                            const bd_model_options *options)
{
    return (bd_model){.backend = backend,
                      .parameters = parameters,
                      .type = options->type,
                      .recomputes = options->recomputes,
                      .max_rows = options->max_rows,
                      .seq_len = options->seq_len,
                      .z_loss = options->z_loss,
                      .loss = options->loss};
}

bd_status bd_model_measure(const bd_parameters *parameters, const bd_model_options *options,
                           bd_model_memory *memory, bd_error *err)
{
    bd_model model = empty_model(NULL, parameters, options);
    model.only_counts = true;
    const bd_status status = make_buffers(&model, err);
    *memory = model.memory;
    bd_model_release(&model);
    return status;
}

// Linux grants memory that it does not have and kills the process that touches it; so compare
// first.
static bd_status check_memory(const bd_model *model, const bd_model_options *options,
                              bd_error *err)
{
    bd_model_memory needed;
    size_t free_bytes;
    BD_TRY(bd_model_measure(model->parameters, options, &needed, err));
    BD_TRY(model->backend->operations->free_memory(model->backend, &free_bytes, err));
    if (needed.total <= free_bytes)
        return BD_OK;
    return bd_fail(err, BD_ERR_MEMORY,
                   "a model of %s parameters and %" PRId64 " rows of %" PRId64
                   " tokens take %s of the memory of %s, and %s are free: fewer or shorter "
                   "rows at a time, or a smaller model, take less",
                   bd_format_count((uint64_t)model->parameters->n_total).text, model->max_rows,
                   model->seq_len, bd_format_bytes(needed.total).text,
                   model->backend->operations->name, bd_format_bytes(free_bytes).text);
}

bd_status bd_model_init(bd_model *model, bd_backend *backend, const bd_parameters *parameters,
                        const bd_model_options *options, bd_error *err)
{
    *model = empty_model(backend, parameters, options);
    bd_status status = bd_model_check_type(backend, &parameters->config, options->type, err);
    if (status != BD_OK)
        bd_error_suffix(err, status, "--precision float can be computed everywhere");
    if (status == BD_OK)
        status = check_memory(model, options, err);
    if (status == BD_OK)
        status = make_buffers(model, err);
    if (status == BD_OK)
        status = bd_batch_transfer_init(&model->transfer, backend,
                                        options->max_rows * options->seq_len, err);
    if (status != BD_OK)
        bd_model_release(model);
    return status;
}

void bd_model_release(bd_model *model)
{
    for (size_t i = 0; i < model->n_allocated; i++)
        model->backend->operations->release(model->backend, model->allocated[i]);
    bd_batch_transfer_release(&model->transfer);
    free(model->host_losses);
    free(model->allocated);
    free(model->layers);
    *model = (bd_model){0};
}
