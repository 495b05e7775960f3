// The model's buffers: which there are, and how large.
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/cli/human.h"
#include "trainer/model/model.h"

// Logits of one token are padded to a multiple of this, because tensor cores want rows that
// begin at a multiple of 16 bytes whatever the vocabulary; 64 numbers fill whole cache lines as
// well.
enum { LOGITS_APART = 64 };

// Allocates n x width numbers of a type in the backend's memory and remembers them for release.
static bd_status allocate_tensor(bd_model *model, void **memory, int64_t n, int64_t width,
                                 bd_type type, bd_error *err)
{
    size_t count, size_bytes;
    if (!bd_size_mul((size_t)n, (size_t)width, &count) ||
        !bd_size_mul(count, bd_type_bytes(type), &size_bytes) ||
        !bd_size_add(model->size_bytes, size_bytes, &model->size_bytes))
        return bd_fail(err, BD_ERR_MEMORY, "the model's buffers are too large");
    if (model->only_counts)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&model->allocated, &model->allocated_capacity,
                            model->n_allocated + 1, sizeof *model->allocated, err));
    BD_TRY(model->backend->operations->allocate(model->backend, size_bytes, memory, err));
    model->allocated[model->n_allocated++] = *memory;
    return BD_OK;
}

static bd_status allocate_floats(bd_model *model, float **memory, int64_t n, int64_t width,
                                 bd_error *err)
{
    void *block;
    BD_TRY(allocate_tensor(model, &block, n, width, BD_FLOAT, err));
    *memory = block;
    return BD_OK;
}

// Allocates everything but `out`.
static bd_status allocate_layer(bd_model *model, bd_layer_activations *layer, int64_t n,
                                bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bool keeps_expanded = c->family->activation != BD_ACTIVATION_RELU;
    const struct {
        void **memory;
        int64_t width;
    } tensors[] = {
        {&layer->attention_in, c->n_channels},    {&layer->qkv, 3 * c->n_channels},
        {&layer->attention_out, c->n_channels},   {&layer->middle, c->n_channels},
        {&layer->feed_forward_in, c->n_channels}, {&layer->activated, c->n_feed_forward},
    };
    const struct {
        float **memory;
        int64_t width;
    } statistics[] = {
        {&layer->attention_mean, 1},    {&layer->attention_rstd, 1},
        {&layer->lse, c->n_heads},      {&layer->feed_forward_mean, 1},
        {&layer->feed_forward_rstd, 1},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        BD_TRY(
            allocate_tensor(model, tensors[i].memory, n, tensors[i].width, model->type, err));
    for (size_t i = 0; i < sizeof statistics / sizeof statistics[0]; i++)
        BD_TRY(allocate_floats(model, statistics[i].memory, n, statistics[i].width, err));
    if (keeps_expanded)
        BD_TRY(
            allocate_tensor(model, &layer->expanded, n, c->n_feed_forward, model->type, err));
    return BD_OK;
}

static bd_status allocate_all(bd_model *model, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const int64_t wide =
        3 * c->n_channels > c->n_feed_forward ? 3 * c->n_channels : c->n_feed_forward;
    int64_t n;
    if (!bd_int64_mul(model->max_rows, model->seq_len, &n))
        return bd_fail(err, BD_ERR_MEMORY, "a batch is too large");
    const struct {
        void **memory;
        int64_t n, width;
    } tensors[] = {
        {&model->embedded, n, c->n_channels},
        {&model->final_in, n, c->n_channels},
        {&model->logits, model->seq_len, model->logits_stride},
        {&model->d_stream, n, c->n_channels},
        {&model->d_narrow, n, c->n_channels},
        {&model->d_wide, n, wide},
        {&model->branch, n, c->n_channels},
    };
    BD_TRY(allocate_floats(model, &model->masters, model->parameters->n_total, 1, err));
    BD_TRY(allocate_floats(model, &model->gradients, model->parameters->n_total, 1, err));
    model->weights = model->masters;  // the same memory in float
    if (model->type != BD_FLOAT)
        BD_TRY(allocate_tensor(model, &model->weights, model->parameters->n_total, 1,
                               model->type, err));
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        BD_TRY(allocate_tensor(model, tensors[i].memory, tensors[i].n, tensors[i].width,
                               model->type, err));
    BD_TRY(allocate_floats(model, &model->final_mean, n, 1, err));
    BD_TRY(allocate_floats(model, &model->final_rstd, n, 1, err));
    BD_TRY(allocate_floats(model, &model->losses, n, 1, err));
    if (!model->only_counts &&
        !(model->host_losses = calloc((size_t)n, sizeof *model->host_losses)))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " losses", n);
    for (int64_t l = 0; l < c->n_layers; l++) {
        if (l > 0 && model->recomputes)
            model->layers[l] = model->layers[0];
        else
            BD_TRY(allocate_layer(model, &model->layers[l], n, err));
        BD_TRY(
            allocate_tensor(model, &model->layers[l].out, n, c->n_channels, model->type, err));
    }
    return BD_OK;
}

// attention.h says which heads attention takes in bf16.
bd_status bd_model_check_type(const bd_backend *backend, const bd_model_config *config,
                              bd_type type, bd_error *err)
{
    const int64_t head_size = config->n_channels / config->n_heads;
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
                      .z_loss = options->z_loss};
}

bd_status bd_model_measure(const bd_parameters *parameters, const bd_model_options *options,
                           size_t *size_bytes, bd_error *err)
{
    bd_model model = empty_model(NULL, parameters, options);
    model.only_counts = true;
    const bd_status status = make_buffers(&model, err);
    *size_bytes = model.size_bytes;
    bd_model_release(&model);
    return status;
}

// Before memory is asked for that the system would give, and then end us for taking it.
static bd_status check_memory(const bd_model *model, const bd_model_options *options,
                              bd_error *err)
{
    size_t needed, free_bytes;
    BD_TRY(bd_model_measure(model->parameters, options, &needed, err));
    BD_TRY(model->backend->operations->free_memory(model->backend, &free_bytes, err));
    if (needed <= free_bytes)
        return BD_OK;
    return bd_fail(err, BD_ERR_MEMORY,
                   "a model of %s parameters and %" PRId64 " rows of %" PRId64
                   " tokens take %s of the memory of %s, and %s are free: fewer or shorter "
                   "rows at a time, or a smaller model, take less",
                   bd_format_count((uint64_t)model->parameters->n_total).text, model->max_rows,
                   model->seq_len, bd_format_bytes(needed).text,
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
