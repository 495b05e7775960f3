#include "trainer/model/parameters.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/array.h"
#include "common/base/random.h"
#include "common/base/size.h"

// Appends a parameter of rows x columns (columns 0: one dimension) and returns its offset, or
// -1 after a failure, which is also remembered so that the caller may ask once, at the end.
typedef struct builder {
    bd_parameters *parameters;
    bd_status status;
    bd_error *err;
} builder;

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
    const bool out_first = b->parameters->layout == BD_WEIGHT_OUT_IN;
    const int64_t weight = add(b, role, out_first ? n_out : n_in, out_first ? n_in : n_out,
                               "%s%s.weight", prefix, name);
    return (bd_linear_offsets){weight,
                               add(b, BD_ROLE_BIAS, n_out, 0, "%s%s.bias", prefix, name)};
}

// Three matrices [n][n] in a row are one [3n][n], three biases one of 3n.
static bd_linear_offsets add_opt_qkv(builder *b, const char *prefix)
{
    static const char letters[] = {'q', 'k', 'v'};
    const int64_t n = b->parameters->config.n_channels;
    bd_linear_offsets offsets = {b->parameters->n_total, 0};
    for (int i = 0; i < 3; i++)
        add(b, BD_ROLE_MATRIX, n, n, "%sself_attn.%c_proj.weight", prefix, letters[i]);
    offsets.bias = b->parameters->n_total;
    for (int i = 0; i < 3; i++)
        add(b, BD_ROLE_BIAS, n, 0, "%sself_attn.%c_proj.bias", prefix, letters[i]);
    return offsets;
}

static void add_opt_layer(builder *b, int64_t l)
{
    const bd_model_config *c = &b->parameters->config;
    bd_layer_offsets *layer = &b->parameters->layers[l];
    char prefix[48];
    snprintf(prefix, sizeof prefix, "model.decoder.layers.%" PRId64 ".", l);
    layer->attention_norm = add_norm(b, prefix, "self_attn_layer_norm");
    layer->qkv = add_opt_qkv(b, prefix);
    layer->projection = add_linear(b, BD_ROLE_RESIDUAL, c->n_channels, c->n_channels, prefix,
                                   "self_attn.out_proj");
    layer->feed_forward_norm = add_norm(b, prefix, "final_layer_norm");
    layer->expand =
        add_linear(b, BD_ROLE_MATRIX, c->n_channels, c->n_feed_forward, prefix, "fc1");
    layer->contract =
        add_linear(b, BD_ROLE_RESIDUAL, c->n_feed_forward, c->n_channels, prefix, "fc2");
}

static void add_gpt2_layer(builder *b, int64_t l)
{
    const bd_model_config *c = &b->parameters->config;
    bd_layer_offsets *layer = &b->parameters->layers[l];
    char prefix[48];
    snprintf(prefix, sizeof prefix, "transformer.h.%" PRId64 ".", l);
    layer->attention_norm = add_norm(b, prefix, "ln_1");
    layer->qkv =
        add_linear(b, BD_ROLE_MATRIX, c->n_channels, 3 * c->n_channels, prefix, "attn.c_attn");
    layer->projection =
        add_linear(b, BD_ROLE_RESIDUAL, c->n_channels, c->n_channels, prefix, "attn.c_proj");
    layer->feed_forward_norm = add_norm(b, prefix, "ln_2");
    layer->expand =
        add_linear(b, BD_ROLE_MATRIX, c->n_channels, c->n_feed_forward, prefix, "mlp.c_fc");
    layer->contract =
        add_linear(b, BD_ROLE_RESIDUAL, c->n_feed_forward, c->n_channels, prefix, "mlp.c_proj");
}

static void add_model(builder *b)
{
    bd_parameters *p = b->parameters;
    const bd_model_config *c = &p->config;
    const bool opt = c->family == BD_MODEL_OPT;
    const char *prefix = opt ? "model.decoder." : "transformer.";
    p->layout = opt ? BD_WEIGHT_OUT_IN : BD_WEIGHT_IN_OUT;
    p->n_position_rows = c->n_positions + bd_model_first_position(c);
    p->token_table = add(b, BD_ROLE_MATRIX, c->n_vocabulary, c->n_channels, "%s%s.weight",
                         prefix, opt ? "embed_tokens" : "wte");
    p->position_table = add(b, BD_ROLE_MATRIX, p->n_position_rows, c->n_channels, "%s%s.weight",
                            prefix, opt ? "embed_positions" : "wpe");
    for (int64_t l = 0; l < c->n_layers; l++) {
        if (opt)
            add_opt_layer(b, l);
        else
            add_gpt2_layer(b, l);
    }
    p->final_norm = add_norm(b, prefix, opt ? "final_layer_norm" : "ln_f");
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

bool bd_parameter_decays(const bd_parameter *parameter)
{
    return parameter->n_dimensions == 2;
}

void bd_parameters_draw(const bd_parameters *parameters, uint64_t seed, float *weights)
{
    static const double deviation = 0.02;
    const bool scales_residual = parameters->config.family == BD_MODEL_GPT2;
    const double residual = deviation / sqrt(2.0 * (double)parameters->config.n_layers);
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        // A generator of its own: a parameter's values do not depend on the others' sizes.
        bd_random random = {bd_random_mix(bd_random_mix(seed) + i)};
        const double scale =
            scales_residual && parameter->role == BD_ROLE_RESIDUAL ? residual : deviation;
        float *values = weights + parameter->offset;
        for (int64_t j = 0; j < parameter->n; j++)
            values[j] = parameter->role == BD_ROLE_GAIN ? 1.0f
                        : parameter->role == BD_ROLE_BIAS
                            ? 0.0f
                            : (float)(scale * bd_random_normal(&random));
    }
}
