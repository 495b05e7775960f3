// Written to be obviously right, not to be quick.
#include "trainer/proof/exact_operations.h"

#include <math.h>
#include <string.h>

static void zero_doubles(double *x, int64_t n)
{
    memset(x, 0, (size_t)n * sizeof *x);
}

// ---- Gradients of parameters -------------------------------------------------------------

void bd_exact_add_gradients(bd_reference *r, int64_t offset, bd_matrix a, bd_matrix b)
{
    bd_matrix_add_product(NULL, r->gradients + offset, a, b);
    if (r->magnitudes)
        bd_matrix_add_product(NULL, r->magnitudes + offset, bd_matrix_absolute(a),
                              bd_matrix_absolute(b));
}

void bd_exact_add_gradient(bd_reference *r, int64_t offset, const double *x, int64_t n)
{
    bd_exact_add_scaled(r->gradients + offset, 1.0, x, n);
    for (int64_t i = 0; r->magnitudes && i < n; i++)
        r->magnitudes[offset + i] += fabs(x[i]);
}

// ---- Linear ------------------------------------------------------------------------------

static bool is_in_out(const bd_reference *r)
{
    return r->parameters->config.family->layout == BD_WEIGHT_IN_OUT;
}

// The weight as [n_in][n_out].
static bd_matrix weight_matrix(const bd_reference *r, bd_exact_linear l)
{
    const double *weight = r->weights + l.at.weight;
    return is_in_out(r) ? bd_matrix_of_rows(weight, l.n_in, l.n_out)
                        : bd_matrix_transposed(bd_matrix_of_rows(weight, l.n_out, l.n_in));
}

void bd_exact_linear_forward(bd_reference *r, bd_exact_linear l, int64_t n, const double *x,
                             double *out)
{
    zero_doubles(out, n * l.n_out);
    for (int64_t t = 0; l.at.bias != BD_NO_PARAMETER && t < n; t++)
        bd_exact_add_scaled(out + t * l.n_out, 1.0, r->weights + l.at.bias, l.n_out);
    bd_matrix_add_product(&r->rounding, out, bd_matrix_of_rows(x, n, l.n_in),
                          weight_matrix(r, l));
    bd_round_stored(&r->rounding, out, n * l.n_out);
}

void bd_exact_linear_backward(bd_reference *r, bd_exact_linear l, int64_t n, const double *x,
                              const double *d_out, double *d_x)
{
    const bd_matrix inputs = bd_matrix_of_rows(x, n, l.n_in);
    const bd_matrix d_outputs = bd_matrix_of_rows(d_out, n, l.n_out);
    zero_doubles(d_x, n * l.n_in);
    bd_matrix_add_product(&r->rounding, d_x, d_outputs,
                          bd_matrix_transposed(weight_matrix(r, l)));
    bd_round_stored(&r->rounding, d_x, n * l.n_in);
    if (is_in_out(r))
        bd_exact_add_gradients(r, l.at.weight, bd_matrix_transposed(inputs), d_outputs);
    else
        bd_exact_add_gradients(r, l.at.weight, bd_matrix_transposed(d_outputs), inputs);
    for (int64_t t = 0; l.at.bias != BD_NO_PARAMETER && t < n; t++)
        bd_exact_add_gradient(r, l.at.bias, d_out + t * l.n_out, l.n_out);
}

// ---- Norms -------------------------------------------------------------------------------

// What is subtracted from x [n], and what the difference is multiplied by: for a layer norm the
// mean and 1 / standard deviation, for an RMS norm 0 and 1 / root mean square.
static void moments(bd_reference *r, const double *x, int64_t n, double *mean, double *rstd)
{
    const bd_model_config *config = &r->parameters->config;
    double sum = 0.0, squares = 0.0, deviations = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    *mean = config->family->has_layer_norms
                ? bd_round_sum(&r->rounding, sum, sqrt(squares), n) / (double)n
                : 0.0;
    for (int64_t i = 0; i < n; i++)
        deviations += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1.0 / sqrt(bd_round_sum(&r->rounding, deviations, 0.0, n) / (double)n +
                       config->norm_epsilon);
}

static double gain_of(const bd_reference *r, bd_exact_norm norm, int64_t i)
{
    const double stored = r->weights[norm.at.gain + i];
    return r->parameters->config.family->gains_from_one ? 1.0 + stored : stored;
}

static void normalise_vector(bd_reference *r, bd_exact_norm norm, const double *x, double *out)
{
    const int64_t n = norm.n_channels;
    double mean, rstd;
    moments(r, x, n, &mean, &rstd);
    for (int64_t i = 0; i < n; i++) {
        out[i] = bd_round_sum(&r->rounding, (x[i] - mean) * rstd * gain_of(r, norm, i), 0.0, 3);
        if (norm.at.shift != BD_NO_PARAMETER)
            out[i] += r->weights[norm.at.shift + i];
    }
    bd_round_stored(&r->rounding, out, n);
}

void bd_exact_norm_forward(bd_reference *r, bd_exact_norm norm, int64_t n, const double *x,
                           double *out)
{
    for (int64_t t = 0; t < n; t++)
        for (int64_t v = 0; v < norm.n_vectors; v++) {
            const int64_t at = t * norm.stride + v * norm.n_channels;
            normalise_vector(r, norm, x + at, out + at);
        }
}

// With z = (x - mean) * rstd and g = gain * d_out the gradient is
// rstd * (g - mean(g) - z * mean(g * z)). An RMS norm subtracts no mean, and so has no mean(g).
static void norm_vector_backward(bd_reference *r, bd_exact_norm norm, const double *x,
                                 const double *d_out, double *d_x, bool adds, double *scratch)
{
    const int64_t n = norm.n_channels;
    double *g = scratch, *z = scratch + n, *d_gain = scratch + 2 * n;
    double mean, rstd, sum_g = 0.0, squares = 0.0;
    moments(r, x, n, &mean, &rstd);
    for (int64_t i = 0; i < n; i++) {
        z[i] = bd_round_sum(&r->rounding, (x[i] - mean) * rstd, 0.0, 2);
        g[i] = gain_of(r, norm, i) * d_out[i];
        d_gain[i] = d_out[i] * z[i];
        sum_g += g[i];
        squares += g[i] * g[i];
    }
    bd_exact_add_gradient(r, norm.at.gain, d_gain, n);
    if (norm.at.shift != BD_NO_PARAMETER)
        bd_exact_add_gradient(r, norm.at.shift, d_out, n);
    const double mean_g = r->parameters->config.family->has_layer_norms
                              ? bd_round_sum(&r->rounding, sum_g, sqrt(squares), n) / (double)n
                              : 0.0;
    const double mean_gz = bd_exact_dot(&r->rounding, g, z, n) / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double d =
            bd_round_sum(&r->rounding, rstd * (g[i] - mean_g - z[i] * mean_gz), 0.0, 4);
        d_x[i] = adds ? d_x[i] + d : d;
    }
    bd_round_stored(&r->rounding, d_x, n);
}

void bd_exact_norm_backward(bd_reference *r, bd_exact_norm norm, int64_t n, const double *x,
                            const double *d_out, double *d_x, bool adds, double *scratch)
{
    for (int64_t t = 0; t < n; t++)
        for (int64_t v = 0; v < norm.n_vectors; v++) {
            const int64_t at = t * norm.stride + v * norm.n_channels;
            norm_vector_backward(r, norm, x + at, d_out + at, d_x + at, adds, scratch);
        }
}

// ---- Rotation ----------------------------------------------------------------------------
// The formulas are those of transformers, in terms of wavelengths and of dimensions.

// The error of an angle in radians, in units of float: what is left of a turn, less than pi, is
// rounded, and so are its sine and cosine.
#define ANGLE_ROUNDINGS 2.0

// The pair, as a real number, that turns `n_turns` times over the original positions: the inverse
// of frequency(i) = theta^(-2i / head_size).
static double yarn_dimension(const bd_rotation *how, int64_t head_size, double n_turns)
{
    const double wavelength = how->original_positions / n_turns;
    return (double)head_size / 2.0 * log(wavelength / (2.0 * M_PI)) / log(how->theta);
}

// The radians by which pair i turns from one position to the next.
static double pair_frequency(const bd_rotation *how, int64_t head_size, int64_t i)
{
    const double plain = 1.0 / pow(how->theta, (double)(2 * i) / (double)head_size);
    if (how->scaling == BD_SCALING_NONE)
        return plain;
    const double slow = plain / how->factor;
    if (how->scaling == BD_SCALING_LINEAR)
        return slow;
    if (how->scaling == BD_SCALING_LLAMA3) {
        const double wavelength = 2.0 * M_PI / plain;
        const double longest = how->original_positions / how->low_frequency_factor;
        const double shortest = how->original_positions / how->high_frequency_factor;
        if (wavelength > longest)
            return slow;
        if (wavelength < shortest)
            return plain;
        const double smooth =
            (how->original_positions / wavelength - how->low_frequency_factor) /
            (how->high_frequency_factor - how->low_frequency_factor);
        return (1.0 - smooth) * slow + smooth * plain;
    }
    double low = yarn_dimension(how, head_size, how->beta_fast);
    double high = yarn_dimension(how, head_size, how->beta_slow);
    low = how->truncates ? floor(low) : low;
    high = how->truncates ? ceil(high) : high;
    low = low < 0.0 ? 0.0 : low;
    high = high > (double)head_size - 1.0 ? (double)head_size - 1.0 : high;
    high = high == low ? high + 0.001 : high;
    const double along = ((double)i - low) / (high - low);
    const double ramp = along < 0.0 ? 0.0 : along > 1.0 ? 1.0 : along;
    return slow * ramp + plain * (1.0 - ramp);
}

// YaRN's growth of queries and keys.
static double rotation_growth(const bd_rotation *how)
{
    if (how->scaling != BD_SCALING_YARN)
        return 1.0;
    return how->attention_factor != 0.0 ? how->attention_factor : 1.0 + log(how->factor) / 10.0;
}

void bd_exact_rotate(bd_reference *r, const bd_exact_rotation *rotation, int64_t n, double *x)
{
    const int64_t half = rotation->head_size / 2;
    const double growth = rotation_growth(&rotation->how);
    bd_rounding *rounding = &r->rounding;
    for (int64_t i = 0; i < half; i++) {
        const double frequency = pair_frequency(&rotation->how, rotation->head_size, i);
        for (int64_t t = 0; t < n; t++) {
            const double angle = (rotation->inverse ? -1.0 : 1.0) * (double)t * frequency +
                                 ANGLE_ROUNDINGS * rounding->sum * bd_rounding_draw(rounding);
            const double cosine = growth * cos(angle), sine = growth * sin(angle);
            for (int64_t h = 0; h < rotation->n_heads; h++) {
                double *a = x + t * rotation->stride + h * rotation->head_size + i;
                double *b = a + half;
                const double turned[2] = {*a * cosine - *b * sine, *b * cosine + *a * sine};
                const double size = growth * hypot(*a, *b);
                *a = bd_round_sum(rounding, turned[0], size, 2);
                *b = bd_round_sum(rounding, turned[1], size, 2);
                bd_round_stored(rounding, a, 1);
                bd_round_stored(rounding, b, 1);
            }
        }
    }
}

// ---- Attention ---------------------------------------------------------------------------

// Where the heads of token t lie: those of queries, then those of keys, then those of values.
static int64_t qkv_width(const bd_exact_attention *a)
{
    return (a->n_heads + 2 * a->n_kv_heads) * a->head_size;
}

static int64_t query_at(const bd_exact_attention *a, int64_t t, int64_t h)
{
    return t * qkv_width(a) + h * a->head_size;
}

// Neighbouring heads of queries share a head of keys.
static int64_t key_at(const bd_exact_attention *a, int64_t t, int64_t h)
{
    const int64_t shared_by = a->n_heads / a->n_kv_heads;
    return t * qkv_width(a) + (a->n_heads + h / shared_by) * a->head_size;
}

static int64_t value_at(const bd_exact_attention *a, int64_t t, int64_t h)
{
    return key_at(a, t, h) + a->n_kv_heads * a->head_size;
}

static int64_t first_seen(const bd_exact_attention *a, int64_t t)
{
    return a->window > 0 && t >= a->window ? t - a->window + 1 : 0;
}

// p[i], first <= i <= t: the weight that token t gives to token i in head h.
static void attention_weights(bd_reference *r, const bd_exact_attention *a, const double *qkv,
                              int64_t t, int64_t h, double *p)
{
    const int64_t first = first_seen(a, t);
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = first; i <= t; i++) {
        p[i] = a->scale * bd_exact_dot(&r->rounding, qkv + query_at(a, t, h),
                                       qkv + key_at(a, i, h), a->head_size);
        top = fmax(top, p[i]);
    }
    for (int64_t i = first; i <= t; i++) {
        p[i] = exp(p[i] - top);
        sum += p[i];
    }
    sum = bd_round_sum(&r->rounding, sum, 0.0, t + 1 - first);
    for (int64_t i = first; i <= t; i++)
        p[i] /= sum;
    bd_round_stored(&r->rounding, p + first, t + 1 - first);
}

void bd_exact_attention_forward(bd_reference *r, const bd_exact_attention *a, int64_t n,
                                const double *qkv, double *out, double *scratch)
{
    double *p = scratch;
    zero_doubles(out, n * a->n_heads * a->head_size);
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < a->n_heads; h++, out += a->head_size) {
            const int64_t first = first_seen(a, t);
            attention_weights(r, a, qkv, t, h, p);
            for (int64_t i = first; i <= t; i++)
                bd_exact_add_scaled(out, p[i], qkv + value_at(a, i, h), a->head_size);
            bd_round_sums(&r->rounding, out, a->head_size, t + 1 - first);
            bd_round_stored(&r->rounding, out, a->head_size);
        }
}

void bd_exact_attention_backward(bd_reference *r, const bd_exact_attention *a, int64_t n,
                                 const double *qkv, const double *out, const double *d_out,
                                 double *d_qkv, double *scratch)
{
    const int64_t size = a->head_size;
    double *p = scratch, *d_p = scratch + n;
    zero_doubles(d_qkv, n * qkv_width(a));
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < a->n_heads; h++, out += size, d_out += size) {
            const int64_t q = query_at(a, t, h), first = first_seen(a, t);
            attention_weights(r, a, qkv, t, h, p);
            for (int64_t i = first; i <= t; i++)
                d_p[i] = bd_exact_dot(&r->rounding, d_out, qkv + value_at(a, i, h), size);
            // The mean of d_p, weighted by p. It is taken from the result, as a kernel does that
            // does not keep p: the error of what was stored is then the same for all keys.
            const double mean = bd_exact_dot(&r->rounding, out, d_out, size);
            for (int64_t i = first; i <= t; i++)  // now the gradient of the scores
                d_p[i] = a->scale * p[i] * (d_p[i] - mean);
            bd_round_stored(&r->rounding, d_p + first, t + 1 - first);
            for (int64_t i = first; i <= t; i++) {
                const int64_t k = key_at(a, i, h), v = value_at(a, i, h);
                bd_exact_add_scaled(d_qkv + q, d_p[i], qkv + k, size);
                bd_exact_add_scaled(d_qkv + k, d_p[i], qkv + q, size);
                bd_exact_add_scaled(d_qkv + v, p[i], d_out, size);
            }
        }
    // A query's gradient is a sum over the keys that it sees; a key's, over as many queries of
    // every head that shares it.
    const int64_t n_seen = a->window > 0 && a->window < n ? a->window : n;
    const int64_t queries = a->n_heads * size, shared_by = a->n_heads / a->n_kv_heads;
    for (int64_t t = 0; t < n; t++) {
        double *token = d_qkv + t * qkv_width(a);
        bd_round_sums(&r->rounding, token, queries, n_seen);
        bd_round_sums(&r->rounding, token + queries, qkv_width(a) - queries,
                      n_seen * shared_by);
    }
    bd_round_stored(&r->rounding, d_qkv, n * qkv_width(a));
}

// ---- Activation and loss -----------------------------------------------------------------

double bd_exact_activation(bd_activation which, double x, double *slope)
{
    if (which == BD_ACTIVATION_RELU) {
        *slope = x > 0.0 ? 1.0 : 0.0;
        return x > 0.0 ? x : 0.0;
    }
    if (which == BD_ACTIVATION_SILU) {
        const double sigmoid = 1.0 / (1.0 + exp(-x));
        *slope = sigmoid * (1.0 + x * (1.0 - sigmoid));
        return x * sigmoid;
    }
    const double a = sqrt(2.0 / M_PI), b = 0.044715;
    const double y = tanh(a * (x + b * x * x * x));
    *slope = 0.5 * (1.0 + y) + 0.5 * x * (1.0 - y * y) * a * (1.0 + 3.0 * b * x * x);
    return 0.5 * x * (1.0 + y);
}

double bd_exact_cross_entropy(bd_reference *r, double *logits, int64_t n, uint32_t target,
                              double loss_scale)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(logits[i] - top);
    const double log_sum = top + log(bd_round_sum(&r->rounding, sum, 0.0, n));
    const double loss = log_sum - logits[target];
    for (int64_t i = 0; i < n; i++)
        logits[i] = loss_scale * (bd_round_sum(&r->rounding, exp(logits[i] - log_sum), 0.0, 2) -
                                  (i == target ? 1.0 : 0.0));
    bd_round_stored(&r->rounding, logits, n);
    return loss;
}
