#include "trainer/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/array.h"
#include "common/size.h"

static const float norm_epsilon = 1e-5f;

// ---- Memory ---------------------------------------------------------------------------------

// n x width floats of the backend's memory, remembered for release.
static bd_status allocate(bd_model *model, float **memory, int64_t n, int64_t width,
                          bd_error *err)
{
    size_t count, size_bytes;
    if (!bd_size_mul((size_t)n, (size_t)width, &count) ||
        !bd_size_mul(count, sizeof(float), &size_bytes))
        return bd_fail(err, BD_ERR_MEMORY, "the model's buffers are too large");
    BD_TRY(bd_array_reserve((void **)&model->allocated, &model->allocated_capacity,
                            model->n_allocated + 1, sizeof *model->allocated, err));
    void *block;
    BD_TRY(model->backend->operations->allocate(model->backend, size_bytes, &block, err));
    model->allocated[model->n_allocated++] = block;
    *memory = block;
    return BD_OK;
}

static bd_status allocate_layer(bd_model *model, bd_layer_activations *layer, int64_t n,
                                bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const struct {
        float **memory;
        int64_t width;
    } blocks[] = {
        {&layer->attention_in, c->n_channels},
        {&layer->attention_mean, 1},
        {&layer->attention_rstd, 1},
        {&layer->qkv, 3 * c->n_channels},
        {&layer->attention_out, c->n_channels},
        {&layer->lse, c->n_heads},
        {&layer->middle, c->n_channels},
        {&layer->feed_forward_in, c->n_channels},
        {&layer->feed_forward_mean, 1},
        {&layer->feed_forward_rstd, 1},
        {&layer->expanded, c->n_feed_forward},
        {&layer->activated, c->n_feed_forward},
        {&layer->out, c->n_channels},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        BD_TRY(allocate(model, blocks[i].memory, n, blocks[i].width, err));
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
        float **memory;
        int64_t n, width;
    } blocks[] = {
        {&model->weights, model->parameters->n_total, 1},
        {&model->gradients, model->parameters->n_total, 1},
        {&model->embedded, n, c->n_channels},
        {&model->final_in, n, c->n_channels},
        {&model->final_mean, n, 1},
        {&model->final_rstd, n, 1},
        {&model->logits, model->seq_len, c->n_vocabulary},
        {&model->losses, n, 1},
        {&model->d_stream, n, c->n_channels},
        {&model->d_narrow, n, c->n_channels},
        {&model->d_wide, n, wide},
        {&model->branch, n, c->n_channels},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        BD_TRY(allocate(model, blocks[i].memory, blocks[i].n, blocks[i].width, err));
    for (int64_t l = 0; l < c->n_layers; l++)
        BD_TRY(allocate_layer(model, &model->layers[l], n, err));
    return BD_OK;
}

bd_status bd_model_init(bd_model *model, bd_backend *backend, const bd_parameters *parameters,
                        int64_t max_rows, int64_t seq_len, bd_error *err)
{
    *model = (bd_model){
        .backend = backend, .parameters = parameters, .max_rows = max_rows, .seq_len = seq_len};
    model->layers = calloc((size_t)parameters->config.n_layers, sizeof *model->layers);
    bd_status status = model->layers ? allocate_all(model, err)
                                     : bd_fail(err, BD_ERR_MEMORY, "no memory for the model");
    if (status == BD_OK)
        status = bd_staging_init(&model->staging, backend, max_rows * seq_len, err);
    if (status != BD_OK)
        bd_model_release(model);
    return status;
}

void bd_model_release(bd_model *model)
{
    for (size_t i = 0; i < model->n_allocated; i++)
        model->backend->operations->release(model->backend, model->allocated[i]);
    bd_staging_release(&model->staging);
    free(model->allocated);
    free(model->layers);
    *model = (bd_model){0};
}

static size_t parameter_bytes(const bd_model *model)
{
    return (size_t)model->parameters->n_total * sizeof(float);
}

bd_status bd_model_set_weights(bd_model *model, const float *weights, bd_error *err)
{
    return model->backend->operations->upload(model->backend, model->weights, weights,
                                              parameter_bytes(model), err);
}

bd_status bd_model_get_weights(bd_model *model, float *weights, bd_error *err)
{
    return model->backend->operations->download(model->backend, weights, model->weights,
                                                parameter_bytes(model), err);
}

bd_status bd_model_get_gradients(bd_model *model, float *gradients, bd_error *err)
{
    return model->backend->operations->download(model->backend, gradients, model->gradients,
                                                parameter_bytes(model), err);
}

bd_status bd_model_zero_gradients(bd_model *model, bd_error *err)
{
    return model->backend->operations->zero(model->backend, model->gradients,
                                            parameter_bytes(model), err);
}

// ---- Operations with this model's parameters --------------------------------------------

// The backend's table, for calls that read like the contract: OP(model, add, {...}).
#define OP(model, name, ...) \
    (model)->backend->operations->name((model)->backend, &(bd_##name##_args)__VA_ARGS__, err)

typedef const bd_model_batch *batch_ref;

static int64_t tokens_of(batch_ref batch)
{
    return batch->attention.n_rows * batch->attention.seq_len;
}

static bd_status norm_forward(bd_model *model, batch_ref batch, const bd_norm_offsets *offsets,
                              const float *x, float *out, float *mean, float *rstd,
                              bd_error *err)
{
    return OP(model, layer_norm_forward,
              {.boundaries = batch->attention,
               .n_channels = model->parameters->config.n_channels,
               .epsilon = norm_epsilon,
               .x = x,
               .gamma = model->weights + offsets->gamma,
               .beta = model->weights + offsets->beta,
               .out = out,
               .mean = mean,
               .rstd = rstd});
}

// Adds to d_stream what flows back through the norm of x.
static bd_status norm_backward(bd_model *model, batch_ref batch, const bd_norm_offsets *offsets,
                               const float *x, const float *mean, const float *rstd,
                               const float *d_out, bd_error *err)
{
    return OP(model, layer_norm_backward,
              {.boundaries = batch->attention,
               .n_channels = model->parameters->config.n_channels,
               .d_out = d_out,
               .x = x,
               .gamma = model->weights + offsets->gamma,
               .mean = mean,
               .rstd = rstd,
               .d_x = model->d_stream,
               .d_gamma = model->gradients + offsets->gamma,
               .d_beta = model->gradients + offsets->beta});
}

static bd_status linear_forward(bd_model *model, batch_ref batch,
                                const bd_linear_offsets *offsets, int64_t n_in, int64_t n_out,
                                const float *x, float *out, bd_error *err)
{
    return OP(model, linear_forward,
              {.boundaries = batch->attention,
               .n_in = n_in,
               .n_out = n_out,
               .layout = model->parameters->layout,
               .x = x,
               .weight = model->weights + offsets->weight,
               .bias = model->weights + offsets->bias,
               .out = out});
}

static bd_status linear_backward(bd_model *model, batch_ref batch,
                                 const bd_linear_offsets *offsets, int64_t n_in, int64_t n_out,
                                 const float *x, const float *d_out, float *d_x, bd_error *err)
{
    return OP(model, linear_backward,
              {.boundaries = batch->attention,
               .n_in = n_in,
               .n_out = n_out,
               .layout = model->parameters->layout,
               .d_out = d_out,
               .x = x,
               .weight = model->weights + offsets->weight,
               .d_x = d_x,
               .d_weight = model->gradients + offsets->weight,
               .d_bias = model->gradients + offsets->bias});
}

static float attention_scale(const bd_model_config *c)
{
    return 1.0f / sqrtf((float)(c->n_channels / c->n_heads));
}

// ---- Forward ----------------------------------------------------------------------------

static bd_status layer_forward(bd_model *model, batch_ref batch, int64_t l, const float *in,
                               bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    bd_layer_activations *a = &model->layers[l];
    const int64_t n = tokens_of(batch), channels = c->n_channels, wide = c->n_feed_forward;
    BD_TRY(norm_forward(model, batch, &offsets->attention_norm, in, a->attention_in,
                        a->attention_mean, a->attention_rstd, err));
    BD_TRY(linear_forward(model, batch, &offsets->qkv, channels, 3 * channels, a->attention_in,
                          a->qkv, err));
    BD_TRY(OP(model, attention_forward,
              {.boundaries = batch->attention,
               .n_heads = c->n_heads,
               .n_kv_heads = c->n_heads,
               .head_size = channels / c->n_heads,
               .q_stride = 3 * channels,
               .kv_stride = 3 * channels,
               .scale = attention_scale(c),
               .q = a->qkv,
               .k = a->qkv + channels,
               .v = a->qkv + 2 * channels,
               .out = a->attention_out,
               .lse = a->lse}));
    BD_TRY(linear_forward(model, batch, &offsets->projection, channels, channels,
                          a->attention_out, model->branch, err));
    BD_TRY(OP(model, add, {.n = n * channels, .a = in, .b = model->branch, .out = a->middle}));
    BD_TRY(norm_forward(model, batch, &offsets->feed_forward_norm, a->middle,
                        a->feed_forward_in, a->feed_forward_mean, a->feed_forward_rstd, err));
    BD_TRY(linear_forward(model, batch, &offsets->expand, channels, wide, a->feed_forward_in,
                          a->expanded, err));
    BD_TRY(OP(model, activation_forward,
              {.activation = bd_model_activation(c),
               .n = n * wide,
               .x = a->expanded,
               .out = a->activated}));
    BD_TRY(linear_forward(model, batch, &offsets->contract, wide, channels, a->activated,
                          model->branch, err));
    return OP(model, add,
              {.n = n * channels, .a = a->middle, .b = model->branch, .out = a->out});
}

// The residual stream that enters layer l; l = n_layers: that leaves the last.
static const float *stream_into(const bd_model *model, int64_t l)
{
    return l == 0 ? model->embedded : model->layers[l - 1].out;
}

static bd_status stage(bd_model *model, batch_ref host, bd_model_batch *staged, bd_error *err)
{
    if (tokens_of(host) > model->max_rows * model->seq_len ||
        host->attention.seq_len > model->seq_len)
        return bd_fail(err, BD_ERR_ARGUMENT, "the batch is larger than the model's buffers");
    return bd_stage(&model->staging, host, staged, err);
}

static bd_status forward(bd_model *model, batch_ref batch, bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const bd_model_config *c = &p->config;
    BD_TRY(OP(model, embedding_forward,
              {.boundaries = batch->positions,
               .ids = batch->ids,
               .id_bytes = batch->id_bytes,
               .n_channels = c->n_channels,
               .n_vocabulary = c->n_vocabulary,
               .n_positions = p->n_position_rows,
               .first_position = bd_model_first_position(c),
               .token_table = model->weights + p->token_table,
               .position_table = model->weights + p->position_table,
               .out = model->embedded}));
    for (int64_t l = 0; l < c->n_layers; l++)
        BD_TRY(layer_forward(model, batch, l, stream_into(model, l), err));
    return norm_forward(model, batch, &p->final_norm, stream_into(model, c->n_layers),
                        model->final_in, model->final_mean, model->final_rstd, err);
}

bd_status bd_model_forward(bd_model *model, const bd_model_batch *batch, bd_error *err)
{
    bd_model_batch staged;
    BD_TRY(stage(model, batch, &staged, err));
    return forward(model, &staged, err);
}

// ---- The head: row by row, so that the logits of only one row exist ---------------------

static bd_boundaries one_row(const bd_boundaries *boundaries, int64_t row)
{
    return (bd_boundaries){1, boundaries->seq_len, boundaries->offsets + row,
                           boundaries->values};
}

static const void *ids_of_row(batch_ref batch, int64_t row)
{
    return (const char *)batch->ids + row * batch->attention.seq_len * batch->id_bytes;
}

static bd_status logits_of_row(bd_model *model, batch_ref batch, int64_t row, bd_error *err)
{
    const bd_parameters *p = model->parameters;
    return OP(model, linear_forward,
              {.boundaries = one_row(&batch->attention, row),
               .n_in = p->config.n_channels,
               .n_out = p->config.n_vocabulary,
               .layout = BD_WEIGHT_OUT_IN,
               .x = model->final_in + row * batch->attention.seq_len * p->config.n_channels,
               .weight = model->weights + p->token_table,
               .out = model->logits});
}

bd_status bd_model_row_logits(bd_model *model, const bd_model_batch *batch, int64_t row,
                              float *logits, bd_error *err)
{
    bd_model_batch staged;
    BD_TRY(stage(model, batch, &staged, err));
    BD_TRY(logits_of_row(model, &staged, row, err));
    const size_t n =
        (size_t)(batch->attention.seq_len * model->parameters->config.n_vocabulary);
    return model->backend->operations->download(model->backend, logits, model->logits,
                                                n * sizeof *logits, err);
}

// Loss of one row, and its gradient back to the final norm's output (d_narrow).
static bd_status head_row(bd_model *model, batch_ref batch, int64_t row, double gradient_scale,
                          bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const int64_t seq_len = batch->attention.seq_len, channels = p->config.n_channels;
    BD_TRY(logits_of_row(model, batch, row, err));
    BD_TRY(OP(model, cross_entropy,
              {.boundaries = one_row(&batch->targets, row),
               .ids = ids_of_row(batch, row),
               .id_bytes = batch->id_bytes,
               .n = seq_len,
               .n_vocabulary = p->config.n_vocabulary,
               .want_gradient = 1,
               .gradient_scale = (float)gradient_scale,
               .logits = model->logits,
               .losses = model->losses + row * seq_len}));
    return OP(model, linear_backward,
              {.boundaries = one_row(&batch->attention, row),
               .n_in = channels,
               .n_out = p->config.n_vocabulary,
               .layout = BD_WEIGHT_OUT_IN,
               .d_out = model->logits,
               .x = model->final_in + row * seq_len * channels,
               .weight = model->weights + p->token_table,
               .d_x = model->d_narrow + row * seq_len * channels,
               .d_weight = model->gradients + p->token_table});
}

// ---- Backward ---------------------------------------------------------------------------

static bd_status layer_backward(bd_model *model, batch_ref batch, int64_t l, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];
    const int64_t channels = c->n_channels, wide = c->n_feed_forward;
    BD_TRY(linear_backward(model, batch, &offsets->contract, wide, channels, a->activated,
                           model->d_stream, model->d_wide, err));
    BD_TRY(OP(model, activation_backward,
              {.activation = bd_model_activation(c),
               .n = tokens_of(batch) * wide,
               .x = a->expanded,
               .d_out = model->d_wide,
               .d_x = model->d_wide}));
    BD_TRY(linear_backward(model, batch, &offsets->expand, channels, wide, a->feed_forward_in,
                           model->d_wide, model->d_narrow, err));
    BD_TRY(norm_backward(model, batch, &offsets->feed_forward_norm, a->middle,
                         a->feed_forward_mean, a->feed_forward_rstd, model->d_narrow, err));
    BD_TRY(linear_backward(model, batch, &offsets->projection, channels, channels,
                           a->attention_out, model->d_stream, model->d_narrow, err));
    BD_TRY(OP(model, attention_backward,
              {.boundaries = batch->attention,
               .n_heads = c->n_heads,
               .n_kv_heads = c->n_heads,
               .head_size = channels / c->n_heads,
               .q_stride = 3 * channels,
               .kv_stride = 3 * channels,
               .scale = attention_scale(c),
               .q = a->qkv,
               .k = a->qkv + channels,
               .v = a->qkv + 2 * channels,
               .out = a->attention_out,
               .lse = a->lse,
               .d_out = model->d_narrow,
               .d_q = model->d_wide,
               .d_k = model->d_wide + channels,
               .d_v = model->d_wide + 2 * channels}));
    BD_TRY(linear_backward(model, batch, &offsets->qkv, channels, 3 * channels, a->attention_in,
                           model->d_wide, model->d_narrow, err));
    return norm_backward(model, batch, &offsets->attention_norm, stream_into(model, l),
                         a->attention_mean, a->attention_rstd, model->d_narrow, err);
}

static bd_status backward(bd_model *model, batch_ref batch, bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const bd_model_config *c = &p->config;
    const size_t stream_bytes = (size_t)(tokens_of(batch) * c->n_channels) * sizeof(float);
    BD_TRY(
        model->backend->operations->zero(model->backend, model->d_stream, stream_bytes, err));
    BD_TRY(norm_backward(model, batch, &p->final_norm, stream_into(model, c->n_layers),
                         model->final_mean, model->final_rstd, model->d_narrow, err));
    for (int64_t l = c->n_layers - 1; l >= 0; l--)
        BD_TRY(layer_backward(model, batch, l, err));
    return OP(model, embedding_backward,
              {.boundaries = batch->positions,
               .ids = batch->ids,
               .id_bytes = batch->id_bytes,
               .n_channels = c->n_channels,
               .n_vocabulary = c->n_vocabulary,
               .n_positions = p->n_position_rows,
               .first_position = bd_model_first_position(c),
               .d_out = model->d_stream,
               .d_token_table = model->gradients + p->token_table,
               .d_position_table = model->gradients + p->position_table});
}

// The sum of the tokens' losses, in their order.
static bd_status sum_losses(bd_model *model, int64_t n, double *sum, bd_error *err)
{
    float *losses = malloc((size_t)n * sizeof *losses);
    if (!losses)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " losses", n);
    const bd_status status = model->backend->operations->download(
        model->backend, losses, model->losses, (size_t)n * sizeof *losses, err);
    *sum = 0;
    for (int64_t t = 0; status == BD_OK && t < n; t++)
        *sum += losses[t];
    free(losses);
    return status;
}

bd_status bd_model_train(bd_model *model, const bd_model_batch *batch, double gradient_scale,
                         double *loss_sum, bd_error *err)
{
    bd_model_batch staged;
    BD_TRY(stage(model, batch, &staged, err));
    BD_TRY(forward(model, &staged, err));
    for (int64_t row = 0; row < batch->attention.n_rows; row++)
        BD_TRY(head_row(model, &staged, row, gradient_scale, err));
    BD_TRY(backward(model, &staged, err));
    return sum_losses(model, tokens_of(batch), loss_sum, err);
}
