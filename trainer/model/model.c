#include "trainer/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Weights and gradients --------------------------------------------------------------

static size_t parameter_bytes(const bd_model *model)
{
    return (size_t)model->parameters->n_total * sizeof(float);
}

static bd_status upload_rounded(bd_model *model, const float *weights, bd_error *err)
{
    const int64_t n = model->parameters->n_total;
    uint16_t *rounded = malloc((size_t)n * sizeof *rounded);
    if (!rounded)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " rounded weights", n);
    for (int64_t i = 0; i < n; i++)
        rounded[i] = bd_bf16_of_float(weights[i]);
    const bd_status status = model->backend->operations->upload(
        model->backend, model->weights, rounded, (size_t)n * sizeof *rounded, err);
    free(rounded);
    return status;
}

bd_status bd_model_set_weights(bd_model *model, const float *weights, bd_error *err)
{
    BD_TRY(model->backend->operations->upload(model->backend, model->masters, weights,
                                              parameter_bytes(model), err));
    return model->type == BD_FLOAT ? BD_OK : upload_rounded(model, weights, err);
}

bd_status bd_model_download(bd_model *model, float *to, const void *tensor, int64_t n,
                            bd_error *err)
{
    const bd_operations *operations = model->backend->operations;
    // bf16 arrives in the upper half of the memory and is widened from the front, so that each
    // value is read before its place is overwritten.
    char *arrives = (char *)to + (size_t)n * (sizeof *to - bd_type_bytes(model->type));
    BD_TRY(operations->download(model->backend, arrives, tensor,
                                (size_t)n * bd_type_bytes(model->type), err));
    for (int64_t i = 0; model->type == BD_BF16 && i < n; i++) {
        uint16_t value;
        memcpy(&value, arrives + i * (int64_t)sizeof value, sizeof value);
        to[i] = bd_float_of_bf16(value);
    }
    return BD_OK;
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

// Calls an operation of the backend; its arguments read as in its contract:
// OP(model, add, {.a = ..., .b = ...}).
#define OP(model, name, ...) \
    (model)->backend->operations->name((model)->backend, &(bd_##name##_args)__VA_ARGS__, err)

typedef const bd_model_batch *batch_ref;

// Element i of one of the model's tensors.
static void *tensor_at(const bd_model *model, void *tensor, int64_t i)
{
    return (char *)tensor + i * (int64_t)bd_type_bytes(model->type);
}

static const void *weight_at(const bd_model *model, int64_t offset)
{
    return tensor_at(model, model->weights, offset);
}

static int64_t count_batch_tokens(batch_ref batch)
{
    return batch->attention.n_rows * batch->attention.seq_len;
}

static bd_status norm_forward(bd_model *model, batch_ref batch, const bd_norm_offsets *offsets,
                              const void *x, void *out, float *mean, float *rstd, bd_error *err)
{
    return OP(model, layer_norm_forward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_channels = model->parameters->config.n_channels,
               .epsilon = (float)model->parameters->config.family->norm_epsilon,
               .x = x,
               .gamma = weight_at(model, offsets->gamma),
               .beta = weight_at(model, offsets->beta),
               .out = out,
               .mean = mean,
               .rstd = rstd});
}

// Adds to d_stream the gradient that flows back through the norm of x.
static bd_status norm_backward(bd_model *model, batch_ref batch, const bd_norm_offsets *offsets,
                               const void *x, const float *mean, const float *rstd,
                               const void *d_out, bd_error *err)
{
    return OP(model, layer_norm_backward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_channels = model->parameters->config.n_channels,
               .d_out = d_out,
               .x = x,
               .gamma = weight_at(model, offsets->gamma),
               .mean = mean,
               .rstd = rstd,
               .d_x = model->d_stream,
               .d_gamma = model->gradients + offsets->gamma,
               .d_beta = model->gradients + offsets->beta});
}

static bd_status linear_forward(bd_model *model, batch_ref batch,
                                const bd_linear_offsets *offsets, int64_t n_in, int64_t n_out,
                                const void *x, void *out, bd_error *err)
{
    return OP(model, linear_forward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_in = n_in,
               .n_out = n_out,
               .layout = model->parameters->config.family->layout,
               .x = x,
               .weight = weight_at(model, offsets->weight),
               .bias = weight_at(model, offsets->bias),
               .out = out});
}

static bd_status linear_backward(bd_model *model, batch_ref batch,
                                 const bd_linear_offsets *offsets, int64_t n_in, int64_t n_out,
                                 const void *x, const void *d_out, void *d_x, bd_error *err)
{
    return OP(model, linear_backward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_in = n_in,
               .n_out = n_out,
               .layout = model->parameters->config.family->layout,
               .d_out = d_out,
               .x = x,
               .weight = weight_at(model, offsets->weight),
               .d_x = d_x,
               .d_weight = model->gradients + offsets->weight,
               .d_bias = model->gradients + offsets->bias});
}

// q, k and v of a token lie side by side in memory, as do their gradients.
static bd_attention_forward_args attention_of(const bd_model *model, batch_ref batch,
                                              const bd_layer_activations *a)
{
    const bd_model_config *c = &model->parameters->config;
    const int64_t channels = c->n_channels, head_size = channels / c->n_heads;
    return (bd_attention_forward_args){
        .boundaries = batch->attention,
        .type = model->type,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_heads,
        .head_size = head_size,
        .q_stride = 3 * channels,
        .kv_stride = 3 * channels,
        .scale = 1.0f / sqrtf((float)head_size),
        .q = a->qkv,
        .k = tensor_at(model, a->qkv, channels),
        .v = tensor_at(model, a->qkv, 2 * channels),
        .out = a->attention_out,
        .lse = a->lse,
    };
}

// ---- Forward ----------------------------------------------------------------------------

// The residual stream that enters layer l; for l = n_layers, the one that leaves the last
// layer.
static const void *stream_into(const bd_model *model, int64_t l)
{
    return l == 0 ? model->embedded : model->layers[l - 1].out;
}

// stream + attention(norm(stream)), then stream + feed_forward(norm(stream)). With `again` a
// model that recomputes restores what the backward pass reads of the layer; the stream that
// leaves it was kept.
static bd_status layer_forward(bd_model *model, batch_ref batch, int64_t l, bool again,
                               bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];
    const int64_t narrow = c->n_channels, wide = c->n_feed_forward;
    const int64_t n_stream = count_batch_tokens(batch) * narrow;
    const void *stream = stream_into(model, l);

    BD_TRY(norm_forward(model, batch, &offsets->attention_norm, stream, a->attention_in,
                        a->attention_mean, a->attention_rstd, err));
    BD_TRY(linear_forward(model, batch, &offsets->qkv, narrow, 3 * narrow, a->attention_in,
                          a->qkv, err));
    const bd_attention_forward_args attention = attention_of(model, batch, a);
    BD_TRY(model->backend->operations->attention_forward(model->backend, &attention, err));
    BD_TRY(linear_forward(model, batch, &offsets->projection, narrow, narrow, a->attention_out,
                          model->branch, err));
    BD_TRY(OP(model, add,
              {.type = model->type,
               .n = n_stream,
               .a = stream,
               .b = model->branch,
               .out = a->middle}));

    BD_TRY(norm_forward(model, batch, &offsets->feed_forward_norm, a->middle,
                        a->feed_forward_in, a->feed_forward_mean, a->feed_forward_rstd, err));
    BD_TRY(OP(model, linear_forward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_in = narrow,
               .n_out = wide,
               .layout = c->family->layout,
               .activation = c->family->activation,
               .x = a->feed_forward_in,
               .weight = weight_at(model, offsets->expand.weight),
               .bias = weight_at(model, offsets->expand.bias),
               .out = a->expanded,
               .activated = a->activated}));
    if (again)
        return BD_OK;
    BD_TRY(linear_forward(model, batch, &offsets->contract, wide, narrow, a->activated,
                          model->branch, err));
    return OP(model, add,
              {.type = model->type,
               .n = n_stream,
               .a = a->middle,
               .b = model->branch,
               .out = a->out});
}

// From the ids to the final norm.
static bd_status run_forward(bd_model *model, batch_ref batch, bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const bd_model_config *c = &p->config;
    BD_TRY(OP(model, embedding_forward,
              {.boundaries = batch->positions,
               .type = model->type,
               .ids = batch->ids,
               .id_bytes = batch->id_bytes,
               .n_channels = c->n_channels,
               .n_vocabulary = c->n_vocabulary,
               .n_positions = p->n_position_rows,
               .first_position = c->family->first_position,
               .token_scale = 1.0f,
               .token_table = weight_at(model, p->token_table),
               .position_table = weight_at(model, p->position_table),
               .out = model->embedded}));
    for (int64_t l = 0; l < c->n_layers; l++)
        BD_TRY(layer_forward(model, batch, l, false, err));
    return norm_forward(model, batch, &p->final_norm, stream_into(model, c->n_layers),
                        model->final_in, model->final_mean, model->final_rstd, err);
}

// ---- The head: row by row, so that the logits of only one row exist ---------------------

static bd_boundaries one_row(const bd_boundaries *boundaries, int64_t row)
{
    return (bd_boundaries){1, boundaries->seq_len, boundaries->offsets + row,
                           boundaries->values};
}

static bd_status logits_of_row(bd_model *model, batch_ref batch, int64_t row, bd_error *err)
{
    const bd_parameters *p = model->parameters;
    return OP(model, linear_forward,
              {.boundaries = one_row(&batch->attention, row),
               .type = model->type,
               .n_in = p->config.n_channels,
               .n_out = p->config.n_vocabulary,
               .out_stride = model->logits_stride,
               .layout = BD_WEIGHT_OUT_IN,
               .x = tensor_at(model, model->final_in,
                              row * batch->attention.seq_len * p->config.n_channels),
               .weight = weight_at(model, p->token_table),
               .out = model->logits});
}

// The losses of one row. With want_gradient its logits become the gradients of
// gradient_scale times their sum.
static bd_status row_losses(bd_model *model, batch_ref batch, int64_t row, bool want_gradient,
                            double gradient_scale, bd_error *err)
{
    const int64_t seq_len = batch->attention.seq_len;
    BD_TRY(logits_of_row(model, batch, row, err));
    return OP(model, cross_entropy,
              {.boundaries = one_row(&batch->targets, row),
               .type = model->type,
               .ids = (const char *)batch->ids + row * seq_len * batch->id_bytes,
               .id_bytes = batch->id_bytes,
               .n_vocabulary = model->parameters->config.n_vocabulary,
               .stride = model->logits_stride,
               .want_gradient = want_gradient,
               .gradient_scale = (float)gradient_scale,
               .z_loss = (float)model->z_loss,
               .logits = model->logits,
               .losses = model->losses + row * seq_len});
}

// The losses of all rows, and their gradient back to the output of the final norm (d_narrow).
static bd_status run_head(bd_model *model, batch_ref batch, double gradient_scale,
                          bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const int64_t row_size = batch->attention.seq_len * p->config.n_channels;
    for (int64_t row = 0; row < batch->attention.n_rows; row++) {
        BD_TRY(row_losses(model, batch, row, true, gradient_scale, err));
        BD_TRY(OP(model, linear_backward,
                  {.boundaries = one_row(&batch->attention, row),
                   .type = model->type,
                   .n_in = p->config.n_channels,
                   .n_out = p->config.n_vocabulary,
                   .d_out_stride = model->logits_stride,
                   .layout = BD_WEIGHT_OUT_IN,
                   .d_out = model->logits,
                   .x = tensor_at(model, model->final_in, row * row_size),
                   .weight = weight_at(model, p->token_table),
                   .d_x = tensor_at(model, model->d_narrow, row * row_size),
                   .d_weight = model->gradients + p->token_table}));
    }
    return BD_OK;
}

// ---- Backward ---------------------------------------------------------------------------

// layer_forward() from its last line to its first. d_stream is the gradient of the stream that
// leaves the layer and becomes that of the stream that enters it: a block adds its part to what
// flows past it. Inside a block the gradient alternates between d_wide and d_narrow.
static bd_status layer_backward(bd_model *model, batch_ref batch, int64_t l, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];
    const int64_t narrow = c->n_channels, wide = c->n_feed_forward;
    if (model->recomputes && l < c->n_layers - 1)  // the last layer's values are still there
        BD_TRY(layer_forward(model, batch, l, true, err));

    BD_TRY(linear_backward(model, batch, &offsets->contract, wide, narrow, a->activated,
                           model->d_stream, model->d_wide, err));
    BD_TRY(OP(model, activation_backward,
              {.type = model->type,
               .activation = c->family->activation,
               .n = count_batch_tokens(batch) * wide,
               .x = a->expanded ? a->expanded : a->activated,
               .d_out = model->d_wide,
               .d_x = model->d_wide}));
    BD_TRY(linear_backward(model, batch, &offsets->expand, narrow, wide, a->feed_forward_in,
                           model->d_wide, model->d_narrow, err));
    BD_TRY(norm_backward(model, batch, &offsets->feed_forward_norm, a->middle,
                         a->feed_forward_mean, a->feed_forward_rstd, model->d_narrow, err));

    BD_TRY(linear_backward(model, batch, &offsets->projection, narrow, narrow, a->attention_out,
                           model->d_stream, model->d_narrow, err));
    const bd_attention_forward_args attention = attention_of(model, batch, a);
    bd_attention_backward_args d_attention = bd_attention_backward_of(&attention);
    d_attention.d_out = model->d_narrow;
    d_attention.d_q = model->d_wide;
    d_attention.d_k = tensor_at(model, model->d_wide, narrow);
    d_attention.d_v = tensor_at(model, model->d_wide, 2 * narrow);
    BD_TRY(model->backend->operations->attention_backward(model->backend, &d_attention, err));
    BD_TRY(linear_backward(model, batch, &offsets->qkv, narrow, 3 * narrow, a->attention_in,
                           model->d_wide, model->d_narrow, err));
    return norm_backward(model, batch, &offsets->attention_norm, stream_into(model, l),
                         a->attention_mean, a->attention_rstd, model->d_narrow, err);
}

// From the output of the final norm, whose gradient is in d_narrow, to the tables.
static bd_status run_backward(bd_model *model, batch_ref batch, bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const bd_model_config *c = &p->config;
    const size_t stream_bytes =
        (size_t)(count_batch_tokens(batch) * c->n_channels) * bd_type_bytes(model->type);
    BD_TRY(
        model->backend->operations->zero(model->backend, model->d_stream, stream_bytes, err));
    BD_TRY(norm_backward(model, batch, &p->final_norm, stream_into(model, c->n_layers),
                         model->final_mean, model->final_rstd, model->d_narrow, err));
    for (int64_t l = c->n_layers - 1; l >= 0; l--)
        BD_TRY(layer_backward(model, batch, l, err));
    return OP(model, embedding_backward,
              {.boundaries = batch->positions,
               .type = model->type,
               .ids = batch->ids,
               .id_bytes = batch->id_bytes,
               .n_channels = c->n_channels,
               .n_vocabulary = c->n_vocabulary,
               .n_positions = p->n_position_rows,
               .first_position = c->family->first_position,
               .token_scale = 1.0f,
               .d_out = model->d_stream,
               .d_token_table = model->gradients + p->token_table,
               .d_position_table = model->gradients + p->position_table});
}

// ---- Whole passes -----------------------------------------------------------------------

static bd_status check_size(const bd_model *model, batch_ref batch, bd_error *err)
{
    if (count_batch_tokens(batch) > model->max_rows * model->seq_len ||
        batch->attention.seq_len > model->seq_len)
        return bd_fail(err, BD_ERR_ARGUMENT, "the batch is larger than the model's buffers");
    return BD_OK;
}

bd_status bd_model_send(bd_model *model, const bd_model_batch *batch, bd_sent_batch *sent,
                        bd_error *err)
{
    BD_TRY(check_size(model, batch, err));
    return bd_batch_send(&model->transfer, batch, sent, err);
}

// Sends a batch and waits for it.
static bd_status bring(bd_model *model, batch_ref batch, bd_sent_batch *sent,
                       bd_model_batch *there, bd_error *err)
{
    BD_TRY(bd_model_send(model, batch, sent, err));
    return bd_batch_receive(&model->transfer, sent, there, err);
}

bd_status bd_model_train_sent(bd_model *model, bd_sent_batch *batch, const bd_model_batch *next,
                              double gradient_scale, double *loss_sum, bd_error *err)
{
    const bd_sent_batch sent = *batch;
    const int64_t n = count_batch_tokens(&sent.host);
    bd_model_batch there;
    *batch = (bd_sent_batch){0};
    BD_TRY(bd_batch_receive(&model->transfer, &sent, &there, err));
    BD_TRY(run_forward(model, &there, err));
    BD_TRY(run_head(model, &there, gradient_scale, err));
    BD_TRY(run_backward(model, &there, err));
    BD_TRY(bd_batch_finish(&model->transfer, &sent, err));
    if (next)
        BD_TRY(bd_model_send(model, next, batch, err));
    BD_TRY(model->backend->operations->download(model->backend, model->host_losses,
                                                model->losses, (size_t)n * sizeof(float), err));
    *loss_sum = 0;
    for (int64_t t = 0; t < n; t++)
        *loss_sum += model->host_losses[t];
    return BD_OK;
}

bd_status bd_model_train(bd_model *model, const bd_model_batch *batch, double gradient_scale,
                         double *loss_sum, bd_error *err)
{
    bd_sent_batch sent;
    BD_TRY(bd_model_send(model, batch, &sent, err));
    return bd_model_train_sent(model, &sent, NULL, gradient_scale, loss_sum, err);
}

bd_status bd_model_losses(bd_model *model, const bd_model_batch *batch, float *losses,
                          bd_error *err)
{
    bd_sent_batch sent;
    bd_model_batch there;
    BD_TRY(bring(model, batch, &sent, &there, err));
    BD_TRY(run_forward(model, &there, err));
    for (int64_t row = 0; row < batch->attention.n_rows; row++)
        BD_TRY(row_losses(model, &there, row, false, 0, err));
    BD_TRY(bd_batch_finish(&model->transfer, &sent, err));
    return model->backend->operations->download(
        model->backend, losses, model->losses,
        (size_t)count_batch_tokens(batch) * sizeof *losses, err);
}

bd_status bd_model_forward(bd_model *model, const bd_model_batch *batch, bd_error *err)
{
    bd_sent_batch sent;
    bd_model_batch there;
    BD_TRY(bring(model, batch, &sent, &there, err));
    BD_TRY(run_forward(model, &there, err));
    return bd_batch_finish(&model->transfer, &sent, err);
}

bd_status bd_model_row_logits(bd_model *model, const bd_model_batch *batch, int64_t row,
                              float *logits, bd_error *err)
{
    const int64_t n = batch->attention.seq_len, stride = model->logits_stride;
    const int64_t width = model->parameters->config.n_vocabulary;
    bd_sent_batch sent;
    bd_model_batch there;
    BD_TRY(bring(model, batch, &sent, &there, err));
    BD_TRY(logits_of_row(model, &there, row, err));
    BD_TRY(bd_batch_finish(&model->transfer, &sent, err));
    // On the device each token's logits are padded to the stride.
    float *padded = malloc((size_t)(n * stride) * sizeof *padded);
    if (!padded)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the logits of %" PRId64 " tokens", n);
    const bd_status status = bd_model_download(model, padded, model->logits, n * stride, err);
    for (int64_t t = 0; status == BD_OK && t < n; t++)
        memcpy(logits + t * width, padded + t * stride, (size_t)width * sizeof *logits);
    free(padded);
    return status;
}
