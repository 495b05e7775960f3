// Written to be obviously right, not to be quick.
#include "trainer/proof/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/proof/exact_operations.h"

enum {
    HEAD_TOKENS = 64,          // tokens whose logits exist at once: those of all would not fit
    ACTIVATION_OPERATIONS = 8  // about as many in GELU and SiLU, and in their slopes
};

// The values of one layer that the backward pass needs. An operation that the family does not
// have leaves its input where it is: then both have the same array.
typedef struct layer_values {
    double *x, *middle;              // [n][n_channels], the residual stream
    double *normed, *middle_normed;  // [n][n_channels], what the two blocks read
    double *qkv, *turned;            // [n][qkv width], before and after norms and rotation
    double *attended;                // [n][n_heads * head_size]
    double *projected, *contracted;  // [n][n_channels], what the norms after blocks read
    double *expanded;                // [n][expanded width], before the activation
    double *activated;               // [n][n_feed_forward]
} layer_values;

typedef struct sequence {
    bd_reference *r;
    const bd_model_config *config;
    const bd_reference_sequence *given;
    int64_t n;
    layer_values *layers;  // [n_layers + 1], owned; the last has only x, the layers' output
    double *memory;        // owned: all the doubles in layers and below
    double *normed;        // [n][n_channels], the final norm's
    double *logits;        // [HEAD_TOKENS][n_vocabulary]
    double *d_x;           // [n][n_channels], of the residual stream
    double *d_branch;      // [n][n_channels], of what a block adds to the stream
    double *d_narrow;      // [n][n_channels]
    double *d_attended;    // [n][n_heads * head_size]
    double *d_qkv;         // [n][qkv width]
    double *d_activated;   // [n][n_feed_forward]
    double *d_expanded;    // [n][expanded width]
    double *scratch;
} sequence;

static void zero_doubles(double *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

// y += x, stored for the next operation.
static void add_rounded(const sequence *s, double *y, const double *x, int64_t n)
{
    bd_exact_add_scaled(y, 1.0, x, n);
    bd_round_stored(&s->r->rounding, y, n);
}

// ---- Embedding ---------------------------------------------------------------------------

// The offsets of token t's rows of the two tables in the flat arrays.
static int64_t token_row(const sequence *s, int64_t t)
{
    return s->r->parameters->token_table + s->given->ids[t] * s->config->n_channels;
}

static int64_t position_row(const sequence *s, int64_t t)
{
    const int64_t row = s->config->family->first_position + t;
    return s->r->parameters->position_table + row * s->config->n_channels;
}

static double token_scale(const sequence *s)
{
    return s->config->family->scales_tokens ? sqrt((double)s->config->n_channels) : 1.0;
}

static void embedding_forward(const sequence *s, double *x)
{
    const int64_t n = s->config->n_channels;
    zero_doubles(x, s->n * n);
    for (int64_t t = 0; t < s->n; t++, x += n) {
        bd_exact_add_scaled(x, token_scale(s), s->r->weights + token_row(s, t), n);
        if (s->config->family->position_table)
            bd_exact_add_scaled(x, 1.0, s->r->weights + position_row(s, t), n);
        bd_round_stored(&s->r->rounding, x, n);
    }
}

// Changes d_x.
static void embedding_backward(const sequence *s, double *d_x)
{
    const int64_t n = s->config->n_channels;
    for (int64_t t = 0; t < s->n; t++, d_x += n) {
        if (s->config->family->position_table)
            bd_exact_add_gradient(s->r, position_row(s, t), d_x, n);
        for (int64_t i = 0; i < n; i++)
            d_x[i] *= token_scale(s);
        bd_exact_add_gradient(s->r, token_row(s, t), d_x, n);
    }
}

// ---- Norms of the stream -----------------------------------------------------------------

static bool exists(bd_norm_offsets at)
{
    return at.gain != BD_NO_PARAMETER;
}

static bd_exact_norm stream_norm(const sequence *s, bd_norm_offsets at)
{
    return (bd_exact_norm){at, 1, s->config->n_channels, s->config->n_channels};
}

// Without a norm, `normed` is x itself.
static void norm_forward(const sequence *s, bd_norm_offsets at, const double *x, double *normed)
{
    if (exists(at))
        bd_exact_norm_forward(s->r, stream_norm(s, at), s->n, x, normed);
}

// Adds the gradient of what a block read, in d_narrow, to that of the stream.
static void join_stream_backward(const sequence *s, bd_norm_offsets at, const double *x)
{
    if (exists(at))
        bd_exact_norm_backward(s->r, stream_norm(s, at), s->n, x, s->d_narrow, s->d_x, true,
                               s->scratch);
    else
        add_rounded(s, s->d_x, s->d_narrow, s->n * s->config->n_channels);
}

// The block's result, or its norm, is in `out`; there the stream is added.
static void leave_block(const sequence *s, bd_norm_offsets at, const double *result,
                        const double *stream, double *out)
{
    norm_forward(s, at, result, out);
    add_rounded(s, out, stream, s->n * s->config->n_channels);
}

// The gradient of the block's result.
static const double *leave_block_backward(const sequence *s, bd_norm_offsets at,
                                          const double *result)
{
    if (!exists(at))
        return s->d_x;
    bd_exact_norm_backward(s->r, stream_norm(s, at), s->n, result, s->d_x, s->d_branch, false,
                           s->scratch);
    return s->d_branch;
}

// ---- Attention ---------------------------------------------------------------------------

// Heads of queries or of keys, and what happens to them before attention.
typedef struct heads {
    int64_t first, n;  // among the heads of a token's q, k and v
    bd_norm_offsets norm;
} heads;

enum { N_PREPARED = 2 };  // queries and keys

static heads prepared_heads(const sequence *s, int64_t l, int which)
{
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    return which == 0 ? (heads){0, s->config->n_heads, at->query_norm}
                      : (heads){s->config->n_heads, s->config->n_kv_heads, at->key_norm};
}

static bd_exact_norm heads_norm(const sequence *s, heads part)
{
    const int64_t size = s->config->head_size, stride = bd_qkv_width(s->config);
    return s->config->family->norms_whole_width
               ? (bd_exact_norm){part.norm, 1, part.n * size, stride}
               : (bd_exact_norm){part.norm, part.n, size, stride};
}

static void rotate_heads(const sequence *s, int64_t l, heads part, bool inverse, double *x)
{
    const bd_model_config *c = s->config;
    if (c->family->position_table || bd_layer_set_has(&c->unrotated, l))
        return;
    bd_exact_rotation rotation = {c->rotation, part.n, c->head_size, bd_qkv_width(c), inverse};
    if (c->family->has_local_rotation && bd_layer_set_has(&c->windowed, l))
        rotation.how = (bd_rotation){.theta = c->local_theta};
    bd_exact_rotate(s->r, &rotation, s->n, x);
}

static bd_exact_attention layer_attention(const sequence *s, int64_t l)
{
    const bd_model_config *c = s->config;
    return (bd_exact_attention){
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_size = c->head_size,
        .window = bd_layer_set_has(&c->windowed, l) ? c->window : 0,
        .scale = 1.0 / sqrt(c->query_scale),
    };
}

static void attention_forward(const sequence *s, int64_t l)
{
    const layer_values *v = &s->layers[l];
    const int64_t n_doubles = s->n * bd_qkv_width(s->config);
    if (v->turned != v->qkv)
        memcpy(v->turned, v->qkv, (size_t)n_doubles * sizeof(double));
    for (int i = 0; i < N_PREPARED; i++) {
        const heads part = prepared_heads(s, l, i);
        const int64_t at = part.first * s->config->head_size;
        if (exists(part.norm))
            bd_exact_norm_forward(s->r, heads_norm(s, part), s->n, v->qkv + at, v->turned + at);
        rotate_heads(s, l, part, false, v->turned + at);
    }
    const bd_exact_attention attention = layer_attention(s, l);
    bd_exact_attention_forward(s->r, &attention, s->n, v->turned, v->attended, s->scratch);
}

// From d_attended to d_qkv.
static void attention_backward(const sequence *s, int64_t l)
{
    const layer_values *v = &s->layers[l];
    const bd_exact_attention attention = layer_attention(s, l);
    bd_exact_attention_backward(s->r, &attention, s->n, v->turned, v->attended, s->d_attended,
                                s->d_qkv, s->scratch);
    for (int i = 0; i < N_PREPARED; i++) {
        const heads part = prepared_heads(s, l, i);
        const int64_t at = part.first * s->config->head_size;
        rotate_heads(s, l, part, true, s->d_qkv + at);
        if (exists(part.norm))
            bd_exact_norm_backward(s->r, heads_norm(s, part), s->n, v->qkv + at, s->d_qkv + at,
                                   s->d_qkv + at, false, s->scratch);
    }
}

// ---- Activation --------------------------------------------------------------------------

// f(x), or f(gate) * up, of every token.
static void activation_forward(const sequence *s, int64_t l)
{
    const bd_family *family = s->config->family;
    const int64_t wide = s->config->n_feed_forward, width = bd_expanded_width(s->config);
    const layer_values *v = &s->layers[l];
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t i = 0; i < wide; i++) {
            const double *x = v->expanded + t * width + i;
            double slope;
            const double f = bd_exact_activation(family->activation, x[0], &slope);
            v->activated[t * wide + i] = family->gate ? f * x[wide] : f;
        }
    if (family->activation != BD_ACTIVATION_RELU) {  // which has nothing to round
        bd_round_sums(&s->r->rounding, v->activated, s->n * wide, ACTIVATION_OPERATIONS);
        bd_round_stored(&s->r->rounding, v->activated, s->n * wide);
    }
}

// The slope of ReLU at x, input i of token t, if that is nearly 0: the kernels' side decides
// (reference.h). `largest` is that of the token.
static double decided_slope(const sequence *s, int64_t l, int64_t t, int64_t i, double x,
                            double largest)
{
    const double slope = x > 0 ? 1.0 : 0.0;
    if (!s->given->relu_results || fabs(x) > s->r->nearly_zero * largest)
        return slope;
    const bool positive = s->given->relu_results[l][t * s->config->n_feed_forward + i] > 0;
    s->r->n_kinks += positive != (x > 0);
    return positive ? 1.0 : 0.0;
}

// From d_activated to d_expanded.
static void activation_backward(const sequence *s, int64_t l)
{
    const bd_family *family = s->config->family;
    const int64_t wide = s->config->n_feed_forward, width = bd_expanded_width(s->config);
    for (int64_t t = 0; t < s->n; t++) {
        const double *x = s->layers[l].expanded + t * width;
        const double *d_out = s->d_activated + t * wide;
        double *d_x = s->d_expanded + t * width, largest = 0.0;
        for (int64_t i = 0; i < wide; i++)
            largest = fmax(largest, fabs(x[i]));
        for (int64_t i = 0; i < wide; i++) {
            double slope, f = bd_exact_activation(family->activation, x[i], &slope);
            if (family->activation == BD_ACTIVATION_RELU) {
                slope = decided_slope(s, l, t, i, x[i], largest);
            } else {
                f = bd_round_sum(&s->r->rounding, f, 0.0, ACTIVATION_OPERATIONS);
                slope = bd_round_sum(&s->r->rounding, slope, 0.0, ACTIVATION_OPERATIONS);
            }
            d_x[i] = d_out[i] * slope * (family->gate ? x[wide + i] : 1.0);
            if (family->gate)
                d_x[wide + i] = d_out[i] * f;
        }
    }
    bd_round_stored(&s->r->rounding, s->d_expanded, s->n * width);
}

// ---- A layer -----------------------------------------------------------------------------

// The four linear maps of a layer.
typedef struct layer_linears {
    bd_exact_linear qkv, projection, expand, contract;
} layer_linears;

static layer_linears linears_of(const sequence *s, int64_t l)
{
    const bd_model_config *c = s->config;
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    return (layer_linears){
        .qkv = {at->qkv, c->n_channels, bd_qkv_width(c)},
        .projection = {at->projection, c->n_heads * c->head_size, c->n_channels},
        .expand = {at->expand, c->n_channels, bd_expanded_width(c)},
        .contract = {at->contract, c->n_feed_forward, c->n_channels},
    };
}

static void layer_forward(const sequence *s, int64_t l)
{
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    const layer_linears linears = linears_of(s, l);
    const layer_values *v = &s->layers[l];
    norm_forward(s, at->attention_norm, v->x, v->normed);
    bd_exact_linear_forward(s->r, linears.qkv, s->n, v->normed, v->qkv);
    attention_forward(s, l);
    bd_exact_linear_forward(s->r, linears.projection, s->n, v->attended, v->projected);
    leave_block(s, at->attention_post_norm, v->projected, v->x, v->middle);

    norm_forward(s, at->feed_forward_norm, v->middle, v->middle_normed);
    bd_exact_linear_forward(s->r, linears.expand, s->n, v->middle_normed, v->expanded);
    activation_forward(s, l);
    bd_exact_linear_forward(s->r, linears.contract, s->n, v->activated, v->contracted);
    leave_block(s, at->feed_forward_post_norm, v->contracted, v->middle, s->layers[l + 1].x);
}

// layer_forward() from its last line to its first; d_x is the gradient of the residual stream.
static void layer_backward(const sequence *s, int64_t l)
{
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    const layer_linears linears = linears_of(s, l);
    const layer_values *v = &s->layers[l];
    const double *d_result = leave_block_backward(s, at->feed_forward_post_norm, v->contracted);
    bd_exact_linear_backward(s->r, linears.contract, s->n, v->activated, d_result,
                             s->d_activated);
    activation_backward(s, l);
    bd_exact_linear_backward(s->r, linears.expand, s->n, v->middle_normed, s->d_expanded,
                             s->d_narrow);
    join_stream_backward(s, at->feed_forward_norm, v->middle);

    d_result = leave_block_backward(s, at->attention_post_norm, v->projected);
    bd_exact_linear_backward(s->r, linears.projection, s->n, v->attended, d_result,
                             s->d_attended);
    attention_backward(s, l);
    bd_exact_linear_backward(s->r, linears.qkv, s->n, v->normed, s->d_qkv, s->d_narrow);
    join_stream_backward(s, at->attention_norm, v->x);
}

// ---- The head ----------------------------------------------------------------------------

// Whether token t, which is not the first, is to be predicted.
static bool is_target(const bd_reference_sequence *given, int64_t t)
{
    return !given->is_target || given->is_target[t];
}

// Final norm, logits and loss, and their gradient into d_x. The last token has no target.
static double head_forward_and_backward(const sequence *s)
{
    const int64_t n_channels = s->config->n_channels, n_vocabulary = s->config->n_vocabulary;
    const int64_t at_head = s->r->parameters->head, n_followed = s->n - 1;
    const double scale = s->given->weight * s->given->loss_scale;
    const bd_matrix head = bd_matrix_of_rows(s->r->weights + at_head, n_vocabulary, n_channels);
    const bd_exact_norm norm = stream_norm(s, s->r->parameters->final_norm);
    const double *x = s->layers[s->config->n_layers].x;
    double loss = 0.0;
    bd_exact_norm_forward(s->r, norm, s->n, x, s->normed);
    zero_doubles(s->d_narrow, s->n * n_channels);
    for (int64_t first = 0; first < n_followed; first += HEAD_TOKENS) {
        const int64_t n = n_followed - first < HEAD_TOKENS ? n_followed - first : HEAD_TOKENS;
        const bd_matrix normed =
            bd_matrix_of_rows(s->normed + first * n_channels, n, n_channels);
        const bd_matrix logits = bd_matrix_of_rows(s->logits, n, n_vocabulary);
        zero_doubles(s->logits, n * n_vocabulary);
        bd_matrix_add_product(&s->r->rounding, s->logits, normed, bd_matrix_transposed(head));
        bd_round_stored(&s->r->rounding, s->logits, n * n_vocabulary);
        for (int64_t t = 0; t < n; t++) {
            double *of_token = s->logits + t * n_vocabulary;
            if (is_target(s->given, first + t + 1))
                loss += bd_exact_cross_entropy(s->r, of_token, n_vocabulary,
                                               s->given->ids[first + t + 1], scale);
            else
                zero_doubles(of_token, n_vocabulary);
        }
        bd_matrix_add_product(&s->r->rounding, s->d_narrow + first * n_channels, logits, head);
        bd_exact_add_gradients(s->r, at_head, bd_matrix_transposed(logits), normed);
    }
    bd_round_stored(&s->r->rounding, s->d_narrow, s->n * n_channels);
    bd_exact_norm_backward(s->r, norm, s->n, x, s->d_narrow, s->d_x, false, s->scratch);
    return s->given->weight * loss;
}

// ---- Memory ------------------------------------------------------------------------------

// Hands out doubles one after another, or only counts them if there is no memory.
typedef struct supply {
    double *memory;
    int64_t n_taken;
} supply;

static double *take(supply *from, int64_t n)
{
    double *taken = from->memory ? from->memory + from->n_taken : NULL;
    from->n_taken += n;
    return taken;
}

// Memory for what a norm gives, or what it reads instead, if there is none.
static double *take_unless(supply *from, bool shares, double *shared, int64_t n)
{
    return shares ? shared : take(from, n);
}

// The arrays of a layer whose input is x and whose output is next_x.
static layer_values take_layer(supply *from, const bd_model_config *c, int64_t n, double *x,
                               double *next_x)
{
    const bd_family *family = c->family;
    const int64_t narrow = n * c->n_channels, qkv = n * bd_qkv_width(c);
    layer_values v = {.x = x, .middle = take(from, narrow)};
    v.normed = take_unless(from, !family->attention_norm, x, narrow);
    v.middle_normed = take_unless(from, !family->feed_forward_norm, v.middle, narrow);
    v.qkv = take(from, qkv);
    v.turned = take_unless(from, family->position_table && !family->query_norm, v.qkv, qkv);
    v.attended = take(from, n * c->n_heads * c->head_size);
    v.projected = take_unless(from, !family->attention_post_norm, v.middle, narrow);
    v.contracted = take_unless(from, !family->feed_forward_post_norm, next_x, narrow);
    v.expanded = take(from, n * bd_expanded_width(c));
    v.activated = take(from, n * c->n_feed_forward);
    return v;
}

// Gives the sequence its arrays and returns their size. Nothing overflows, because
// bd_model_config_complete() has bounded every factor.
static int64_t take_all(sequence *s, double *memory)
{
    const bd_model_config *c = s->config;
    const int64_t narrow = s->n * c->n_channels, attended = c->n_heads * c->head_size;
    const int64_t longest_norm = attended > c->n_channels ? attended : c->n_channels;
    supply from = {.memory = memory};
    double *x = take(&from, narrow);
    for (int64_t l = 0; l < c->n_layers; l++) {
        double *next_x = take(&from, narrow);
        const layer_values v = take_layer(&from, c, s->n, x, next_x);
        if (memory)
            s->layers[l] = v;
        x = next_x;
    }
    if (memory)
        s->layers[c->n_layers].x = x;
    s->normed = take(&from, narrow);
    s->logits = take(&from, HEAD_TOKENS * c->n_vocabulary);
    s->d_x = take(&from, narrow);
    s->d_branch = take(&from, narrow);
    s->d_narrow = take(&from, narrow);
    s->d_attended = take(&from, s->n * attended);
    s->d_qkv = take(&from, s->n * bd_qkv_width(c));
    s->d_activated = take(&from, s->n * c->n_feed_forward);
    s->d_expanded = take(&from, s->n * bd_expanded_width(c));
    s->scratch = take(&from, 3 * longest_norm > 2 * s->n ? 3 * longest_norm : 2 * s->n);
    return from.n_taken;
}

size_t bd_reference_bytes(const bd_model_config *config, int64_t n)
{
    sequence s = {.config = config, .n = n};
    return (size_t)take_all(&s, NULL) * sizeof(double);
}

static bd_status sequence_init(sequence *s, bd_error *err)
{
    s->layers = calloc((size_t)s->config->n_layers + 1, sizeof *s->layers);
    s->memory = malloc(bd_reference_bytes(s->config, s->n));
    if (!s->layers || !s->memory)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a sequence of %" PRId64 " tokens",
                       s->n);
    take_all(s, s->memory);
    return BD_OK;
}

// ---- A run -------------------------------------------------------------------------------

bd_status bd_reference_add(bd_reference *reference, const bd_reference_sequence *given,
                           bd_error *err)
{
    const bd_model_config *config = &reference->parameters->config;
    const int64_t n = given->n;
    if (n < 1 || n > config->n_positions)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "a sequence of %" PRId64 " tokens for a model of %" PRId64 " positions",
                       n, config->n_positions);
    for (int64_t t = 0; t < n; t++)
        if (given->ids[t] >= config->n_vocabulary)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "token %" PRId64 " has id %" PRIu32 ", the vocabulary %" PRId64, t,
                           given->ids[t], config->n_vocabulary);
    bool has_target = false;
    for (int64_t t = 1; t < n; t++)
        has_target |= is_target(given, t);
    if (!has_target)
        return BD_OK;
    sequence s = {.r = reference, .config = config, .given = given, .n = n};
    const bd_status status = sequence_init(&s, err);
    if (status == BD_OK) {
        embedding_forward(&s, s.layers[0].x);
        for (int64_t l = 0; l < config->n_layers; l++)
            layer_forward(&s, l);
        reference->loss_sum += head_forward_and_backward(&s);
        for (int64_t l = config->n_layers - 1; l >= 0; l--)
            layer_backward(&s, l);
        embedding_backward(&s, s.d_x);
    }
    free(s.layers);
    free(s.memory);
    return status;
}

bd_status bd_reference_init(bd_reference *reference, const bd_parameters *parameters,
                            const double *weights, double nearly_zero, bd_error *err)
{
    *reference = (bd_reference){
        .parameters = parameters, .weights = weights, .nearly_zero = nearly_zero};
    reference->gradients = calloc((size_t)parameters->n_total, sizeof(double));
    return reference->gradients
               ? BD_OK
               : bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " gradients",
                         parameters->n_total);
}

bd_status bd_reference_measure(bd_reference *reference, bd_error *err)
{
    const int64_t n = reference->parameters->n_total;
    reference->magnitudes = calloc((size_t)n, sizeof(double));
    return reference->magnitudes
               ? BD_OK
               : bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " magnitudes", n);
}

void bd_reference_release(bd_reference *reference)
{
    free(reference->gradients);
    free(reference->magnitudes);
    *reference = (bd_reference){0};
}
