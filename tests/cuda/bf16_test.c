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

static void check_embedding(const batch *b, shape s)
{
    uint64_t seed = 41;
    const int64_t width = s.width, n = b->n_tokens * width;
    const int64_t n_positions = FIRST_POSITION + s.seq_len + 3;
    const int64_t n_words = b->n_vocabulary * width, n_places = n_positions * width;
    float *words = bf16_tensor(&seed, n_words, 1.0),
          *places = bf16_tensor(&seed, n_places, 1.0);
    float *d_out = bf16_activations(&seed, b, width, 1.0);
    double *out = zeros(n), *d_words = to_double(words, n_words);
    double *d_places = to_double(places, n_places);
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t c = 0; c < width && !is_padding(b, t); c++) {
            const int64_t word = b->ids[t] * width + c, place = position_of(b, t) * width + c;
            out[t * width + c] = (double)words[word] + (double)places[place];
            d_words[word] += (double)d_out[t * width + c];
            d_places[place] += (double)d_out[t * width + c];
        }
    const bd_embedding_forward_args f = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .ids = ids_on_device(b, s.id_bytes),
        .id_bytes = s.id_bytes,
        .n_channels = width,
        .n_vocabulary = b->n_vocabulary,
        .n_positions = n_positions,
        .first_position = FIRST_POSITION,
        .token_table = bf16_on_device(words, n_words),
        .position_table = bf16_on_device(places, n_places),
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
        .first_position = FIRST_POSITION,
        .d_out = bf16_on_device(d_out, n),
        .d_token_table = floats_on_device(words, n_words),
        .d_position_table = floats_on_device(places, n_places),
    };
    RUN(cuda, embedding_forward, f);
    RUN(cuda, embedding_backward, g);
    expect_bf16("embedding", b, f.out, out, n, few_roundings);
    expect_floats("gradient of words", g.d_token_table, d_words, n_words, few_roundings);
    expect_floats("gradient of positions", g.d_position_table, d_places, n_places,
                  few_roundings);
    free(words);
    free(places);
    free(d_out);
}

static void embedding_is_exact(void)
{
    for_each_shape(check_embedding);
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

// ---- Elements -------------------------------------------------------------------------------

static double slope(bd_activation activation, double x)
{
    if (activation == BD_ACTIVATION_RELU)
        return x > 0.0 ? 1.0 : 0.0;
    const double t = tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) +
           0.5 * x * (1.0 - t * t) * sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

static void check_activation(bd_activation activation, int64_t n)
{
    uint64_t seed = 43;
    float *x = bf16_tensor(&seed, n, 12.0), *d_out = bf16_tensor(&seed, n, 1.0);
    x[0] = 0.0f;
    double *d_x = zeros(n);
    for (int64_t i = 0; i < n; i++)
        d_x[i] = (double)d_out[i] * slope(activation, (double)x[i]);
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
        check_add(lengths[i]);
        release_device();
    }
}

// ---- Cross-entropy --------------------------------------------------------------------------

static double reference_loss(const float *logits, int64_t n, int64_t target, double scale,
                             double *gradient)
{
    double top = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, (double)logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    for (int64_t i = 0; i < n; i++)
        gradient[i] = scale * (exp((double)logits[i] - top) / sum - (i == target ? 1.0 : 0.0));
    return log(sum) + top - (double)logits[target];
}

static void check_cross_entropy(const batch *b, int64_t n_vocabulary, int32_t id_bytes,
                                double size)
{
    uint64_t seed = 45;
    const float scale = 1.0f / 321.0f;
    const int64_t n = b->n_tokens;
    float *logits = bf16_tensor(&seed, n * n_vocabulary, size);
    double *gradient = zeros(n * n_vocabulary), *losses = zeros(n);
    for (int64_t t = 0; t < n; t++)
        if (!is_padding(b, t) && t + 1 < segment_end(b, t))
            losses[t] = reference_loss(logits + t * n_vocabulary, n_vocabulary, b->ids[t + 1],
                                       (double)scale, gradient + t * n_vocabulary);
    const bd_cross_entropy_args a = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .ids = ids_on_device(b, id_bytes),
        .id_bytes = id_bytes,
        .n_vocabulary = n_vocabulary,
        .want_gradient = 1,
        .gradient_scale = scale,
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
        check_cross_entropy(&b, vocabularies[i], i % 2 == 0 ? 2 : 4, i < 2 ? 1.0 : 60.0);
        batch_release(&b);
    }
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "embedding_is_exact", .check = embedding_is_exact, .misaligned = true},
        {.name = "layer_norm_is_exact", .check = layer_norm_is_exact, .misaligned = true},
        {.name = "elements_are_exact", .check = elements_are_exact, .misaligned = true},
        {.name = "cross_entropy_is_exact", .check = cross_entropy_is_exact, .misaligned = true},
    };
    return run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
