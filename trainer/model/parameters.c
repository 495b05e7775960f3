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

static bd_norm_offsets add_norm(builder *b, const char *prefix, const char *name)
{
    const int64_t n = b->parameters->config.n_channels;
    const int64_t gamma = add(b, BD_ROLE_GAIN, n, 0, "%s%s.weight", prefix, name);
    return (bd_norm_offsets){gamma, add(b, BD_ROLE_BIAS, n, 0, "%s%s.bias", prefix, name)};
}

static bd_linear_offsets add_linear(builder *b, bd_parameter_role role, int64_t n_in,
                                    int64_t n_out, const char *prefix, const char *name)
{
    const bool out_first = b->parameters->config.family->layout == BD_WEIGHT_OUT_IN;
    const int64_t weight = add(b, role, out_first ? n_out : n_in, out_first ? n_in : n_out,
                               "%s%s.weight", prefix, name);
    return (bd_linear_offsets){weight,
                               add(b, BD_ROLE_BIAS, n_out, 0, "%s%s.bias", prefix, name)};
}

// Three matrices [n][n] that follow each other are one [3n][n], and three biases one of 3n.
static bd_linear_offsets add_qkv(builder *b, const char *prefix)
{
    const char *const *names = b->parameters->config.family->qkv;
    const int64_t n = b->parameters->config.n_channels;
    if (!names[1])
        return add_linear(b, BD_ROLE_MATRIX, n, 3 * n, prefix, names[0]);
    bd_linear_offsets offsets = {.weight = b->parameters->n_total};
    for (int i = 0; i < 3; i++)
        add(b, BD_ROLE_MATRIX, n, n, "%s%s.weight", prefix, names[i]);
    offsets.bias = b->parameters->n_total;
    for (int i = 0; i < 3; i++)
        add(b, i == 1 ? BD_ROLE_KEY_BIAS : BD_ROLE_BIAS, n, 0, "%s%s.bias", prefix, names[i]);
    return offsets;
}

static void add_model(builder *b)
{
    bd_parameters *p = b->parameters;
    const bd_model_config *c = &p->config;
    const bd_family *family = c->family;
    const char *prefix = family->prefixes[0];
    const int64_t narrow = c->n_channels, wide = c->n_feed_forward;
    p->n_position_rows = c->n_positions + family->first_position;
    p->token_table = add(b, BD_ROLE_TABLE, c->n_vocabulary, narrow, "%s%s.weight", prefix,
                         family->token_table);
    p->position_table = add(b, BD_ROLE_TABLE, p->n_position_rows, narrow, "%s%s.weight", prefix,
                            family->position_table);
    for (int64_t l = 0; l < c->n_layers; l++) {
        bd_layer_offsets *layer = &p->layers[l];
        char within[48];
        snprintf(within, sizeof within, "%s%s.%" PRId64 ".", prefix, family->layers, l);
        layer->attention_norm = add_norm(b, within, family->attention_norm);
        layer->qkv = add_qkv(b, within);
        layer->projection =
            add_linear(b, BD_ROLE_RESIDUAL, narrow, narrow, within, family->projection);
        layer->feed_forward_norm = add_norm(b, within, family->feed_forward_norm);
        layer->expand = add_linear(b, BD_ROLE_MATRIX, narrow, wide, within, family->expand);
        layer->contract =
            add_linear(b, BD_ROLE_RESIDUAL, wide, narrow, within, family->contract);
    }
    p->final_norm = add_norm(b, prefix, family->final_norm);
}

bd_status bd_parameters_init(bd_parameters *parameters, const bd_model_config *config,
                             bd_error *err)
{
    *parameters = (bd_parameters){.config = *config};
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
        const float constant = parameter->role == BD_ROLE_GAIN ? 1.0f : 0.0f;
        float *values = weights + parameter->offset;
        for (int64_t j = 0; j < parameter->n; j++)
            values[j] = scale > 0 ? (float)(scale * bd_random_normal(&random)) : constant;
    }
}
