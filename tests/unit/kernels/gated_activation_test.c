#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

// Nothing smaller, tails of every register, and more than one chunk.
static const struct {
    int64_t n_tokens, n_channels;
} shapes[] = {{1, 1}, {7, 31}, {5, 64}, {33, 1003}, {2, 17000}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

// The tolerances of activation_test.c, for the factor f(gate) or f'(gate).
static double value_error(double gate, double value)
{
    return 5e-7 * fabs(value) + 1e-7 * fmin(fabs(gate), 1.0);
}
static const double slope_error = 1e-6;

typedef struct model {
    bd_activation activation;
    int64_t n_tokens, n_channels, n;  // n: floats of out
    float *x, *d_out;
} model;

// Small and large gates of both signs. Every third token is padding: all zeros.
static model make_model(int shape, bd_activation activation)
{
    uint64_t seed = 26;
    model m = {.activation = activation,
               .n_tokens = shapes[shape].n_tokens,
               .n_channels = shapes[shape].n_channels};
    m.n = m.n_tokens * m.n_channels;
    m.x = random_tensor(&seed, 2 * m.n, 1.0);
    m.d_out = random_tensor(&seed, m.n, 1.0);
    for (int64_t t = 0; t < m.n_tokens; t++) {
        float *gate = m.x + t * 2 * m.n_channels;
        for (int64_t c = 0; c < m.n_channels; c++)
            gate[c] *= c % 3 == 0 ? 100.0f : c % 3 == 1 ? 8.0f : 1e-3f;
        if (t % 3 == 2) {
            memset(gate, 0, (size_t)(2 * m.n_channels) * sizeof *gate);
            memset(m.d_out + t * m.n_channels, 0, (size_t)m.n_channels * sizeof *m.d_out);
        }
    }
    return m;
}

static void free_model(model *m)
{
    free(m->x);
    free(m->d_out);
}

static void for_each_model(void (*check)(bd_backend *backend, void *context))
{
    for (int i = 0; i < N_SHAPES; i++)
        for (bd_activation f = BD_ACTIVATION_RELU; f <= BD_ACTIVATION_SILU; f++) {
            model m = make_model(i, f);
            for_each_isa(check, &m);
            free_model(&m);
        }
}

static void forward(bd_backend *backend, const model *m, float *out)
{
    RUN(backend, gated_activation_forward,
        {BD_FLOAT, m->activation, m->n_tokens, m->n_channels, m->x, out});
}

static void backward(bd_backend *backend, const model *m, float *d_x)
{
    RUN(backend, gated_activation_backward,
        {BD_FLOAT, m->activation, m->n_tokens, m->n_channels, m->x, m->d_out, d_x});
}

// ---- The reference --------------------------------------------------------------------------

// Where out[i] has its gate and its up.
static int64_t gate_of(const model *m, int64_t i)
{
    return i / m->n_channels * 2 * m->n_channels + i % m->n_channels;
}

static void reference_backward(const model *m, const double *x, double *d_x)
{
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t gate = gate_of(m, i), up = gate + m->n_channels;
        const double d = (double)m->d_out[i];
        d_x[gate] = d * x[up] * reference_activation_slope(m->activation, x[gate]);
        d_x[up] = d * reference_activation(m->activation, x[gate]);
    }
}

typedef struct loss_context {
    const model *m;
    double *x;
} loss_context;

static double reference_loss(void *context)
{
    const loss_context *c = context;
    double loss = 0.0;
    for (int64_t i = 0; i < c->m->n; i++) {
        const int64_t gate = gate_of(c->m, i), up = gate + c->m->n_channels;
        loss += (double)c->m->d_out[i] * c->x[up] *
                reference_activation(c->m->activation, c->x[gate]);
    }
    return loss;
}

// ---- Promises -------------------------------------------------------------------------------

static void check_forward(bd_backend *backend, void *context)
{
    const model *m = context;
    float *out = guarded(m->n);
    forward(backend, m, out);
    for (int64_t i = 0; i < m->n; i++) {
        const double gate = (double)m->x[gate_of(m, i)];
        const double up = (double)m->x[gate_of(m, i) + m->n_channels];
        const double value = reference_activation(m->activation, gate);
        if (!(fabs((double)out[i] - value * up) <= value_error(gate, value) * fabs(up)))
            fail_msg("f(%a) * %a is %.9g, not %.9g", gate, up, (double)out[i], value * up);
    }
    guarded_free(out);
}

static void values_agree_with_double_precision(void **state)
{
    (void)state;
    for_each_model(check_forward);
}

static void check_backward(bd_backend *backend, void *context)
{
    const model *m = context;
    double *x = to_double(m->x, 2 * m->n);
    double *wanted = get_memory((size_t)(2 * m->n) * sizeof *wanted);
    reference_backward(m, x, wanted);
    float *d_x = guarded(2 * m->n);
    backward(backend, m, d_x);
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t gate = gate_of(m, i), up = gate + m->n_channels;
        const double d = fabs((double)m->d_out[i]);
        const double value = reference_activation(m->activation, x[gate]);
        if (!(fabs((double)d_x[gate] - wanted[gate]) <= slope_error * d * fabs(x[up])))
            fail_msg("the gradient of gate %a is %.9g, not %.9g", x[gate], (double)d_x[gate],
                     wanted[gate]);
        if (!(fabs((double)d_x[up] - wanted[up]) <= value_error(x[gate], value) * d))
            fail_msg("the gradient of up at gate %a is %.9g, not %.9g", x[gate],
                     (double)d_x[up], wanted[up]);
    }
    guarded_free(d_x);
    free(x);
    free(wanted);
}

static void gradients_agree_with_double_precision(void **state)
{
    (void)state;
    for_each_model(check_backward);
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    for (bd_activation f = BD_ACTIVATION_RELU; f <= BD_ACTIVATION_SILU; f++) {
        model m = make_model(1, f);
        for (int64_t i = 0; i < 2 * m.n; i++)  // no step crosses the corner of ReLU
            m.x[i] = fabsf(m.x[i]) < 1e-4f ? 1e-4f : m.x[i];
        loss_context c = {&m, to_double(m.x, 2 * m.n)};
        double *gradient = get_memory((size_t)(2 * m.n) * sizeof *gradient);
        reference_backward(&m, c.x, gradient);
        expect_gradient("x", reference_loss, &c, c.x, gradient, 2 * m.n, 200, 1e-5, 1e-8);
        free(gradient);
        free(c.x);
        free_model(&m);
    }
}

static void check_padding(bd_backend *backend, void *context)
{
    const model *m = context;
    float *out = guarded(m->n), *d_x = guarded(2 * m->n);
    float *zeros = calloc((size_t)(2 * m->n_channels), sizeof *zeros);
    forward(backend, m, out);
    backward(backend, m, d_x);
    for (int64_t t = 2; t < m->n_tokens; t += 3) {
        expect_same("out in padding", out + t * m->n_channels, zeros, m->n_channels);
        expect_same("d_x in padding", d_x + t * 2 * m->n_channels, zeros, 2 * m->n_channels);
    }
    free(zeros);
    guarded_free(out);
    guarded_free(d_x);
}

static void padding_stays_zero(void **state)
{
    (void)state;
    for_each_model(check_padding);
}

// Gates so large that an exponential overflows: f(gate) is 0 or the gate, f' is 0 or 1. At
// -infinity GELU is not defined (0 * infinity).
static void check_large_gates(bd_backend *backend, void *context)
{
    (void)context;
    enum { N = 8 };
    const float x[2 * N] = {-INFINITY, -3e38f, -1e4f, -90.0f, 90.0f, 1e4f, 3e38f, INFINITY,
                            1.0f,      1.0f,   1.0f,  1.0f,   1.0f,  1.0f, 1.0f,  1.0f};
    const float d_out[N] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    for (bd_activation f = BD_ACTIVATION_RELU; f <= BD_ACTIVATION_SILU; f++) {
        float out[N], d_x[2 * N];
        RUN(backend, gated_activation_forward, {BD_FLOAT, f, 1, N, x, out});
        RUN(backend, gated_activation_backward, {BD_FLOAT, f, 1, N, x, d_out, d_x});
        for (int i = f == BD_ACTIVATION_GELU ? 1 : 0; i < N; i++) {
            const float value = x[i] < 0.0f ? 0.0f : x[i], slope = x[i] < 0.0f ? 0.0f : 1.0f;
            assert_true(out[i] == value || fabsf(out[i] - value) < 1e-25f);
            assert_true(fabsf(d_x[i] - slope) < 1e-25f);
            assert_true(d_x[N + i] == value || fabsf(d_x[N + i] - value) < 1e-25f);
        }
    }
}

static void large_gates_do_no_harm(void **state)
{
    (void)state;
    for_each_isa(check_large_gates, NULL);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    forward(backend, m, out);
    backward(backend, m, out + m->n);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(i, BD_ACTIVATION_SILU);
        expect_same_for_any_threads(compute_everything, 3 * m.n, &m);
        free_model(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_agree_with_double_precision),
        cmocka_unit_test(gradients_agree_with_double_precision),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(padding_stays_zero),
        cmocka_unit_test(large_gates_do_no_harm),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
