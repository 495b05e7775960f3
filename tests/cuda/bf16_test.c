// The operations of the CUDA backend in bf16, compared with a computation in double. The
// address of an array must not change a bit.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bf16_fixture.h"
#include "module_fixture.h"

// ---- Embedding ------------------------------------------------------------------------------

enum { FIRST_POSITION = 2 };

static int64_t position_of(const batch *b, int64_t token)
{
    return FIRST_POSITION + token - segment_begin(b, token);
}

static void check_embedding(const batch *b, shape s, float token_scale, bool with_positions)
{
    uint64_t seed = 41;
    const int64_t width = s.width, n = b->n_tokens * width;
    const int64_t n_positions = with_positions ? FIRST_POSITION + s.seq_len + 3 : 0;
    const int64_t first_position = with_positions ? FIRST_POSITION : 0;
    const int64_t n_words = b->n_vocabulary * width, n_places = n_positions * width;
    float *words = bf16_tensor(&seed, n_words, 1.0),
          *places = bf16_tensor(&seed, n_places, 1.0);
    float *d_out = bf16_activations(&seed, b, width, 1.0);
    double *out = zeros(n), *d_words = to_double(words, n_words);
    double *d_places = to_double(places, n_places);
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t c = 0; c < width && !is_padding(b, t); c++) {
            const int64_t at = t * width + c, word = b->ids[t] * width + c;
            out[at] = (double)token_scale * (double)words[word];
            d_words[word] += (double)token_scale * (double)d_out[at];
            if (with_positions) {
                const int64_t place = position_of(b, t) * width + c;
                out[at] += (double)places[place];
                d_places[place] += (double)d_out[at];
            }
        }
    const bd_embedding_forward_args f = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .ids = ids_on_device(b, s.id_bytes),
        .id_bytes = s.id_bytes,
        .n_channels = width,
        .n_vocabulary = b->n_vocabulary,
        .n_positions = n_positions,
        .first_position = first_position,
        .token_scale = token_scale,
        .token_table = bf16_on_device(words, n_words),
        .position_table = with_positions ? bf16_on_device(places, n_places) : NULL,
        .out = bf16_nan_on_device(n),
    };
    const bd_embedding_backward_args g = {
        .boundaries = f.boundaries,
        .type = BD_BF16,
        .ids = f.ids,
        .id_bytes = s.id_bytes,
        .n_channels = width,
        .n_vocabulary = b->n_vocabulary,
        .n_positions = n_positions,
        .first_position = first_position,
        .token_scale = token_scale,
        .d_out = bf16_on_device(d_out, n),
        .d_token_table = floats_on_device(words, n_words),
        .d_position_table = with_positions ? floats_on_device(places, n_places) : NULL,
    };
    RUN(cuda, embedding_forward, f);
    RUN(cuda, embedding_backward, g);
    expect_bf16("embedding", b, f.out, out, n, few_roundings);
    expect_floats("gradient of words", g.d_token_table, d_words, n_words, few_roundings);
    if (with_positions)
        expect_floats("gradient of positions", g.d_position_table, d_places, n_places,
                      few_roundings);
    else
        free(d_places);
    free(words);
    free(places);
    free(d_out);
}

static void check_embeddings(const batch *b, shape s)
{
    check_embedding(b, s, 1.0f, true);
    release_device();
    check_embedding(b, s, 27.75f, false);
}

static void embedding_is_exact(void)
{
    for_each_shape(check_embeddings);
}

// ---- Layer norm -----------------------------------------------------------------------------

typedef struct norm {
    int64_t width;
    float *x, *gamma, *beta, *d_out, *d_x;
    float *mean, *rstd;                                // rounded from the exact ones
    double *out, *exact_mean, *exact_rstd;             // expected from the forward pass
    double *exact_d_x, *exact_d_gamma, *exact_d_beta;  // expected from the backward pass
} norm;

static void norm_token(norm *m, int64_t t)
{
    const int64_t n = m->width;
    const float *x = m->x + t * n, *d_out = m->d_out + t * n;
    double mean = 0.0, variance = 0.0, g_average = 0.0, gh_average = 0.0;
    for (int64_t c = 0; c < n; c++)
        mean += (double)x[c] / (double)n;
    for (int64_t c = 0; c < n; c++)
        variance += ((double)x[c] - mean) * ((double)x[c] - mean) / (double)n;
    const double rstd = 1.0 / sqrt(variance + (double)1e-5f);
    for (int64_t c = 0; c < n; c++) {
        const double g = (double)d_out[c] * (double)m->gamma[c];
        g_average += g / (double)n;
        gh_average += g * ((double)x[c] - mean) * rstd / (double)n;
    }
    for (int64_t c = 0; c < n; c++) {
        const double h = ((double)x[c] - mean) * rstd, d = (double)d_out[c];
        m->out[t * n + c] = h * (double)m->gamma[c] + (double)m->beta[c];
        m->exact_d_x[t * n + c] +=
            rstd * (d * (double)m->gamma[c] - g_average - h * gh_average);
        m->exact_d_gamma[c] += d * h;
        m->exact_d_beta[c] += d;
    }
    m->mean[t] = (float)mean;
    m->rstd[t] = (float)rstd;
    m->exact_mean[t] = mean;
    m->exact_rstd[t] = rstd;
}

static norm make_norm(const batch *b, int64_t width)
{
    uint64_t seed = 42;
    const int64_t n = b->n_tokens * width;
    norm m = {.width = width};
    m.x = random_tensor(&seed, n, 2.0);
    for (int64_t i = 0; i < n; i++)  // where a one-pass variance loses its digits
        m.x[i] = rounded_to_bf16(m.x[i] + 5.0f);
    m.gamma = bf16_tensor(&seed, width, 1.0);
    m.beta = bf16_tensor(&seed, width, 1.0);
    m.d_out = bf16_activations(&seed, b, width, 1.0);
    m.d_x = bf16_activations(&seed, b, width, 1.0);
    m.mean = get_memory((size_t)b->n_tokens * sizeof(float));
    m.rstd = get_memory((size_t)b->n_tokens * sizeof(float));
    m.out = zeros(n);
    m.exact_mean = zeros(b->n_tokens);
    m.exact_rstd = zeros(b->n_tokens);
    m.exact_d_x = to_double(m.d_x, n);
    m.exact_d_gamma = zeros(width);
    m.exact_d_beta = zeros(width);
    for (int64_t t = 0; t < b->n_tokens; t++) {
        m.mean[t] = m.rstd[t] = 0.0f;
        if (!is_padding(b, t))
            norm_token(&m, t);
    }
    return m;
}

static void free_norm(norm *m)
{
    float *inputs[] = {m->x, m->gamma, m->beta, m->d_out, m->d_x, m->mean, m->rstd};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        free(inputs[i]);
}

static void check_layer_norm(const batch *b, shape s)
{
    const int64_t width = s.width, n = b->n_tokens * width;
    norm m = make_norm(b, width);
    float *nothing = random_tensor(&(uint64_t){1}, width, 0.0);
    const bd_layer_norm_forward_args f = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .n_channels = width,
        .epsilon = 1e-5f,
        .x = bf16_on_device(m.x, n),
        .gamma = bf16_on_device(m.gamma, width),
        .beta = bf16_on_device(m.beta, width),
        .out = bf16_nan_on_device(n),
        .mean = floats_on_device(NULL, b->n_tokens),
        .rstd = floats_on_device(NULL, b->n_tokens),
    };
    const bd_layer_norm_backward_args g = {
        .boundaries = f.boundaries,
        .type = BD_BF16,
        .n_channels = width,
        .d_out = bf16_on_device(m.d_out, n),
        .x = f.x,
        .gamma = f.gamma,
        .mean = floats_on_device(m.mean, b->n_tokens),
        .rstd = floats_on_device(m.rstd, b->n_tokens),
        .d_x = bf16_on_device(m.d_x, n),
        .d_gamma = floats_on_device(nothing, width),
        .d_beta = floats_on_device(nothing, width),
    };
    RUN(cuda, layer_norm_forward, f);
    RUN(cuda, layer_norm_backward, g);
    // A difference of numbers of size 1 is multiplied by rstd, which is 316 for one channel.
    const double steepest = fmax(1.0, largest(m.exact_rstd, b->n_tokens));
    expect_bf16("layer norm", b, f.out, m.out, n, 4.0 * few_roundings);
    expect_floats("mean", f.mean, m.exact_mean, b->n_tokens, few_roundings);
    expect_floats("rstd", f.rstd, m.exact_rstd, b->n_tokens, few_roundings);
    expect_bf16("gradient of x", b, g.d_x, m.exact_d_x, n, long_sums * steepest);
    expect_floats("gradient of gamma", g.d_gamma, m.exact_d_gamma, width, long_sums);
    expect_floats("gradient of beta", g.d_beta, m.exact_d_beta, width, long_sums);
    free(nothing);
    free_norm(&m);
}

static void layer_norm_is_exact(void)
{
    for_each_shape(check_layer_norm);
}

// ---- RMS norm -------------------------------------------------------------------------------

// Vectors of a token, and numbers between tokens, which are left alone.
typedef struct vectors {
    int64_t n_vectors, n_channels, stride, n;
} vectors;

// Either one vector and sums that are added to d_x, or several vectors with gaps, in place.
typedef struct rms {
    vectors s;
    bool adds;
    float gain_offset;
    float *x, *gain, *d_out, *d_x, *rstd;
    double *out, *exact_rstd, *exact_d_x, *exact_d_gain;
    double gain_terms;  // the largest sum of absolute terms in d_gain
} rms;

// Random numbers, between tokens 0.5, and 0 in all of padding.
static float *spread_numbers(uint64_t *seed, const batch *b, vectors s, double scale)
{
    float *x = bf16_activations(seed, b, s.stride, scale);
    for (int64_t i = 0; i < s.n; i++)
        if (i % s.stride >= s.n_vectors * s.n_channels && !is_padding(b, i / s.stride))
            x[i] = 0.5f;
    return x;
}

static void rms_vector(rms *m, int64_t t, int64_t v, double *gain_terms)
{
    const int64_t n = m->s.n_channels, first = t * m->s.stride + v * n;
    const float *x = m->x + first, *d_out = m->d_out + first;
    double squares = 0.0, average = 0.0;
    for (int64_t c = 0; c < n; c++)
        squares += (double)x[c] * (double)x[c];
    const double rstd = 1.0 / sqrt(squares / (double)n + (double)1e-6f);
    for (int64_t c = 0; c < n; c++)
        average += (double)d_out[c] * (double)(m->gain_offset + m->gain[c]) * (double)x[c] *
                   rstd / (double)n;
    for (int64_t c = 0; c < n; c++) {
        const double h = (double)x[c] * rstd, d = (double)d_out[c];
        const double factor = (double)m->gain_offset + (double)m->gain[c];
        m->out[first + c] = h * factor;
        m->exact_d_x[first + c] =
            (m->adds ? (double)m->d_x[first + c] : 0.0) + rstd * (d * factor - h * average);
        m->exact_d_gain[c] += d * h;
        gain_terms[c] += fabs(d * h);
    }
    m->exact_rstd[t * m->s.n_vectors + v] = rstd;
    m->rstd[t * m->s.n_vectors + v] = (float)rstd;
}

static rms make_rms(const batch *b, shape given)
{
    uint64_t seed = 47;
    rms m = {.adds = given.id_bytes == 2, .gain_offset = given.id_bytes == 2 ? 0.0f : 1.0f};
    m.s = (vectors){.n_vectors = m.adds ? 1 : 5, .n_channels = given.width};
    m.s.stride = m.s.n_vectors * m.s.n_channels + (m.adds ? 0 : 8);
    m.s.n = b->n_tokens * m.s.stride;
    m.x = spread_numbers(&seed, b, m.s, 2.0);
    m.gain = bf16_tensor(&seed, given.width, 1.0);
    m.d_out = spread_numbers(&seed, b, m.s, 1.0);
    m.d_x = spread_numbers(&seed, b, m.s, 1.0);
    m.rstd = random_tensor(&seed, b->n_tokens * m.s.n_vectors, 0.0);
    m.out = to_double(m.x, m.s.n);  // what lies between tokens stays
    m.exact_rstd = zeros(b->n_tokens * m.s.n_vectors);
    m.exact_d_x = to_double(m.adds ? m.d_x : m.d_out, m.s.n);
    m.exact_d_gain = zeros(given.width);
    double *gain_terms = zeros(given.width);
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t v = 0; v < m.s.n_vectors && !is_padding(b, t); v++)
            rms_vector(&m, t, v, gain_terms);
    m.gain_terms = largest(gain_terms, given.width);
    free(gain_terms);
    return m;
}

static void check_rms_norm(const batch *b, shape given)
{
    rms m = make_rms(b, given);
    const int64_t n = m.s.n, n_rstd = b->n_tokens * m.s.n_vectors;
    float *nothing = random_tensor(&(uint64_t){1}, given.width, 0.0);
    bd_rms_norm_forward_args f = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .n_vectors = m.s.n_vectors,
        .n_channels = m.s.n_channels,
        .x_stride = m.s.stride,
        .out_stride = m.s.stride,
        .epsilon = 1e-6f,
        .gain_offset = m.gain_offset,
        .x = bf16_on_device(m.x, n),
        .gain = bf16_on_device(m.gain, given.width),
        .rstd = floats_on_device(NULL, n_rstd),
    };
    f.out = m.adds ? bf16_nan_on_device(n) : bf16_on_device(m.x, n);
    bd_rms_norm_backward_args g = {
        .boundaries = f.boundaries,
        .type = BD_BF16,
        .n_vectors = m.s.n_vectors,
        .n_channels = m.s.n_channels,
        .x_stride = m.s.stride,
        .d_out_stride = m.s.stride,
        .d_x_stride = m.s.stride,
        .gain_offset = m.gain_offset,
        .adds = m.adds,
        .d_out = bf16_on_device(m.d_out, n),
        .x = f.x,
        .gain = f.gain,
        .rstd = floats_on_device(m.rstd, n_rstd),
        .d_gain = floats_on_device(nothing, given.width),
    };
    g.d_x = m.adds ? bf16_on_device(m.d_x, n) : (void *)g.d_out;
    RUN(cuda, rms_norm_backward, g);
    if (!m.adds)
        f.x = f.out;
    RUN(cuda, rms_norm_forward, f);
    // A difference of numbers of size 1 is multiplied by rstd, which is 1000 for one channel.
    const double steepest = fmax(1.0, largest(m.exact_rstd, n_rstd));
    const double gain_terms = m.gain_terms / fmax(largest(m.exact_d_gain, given.width), 1e-30);
    expect_bf16("RMS norm", b, f.out, m.out, n, 4.0 * few_roundings);
    expect_floats("rstd", f.rstd, m.exact_rstd, n_rstd, few_roundings);
    expect_bf16("gradient of x", b, g.d_x, m.exact_d_x, n, long_sums * steepest);
    expect_floats("gradient of the gain", g.d_gain, m.exact_d_gain, given.width,
                  long_sums * gain_terms);
    float *inputs[] = {m.x, m.gain, m.d_out, m.d_x, m.rstd, nothing};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        free(inputs[i]);
}

static void rms_norm_is_exact(void)
{
    for_each_shape(check_rms_norm);
}

// ---- Rotary positions -----------------------------------------------------------------------

// The fraction of a turn, in long double instead of fixed point.
static double angle_of(int64_t position, uint64_t turns)
{
    const long double passed = (long double)position * ldexpl((long double)turns, -64);
    return (double)(2.0L * M_PIl * (passed - floorl(passed)));
}

static void rotate(double *head, int64_t n_pairs, int64_t position, const uint64_t *turns,
                   double scale, bool inverse)
{
    for (int64_t i = 0; i < n_pairs; i++) {
        const double angle = angle_of(position, turns[i]) * (inverse ? -1.0 : 1.0);
        const double x = head[i], y = head[i + n_pairs];
        head[i] = scale * (x * cos(angle) - y * sin(angle));
        head[i + n_pairs] = scale * (y * cos(angle) + x * sin(angle));
    }
}

static void check_rotary(const batch *b, shape given)
{
    uint64_t seed = 48;
    const int64_t n_pairs = given.width < 128 ? given.width : 128, head_size = 2 * n_pairs;
    const bool inverse = given.id_bytes == 4;
    const vectors s = {.n_vectors = 3,
                       .n_channels = head_size,
                       .stride = 3 * head_size + 8,
                       .n = b->n_tokens * (3 * head_size + 8)};
    float *x = bf16_tensor(&seed, s.n, 1.0);  // gaps and padding, too, which are left alone
    double *turned = to_double(x, s.n);
    uint64_t *turns = get_memory((size_t)n_pairs * sizeof *turns);
    for (int64_t i = 0; i < n_pairs; i++)  // from part of a turn for each token to none
        turns[i] = (UINT64_MAX - 0x123456789abcdefu) >> (i % 40);
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t h = 0; h < s.n_vectors && !is_padding(b, t); h++)
            rotate(turned + t * s.stride + h * head_size, n_pairs, t - segment_begin(b, t),
                   turns, 1.5, inverse);
    void *device = bf16_on_device(x, s.n);
    const bd_rotary_args a = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .n_heads = s.n_vectors,
        .head_size = head_size,
        .stride = s.stride,
        .turns = device_array(turns, n_pairs, sizeof *turns),
        .scale = 1.5f,
        .inverse = inverse,
        .x = device,
    };
    RUN(cuda, rotary, a);
    expect_bf16("turned", NULL, device, turned, s.n, few_roundings);
    free(x);
    free(turns);
}

static void rotary_is_exact(void)
{
    for_each_shape(check_rotary);
}

// ---- Elements -------------------------------------------------------------------------------

static void check_activation(bd_activation activation, int64_t n)
{
    uint64_t seed = 43;
    float *x = bf16_tensor(&seed, n, 12.0), *d_out = bf16_tensor(&seed, n, 1.0);
    x[0] = 0.0f;
    double *d_x = zeros(n);
    for (int64_t i = 0; i < n; i++)
        d_x[i] = (double)d_out[i] * reference_activation_slope(activation, (double)x[i]);
    void *device_x = bf16_on_device(x, n);
    void *gradient = bf16_on_device(d_out, n);  // in place, as the contract allows
    RUN(cuda, activation_backward, {BD_BF16, activation, n, device_x, gradient, gradient});
    expect_bf16("gradient of the activation", NULL, gradient, d_x, n, few_roundings);
    free(x);
    free(d_out);
}

static void check_add(int64_t n)
{
    uint64_t seed = 44;
    float *a = bf16_tensor(&seed, n, 1.0), *b = bf16_tensor(&seed, n, 1.0);
    double *sum = zeros(n), *again = zeros(n);
    for (int64_t i = 0; i < n; i++)
        sum[i] = again[i] = (double)a[i] + (double)b[i];
    void *device_a = bf16_on_device(a, n), *device_b = bf16_on_device(b, n),
         *out = bf16_nan_on_device(n);
    RUN(cuda, add, {BD_BF16, n, device_a, device_b, out});
    RUN(cuda, add, {BD_BF16, n, device_a, device_b, device_a});
    expect_bf16("sum", NULL, out, sum, n, few_roundings);
    expect_bf16("sum in place", NULL, device_a, again, n, few_roundings);
    free(a);
    free(b);
}

static const int64_t lengths[] = {1, 7, 8, 9, 31, 33, 2048 + 5};

static void elements_are_exact(void)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        check_activation(BD_ACTIVATION_RELU, lengths[i]);
        check_activation(BD_ACTIVATION_GELU, lengths[i]);
        check_activation(BD_ACTIVATION_SILU, lengths[i]);
        check_add(lengths[i]);
        release_device();
    }
}

// ---- Gated activation -----------------------------------------------------------------------

static void check_gate(bd_activation activation, int64_t n_tokens, int64_t n_channels)
{
    uint64_t seed = 49;
    const int64_t n = n_tokens * n_channels;
    float *x = bf16_tensor(&seed, 2 * n, 12.0), *d_out = bf16_tensor(&seed, n, 1.0);
    double *out = zeros(n), *d_x = zeros(2 * n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t gate = i / n_channels * 2 * n_channels + i % n_channels;
        const int64_t up = gate + n_channels;
        const double f = reference_activation(activation, (double)x[gate]);
        out[i] = f * (double)x[up];
        d_x[gate] = (double)d_out[i] * (double)x[up] *
                    reference_activation_slope(activation, (double)x[gate]);
        d_x[up] = (double)d_out[i] * f;
    }
    void *device_x = bf16_on_device(x, 2 * n), *gradient = bf16_on_device(d_out, n);
    void *device_out = bf16_nan_on_device(n), *device_d_x = bf16_nan_on_device(2 * n);
    RUN(cuda, gated_activation_forward,
        {BD_BF16, activation, n_tokens, n_channels, device_x, device_out});
    RUN(cuda, gated_activation_backward,
        {BD_BF16, activation, n_tokens, n_channels, device_x, gradient, device_d_x});
    expect_bf16("gated", NULL, device_out, out, n, few_roundings);
    expect_bf16("gradient of gate and up", NULL, device_d_x, d_x, 2 * n, few_roundings);
    release_device();
    free(x);
    free(d_out);
}

static void gated_activation_is_exact(void)
{
    static const int64_t shapes[][2] = {{2, 5}, {9, 31}, {33, 33}, {65, 64}, {3, 2200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int activation = BD_ACTIVATION_RELU; activation <= BD_ACTIVATION_SILU;
             activation++)
            check_gate((bd_activation)activation, shapes[i][0], shapes[i][1]);
}

// ---- Cross-entropy --------------------------------------------------------------------------

static double reference_loss(const float *logits, int64_t n, int64_t target, double scale,
                             double z_loss, double *gradient)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, (double)logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    const double lse = log(sum) + top;
    for (int64_t i = 0; i < n; i++) {
        const double p = exp((double)logits[i] - lse);
        gradient[i] = scale * (p - (i == target ? 1.0 : 0.0) + 2.0 * z_loss * lse * p);
    }
    return lse - (double)logits[target];
}

static void check_cross_entropy(const batch *b, const batch_mask *mask, int per_document,
                                int64_t n_vocabulary, int32_t id_bytes, double size,
                                float z_loss)
{
    uint64_t seed = 45;
    const float scale = 1.0f / 321.0f;
    const int64_t n = b->n_tokens;
    float *logits = bf16_tensor(&seed, n * n_vocabulary, size);
    double *gradient = zeros(n * n_vocabulary), *losses = zeros(n);
    for (int64_t t = 0; t < n; t++)
        if (has_target(b, mask, t)) {
            const double weight = per_document ? 1.0 / (double)count_targets(b, mask, t) : 1.0;
            losses[t] = weight * reference_loss(logits + t * n_vocabulary, n_vocabulary,
                                                b->ids[t + 1], weight * (double)scale,
                                                (double)z_loss, gradient + t * n_vocabulary);
        }
    const bd_cross_entropy_args a = {
        .boundaries = boundaries_on_device(b),
        .mask = mask_on_device(b, mask),
        .type = BD_BF16,
        .ids = ids_on_device(b, id_bytes),
        .id_bytes = id_bytes,
        .n_vocabulary = n_vocabulary,
        .want_gradient = 1,
        .per_document = per_document,
        .gradient_scale = scale,
        .z_loss = z_loss,
        .logits = bf16_on_device(logits, n * n_vocabulary),
        .losses = floats_on_device(NULL, b->n_tokens),
    };
    RUN(cuda, cross_entropy, a);
    expect_floats("losses", a.losses, losses, n, few_roundings);
    expect_bf16("gradient of the logits", NULL, a.logits, gradient, n * n_vocabulary,
                few_roundings);
    release_device();
    free(logits);
}

static void cross_entropy_is_exact(void)
{
    static const int64_t vocabularies[] = {50, 64, 257, 2056 + 512};
    for (int i = 0; i < 4; i++) {
        batch b = i == 0 ? random_batch(8, 2, 65) : random_batch((uint64_t)(50 + i), 3, 31);
        check_cross_entropy(&b, NULL, 0, vocabularies[i], i % 2 == 0 ? 2 : 4,
                            i < 2 ? 1.0 : 60.0, i % 2 == 0 ? 0.0f : 1e-2f);
        batch_release(&b);
    }
}

static void cross_entropy_is_exact_with_masks(void)
{
    static const int64_t seq_lens[] = {7, 9, 1001};
    for (int i = 0; i < 3; i++) {
        batch b = random_batch((uint64_t)(60 + i), i < 2 ? 7 : 2, seq_lens[i]);
        batch_mask mask = random_mask((uint64_t)(70 + i), &b, i);
        for (int per_document = 0; per_document < 2; per_document++)
            check_cross_entropy(&b, &mask, per_document, 50, 2, 8.0, 1e-2f);
        mask_release(&mask);
        batch_release(&b);
    }
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "embedding_is_exact", .check = embedding_is_exact, .misaligned = true},
        {.name = "layer_norm_is_exact", .check = layer_norm_is_exact, .misaligned = true},
        {.name = "rms_norm_is_exact", .check = rms_norm_is_exact, .misaligned = true},
        {.name = "rotary_is_exact", .check = rotary_is_exact, .misaligned = true},
        {.name = "gated_activation_is_exact",
         .check = gated_activation_is_exact,
         .misaligned = true},
        {.name = "elements_are_exact", .check = elements_are_exact, .misaligned = true},
        {.name = "cross_entropy_is_exact", .check = cross_entropy_is_exact, .misaligned = true},
        {.name = "cross_entropy_is_exact_with_masks",
         .check = cross_entropy_is_exact_with_masks,
         .misaligned = true},
    };
    return run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
