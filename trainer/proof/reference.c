// Written to be obviously right, not to be quick: nothing but sums in double precision. It
// shares the description of the model (family.h, parameters.h) with the kernels, and no code.
#include "trainer/proof/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    TILE = 32,        // rows and columns of a tile, which stays in the cache during a product
    LANES = 8,        // numbers in a vector
    HEAD_TOKENS = 64  // tokens whose logits exist at once: those of all would not fit
};

// The few loops that take nearly all of the time are compiled once for each generation of
// processors. The loader chooses among them, which is before a sanitizer is ready.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define VECTOR_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTOR_CLONES
#endif

// The values of one layer that the backward pass needs.
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
    layer_values *layers;  // [n_layers + 1], owned; the last has only x, the layers' output
    double *memory;        // owned: all the doubles in layers and below
    double *normed;        // [n][n_channels], the final norm's
    double *logits;        // [HEAD_TOKENS][n_vocabulary]
    double *d_x;           // [n][n_channels], of the residual stream
    double *d_narrow;      // [n][n_channels]
    double *d_qkv;         // [n][3][n_channels]
    double *d_wide;        // [n][n_feed_forward]
    double *p, *d_p;       // [n], attention weights of one token in one head
    double *row;           // [3][n_channels], of one token
} sequence;

// ---- Random rounding ---------------------------------------------------------------------
// With a rounding of 0 nothing here has an effect.

static double larger(double a, double b)
{
    return a < b ? b : a;
}

// A random number in [-1, 1].
static double either_way(bd_rounding *rounding)
{
    return (double)(int64_t)bd_random_next(&rounding->random) * 0x1p-63;
}

// The number of roundings that n successive additions amount to. Within TILE additions all
// errors may have the same sign, since a sum that grows steadily loses the same bits each time:
// they add up. Errors of different groups of TILE are independent: their squares add up.
static double roundings(int64_t n)
{
    return n <= TILE ? (double)n : sqrt((double)(TILE * n));
}

// The sum x of n terms as a loop computes it that rounds after every addition. Each error is a
// share of the sum so far, which is about as large as x, or, where terms cancel, as `size`, the
// root of the sum of their squares.
static double as_sum(const sequence *s, double x, double size, int64_t n)
{
    bd_rounding *rounding = &s->r->rounding;
    if (rounding->sum == 0.0)
        return x;
    return x + rounding->sum * roundings(n) * larger(fabs(x), size) * either_way(rounding);
}

static void as_sums(const sequence *s, double *x, int64_t count, int64_t n)
{
    for (int64_t i = 0; s->r->rounding.sum != 0.0 && i < count; i++)
        x[i] = as_sum(s, x[i], 0.0, n);
}

// Rounds x [n] as it is rounded when one operation stores it for the next.
static void round_stored(const sequence *s, double *x, int64_t n)
{
    bd_rounding *rounding = &s->r->rounding;
    for (int64_t i = 0; rounding->stored != 0.0 && i < n; i++)
        x[i] *= 1.0 + rounding->stored * either_way(rounding);
}

// ---- Matrix products ---------------------------------------------------------------------

// Element (i, j) is at[i * row_step + j * column_step], or its absolute value.
typedef struct matrix {
    const double *at;
    int64_t rows, columns;
    int64_t row_step, column_step;
    bool is_absolute;
} matrix;

static matrix row_major(const double *at, int64_t rows, int64_t columns)
{
    return (matrix){at, rows, columns, columns, 1, false};
}

static matrix transposed(matrix m)
{
    return (matrix){m.at, m.columns, m.rows, m.column_step, m.row_step, m.is_absolute};
}

static matrix absolute(matrix m)
{
    m.is_absolute = true;
    return m;
}

static double matrix_element(matrix m, int64_t i, int64_t j)
{
    const double value = m.at[i * m.row_step + j * m.column_step];
    return m.is_absolute ? fabs(value) : value;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// LANES numbers, for which the compiler uses the vectors that the processor has.
typedef double lanes __attribute__((vector_size(LANES * sizeof(double)), may_alias));
enum { TILE_LANES = TILE / LANES };

// c[i][j] += sum over k of a(i, k) * tile[k][j]. c is `width` wide, its rows `c_step` apart.
// With a rounding, c is rounded as often as terms were added to it.
VECTOR_CLONES
static void add_tile_product(bd_rounding *rounding, double *c, int64_t c_step, int64_t width,
                             matrix a, lanes (*tile)[TILE_LANES])
{
    const double share = rounding ? rounding->sum * roundings(a.columns) : 0.0;
    for (int64_t i = 0; i < a.rows; i++) {
        lanes sums[TILE_LANES] = {0};
        for (int64_t k = 0; k < a.columns; k++) {
            const double factor = matrix_element(a, i, k);
#pragma GCC unroll 4
            for (int64_t v = 0; v < TILE_LANES; v++)
                sums[v] += factor * tile[k][v];
        }
        double *row = c + i * c_step;
        for (int64_t j = 0; j < width; j++) {
            const double sum = sums[j / LANES][j % LANES];
            row[j] += sum;
            if (share != 0.0)
                row[j] += share * larger(fabs(row[j]), fabs(sum)) * either_way(rounding);
        }
    }
}

// c [a.rows][b.columns] += a * b; exact up to double precision without a rounding (NULL).
static void add_product(bd_rounding *rounding, double *c, matrix a, matrix b)
{
    lanes tile[TILE][TILE_LANES] = {{{0.0}}};  // a part of b, row-major even if b is not
    for (int64_t j0 = 0; j0 < b.columns; j0 += TILE)
        for (int64_t k0 = 0; k0 < b.rows; k0 += TILE) {
            const int64_t width = smaller(TILE, b.columns - j0);
            matrix part = a;
            part.at += k0 * a.column_step;
            part.columns = smaller(TILE, b.rows - k0);
            for (int64_t k = 0; k < part.columns; k++)
                for (int64_t j = 0; j < width; j++)
                    tile[k][j / LANES][j % LANES] = matrix_element(b, k0 + k, j0 + j);
            add_tile_product(rounding, c + j0, b.columns, width, part, tile);
        }
}

// Returns the sum of a[i] * b[i] and sets *squares to the sum of their squares.
VECTOR_CLONES
static double sum_products(const double *a, const double *b, int64_t n, double *squares)
{
    lanes sums = {0.0}, square_sums = {0.0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        sums += x * y;
        square_sums += x * y * (x * y);
    }
    double sum = *squares = 0.0;
    for (; i < n; i++) {
        sum += a[i] * b[i];
        *squares += a[i] * b[i] * (a[i] * b[i]);
    }
    for (int64_t j = 0; j < LANES; j++) {
        sum += sums[j];
        *squares += square_sums[j];
    }
    return sum;
}

static double dot(const sequence *s, const double *a, const double *b, int64_t n)
{
    double squares;
    const double sum = sum_products(a, b, n, &squares);
    return as_sum(s, sum, sqrt(squares), n);
}

// y += factor * x
VECTOR_CLONES
static void add_scaled(double *y, double factor, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

static void zero_doubles(double *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

// ---- Gradients of parameters -------------------------------------------------------------
// Added up without rounding: the error of these sums is bounded by the magnitudes.

// Adds a * b to the gradient of the parameter at `offset`.
static void add_gradients(const sequence *s, int64_t offset, matrix a, matrix b)
{
    add_product(NULL, s->r->gradients + offset, a, b);
    if (s->r->magnitudes)
        add_product(NULL, s->r->magnitudes + offset, absolute(a), absolute(b));
}

// Adds x [n] to the gradients of the n numbers from `offset` on.
static void add_gradient(const sequence *s, int64_t offset, const double *x, int64_t n)
{
    add_scaled(s->r->gradients + offset, 1.0, x, n);
    for (int64_t i = 0; s->r->magnitudes && i < n; i++)
        s->r->magnitudes[offset + i] += fabs(x[i]);
}

// ---- Linear: out = x * weight + bias -----------------------------------------------------

typedef struct linear {
    bd_linear_offsets at;
    int64_t n_in, n_out;
} linear;

// The weight as [n_in][n_out].
static matrix weight_matrix(const sequence *s, linear l)
{
    const double *weight = s->r->weights + l.at.weight;
    return s->config->family->layout == BD_WEIGHT_IN_OUT
               ? row_major(weight, l.n_in, l.n_out)
               : transposed(row_major(weight, l.n_out, l.n_in));
}

static void exact_linear_forward(const sequence *s, linear l, const double *x, double *out)
{
    for (int64_t t = 0; t < s->n; t++)
        memcpy(out + t * l.n_out, s->r->weights + l.at.bias, (size_t)l.n_out * sizeof *out);
    add_product(&s->r->rounding, out, row_major(x, s->n, l.n_in), weight_matrix(s, l));
    round_stored(s, out, s->n * l.n_out);
}

// Writes d_x.
static void exact_linear_backward(const sequence *s, linear l, const double *x,
                                  const double *d_out, double *d_x)
{
    const matrix inputs = row_major(x, s->n, l.n_in);
    const matrix d_outputs = row_major(d_out, s->n, l.n_out);
    zero_doubles(d_x, s->n * l.n_in);
    add_product(&s->r->rounding, d_x, d_outputs, transposed(weight_matrix(s, l)));
    round_stored(s, d_x, s->n * l.n_in);
    if (s->config->family->layout == BD_WEIGHT_IN_OUT)
        add_gradients(s, l.at.weight, transposed(inputs), d_outputs);
    else
        add_gradients(s, l.at.weight, transposed(d_outputs), inputs);
    for (int64_t t = 0; t < s->n; t++)
        add_gradient(s, l.at.bias, d_out + t * l.n_out, l.n_out);
}

// ---- Layer norm and activation -----------------------------------------------------------

// Mean and 1 / standard deviation of x [n].
static void moments(const sequence *s, const double *x, int64_t n, double *mean, double *rstd)
{
    double sum = 0.0, squares = 0.0, deviations = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    *mean = as_sum(s, sum, sqrt(squares), n) / (double)n;
    for (int64_t i = 0; i < n; i++)
        deviations += (x[i] - *mean) * (x[i] - *mean);
    *rstd =
        1.0 / sqrt(as_sum(s, deviations, 0.0, n) / (double)n + s->config->family->norm_epsilon);
}

static void exact_norm_forward(const sequence *s, bd_norm_offsets at, const double *x,
                               double *out)
{
    const double *gamma = s->r->weights + at.gamma, *beta = s->r->weights + at.beta;
    const int64_t n = s->config->n_channels;
    for (int64_t t = 0; t < s->n; t++, x += n, out += n) {
        double mean, rstd;
        moments(s, x, n, &mean, &rstd);
        for (int64_t i = 0; i < n; i++)
            out[i] = as_sum(s, (x[i] - mean) * rstd * gamma[i], 0.0, 3) + beta[i];
        round_stored(s, out, n);
    }
}

// Adds to d_x, which already has the gradient that bypasses the norm. The norm's own is
// rstd * (g - mean(g) - z * mean(g * z)) with z = (x - mean) * rstd and g = gamma * d_out.
static void exact_norm_backward(const sequence *s, bd_norm_offsets at, const double *x,
                                const double *d_out, double *d_x)
{
    const double *gamma = s->r->weights + at.gamma;
    const int64_t n = s->config->n_channels;
    double *g = s->row, *z = s->row + n, *d_gamma = s->row + 2 * n;
    for (int64_t t = 0; t < s->n; t++, x += n, d_out += n, d_x += n) {
        double mean, rstd;
        moments(s, x, n, &mean, &rstd);
        for (int64_t i = 0; i < n; i++) {
            z[i] = as_sum(s, (x[i] - mean) * rstd, 0.0, 2);
            g[i] = gamma[i] * d_out[i];
            d_gamma[i] = d_out[i] * z[i];
        }
        add_gradient(s, at.gamma, d_gamma, n);
        add_gradient(s, at.beta, d_out, n);
        const double mean_g = dot(s, gamma, d_out, n) / (double)n;
        const double mean_gz = dot(s, g, z, n) / (double)n;
        for (int64_t i = 0; i < n; i++)
            d_x[i] += as_sum(s, rstd * (g[i] - mean_g - z[i] * mean_gz), 0.0, 4);
        round_stored(s, d_x, n);
    }
}

enum { ACTIVATION_OPERATIONS = 8 };  // about as many in GELU, and in its slope

static double activation(bd_activation which, double x, double *slope)
{
    if (which == BD_ACTIVATION_RELU) {
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

// The index of q, k or v of token t in head h in a [n][3][n_channels] array.
static int64_t at_qkv(const sequence *s, int part, int64_t t, int64_t h)
{
    return (3 * t + part) * s->config->n_channels + h * s->head_size;
}

// p[i], i <= t: the weight that token t gives to token i in head h.
static void exact_attention_weights(const sequence *s, const double *qkv, int64_t t, int64_t h)
{
    const double *q = qkv + at_qkv(s, Q, t, h);
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i <= t; i++) {
        s->p[i] = s->scale * dot(s, q, qkv + at_qkv(s, K, i, h), s->head_size);
        top = fmax(top, s->p[i]);
    }
    for (int64_t i = 0; i <= t; i++) {
        s->p[i] = exp(s->p[i] - top);
        sum += s->p[i];
    }
    sum = as_sum(s, sum, 0.0, t + 1);
    for (int64_t i = 0; i <= t; i++)
        s->p[i] /= sum;
    round_stored(s, s->p, t + 1);
}

static void exact_attention_forward(const sequence *s, const double *qkv, double *out)
{
    const int64_t size = s->head_size;
    zero_doubles(out, s->n * s->config->n_channels);
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t h = 0; h < s->config->n_heads; h++, out += size) {
            exact_attention_weights(s, qkv, t, h);
            for (int64_t i = 0; i <= t; i++)
                add_scaled(out, s->p[i], qkv + at_qkv(s, V, i, h), size);
            as_sums(s, out, size, t + 1);
            round_stored(s, out, size);
        }
}

// Writes d_qkv.
static void exact_attention_backward(const sequence *s, const double *qkv, const double *d_out,
                                     double *d_qkv)
{
    const int64_t size = s->head_size;
    zero_doubles(d_qkv, 3 * s->n * s->config->n_channels);
    for (int64_t t = 0; t < s->n; t++)
        for (int64_t h = 0; h < s->config->n_heads; h++, d_out += size) {
            const int64_t q = at_qkv(s, Q, t, h);
            exact_attention_weights(s, qkv, t, h);
            for (int64_t i = 0; i <= t; i++)
                s->d_p[i] = dot(s, d_out, qkv + at_qkv(s, V, i, h), size);
            const double mean = dot(s, s->p, s->d_p, t + 1);
            for (int64_t i = 0; i <= t; i++)  // now the gradient of the scores
                s->d_p[i] = s->scale * s->p[i] * (s->d_p[i] - mean);
            round_stored(s, s->d_p, t + 1);
            for (int64_t i = 0; i <= t; i++) {
                const int64_t k = at_qkv(s, K, i, h), v = at_qkv(s, V, i, h);
                add_scaled(d_qkv + q, s->d_p[i], qkv + k, size);
                add_scaled(d_qkv + k, s->d_p[i], qkv + q, size);
                add_scaled(d_qkv + v, s->p[i], d_out, size);
            }
        }
    as_sums(s, d_qkv, 3 * s->n * s->config->n_channels, s->n);
    round_stored(s, d_qkv, 3 * s->n * s->config->n_channels);
}

// ---- The model ---------------------------------------------------------------------------

// The offsets of token t's rows of the two tables in the flat arrays.
static int64_t token_row(const sequence *s, int64_t t)
{
    return s->r->parameters->token_table + s->ids[t] * s->config->n_channels;
}

static int64_t position_row(const sequence *s, int64_t t)
{
    const int64_t row = s->config->family->first_position + t;
    return s->r->parameters->position_table + row * s->config->n_channels;
}

static void exact_embedding_forward(const sequence *s, double *x)
{
    const int64_t n = s->config->n_channels;
    zero_doubles(x, s->n * n);
    for (int64_t t = 0; t < s->n; t++, x += n) {
        add_scaled(x, 1.0, s->r->weights + token_row(s, t), n);
        add_scaled(x, 1.0, s->r->weights + position_row(s, t), n);
        round_stored(s, x, n);
    }
}

static void exact_embedding_backward(const sequence *s, const double *d_x)
{
    const int64_t n = s->config->n_channels;
    for (int64_t t = 0; t < s->n; t++, d_x += n) {
        add_gradient(s, token_row(s, t), d_x, n);
        add_gradient(s, position_row(s, t), d_x, n);
    }
}

// Applies the activation to one token in place and keeps its slopes; reference.h explains
// kinks.
static void activate_token(const sequence *s, int64_t l, int64_t t)
{
    const int64_t wide = s->config->n_feed_forward;
    double *x = s->layers[l].activated + t * wide, *slopes = s->layers[l].slopes + t * wide;
    const bd_activation which = s->config->family->activation;
    const bool decides = s->relu_results && which == BD_ACTIVATION_RELU;
    double largest = 0;
    for (int64_t i = 0; decides && i < wide; i++)
        largest = fmax(largest, fabs(x[i]));
    for (int64_t i = 0; i < wide; i++) {
        const double input = x[i];
        x[i] = activation(which, input, &slopes[i]);
        if (decides && fabs(input) <= s->r->nearly_zero * largest) {
            const bool positive = s->relu_results[l][t * wide + i] > 0;
            s->r->n_kinks += positive != (input > 0);
            slopes[i] = positive ? 1.0 : 0.0;
        }
    }
    if (which != BD_ACTIVATION_RELU) {  // which has nothing to round
        as_sums(s, x, wide, ACTIVATION_OPERATIONS);
        as_sums(s, slopes, wide, ACTIVATION_OPERATIONS);
        round_stored(s, x, wide);
    }
}

static void exact_layer_forward(const sequence *s, int64_t l)
{
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    const int64_t narrow = s->config->n_channels, wide = s->config->n_feed_forward;
    const layer_values *v = &s->layers[l];
    exact_norm_forward(s, at->attention_norm, v->x, v->normed);
    exact_linear_forward(s, (linear){at->qkv, narrow, 3 * narrow}, v->normed, v->qkv);
    exact_attention_forward(s, v->qkv, v->attended);
    exact_linear_forward(s, (linear){at->projection, narrow, narrow}, v->attended, v->middle);
    add_scaled(v->middle, 1.0, v->x, s->n * narrow);
    round_stored(s, v->middle, s->n * narrow);

    double *out = s->layers[l + 1].x;
    exact_norm_forward(s, at->feed_forward_norm, v->middle, v->middle_normed);
    exact_linear_forward(s, (linear){at->expand, narrow, wide}, v->middle_normed, v->activated);
    for (int64_t t = 0; t < s->n; t++)
        activate_token(s, l, t);
    exact_linear_forward(s, (linear){at->contract, wide, narrow}, v->activated, out);
    add_scaled(out, 1.0, v->middle, s->n * narrow);
    round_stored(s, out, s->n * narrow);
}

// exact_layer_forward() from its last line to its first; d_x is the gradient of the residual
// stream.
static void exact_layer_backward(const sequence *s, int64_t l)
{
    const bd_layer_offsets *at = &s->r->parameters->layers[l];
    const int64_t narrow = s->config->n_channels, wide = s->config->n_feed_forward;
    const layer_values *v = &s->layers[l];
    exact_linear_backward(s, (linear){at->contract, wide, narrow}, v->activated, s->d_x,
                          s->d_wide);
    for (int64_t i = 0; i < s->n * wide; i++)
        s->d_wide[i] *= v->slopes[i];
    round_stored(s, s->d_wide, s->n * wide);
    exact_linear_backward(s, (linear){at->expand, narrow, wide}, v->middle_normed, s->d_wide,
                          s->d_narrow);
    exact_norm_backward(s, at->feed_forward_norm, v->middle, s->d_narrow, s->d_x);

    exact_linear_backward(s, (linear){at->projection, narrow, narrow}, v->attended, s->d_x,
                          s->d_narrow);
    exact_attention_backward(s, v->qkv, s->d_narrow, s->d_qkv);
    exact_linear_backward(s, (linear){at->qkv, narrow, 3 * narrow}, v->normed, s->d_qkv,
                          s->d_narrow);
    exact_norm_backward(s, at->attention_norm, v->x, s->d_narrow, s->d_x);
}

// Turns one token's logits [n] into their gradient and returns -log p(target).
static double exact_cross_entropy(const sequence *s, double *logits, int64_t n, uint32_t target,
                                  double loss_scale)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(logits[i] - top);
    const double log_sum = top + log(as_sum(s, sum, 0.0, n));
    const double loss = log_sum - logits[target];
    for (int64_t i = 0; i < n; i++)
        logits[i] = loss_scale *
                    (as_sum(s, exp(logits[i] - log_sum), 0.0, 2) - (i == target ? 1.0 : 0.0));
    round_stored(s, logits, n);
    return loss;
}

// Final norm, logits and loss, and their gradient into d_x. The last token has no target.
static double exact_head(const sequence *s, double loss_scale)
{
    const int64_t n_channels = s->config->n_channels, n_vocabulary = s->config->n_vocabulary;
    const int64_t at_table = s->r->parameters->token_table, n_targets = s->n - 1;
    const matrix table = row_major(s->r->weights + at_table, n_vocabulary, n_channels);
    const double *x = s->layers[s->config->n_layers].x;
    double loss = 0.0;
    exact_norm_forward(s, s->r->parameters->final_norm, x, s->normed);
    zero_doubles(s->d_narrow, s->n * n_channels);
    for (int64_t first = 0; first < n_targets; first += HEAD_TOKENS) {
        const int64_t n = smaller(HEAD_TOKENS, n_targets - first);
        const matrix normed = row_major(s->normed + first * n_channels, n, n_channels);
        const matrix logits = row_major(s->logits, n, n_vocabulary);
        zero_doubles(s->logits, n * n_vocabulary);
        add_product(&s->r->rounding, s->logits, normed, transposed(table));
        round_stored(s, s->logits, n * n_vocabulary);
        for (int64_t t = 0; t < n; t++)
            loss += exact_cross_entropy(s, s->logits + t * n_vocabulary, n_vocabulary,
                                        s->ids[first + t + 1], loss_scale);
        add_product(&s->r->rounding, s->d_narrow + first * n_channels, logits, table);
        add_gradients(s, at_table, transposed(logits), normed);
    }
    round_stored(s, s->d_narrow, s->n * n_channels);
    zero_doubles(s->d_x, s->n * n_channels);
    exact_norm_backward(s, s->r->parameters->final_norm, x, s->d_narrow, s->d_x);
    return loss;
}

// ---- A run -------------------------------------------------------------------------------

static double *take_doubles(double **rest, int64_t n)
{
    double *taken = *rest;
    *rest += n;
    return taken;
}

// The doubles that sequence_init() hands out for n tokens. Nothing overflows, because
// bd_model_config_check() has bounded every factor.
static int64_t count_doubles(const bd_model_config *c, int64_t n)
{
    const int64_t narrow = n * c->n_channels, wide = n * c->n_feed_forward;
    return c->n_layers * (8 * narrow + 2 * wide) + 7 * narrow + wide +
           HEAD_TOKENS * c->n_vocabulary + 2 * n + 3 * c->n_channels;
}

size_t bd_reference_bytes(const bd_model_config *config, int64_t n)
{
    return (size_t)count_doubles(config, n) * sizeof(double);
}

static bd_status sequence_init(sequence *s, bd_error *err)
{
    const bd_model_config *c = s->config;
    const int64_t narrow = s->n * c->n_channels, wide = s->n * c->n_feed_forward;
    const int64_t n_doubles = count_doubles(c, s->n);
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
            .x = take_doubles(&rest, narrow),
            .normed = take_doubles(&rest, narrow),
            .qkv = take_doubles(&rest, 3 * narrow),
            .attended = take_doubles(&rest, narrow),
            .middle = take_doubles(&rest, narrow),
            .middle_normed = take_doubles(&rest, narrow),
            .activated = take_doubles(&rest, wide),
            .slopes = take_doubles(&rest, wide),
        };
    s->layers[c->n_layers].x = take_doubles(&rest, narrow);
    s->normed = take_doubles(&rest, narrow);
    s->logits = take_doubles(&rest, HEAD_TOKENS * c->n_vocabulary);
    s->d_x = take_doubles(&rest, narrow);
    s->d_narrow = take_doubles(&rest, narrow);
    s->d_qkv = take_doubles(&rest, 3 * narrow);
    s->d_wide = take_doubles(&rest, wide);
    s->p = take_doubles(&rest, s->n);
    s->d_p = take_doubles(&rest, s->n);
    s->row = take_doubles(&rest, 3 * c->n_channels);
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
        exact_embedding_forward(&s, s.layers[0].x);
        for (int64_t l = 0; l < config->n_layers; l++)
            exact_layer_forward(&s, l);
        reference->loss_sum += exact_head(&s, loss_scale);
        for (int64_t l = config->n_layers - 1; l >= 0; l--)
            exact_layer_backward(&s, l);
        exact_embedding_backward(&s, s.d_x);
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
