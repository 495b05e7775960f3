// Written to be obviously right, not to be quick: nothing but sums in double precision. What
// follows from the family (first position, activation) is said here once more, on purpose.
#include "trainer/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const double epsilon = 1e-5;  // of every layer norm
enum {
    TILE = 32,        // of a matrix: stays in the cache while another matrix passes by
    HEAD_TOKENS = 64  // whose logits exist at once: n times a large vocabulary would not fit
};

// What the backward pass must find again of one layer.
typedef struct layer_values {
    double *x, *middle;              // [n][n_channels], the residual stream
    double *normed, *middle_normed;  // [n][n_channels]
    double *qkv;                     // [n][3][n_channels], heads side by side
    double *attended;                // [n][n_channels]
    double *activated, *slopes;      // [n][n_feed_forward]
} layer_values;

typedef struct sequence {
    bd_reference *r;
    const bd_model_config *config;
    const uint32_t *ids;               // [n]
    const float *const *relu_results;  // [n_layers] of [n][n_feed_forward], or NULL
    int64_t n, head_size;
    double scale;          // of the attention scores
    layer_values *layers;  // [n_layers + 1], owned; of the last only x, what leaves the layers
    double *memory;        // owned: all the doubles in layers and below
    double *normed;        // [n][n_channels], the final norm's
    double *logits;        // [HEAD_TOKENS][n_vocabulary]
    double *d_x;           // [n][n_channels], of the residual stream
    double *d_narrow;      // [n][n_channels]
    double *d_qkv;         // [n][3][n_channels]
    double *d_wide;        // [n][n_feed_forward]
    double *p, *d_p;       // [n], what one token sees in one head
} sequence;

// ---- Matrix products ---------------------------------------------------------------------

// Element (i, j) is at[i * row_step + j * column_step].
typedef struct matrix {
    const double *at;
    int64_t rows, columns;
    int64_t row_step, column_step;
} matrix;

static matrix row_major(const double *at, int64_t rows, int64_t columns)
{
    return (matrix){at, rows, columns, columns, 1};
}

static matrix transposed(matrix m)
{
    return (matrix){m.at, m.columns, m.rows, m.column_step, m.row_step};
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// c[i][j] += sum over k of a(i, k) * tile[k][j], c being `width` wide and its rows `c_step`
// apart. All of the tile takes part, as a constant width makes vector code.
static void add_tile_product(double *c, int64_t c_step, int64_t width, matrix a,
                             double (*tile)[TILE])
{
    for (int64_t i = 0; i < a.rows; i++) {
        double sums[TILE] = {0.0};
        for (int64_t k = 0; k < a.columns; k++) {
            const double factor = a.at[i * a.row_step + k * a.column_step];
            for (int64_t j = 0; j < TILE; j++)
                sums[j] += factor * tile[k][j];
        }
        for (int64_t j = 0; j < width; j++)
            c[i * c_step + j] += sums[j];
    }
}

// c [a.rows][b.columns] += a * b.
static void add_product(double *c, matrix a, matrix b)
{
    double tile[TILE][TILE] = {{0.0}};  // a part of b, row-major whichever way b lies
    for (int64_t j0 = 0; j0 < b.columns; j0 += TILE)
        for (int64_t k0 = 0; k0 < b.rows; k0 += TILE) {
            const int64_t width = smaller(TILE, b.columns - j0);
            matrix part = a;
            part.at += k0 * a.column_step;
            part.columns = smaller(TILE, b.rows - k0);
            for (int64_t k = 0; k < part.columns; k++)
                for (int64_t j = 0; j < width; j++)
                    tile[k][j] = b.at[(k0 + k) * b.row_step + (j0 + j) * b.column_step];
            add_tile_product(c + j0, b.columns, width, part, tile);
        }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

// y += factor * x
static void add_scaled(double *y, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

static void clear(double *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

// ---- Linear: out = x * weight + bias -----------------------------------------------------

typedef struct linear {
    bd_linear_offsets at;
    int64_t n_in, n_out;
} linear;

// The weight as [n_in][n_out].
static matrix weight_of(const sequence *s, linear l)
{
    const double *weight = s->r->weights + l.at.weight;
    return s->r->parameters->layout == BD_WEIGHT_IN_OUT
               ? row_major(weight, l.n_in, l.n_out)
               : transposed(row_major(weight, l.n_out, l.n_in));
}

static void linear_forward(const sequence *s, linear l, const double *x, double *out)
{
    for (int64_t t = 0; t < s->n; t++)
        memcpy(out + t * l.n_out, s->r->weights + l.at.bias, (size_t)l.n_out * sizeof *out);
    add_product(out, row_major(x, s->n, l.n_in), weight_of(s, l));
}

// Writes d_x.
static void linear_backward(const sequence *s, linear l, const double *x, const double *d_out,
                            double *d_x)
{
    const matrix inputs = row_major(x, s->n, l.n_in);
    const matrix d_outputs = row_major(d_out, s->n, l.n_out);
    clear(d_x, s->n * l.n_in);
    add_product(d_x, d_outputs, transposed(weight_of(s, l)));
    if (s->r->parameters->layout == BD_WEIGHT_IN_OUT)
        add_product(s->r->gradients + l.at.weight, transposed(inputs), d_outputs);
    else
        add_product(s->r->gradients + l.at.weight, transposed(d_outputs), inputs);
    for (int64_t t = 0; t < s->n; t++)
        add_scaled(s->r->gradients + l.at.bias, 1.0, d_out + t * l.n_out, l.n_out);
}

// ---- Layer norm and activation -----------------------------------------------------------

// Mean and 1 / standard deviation of x [n].
static void moments(const double *x, int64_t n, double *mean, double *rstd)
{
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1.0 / sqrt(squares / (double)n + epsilon);
}

static void norm_forward(const sequence *s, bd_norm_offsets at, const double *x, double *out)
{
    const double *gamma = s->r->weights + at.gamma, *beta = s->r->weights + at.beta;
    const int64_t n = s->config->n_channels;
    for (int64_t t = 0; t < s->n; t++, x += n, out += n) {
        double mean, rstd;
        moments(x, n, &mean, &rstd);
        for (int64_t i = 0; i < n; i++)
            out[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
    }
}

// Adds to d_x, where the gradient that flows past the norm is already. With
// z = (x - mean) * rstd and g = gamma * d_out it is rstd * (g - mean(g) - z * mean(g * z)).
static void norm_backward(const sequence *s, bd_norm_offsets at, const double *x,
                          const double *d_out, double *d_x)
{
    const double *gamma = s->r->weights + at.gamma;
    double *d_gamma = s->r->gradients + at.gamma, *d_beta = s->r->gradients + at.beta;
    const int64_t n = s->config->n_channels;
    for (int64_t t = 0; t < s->n; t++, x += n, d_out += n, d_x += n) {
        double mean, rstd, mean_g = 0.0, mean_gz = 0.0;
        moments(x, n, &mean, &rstd);
        for (int64_t i = 0; i < n; i++) {
            const double z = (x[i] - mean) * rstd;
            mean_g += gamma[i] * d_out[i] / (double)n;
            mean_gz += gamma[i] * d_out[i] * z / (double)n;
            d_gamma[i] += d_out[i] * z;
            d_beta[i] += d_out[i];
        }
        for (int64_t i = 0; i < n; i++) {
            const double z = (x[i] - mean) * rstd;
            d_x[i] += rstd * (gamma[i] * d_out[i] - mean_g - z * mean_gz);
        }
    }
}

static double activation(bd_model_family family, double x, double *slope)
{
    if (family == BD_MODEL_OPT) {
        *slope = x > 0.0 ? 1.0 : 0.0;
        return x > 0.0 ? x : 0.0;
    }
    const double a = sqrt(2.0 / M_PI), b = 0.044715;
    const double y = tanh(a * (x + b * x * x * x));
    *slope = 0.5 * (1.0 + y) + 0.5 * x * (1.0 - y * y) * a * (1.0 + 3.0 * b * x * x);
    return 0.5 * x * (1.0 + y);
}

// ---- Attention: a token sees itself and every token before it ----------------------------

enum { Q, K, V };

// Where q, k or v of token t in head h lies in a [n][3][n_channels] array.
static int64_t at_qkv(const sequence *s, int part, int64_t t, int64_t h)
{
    return (3 * t + part) * s->config->n_channels + h * s->head_size;
}

// p[i], i <= t: the share of token i in what token t takes, in head h.
static void attend(const sequence *s, const double *qkv, int64_t t, int64_t h)
{
    const double *q = qkv + at_qkv(s, Q, t, h);
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i <= t; i++) {
        s->p[i] = s->scale * dot(q, qkv + at_qkv(s, K, i, h), s->head_size);
        top = fmax(top, s->p[i]);
    }
    for (int64_t i = 0; i <= t; i++) {
        s->p[i] = exp(s->p[i] - top);
        sum += s->p[i];
    }
    for (int64_t i = 0; i <= t; i++)
        s->p[i] /= sum;
}

static void attention_forward(const sequence *s, const double *qkv, double *out)
{
    const int64_t size = s->head_size;
    clear(out, s->n * s->config->n_channels);
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t h = 0; h < s->config->n_heads; h++, out += size) {
            attend(s, qkv, t, h);
            for (int64_t i = 0; i <= t; i++)
                add_scaled(out, s->p[i], qkv + at_qkv(s, V, i, h), size);
        }
}

// Writes d_qkv.
static void attention_backward(const sequence *s, const double *qkv, const double *d_out,
                               double *d_qkv)
{
    const int64_t size = s->head_size;
    clear(d_qkv, 3 * s->n * s->config->n_channels);
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t h = 0; h < s->config->n_heads; h++, d_out += size) {
            const int64_t q = at_qkv(s, Q, t, h);
            attend(s, qkv, t, h);
            for (int64_t i = 0; i <= t; i++)
                s->d_p[i] = dot(d_out, qkv + at_qkv(s, V, i, h), size);
            const double mean = dot(s->p, s->d_p, t + 1);
            for (int64_t i = 0; i <= t; i++) {
                const int64_t k = at_qkv(s, K, i, h), v = at_qkv(s, V, i, h);
                const double d_score = s->scale * s->p[i] * (s->d_p[i] - mean);
                add_scaled(d_qkv + q, d_score, qkv + k, size);
                add_scaled(d_qkv + k, d_score, qkv + q, size);
                add_scaled(d_qkv + v, s->p[i], d_out, size);
            }
        }
}

// ---- The model ---------------------------------------------------------------------------

// Where token t's rows of the two tables lie in the flat arrays.
static int64_t token_row(const sequence *s, int64_t t)
{
    return s->r->parameters->token_table + s->ids[t] * s->config->n_channels;
}

static int64_t position_row(const sequence *s, int64_t t)
{
    const int64_t first = s->config->family == BD_MODEL_OPT ? 2 : 0;
    return s->r->parameters->position_table + (first + t) * s->config->n_channels;
}

static void embedding_forward(const sequence *s, double *x)
{
    const int64_t n = s->config->n_channels;
    clear(x, s->n * n);
    for (int64_t t = 0; t < s->n; t++, x += n) {
        add_scaled(x, 1.0, s->r->weights + token_row(s, t), n);
        add_scaled(x, 1.0, s->r->weights + position_row(s, t), n);
    }
}

static void embedding_backward(const sequence *s, const double *d_x)
{
    const int64_t n = s->config->n_channels;
    for (int64_t t = 0; t < s->n; t++, d_x += n) {
        add_scaled(s->r->gradients + token_row(s, t), 1.0, d_x, n);
        add_scaled(s->r->gradients + position_row(s, t), 1.0, d_x, n);
    }
}

// The non-linearity of one token in place, and its slopes; see reference.h on kinks.
static void activate_token(const sequence *s, int64_t l, int64_t t)
{
    const int64_t wide = s->config->n_feed_forward;
    double *x = s->layers[l].activated + t * wide, *slopes = s->layers[l].slopes + t * wide;
    const bool decides = s->relu_results && s->config->family == BD_MODEL_OPT;
    double largest = 0;
    for (int64_t i = 0; decides && i < wide; i++)
        largest = fmax(largest, fabs(x[i]));
    for (int64_t i = 0; i < wide; i++) {
        const double input = x[i];
        x[i] = activation(s->config->family, input, &slopes[i]);
        if (decides && fabs(input) <= s->r->nearly_zero * largest) {
            const bool positive = s->relu_results[l][t * wide + i] > 0;
            s->r->n_kinks += positive != (input > 0);
            slopes[i] = positive ? 1.0 : 0.0;
        }
    }
}

static void layer_forward(const sequence *s, int64_t l)
{
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    const int64_t narrow = s->config->n_channels, wide = s->config->n_feed_forward;
    const layer_values *v = &s->layers[l];
    norm_forward(s, at->attention_norm, v->x, v->normed);
    linear_forward(s, (linear){at->qkv, narrow, 3 * narrow}, v->normed, v->qkv);
    attention_forward(s, v->qkv, v->attended);
    linear_forward(s, (linear){at->projection, narrow, narrow}, v->attended, v->middle);
    add_scaled(v->middle, 1.0, v->x, s->n * narrow);

    double *out = s->layers[l + 1].x;
    norm_forward(s, at->feed_forward_norm, v->middle, v->middle_normed);
    linear_forward(s, (linear){at->expand, narrow, wide}, v->middle_normed, v->activated);
    for (int64_t t = 0; t < s->n; t++)
        activate_token(s, l, t);
    linear_forward(s, (linear){at->contract, wide, narrow}, v->activated, out);
    add_scaled(out, 1.0, v->middle, s->n * narrow);
}

// The same from its last line to its first; d_x is the gradient of the residual stream there.
static void layer_backward(const sequence *s, int64_t l)
{
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    const int64_t narrow = s->config->n_channels, wide = s->config->n_feed_forward;
    const layer_values *v = &s->layers[l];
    linear_backward(s, (linear){at->contract, wide, narrow}, v->activated, s->d_x, s->d_wide);
    for (int64_t i = 0; i < s->n * wide; i++)
        s->d_wide[i] *= v->slopes[i];
    linear_backward(s, (linear){at->expand, narrow, wide}, v->middle_normed, s->d_wide,
                    s->d_narrow);
    norm_backward(s, at->feed_forward_norm, v->middle, s->d_narrow, s->d_x);

    linear_backward(s, (linear){at->projection, narrow, narrow}, v->attended, s->d_x,
                    s->d_narrow);
    attention_backward(s, v->qkv, s->d_narrow, s->d_qkv);
    linear_backward(s, (linear){at->qkv, narrow, 3 * narrow}, v->normed, s->d_qkv, s->d_narrow);
    norm_backward(s, at->attention_norm, v->x, s->d_narrow, s->d_x);
}

// Turns one token's logits [n] into their gradient and returns -log p(target).
static double cross_entropy(double *logits, int64_t n, uint32_t target, double loss_scale)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(logits[i] - top);
    const double log_sum = top + log(sum);
    const double loss = log_sum - logits[target];
    for (int64_t i = 0; i < n; i++)
        logits[i] = loss_scale * (exp(logits[i] - log_sum) - (i == target ? 1.0 : 0.0));
    return loss;
}

// Final norm, logits and loss, and back again into d_x. The last token has no target.
static double head(const sequence *s, double loss_scale)
{
    const int64_t n_channels = s->config->n_channels, n_vocabulary = s->config->n_vocabulary;
    const int64_t at_table = s->r->parameters->token_table, n_targets = s->n - 1;
    const matrix table = row_major(s->r->weights + at_table, n_vocabulary, n_channels);
    const double *x = s->layers[s->config->n_layers].x;
    double loss = 0.0;
    norm_forward(s, s->r->parameters->final_norm, x, s->normed);
    clear(s->d_narrow, s->n * n_channels);
    for (int64_t first = 0; first < n_targets; first += HEAD_TOKENS) {
        const int64_t n = smaller(HEAD_TOKENS, n_targets - first);
        const matrix normed = row_major(s->normed + first * n_channels, n, n_channels);
        const matrix logits = row_major(s->logits, n, n_vocabulary);
        clear(s->logits, n * n_vocabulary);
        add_product(s->logits, normed, transposed(table));
        for (int64_t t = 0; t < n; t++)
            loss += cross_entropy(s->logits + t * n_vocabulary, n_vocabulary,
                                  s->ids[first + t + 1], loss_scale);
        add_product(s->d_narrow + first * n_channels, logits, table);
        add_product(s->r->gradients + at_table, transposed(logits), normed);
    }
    clear(s->d_x, s->n * n_channels);
    norm_backward(s, s->r->parameters->final_norm, x, s->d_narrow, s->d_x);
    return loss;
}

// ---- A run -------------------------------------------------------------------------------

static double *take(double **rest, int64_t n)
{
    double *taken = *rest;
    *rest += n;
    return taken;
}

// Nothing overflows: bd_model_config_check() has bounded every factor.
static bd_status sequence_init(sequence *s, bd_error *err)
{
    const bd_model_config *c = s->config;
    const int64_t narrow = s->n * c->n_channels, wide = s->n * c->n_feed_forward;
    const int64_t n_doubles = c->n_layers * (8 * narrow + 2 * wide) + 7 * narrow + wide +
                              HEAD_TOKENS * c->n_vocabulary + 2 * s->n;
    s->head_size = c->n_channels / c->n_heads;
    s->scale = 1.0 / sqrt((double)s->head_size);
    s->layers = calloc((size_t)c->n_layers + 1, sizeof *s->layers);
    s->memory = malloc((size_t)n_doubles * sizeof *s->memory);
    if (!s->layers || !s->memory)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a sequence of %" PRId64 " tokens",
                       s->n);
    double *rest = s->memory;
    for (int64_t l = 0; l < c->n_layers; l++)
        s->layers[l] = (layer_values){
            .x = take(&rest, narrow),
            .normed = take(&rest, narrow),
            .qkv = take(&rest, 3 * narrow),
            .attended = take(&rest, narrow),
            .middle = take(&rest, narrow),
            .middle_normed = take(&rest, narrow),
            .activated = take(&rest, wide),
            .slopes = take(&rest, wide),
        };
    s->layers[c->n_layers].x = take(&rest, narrow);
    s->normed = take(&rest, narrow);
    s->logits = take(&rest, HEAD_TOKENS * c->n_vocabulary);
    s->d_x = take(&rest, narrow);
    s->d_narrow = take(&rest, narrow);
    s->d_qkv = take(&rest, 3 * narrow);
    s->d_wide = take(&rest, wide);
    s->p = take(&rest, s->n);
    s->d_p = take(&rest, s->n);
    return BD_OK;
}

bd_status bd_reference_add(bd_reference *reference, const uint32_t *ids, int64_t n,
                           double loss_scale, const float *const *relu_results, bd_error *err)
{
    const bd_model_config *config = &reference->parameters->config;
    if (n < 1 || n > config->n_positions)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "a sequence of %" PRId64 " tokens for a model of %" PRId64 " positions",
                       n, config->n_positions);
    for (int64_t t = 0; t < n; t++)
        if (ids[t] >= config->n_vocabulary)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "token %" PRId64 " has id %" PRIu32 ", the vocabulary %" PRId64, t,
                           ids[t], config->n_vocabulary);
    if (n == 1)
        return BD_OK;
    sequence s = {
        .r = reference, .config = config, .ids = ids, .n = n, .relu_results = relu_results};
    const bd_status status = sequence_init(&s, err);
    if (status == BD_OK) {
        embedding_forward(&s, s.layers[0].x);
        for (int64_t l = 0; l < config->n_layers; l++)
            layer_forward(&s, l);
        reference->loss_sum += head(&s, loss_scale);
        for (int64_t l = config->n_layers - 1; l >= 0; l--)
            layer_backward(&s, l);
        embedding_backward(&s, s.d_x);
    }
    free(s.layers);
    free(s.memory);
    return status;
}

bd_status bd_reference_init(bd_reference *reference, const bd_parameters *parameters,
                            const float *weights, double nearly_zero, bd_error *err)
{
    const int64_t n = parameters->n_total;
    *reference = (bd_reference){.parameters = parameters, .nearly_zero = nearly_zero};
    reference->weights = malloc((size_t)n * sizeof(double));
    reference->gradients = calloc((size_t)n, sizeof(double));
    if (!reference->weights || !reference->gradients) {
        bd_reference_release(reference);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " weights", n);
    }
    for (int64_t i = 0; i < n; i++)
        reference->weights[i] = weights[i];
    return BD_OK;
}

void bd_reference_release(bd_reference *reference)
{
    free(reference->weights);
    free(reference->gradients);
    *reference = (bd_reference){0};
}
