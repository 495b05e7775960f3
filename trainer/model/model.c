#include "trainer/model/model.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/model/typed_copy.h"

// ---- Weights and gradients --------------------------------------------------------------

static size_t parameter_bytes(const bd_model *model)
{
    return (size_t)model->parameters->n_total * sizeof(float);
}

bd_status bd_model_set_weights(bd_model *model, const float *weights, bd_error *err)
{
    BD_TRY(model->backend->operations->upload(model->backend, model->masters, weights,
                                              parameter_bytes(model), err));
    return model->type == BD_FLOAT
               ? BD_OK
               : bd_upload_floats(model->backend, model->type, model->weights, weights,
                                  model->parameters->n_total, err);
}

bd_status bd_model_download(bd_model *model, float *to, const void *tensor, int64_t n,
                            bd_error *err)
{
    return bd_download_floats(model->backend, model->type, to, tensor, n, err);
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

// Both are NULL for BD_NO_PARAMETER.
static const void *weight_at(const bd_model *model, int64_t offset)
{
    return offset == BD_NO_PARAMETER ? NULL : tensor_at(model, model->weights, offset);
}

static float *gradient_at(const bd_model *model, int64_t offset)
{
    return offset == BD_NO_PARAMETER ? NULL : model->gradients + offset;
}

static int64_t count_batch_tokens(batch_ref batch)
{
    return batch->attention.n_rows * batch->attention.seq_len;
}

static bd_status norm_forward(bd_model *model, batch_ref batch, const bd_norm_offsets *offsets,
                              const void *x, void *out, bd_norm_statistics statistics,
                              bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    if (c->family->has_layer_norms)
        return OP(model, layer_norm_forward,
                  {.boundaries = batch->attention,
                   .type = model->type,
                   .n_channels = c->n_channels,
                   .epsilon = (float)c->norm_epsilon,
                   .x = x,
                   .gamma = weight_at(model, offsets->gain),
                   .beta = weight_at(model, offsets->shift),
                   .out = out,
                   .mean = statistics.mean,
                   .rstd = statistics.rstd});
    return OP(model, rms_norm_forward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_vectors = 1,
               .n_channels = c->n_channels,
               .epsilon = (float)c->norm_epsilon,
               .gain_offset = bd_gain_offset(c),
               .x = x,
               .gain = weight_at(model, offsets->gain),
               .out = out,
               .rstd = statistics.rstd});
}

// The gradient that flows back through the norm of x: added to d_x, or written there. (Only RMS
// norms are ever written.)
static bd_status norm_backward(bd_model *model, batch_ref batch, const bd_norm_offsets *offsets,
                               const void *x, bd_norm_statistics statistics, const void *d_out,
                               void *d_x, bool adds, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    assert(adds || !c->family->has_layer_norms);
    if (c->family->has_layer_norms)
        return OP(model, layer_norm_backward,
                  {.boundaries = batch->attention,
                   .type = model->type,
                   .n_channels = c->n_channels,
                   .d_out = d_out,
                   .x = x,
                   .gamma = weight_at(model, offsets->gain),
                   .mean = statistics.mean,
                   .rstd = statistics.rstd,
                   .d_x = d_x,
                   .d_gamma = gradient_at(model, offsets->gain),
                   .d_beta = gradient_at(model, offsets->shift)});
    return OP(model, rms_norm_backward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_vectors = 1,
               .n_channels = c->n_channels,
               .gain_offset = bd_gain_offset(c),
               .adds = adds,
               .d_out = d_out,
               .x = x,
               .gain = weight_at(model, offsets->gain),
               .rstd = statistics.rstd,
               .d_x = d_x,
               .d_gain = gradient_at(model, offsets->gain)});
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
               .activation = BD_ACTIVATION_NONE,
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
               .d_weight = gradient_at(model, offsets->weight),
               .d_bias = gradient_at(model, offsets->bias)});
}

static bd_status add_tensors(bd_model *model, batch_ref batch, const void *a, const void *b,
                             void *out, bd_error *err)
{
    return OP(model, add,
              {.type = model->type,
               .n = count_batch_tokens(batch) * model->parameters->config.n_channels,
               .a = a,
               .b = b,
               .out = out});
}

// ---- Queries and keys -------------------------------------------------------------------

// The heads of queries, or of keys, in rows of q, k and v.
typedef struct heads {
    int64_t first, n;  // the first one's number among all heads of a row
    bd_norm_offsets norm;
    float *rstd;
    const bd_boundaries *positions;
} heads;

enum { QUERIES, KEYS, N_ROTATED };

static void rotated_heads(const bd_model *model, batch_ref batch, int64_t l,
                          heads parts[N_ROTATED])
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];
    parts[QUERIES] =
        (heads){0, c->n_heads, offsets->query_norm, a->query_rstd, &batch->query_positions};
    parts[KEYS] =
        (heads){c->n_heads, c->n_kv_heads, offsets->key_norm, a->key_rstd, &batch->positions};
}

// Element 0 of these heads in rows of q, k and v.
static void *heads_at(const bd_model *model, void *rows, const heads *part)
{
    return tensor_at(model, rows, part->first * model->parameters->config.head_size);
}

// The queries and keys that attention reads: those that the linear layer gave, or their norms,
// which lie at the same places of an array of their own (whose place for v is not used).
static void *attended_rows(const bd_layer_activations *a)
{
    return a->normed ? a->normed : a->qkv;
}

static bd_status rotate(bd_model *model, int64_t l, const heads *part, void *rows, bool inverse,
                        bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    if (!bd_layer_rotates(c, l))
        return BD_OK;
    const bool local = bd_layer_has_local_rotation(c, l);
    return OP(model, rotary,
              {.boundaries = *part->positions,
               .type = model->type,
               .n_heads = part->n,
               .head_size = c->head_size,
               .stride = bd_qkv_width(c),
               .turns = local ? model->local_turns : model->turns,
               .scale = local ? 1.0f : (float)bd_rotation_scale(&c->rotation),
               .inverse = inverse,
               .x = heads_at(model, rows, part)});
}

// Norms and rotation, from what the linear layer gave to what attention reads.
static bd_status prepare_heads(bd_model *model, batch_ref batch, int64_t l, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_activations *a = &model->layers[l];
    const bool whole = c->family->norms_whole_width;
    heads parts[N_ROTATED];
    rotated_heads(model, batch, l, parts);
    for (int i = 0; i < N_ROTATED; i++) {
        const heads *part = &parts[i];
        if (bd_norm_exists(&part->norm))
            BD_TRY(OP(model, rms_norm_forward,
                      {.boundaries = batch->attention,
                       .type = model->type,
                       .n_vectors = whole ? 1 : part->n,
                       .n_channels = whole ? part->n * c->head_size : c->head_size,
                       .x_stride = bd_qkv_width(c),
                       .out_stride = bd_qkv_width(c),
                       .epsilon = (float)c->norm_epsilon,
                       .gain_offset = bd_gain_offset(c),
                       .x = heads_at(model, a->qkv, part),
                       .gain = weight_at(model, part->norm.gain),
                       .out = heads_at(model, a->normed, part),
                       .rstd = part->rstd}));
        BD_TRY(rotate(model, l, part, attended_rows(a), false, err));
    }
    return BD_OK;
}

// prepare_heads() backward, in place on the gradients of q and k in d_wide.
static bd_status prepare_heads_backward(bd_model *model, batch_ref batch, int64_t l,
                                        bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bool whole = c->family->norms_whole_width;
    heads parts[N_ROTATED];
    rotated_heads(model, batch, l, parts);
    for (int i = 0; i < N_ROTATED; i++) {
        const heads *part = &parts[i];
        BD_TRY(rotate(model, l, part, model->d_wide, true, err));
        if (bd_norm_exists(&part->norm))
            BD_TRY(OP(model, rms_norm_backward,
                      {.boundaries = batch->attention,
                       .type = model->type,
                       .n_vectors = whole ? 1 : part->n,
                       .n_channels = whole ? part->n * c->head_size : c->head_size,
                       .x_stride = bd_qkv_width(c),
                       .d_out_stride = bd_qkv_width(c),
                       .d_x_stride = bd_qkv_width(c),
                       .gain_offset = bd_gain_offset(c),
                       .d_out = heads_at(model, model->d_wide, part),
                       .x = heads_at(model, model->layers[l].qkv, part),
                       .gain = weight_at(model, part->norm.gain),
                       .rstd = part->rstd,
                       .d_x = heads_at(model, model->d_wide, part),
                       .d_gain = gradient_at(model, part->norm.gain)}));
    }
    return BD_OK;
}

static bd_attention_forward_args attention_of(const bd_model *model, batch_ref batch, int64_t l)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_activations *a = &model->layers[l];
    return (bd_attention_forward_args){
        .boundaries = batch->attention,
        .type = model->type,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_size = c->head_size,
        .q_stride = bd_qkv_width(c),
        .kv_stride = bd_qkv_width(c),
        .window = bd_layer_window(c, l),
        .scale = bd_score_scale(c),
        .q = attended_rows(a),
        .k = tensor_at(model, attended_rows(a), c->n_heads * c->head_size),
        .v = tensor_at(model, a->qkv, (c->n_heads + c->n_kv_heads) * c->head_size),
        .out = a->attention_out,
        .lse = a->lse,
    };
}

// ---- Forward ----------------------------------------------------------------------------

// The residual stream that enters layer `l`; for n_layers the one that leaves the last.
static const void *stream_into(const bd_model *model, int64_t l)
{
    return l > 0 ? model->layers[l - 1].out : model->embedded;
}

// How a block begins: with a norm of the stream, or with the stream itself.
typedef struct block_begin {
    const bd_norm_offsets *norm;
    const void *stream;
    void *normed;
    bd_norm_statistics statistics;
} block_begin;

static block_begin begin_of_attention(const bd_model *model, int64_t l)
{
    const bd_layer_activations *a = &model->layers[l];
    return (block_begin){&model->parameters->layers[l].attention_norm, stream_into(model, l),
                         a->attention_in, a->attention_norm};
}

static block_begin begin_of_feed_forward(const bd_model *model, int64_t l)
{
    const bd_layer_activations *a = &model->layers[l];
    return (block_begin){&model->parameters->layers[l].feed_forward_norm, a->middle,
                         a->feed_forward_in, a->feed_forward_norm};
}

// What the block reads.
static const void *block_input(const block_begin *begin)
{
    return bd_norm_exists(begin->norm) ? begin->normed : begin->stream;
}

static bd_status enter_block(bd_model *model, batch_ref batch, const block_begin *begin,
                             bd_error *err)
{
    if (!bd_norm_exists(begin->norm))
        return BD_OK;
    return norm_forward(model, batch, begin->norm, begin->stream, begin->normed,
                        begin->statistics, err);
}

// How a block ends: with a linear layer, and maybe a norm after it.
typedef struct block_end {
    const bd_linear_offsets *linear;
    int64_t n_in;
    const void *x;
    const bd_norm_offsets *norm;
    void *kept;  // the norm's input
    bd_norm_statistics statistics;
} block_end;

static block_end end_of_attention(const bd_model *model, int64_t l)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];
    return (block_end){.linear = &offsets->projection,
                       .n_in = c->n_heads * c->head_size,
                       .x = a->attention_out,
                       .norm = &offsets->attention_post_norm,
                       .kept = a->attention_branch,
                       .statistics = a->attention_post_norm};
}

static block_end end_of_feed_forward(const bd_model *model, int64_t l)
{
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];
    return (block_end){.linear = &offsets->contract,
                       .n_in = model->parameters->config.n_feed_forward,
                       .x = a->activated,
                       .norm = &offsets->feed_forward_post_norm,
                       .kept = a->feed_forward_branch,
                       .statistics = a->feed_forward_post_norm};
}

// What is to be added to the stream is then in model->branch.
static bd_status leave_block(bd_model *model, batch_ref batch, const block_end *end,
                             bd_error *err)
{
    const int64_t n_out = model->parameters->config.n_channels;
    const bool normed = bd_norm_exists(end->norm);
    BD_TRY(linear_forward(model, batch, end->linear, end->n_in, n_out, end->x,
                          normed ? end->kept : model->branch, err));
    return normed ? norm_forward(model, batch, end->norm, end->kept, model->branch,
                                 end->statistics, err)
                  : BD_OK;
}

// The first half of a feed-forward block: from x to what the last matrix is multiplied by.
static bd_status expand(bd_model *model, batch_ref batch, int64_t l, const void *x,
                        bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_linear_offsets *offsets = &model->parameters->layers[l].expand;
    const bd_layer_activations *a = &model->layers[l];
    if (c->family->gate) {
        BD_TRY(linear_forward(model, batch, offsets, c->n_channels, bd_expanded_width(c), x,
                              a->expanded, err));
        return OP(model, gated_activation_forward,
                  {.type = model->type,
                   .activation = c->family->activation,
                   .n_tokens = count_batch_tokens(batch),
                   .n_channels = c->n_feed_forward,
                   .x = a->expanded,
                   .out = a->activated});
    }
    return OP(model, linear_forward,
              {.boundaries = batch->attention,
               .type = model->type,
               .n_in = c->n_channels,
               .n_out = c->n_feed_forward,
               .layout = c->family->layout,
               .activation = c->family->activation,
               .x = x,
               .weight = weight_at(model, offsets->weight),
               .bias = weight_at(model, offsets->bias),
               .out = a->expanded,
               .activated = a->activated});
}

// middle = stream + attention(stream); out = middle + feed_forward(middle). With `again` a model
// that recomputes restores what the backward pass reads of the layer; the stream that leaves it
// was kept.
static bd_status layer_forward(bd_model *model, batch_ref batch, int64_t l, bool again,
                               bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    const bd_layer_activations *a = &model->layers[l];

    block_begin begin = begin_of_attention(model, l);
    BD_TRY(enter_block(model, batch, &begin, err));
    BD_TRY(linear_forward(model, batch, &offsets->qkv, c->n_channels, bd_qkv_width(c),
                          block_input(&begin), a->qkv, err));
    BD_TRY(prepare_heads(model, batch, l, err));
    const bd_attention_forward_args attention = attention_of(model, batch, l);
    BD_TRY(model->backend->operations->attention_forward(model->backend, &attention, err));
    block_end end = end_of_attention(model, l);
    BD_TRY(leave_block(model, batch, &end, err));
    BD_TRY(add_tensors(model, batch, begin.stream, model->branch, a->middle, err));

    begin = begin_of_feed_forward(model, l);
    BD_TRY(enter_block(model, batch, &begin, err));
    BD_TRY(expand(model, batch, l, block_input(&begin), err));
    end = end_of_feed_forward(model, l);
    if (again && !bd_norm_exists(end.norm))
        return BD_OK;
    BD_TRY(leave_block(model, batch, &end, err));
    return again ? BD_OK : add_tensors(model, batch, a->middle, model->branch, a->out, err);
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
               .token_scale = bd_token_scale(c),
               .token_table = weight_at(model, p->token_table),
               .position_table = weight_at(model, p->position_table),
               .out = model->embedded}));
    for (int64_t l = 0; l < c->n_layers; l++)
        BD_TRY(layer_forward(model, batch, l, false, err));
    return norm_forward(model, batch, &p->final_norm, stream_into(model, c->n_layers),
                        model->final_in, model->final_norm, err);
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
               .weight = weight_at(model, p->head),
               .out = model->logits});
}

// The losses of one row. With want_gradient they are weighted as the model's loss says, and the
// logits become the gradients of gradient_scale times their sum.
static bd_status row_losses(bd_model *model, batch_ref batch, int64_t row, bool want_gradient,
                            double gradient_scale, bd_error *err)
{
    const int64_t seq_len = batch->attention.seq_len;
    bd_loss_mask mask = batch->mask;
    if (mask.bits)
        mask.offsets += row;
    BD_TRY(logits_of_row(model, batch, row, err));
    return OP(model, cross_entropy,
              {.boundaries = one_row(&batch->targets, row),
               .mask = mask,
               .type = model->type,
               .ids = (const char *)batch->ids + row * seq_len * batch->id_bytes,
               .id_bytes = batch->id_bytes,
               .n_vocabulary = model->parameters->config.n_vocabulary,
               .stride = model->logits_stride,
               .want_gradient = want_gradient,
               .per_document = want_gradient && model->loss == BD_LOSS_PER_DOCUMENT,
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
                   .weight = weight_at(model, p->head),
                   .d_x = tensor_at(model, model->d_narrow, row * row_size),
                   .d_weight = gradient_at(model, p->head)}));
    }
    return BD_OK;
}

// ---- Backward ---------------------------------------------------------------------------

// leave_block() backward: writes d_x, the gradient of x. model->branch is free by now and takes
// the gradient of what the linear layer gave.
static bd_status leave_block_backward(bd_model *model, batch_ref batch, const block_end *end,
                                      void *d_x, bd_error *err)
{
    const int64_t n_out = model->parameters->config.n_channels;
    const void *d_branch = model->d_stream;
    if (bd_norm_exists(end->norm)) {
        BD_TRY(norm_backward(model, batch, end->norm, end->kept, end->statistics,
                             model->d_stream, model->branch, false, err));
        d_branch = model->branch;
    }
    return linear_backward(model, batch, end->linear, end->n_in, n_out, end->x, d_branch, d_x,
                           err);
}

// enter_block() backward: adds to d_stream what flows back from the block, which is in d_narrow.
static bd_status enter_block_backward(bd_model *model, batch_ref batch,
                                      const block_begin *begin, bd_error *err)
{
    if (!bd_norm_exists(begin->norm))
        return add_tensors(model, batch, model->d_stream, model->d_narrow, model->d_stream,
                           err);
    return norm_backward(model, batch, begin->norm, begin->stream, begin->statistics,
                         model->d_narrow, model->d_stream, true, err);
}

// The gradient of what the activation gave lies in d_activated; that of its input goes to d_wide.
static bd_status activation_backward(bd_model *model, batch_ref batch, int64_t l, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_activations *a = &model->layers[l];
    const int64_t n_tokens = count_batch_tokens(batch);
    if (c->family->gate)
        return OP(model, gated_activation_backward,
                  {.type = model->type,
                   .activation = c->family->activation,
                   .n_tokens = n_tokens,
                   .n_channels = c->n_feed_forward,
                   .x = a->expanded,
                   .d_out = model->d_activated,
                   .d_x = model->d_wide});
    return OP(model, activation_backward,
              {.type = model->type,
               .activation = c->family->activation,
               .n = n_tokens * c->n_feed_forward,
               .x = a->expanded ? a->expanded : a->activated,
               .d_out = model->d_activated,
               .d_x = model->d_wide});
}

// layer_forward() from its last line to its first. d_stream is the gradient of the stream that
// leaves the layer and becomes that of the stream that enters it: a block adds its part to what
// flows past it. Inside a block the gradient alternates between d_wide and d_narrow.
static bd_status layer_backward(bd_model *model, batch_ref batch, int64_t l, bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const bd_layer_offsets *offsets = &model->parameters->layers[l];
    if (model->recomputes && l < c->n_layers - 1)  // the last layer's values are still there
        BD_TRY(layer_forward(model, batch, l, true, err));

    block_begin begin = begin_of_feed_forward(model, l);
    block_end end = end_of_feed_forward(model, l);
    BD_TRY(leave_block_backward(model, batch, &end, model->d_activated, err));
    BD_TRY(activation_backward(model, batch, l, err));
    BD_TRY(linear_backward(model, batch, &offsets->expand, c->n_channels, bd_expanded_width(c),
                           block_input(&begin), model->d_wide, model->d_narrow, err));
    BD_TRY(enter_block_backward(model, batch, &begin, err));

    begin = begin_of_attention(model, l);
    end = end_of_attention(model, l);
    BD_TRY(leave_block_backward(model, batch, &end, model->d_narrow, err));
    const bd_attention_forward_args attention = attention_of(model, batch, l);
    bd_attention_backward_args d_attention = bd_attention_backward_of(&attention);
    d_attention.d_out = model->d_narrow;
    d_attention.d_q = model->d_wide;
    d_attention.d_k = tensor_at(model, model->d_wide, c->n_heads * c->head_size);
    d_attention.d_v =
        tensor_at(model, model->d_wide, (c->n_heads + c->n_kv_heads) * c->head_size);
    BD_TRY(model->backend->operations->attention_backward(model->backend, &d_attention, err));
    BD_TRY(prepare_heads_backward(model, batch, l, err));
    BD_TRY(linear_backward(model, batch, &offsets->qkv, c->n_channels, bd_qkv_width(c),
                           block_input(&begin), model->d_wide, model->d_narrow, err));
    return enter_block_backward(model, batch, &begin, err);
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
                         model->final_norm, model->d_narrow, model->d_stream, true, err));
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
               .token_scale = bd_token_scale(c),
               .d_out = model->d_stream,
               .d_token_table = gradient_at(model, p->token_table),
               .d_position_table = gradient_at(model, p->position_table)});
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
