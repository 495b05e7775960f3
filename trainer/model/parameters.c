#include "trainer/model/parameters.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/base/random.h"

// The first failure is remembered, so that the caller checks once, at the end.
typedef struct builder {
    bd_parameters *parameters;
    bd_status status;
    bd_error *err;
} builder;

// Appends a parameter of rows x columns (columns 0: one dimension) and returns its offset, -1
// after a failure.
__attribute__((format(printf, 5, 6))) static int64_t
add(builder *b, bd_parameter_role role, int64_t rows, int64_t columns, const char *format, ...)
{
    bd_parameters *p = b->parameters;
    if (b->status == BD_OK)
        b->status = bd_array_reserve((void **)&p->items, &p->capacity, p->n + 1,
                                     sizeof *p->items, b->err);
    if (b->status != BD_OK)
        return -1;
    bd_parameter *parameter = &p->items[p->n++];
    *parameter = (bd_parameter){
        .offset = p->n_total,
        .n_dimensions = columns > 0 ? 2 : 1,
        .shape = {rows, columns},
        .role = role,
    };
    va_list args;
    va_start(args, format);
    vsnprintf(parameter->name, sizeof parameter->name, format, args);
    va_end(args);
    if (!bd_int64_mul(rows, columns > 0 ? columns : 1, &parameter->n) ||
        !bd_int64_add(p->n_total, parameter->n, &p->n_total) || p->n_total > INT64_MAX / 16)
        b->status = bd_fail(b->err, BD_ERR_ARGUMENT, "the model is too large");
    return parameter->offset;
}

// A norm of n channels; none if the family has no name for it.
static bd_norm_offsets add_norm(builder *b, int64_t n, const char *prefix, const char *name)
{
    bd_norm_offsets offsets = {BD_NO_PARAMETER, BD_NO_PARAMETER};
    if (!name)
        return offsets;
    offsets.gain = add(b, BD_ROLE_GAIN, n, 0, "%s%s.weight", prefix, name);
    if (b->parameters->config.family->has_layer_norms)
        offsets.shift = add(b, BD_ROLE_BIAS, n, 0, "%s%s.bias", prefix, name);
    return offsets;
}

// Parameters that are used as one linear layer: matrices that follow each other, each
// [n_out][n_in], are one matrix of all their outputs, and so are their biases.
typedef struct linear_part {
    const char *name;  // NULL: there is no such part
    int64_t n_out;
    bd_parameter_role bias_role;
} linear_part;

static bd_linear_offsets add_linear(builder *b, bd_parameter_role role, int64_t n_in,
                                    bool has_bias, const char *prefix, const linear_part *parts,
                                    int n_parts)
{
    const bool out_first = b->parameters->config.family->layout == BD_WEIGHT_OUT_IN;
    bd_linear_offsets offsets = {b->parameters->n_total, BD_NO_PARAMETER};
    for (int i = 0; i < n_parts; i++)
        if (parts[i].name)
            add(b, role, out_first ? parts[i].n_out : n_in, out_first ? n_in : parts[i].n_out,
                "%s%s.weight", prefix, parts[i].name);
    if (!has_bias)
        return offsets;
    offsets.bias = b->parameters->n_total;
    for (int i = 0; i < n_parts; i++)
        if (parts[i].name)
            add(b, parts[i].bias_role, parts[i].n_out, 0, "%s%s.bias", prefix, parts[i].name);
    return offsets;
}

static bd_linear_offsets add_qkv(builder *b, int64_t l, const char *prefix)
{
    const bd_model_config *c = &b->parameters->config;
    const bd_family *family = c->family;
    const int64_t q = c->n_heads * c->head_size, kv = c->n_kv_heads * c->head_size;
    const bool fused = !family->qkv[1];
    const bool rotates = bd_layer_rotates(c, l);
    const linear_part parts[] = {
        {family->qkv[0], fused ? bd_qkv_width(c) : q, BD_ROLE_BIAS},
        {family->qkv[1], kv, rotates ? BD_ROLE_BIAS : BD_ROLE_KEY_BIAS},
        {family->qkv[2], kv, BD_ROLE_BIAS},
    };
    return add_linear(b, BD_ROLE_MATRIX, c->n_channels, family->qkv_bias || c->attention_bias,
                      prefix, parts, 3);
}

static void add_layer(builder *b, int64_t l, const char *prefix)
{
    bd_layer_offsets *layer = &b->parameters->layers[l];
    const bd_model_config *c = &b->parameters->config;
    const bd_family *family = c->family;
    const int64_t narrow = c->n_channels, wide = c->n_feed_forward;
    const int64_t attended = c->n_heads * c->head_size, keys = c->n_kv_heads * c->head_size;
    const bool whole = family->norms_whole_width;
    const bool feed_forward_bias = family->feed_forward_bias || c->feed_forward_bias;
    const linear_part expand[] = {{family->gate, wide, BD_ROLE_BIAS},
                                  {family->expand, wide, BD_ROLE_BIAS}};
    layer->attention_norm = add_norm(b, narrow, prefix, family->attention_norm);
    layer->qkv = add_qkv(b, l, prefix);
    layer->query_norm =
        add_norm(b, whole ? attended : c->head_size, prefix, family->query_norm);
    layer->key_norm = add_norm(b, whole ? keys : c->head_size, prefix, family->key_norm);
    layer->projection =
        add_linear(b, BD_ROLE_RESIDUAL, attended, family->projection_bias || c->attention_bias,
                   prefix, &(linear_part){family->projection, narrow, BD_ROLE_BIAS}, 1);
    layer->attention_post_norm = add_norm(b, narrow, prefix, family->attention_post_norm);
    layer->feed_forward_norm = add_norm(b, narrow, prefix, family->feed_forward_norm);
    layer->expand = add_linear(b, BD_ROLE_MATRIX, narrow, feed_forward_bias, prefix, expand, 2);
    layer->contract = add_linear(b, BD_ROLE_RESIDUAL, wide, feed_forward_bias, prefix,
                                 &(linear_part){family->contract, narrow, BD_ROLE_BIAS}, 1);
    layer->feed_forward_post_norm = add_norm(b, narrow, prefix, family->feed_forward_post_norm);
}

static void add_model(builder *b)
{
    bd_parameters *p = b->parameters;
    const bd_model_config *c = &p->config;
    const bd_family *family = c->family;
    const char *prefix = family->prefixes[0];
    p->token_table = add(b, BD_ROLE_TABLE, c->n_vocabulary, c->n_channels, "%s%s.weight",
                         prefix, family->token_table);
    p->position_table = BD_NO_PARAMETER;
    if (family->position_table) {
        p->n_position_rows = c->n_positions + family->first_position;
        p->position_table = add(b, BD_ROLE_TABLE, p->n_position_rows, c->n_channels,
                                "%s%s.weight", prefix, family->position_table);
    }
    for (int64_t l = 0; l < c->n_layers; l++) {
        char within[48];
        snprintf(within, sizeof within, "%s%s.%" PRId64 ".", prefix, family->layers, l);
        add_layer(b, l, within);
    }
    p->final_norm = add_norm(b, c->n_channels, prefix, family->final_norm);
    p->head = c->has_head
                  ? add(b, BD_ROLE_TABLE, c->n_vocabulary, c->n_channels, "%s", BD_HEAD_NAME)
                  : p->token_table;
}

bd_status bd_parameters_init(bd_parameters *parameters, const bd_model_config *config,
                             bd_error *err)
{
    *parameters = (bd_parameters){.config = *config};
    BD_TRY(bd_model_config_complete(&parameters->config, err));
    parameters->layers = calloc((size_t)config->n_layers, sizeof *parameters->layers);
    if (!parameters->layers)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " layers",
                       config->n_layers);
    builder b = {.parameters = parameters, .err = err};
    add_model(&b);
    if (b.status != BD_OK)
        bd_parameters_release(parameters);
    return b.status;
}

void bd_parameters_release(bd_parameters *parameters)
{
    free(parameters->items);
    free(parameters->layers);
    *parameters = (bd_parameters){0};
}

bd_parameter_kind bd_parameter_kind_of(const bd_parameter *parameter)
{
    return parameter->n_dimensions == 1       ? BD_KIND_VECTOR
           : parameter->role == BD_ROLE_TABLE ? BD_KIND_TABLE
                                              : BD_KIND_MATRIX;
}

bool bd_parameter_decays(const bd_parameter *parameter)
{
    return parameter->n_dimensions == 2;
}

void bd_parameters_draw(const bd_parameters *parameters, uint64_t seed, float *weights)
{
    static const double deviation = 0.02;
    const bd_model_config *c = &parameters->config;
    const double residual =
        c->family->scales_residual ? deviation / sqrt(2.0 * (double)c->n_layers) : deviation;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        // Each has its own generator, so that its values do not depend on the others' sizes.
        bd_random random = {bd_random_mix(bd_random_mix(seed) + i)};
        const double scale = parameter->n_dimensions == 1          ? 0.0
                             : parameter->role == BD_ROLE_RESIDUAL ? residual
                                                                   : deviation;
        const float constant =
            parameter->role == BD_ROLE_GAIN && !c->family->gains_from_one ? 1.0f : 0.0f;
        float *values = weights + parameter->offset;
        for (int64_t j = 0; j < parameter->n; j++)
            values[j] = scale > 0 ? (float)(scale * bd_random_normal(&random)) : constant;
    }
}
