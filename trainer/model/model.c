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

bd_status bd_model_get_weights(bd_model *model, float *weights, bd_error *err)
{
    return model->backend->operations->download(model->backend, weights, model->masters,
                                                parameter_bytes(model), err);
}

bd_status bd_model_download(bd_model *model, float *to, const void *tensor, int64_t n,
                            bd_error *err)
{
    const bd_operations *operations = model->backend->operations;
    // bf16 arrives in the upper half and is widened from the front: each value is read before
    // its place is written.
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

// The backend's table, for calls that read like the contract: OP(model, add, {...}).
#define OP(model, name, ...) \
    (model)->backend->operations->name((model)->backend, &(bd_##name##_args)__VA_ARGS__, err)

typedef const bd_model_batch *batch_ref;

// Element i of one of the model's tensors.
static void *element(const bd_model *model, void *tensor, int64_t i)
{
    return (char *)tensor + i * (int64_t)bd_type_bytes(model->type);
}

static const void *weight_at(const bd_model *model, int64_t offset)
{
    return element(model, model->weights, offset);
}

static int64_t tokens_of(batch_ref batch)
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

// Adds to d_stream what flows back through the norm of x.
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

// q, k and v of a token lie side by side, as do their gradients.
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
        .k = element(model, a->qkv, channels),
        .v = element(model, a->qkv, 2 * channels),
        .out = a->attention_out,
        .lse = a->lse,
    };
}

// From d_narrow to d_wide.
static bd_status attention_backward(const bd_model *model, batch_ref batch,
                                    const bd_layer_activations *a, bd_error *err)
{
    const int64_t channels = model->parameters->config.n_channels;
    const bd_attention_forward_args forward = attention_of(model, batch, a);
    bd_attention_backward_args args = bd_attention_backward_of(&forward);
    args.d_out = model->d_narrow;
    args.d_q = model->d_wide;
    args.d_k = element(model, model->d_wide, channels);
    args.d_v = element(model, model->d_wide, 2 * channels);
    return model->backend->operations->attention_backward(model->backend, &args, err);
}

// ---- Forward ----------------------------------------------------------------------------

// Everything that the backward pass needs of a layer.
static bd_status layer_inside(bd_model *model, batch_ref batch, int64_t l, const void *in,
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
    const bd_attention_forward_args attention = attention_of(model, batch, a);
    BD_TRY(model->backend->operations->attention_forward(model->backend, &attention, err));
    BD_TRY(linear_forward(model, batch, &offsets->projection, channels, channels,
                          a->attention_out, model->branch, err));
    BD_TRY(OP(model, add,
              {.type = model->type,
               .n = n * channels,
               .a = in,
               .b = model->branch,
               .out = a->middle}));
    BD_TRY(norm_forward(model, batch, &offsets->feed_forward_norm, a->middle,
                        a->feed_forward_in, a->feed_forward_mean, a->feed_forward_rstd, err));
    return OP(model, linear_forward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_in = channels,
               .n_out = wide,
               .layout = model->parameters->config.family->layout,
               .activation = c->family->activation,
               .x = a->feed_forward_in,
               .weight = weight_at(model, offsets->expand.weight),
               .bias = weight_at(model, offsets->expand.bias),
               .out = a->expanded,
               .activated = a->activated});
}

static bd_status layer_forward(bd_model *model, batch_ref batch, int64_t l, const void *in,
                               bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_activations *a = &model->layers[l];
    BD_TRY(layer_inside(model, batch, l, in, err));
    BD_TRY(linear_forward(model, batch, &model->parameters->layers[l].contract,
                          c->n_feed_forward, c->n_channels, a->activated, model->branch, err));
    return OP(model, add,
              {.type = model->type,
               .n = tokens_of(batch) * c->n_channels,
               .a = a->middle,
               .b = model->branch,
               .out = a->out});
}

// The residual stream that enters layer l; l = n_layers: that leaves the last.
static const void *stream_into(const bd_model *model, int64_t l)
{
    return l == 0 ? model->embedded : model->layers[l - 1].out;
}

static bd_status check_size(const bd_model *model, batch_ref batch, bd_error *err)
{
    if (tokens_of(batch) > model->max_rows * model->seq_len ||
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

static bd_status forward(bd_model *model, batch_ref batch, bd_error *err)
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
               .token_table = weight_at(model, p->token_table),
               .position_table = weight_at(model, p->position_table),
               .out = model->embedded}));
    for (int64_t l = 0; l < c->n_layers; l++)
        BD_TRY(layer_forward(model, batch, l, stream_into(model, l), err));
    return norm_forward(model, batch, &p->final_norm, stream_into(model, c->n_layers),
                        model->final_in, model->final_mean, model->final_rstd, err);
}

bd_status bd_model_forward(bd_model *model, const bd_model_batch *batch, bd_error *err)
{
    bd_sent_batch sent;
    bd_model_batch there;
    BD_TRY(bring(model, batch, &sent, &there, err));
    BD_TRY(forward(model, &there, err));
    return bd_batch_finish(&model->transfer, &sent, err);
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
               .type = model->type,
               .n_in = p->config.n_channels,
               .n_out = p->config.n_vocabulary,
               .out_stride = model->logits_stride,
               .layout = BD_WEIGHT_OUT_IN,
               .x = element(model, model->final_in,
                            row * batch->attention.seq_len * p->config.n_channels),
               .weight = weight_at(model, p->token_table),
               .out = model->logits});
}

// Those of `n` tokens, without the gaps between them.
static bd_status download_logits(bd_model *model, int64_t n, float *logits, bd_error *err)
{
    const int64_t width = model->parameters->config.n_vocabulary;
    const int64_t stride = model->logits_stride;
    float *with_gaps = malloc((size_t)(n * stride) * sizeof *with_gaps);
    if (!with_gaps)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the logits of %" PRId64 " tokens", n);
    const bd_status status =
        bd_model_download(model, with_gaps, model->logits, n * stride, err);
    for (int64_t t = 0; status == BD_OK && t < n; t++)
        memcpy(logits + t * width, with_gaps + t * stride, (size_t)width * sizeof *logits);
    free(with_gaps);
    return status;
}

bd_status bd_model_row_logits(bd_model *model, const bd_model_batch *batch, int64_t row,
                              float *logits, bd_error *err)
{
    bd_sent_batch sent;
    bd_model_batch there;
    BD_TRY(bring(model, batch, &sent, &there, err));
    BD_TRY(logits_of_row(model, &there, row, err));
    BD_TRY(bd_batch_finish(&model->transfer, &sent, err));
    return download_logits(model, batch->attention.seq_len, logits, err);
}

// Losses of one row; its logits become their gradients if that is wanted.
static bd_status row_losses(bd_model *model, batch_ref batch, int64_t row, bool want_gradient,
                            double gradient_scale, bd_error *err)
{
    const int64_t seq_len = batch->attention.seq_len;
    BD_TRY(logits_of_row(model, batch, row, err));
    return OP(model, cross_entropy,
              {.boundaries = one_row(&batch->targets, row),
               .type = model->type,
               .ids = ids_of_row(batch, row),
               .id_bytes = batch->id_bytes,
               .n = seq_len,
               .n_vocabulary = model->parameters->config.n_vocabulary,
               .stride = model->logits_stride,
               .want_gradient = want_gradient,
               .gradient_scale = (float)gradient_scale,
               .logits = model->logits,
               .losses = model->losses + row * seq_len});
}

// Loss of one row, and its gradient back to the final norm's output (d_narrow).
static bd_status head_row(bd_model *model, batch_ref batch, int64_t row, double gradient_scale,
                          bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const int64_t seq_len = batch->attention.seq_len, channels = p->config.n_channels;
    BD_TRY(row_losses(model, batch, row, true, gradient_scale, err));
    return OP(model, linear_backward,
              {.boundaries = one_row(&batch->attention, row),
               .type = model->type,
               .n_in = channels,
               .n_out = p->config.n_vocabulary,
               .d_out_stride = model->logits_stride,
               .layout = BD_WEIGHT_OUT_IN,
               .d_out = model->logits,
               .x = element(model, model->final_in, row * seq_len * channels),
               .weight = weight_at(model, p->token_table),
               .d_x = element(model, model->d_narrow, row * seq_len * channels),
               .d_weight = model->gradients + p->token_table});
}

bd_status bd_model_losses(bd_model *model, const bd_model_batch *batch, float *losses,
                          bd_error *err)
{
    bd_sent_batch sent;
    bd_model_batch there;
    BD_TRY(bring(model, batch, &sent, &there, err));
    BD_TRY(forward(model, &there, err));
    for (int64_t row = 0; row < batch->attention.n_rows; row++)
        BD_TRY(row_losses(model, &there, row, false, 0, err));
    BD_TRY(bd_batch_finish(&model->transfer, &sent, err));
    return model->backend->operations->download(model->backend, losses, model->losses,
                                                (size_t)tokens_of(batch) * sizeof *losses, err);
}

// ---- Backward ---------------------------------------------------------------------------

static bd_status layer_backward(bd_model *model, batch_ref batch, int64_t l, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];
    const int64_t channels = c->n_channels, wide = c->n_feed_forward;
    if (model->recomputes && l < c->n_layers - 1)  // the last layer's are still there
        BD_TRY(layer_inside(model, batch, l, stream_into(model, l), err));
    BD_TRY(linear_backward(model, batch, &offsets->contract, wide, channels, a->activated,
                           model->d_stream, model->d_wide, err));
    BD_TRY(OP(model, activation_backward,
              {.type = model->type,
               .activation = c->family->activation,
               .n = tokens_of(batch) * wide,
               .x = a->expanded ? a->expanded : a->activated,
               .d_out = model->d_wide,
               .d_x = model->d_wide}));
    BD_TRY(linear_backward(model, batch, &offsets->expand, channels, wide, a->feed_forward_in,
                           model->d_wide, model->d_narrow, err));
    BD_TRY(norm_backward(model, batch, &offsets->feed_forward_norm, a->middle,
                         a->feed_forward_mean, a->feed_forward_rstd, model->d_narrow, err));
    BD_TRY(linear_backward(model, batch, &offsets->projection, channels, channels,
                           a->attention_out, model->d_stream, model->d_narrow, err));
    BD_TRY(attention_backward(model, batch, a, err));
    BD_TRY(linear_backward(model, batch, &offsets->qkv, channels, 3 * channels, a->attention_in,
                           model->d_wide, model->d_narrow, err));
    return norm_backward(model, batch, &offsets->attention_norm, stream_into(model, l),
                         a->attention_mean, a->attention_rstd, model->d_narrow, err);
}

static bd_status backward(bd_model *model, batch_ref batch, bd_error *err)
{
    const bd_parameters *p = model->parameters;
    const bd_model_config *c = &p->config;
    const size_t stream_bytes =
        (size_t)(tokens_of(batch) * c->n_channels) * bd_type_bytes(model->type);
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
               .d_out = model->d_stream,
               .d_token_table = model->gradients + p->token_table,
               .d_position_table = model->gradients + p->position_table});
}

// The sum of the tokens' losses, in their order.
static bd_status sum_losses(bd_model *model, int64_t n, double *sum, bd_error *err)
{
    BD_TRY(model->backend->operations->download(model->backend, model->host_losses,
                                                model->losses, (size_t)n * sizeof(float), err));
    *sum = 0;
    for (int64_t t = 0; t < n; t++)
        *sum += model->host_losses[t];
    return BD_OK;
}

bd_status bd_model_train_sent(bd_model *model, bd_sent_batch *batch, const bd_model_batch *next,
                              double gradient_scale, double *loss_sum, bd_error *err)
{
    const bd_sent_batch sent = *batch;
    bd_model_batch there;
    *batch = (bd_sent_batch){0};
    BD_TRY(bd_batch_receive(&model->transfer, &sent, &there, err));
    BD_TRY(forward(model, &there, err));
    for (int64_t row = 0; row < there.attention.n_rows; row++)
        BD_TRY(head_row(model, &there, row, gradient_scale, err));
    BD_TRY(backward(model, &there, err));
    BD_TRY(bd_batch_finish(&model->transfer, &sent, err));
    if (next)
        BD_TRY(bd_model_send(model, next, batch, err));
    return sum_losses(model, tokens_of(&there), loss_sum, err);
}

bd_status bd_model_train(bd_model *model, const bd_model_batch *batch, double gradient_scale,
                         double *loss_sum, bd_error *err)
{
    bd_sent_batch sent;
    BD_TRY(bd_model_send(model, batch, &sent, err));
    return bd_model_train_sent(model, &sent, NULL, gradient_scale, loss_sum, err);
}
