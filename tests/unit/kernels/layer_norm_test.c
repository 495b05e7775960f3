#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

enum { N_CHANNELS = 83 };

static const float epsilon = 1e-5f;
// A dozen roundings of 6e-8 on values of the size of the largest.
static const double forward_tolerance = 1e-6;
// Sums of 350 tokens in float blocks of 64.
static const double backward_tolerance = 2e-6;

typedef struct model {
    batch b;
    int64_t n;  // floats per activation
    float *x, *gamma, *beta, *d_out;
    float *residual;  // initial values of d_x before the backward pass
} model;

static model make_model(void)
{
    uint64_t seed = 12;
    model m = {.b = awkward_batch(seed)};
    m.n = m.b.n_tokens * N_CHANNELS;
    m.x = random_tensor(&seed, m.n, 2.0);
    m.gamma = random_tensor(&seed, N_CHANNELS, 1.0);
    m.beta = random_tensor(&seed, N_CHANNELS, 1.0);
    m.d_out = random_activations(&seed, &m.b, N_CHANNELS, 1.0);
    m.residual = random_activations(&seed, &m.b, N_CHANNELS, 1.0);
    // A mean far from 0 is where a one-pass variance loses its digits.
    for (int64_t i = 0; i < m.n; i++)
        m.x[i] += 5.0f;
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    free(m->x);
    free(m->gamma);
    free(m->beta);
    free(m->d_out);
    free(m->residual);
}

static void forward(bd_backend *backend, const model *m, float *out, float *mean, float *rstd)
{
    RUN(backend, layer_norm_forward,
        {.boundaries = m->b.boundaries,
         .n_channels = N_CHANNELS,
         .epsilon = epsilon,
         .x = m->x,
         .gamma = m->gamma,
         .beta = m->beta,
         .out = out,
         .mean = mean,
         .rstd = rstd});
}

static void backward(bd_backend *backend, const model *m, const float *mean, const float *rstd,
                     float *d_x, float *d_gamma, float *d_beta)
{
    RUN(backend, layer_norm_backward,
        {.boundaries = m->b.boundaries,
         .n_channels = N_CHANNELS,
         .d_out = m->d_out,
         .x = m->x,
         .gamma = m->gamma,
         .mean = mean,
         .rstd = rstd,
         .d_x = d_x,
         .d_gamma = d_gamma,
         .d_beta = d_beta});
}

// ---- The reference --------------------------------------------------------------------------

typedef struct reference {
    const model *m;
    double *x, *gamma, *beta;
    double *out, *mean, *rstd;
    double *d_x, *d_gamma, *d_beta;
} reference;

static void reference_forward(reference *r)
{
    for (int64_t t = 0; t < r->m->b.n_tokens; t++) {
        const double *x = r->x + t * N_CHANNELS;
        double *out = r->out + t * N_CHANNELS;
        double mean = 0.0, variance = 0.0;
        for (int c = 0; c < N_CHANNELS; c++)
            mean += x[c] / N_CHANNELS;
        for (int c = 0; c < N_CHANNELS; c++)
            variance += (x[c] - mean) * (x[c] - mean) / N_CHANNELS;
        const bool padding = is_padding(&r->m->b, t);
        r->mean[t] = padding ? 0.0 : mean;
        r->rstd[t] = padding ? 0.0 : 1.0 / sqrt(variance + (double)epsilon);
        for (int c = 0; c < N_CHANNELS; c++)
            out[c] = padding ? 0.0 : (x[c] - mean) * r->rstd[t] * r->gamma[c] + r->beta[c];
    }
}

static void reference_backward(reference *r)
{
    for (int64_t t = 0; t < r->m->b.n_tokens; t++) {
        if (is_padding(&r->m->b, t))
            continue;
        double g_average = 0.0, gh_average = 0.0;
        for (int c = 0; c < N_CHANNELS; c++) {
            const double h = (r->x[t * N_CHANNELS + c] - r->mean[t]) * r->rstd[t];
            const double d = (double)r->m->d_out[t * N_CHANNELS + c];
            g_average += d * r->gamma[c] / N_CHANNELS;
            gh_average += d * r->gamma[c] * h / N_CHANNELS;
            r->d_gamma[c] += d * h;
            r->d_beta[c] += d;
        }
        for (int c = 0; c < N_CHANNELS; c++) {
            const double h = (r->x[t * N_CHANNELS + c] - r->mean[t]) * r->rstd[t];
            const double d = (double)r->m->d_out[t * N_CHANNELS + c];
            r->d_x[t * N_CHANNELS + c] +=
                r->rstd[t] * (d * r->gamma[c] - g_average - h * gh_average);
        }
    }
}

static double reference_loss(void *context)
{
    reference *r = context;
    reference_forward(r);
    double loss = 0.0;
    for (int64_t i = 0; i < r->m->n; i++)
        loss += r->out[i] * (double)r->m->d_out[i];
    return loss;
}

// Runs forward and backward; gradients begin at 0.
static reference make_reference(const model *m)
{
    reference r = {
        .m = m,
        .x = to_double(m->x, m->n),
        .gamma = to_double(m->gamma, N_CHANNELS),
        .beta = to_double(m->beta, N_CHANNELS),
        .out = get_memory((size_t)m->n * sizeof(double)),
        .mean = get_memory((size_t)m->b.n_tokens * sizeof(double)),
        .rstd = get_memory((size_t)m->b.n_tokens * sizeof(double)),
        .d_x = calloc((size_t)m->n, sizeof(double)),
        .d_gamma = calloc(N_CHANNELS, sizeof(double)),
        .d_beta = calloc(N_CHANNELS, sizeof(double)),
    };
    reference_forward(&r);
    reference_backward(&r);
    return r;
}

static void free_reference(reference *r)
{
    double *const all[] = {r->x,    r->gamma, r->beta,    r->out,   r->mean,
                           r->rstd, r->d_x,   r->d_gamma, r->d_beta};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

// ---- Promises -------------------------------------------------------------------------------

static void check_parity(bd_backend *backend, void *context)
{
    model *m = context;
    reference r = make_reference(m);
    float *out = guarded(m->n), *mean = guarded(m->b.n_tokens), *rstd = guarded(m->b.n_tokens);
    forward(backend, m, out, mean, rstd);
    expect_close("out", out, r.out, m->n, forward_tolerance);
    expect_close("mean", mean, r.mean, m->b.n_tokens, forward_tolerance);
    expect_close("rstd", rstd, r.rstd, m->b.n_tokens, forward_tolerance);
    expect_padding_zero("out", &m->b, out, N_CHANNELS);
    expect_padding_zero("mean", &m->b, mean, 1);
    expect_padding_zero("rstd", &m->b, rstd, 1);

    float *d_x = guarded_copy(m->residual, m->n);
    float *d_gamma = guarded_copy(m->gamma, N_CHANNELS);  // any numbers: gradients are added
    float *d_beta = guarded_copy(m->beta, N_CHANNELS);
    for (int64_t i = 0; i < m->n; i++)
        r.d_x[i] += (double)m->residual[i];
    for (int c = 0; c < N_CHANNELS; c++) {
        r.d_gamma[c] += (double)m->gamma[c];
        r.d_beta[c] += (double)m->beta[c];
    }
    // Padding adds nothing even if it contains nonsense.
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (is_padding(&m->b, t))
            m->d_out[t * N_CHANNELS] = m->x[t * N_CHANNELS + 1] = NAN;
    backward(backend, m, mean, rstd, d_x, d_gamma, d_beta);
    expect_close("d_x", d_x, r.d_x, m->n, backward_tolerance);
    expect_close("d_gamma", d_gamma, r.d_gamma, N_CHANNELS, backward_tolerance);
    expect_close("d_beta", d_beta, r.d_beta, N_CHANNELS, backward_tolerance);
    expect_padding_zero("d_x", &m->b, d_x, N_CHANNELS);

    float *const outputs[] = {out, mean, rstd, d_x, d_gamma, d_beta};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        guarded_free(outputs[i]);
    free_reference(&r);
}

static void agrees_with_double_precision(void **state)
{
    (void)state;
    model m = make_model();
    for_each_isa(check_parity, &m);
    free_model(&m);
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    model m = make_model();
    reference r = make_reference(&m);
    // Central differences of a smooth function: an error of step^2 times its third derivative.
    expect_gradient("x", reference_loss, &r, r.x, r.d_x, m.n, 60, 1e-4, 1e-7);
    expect_gradient("gamma", reference_loss, &r, r.gamma, r.d_gamma, N_CHANNELS, 20, 1e-4,
                    1e-7);
    expect_gradient("beta", reference_loss, &r, r.beta, r.d_beta, N_CHANNELS, 20, 1e-4, 1e-7);
    free_reference(&r);
    free_model(&m);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    float *mean = out + m->n, *rstd = mean + m->b.n_tokens, *d_x = rstd + m->b.n_tokens;
    float *d_gamma = d_x + m->n, *d_beta = d_gamma + N_CHANNELS;
    forward(backend, m, out, mean, rstd);
    memcpy(d_x, m->residual, (size_t)m->n * sizeof *d_x);
    memset(d_gamma, 0, 2 * N_CHANNELS * sizeof *d_gamma);
    backward(backend, m, mean, rstd, d_x, d_gamma, d_beta);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    model m = make_model();
    expect_same_for_any_threads(compute_everything,
                                2 * (m.n + m.b.n_tokens + (int64_t)N_CHANNELS), &m);
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
