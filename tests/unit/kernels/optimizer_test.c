#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

// Not a multiple of anything, and more than one chunk.
enum { N = 40003, N_STEPS = 5 };

// One part has a single element, and one ends within a chunk.
static const bd_adamw_part parts[] = {
    {31, 0.1f, 1.0f}, {32, 0.5f, 3.0f}, {20001, 0.0f, 0.25f}, {N, 0.1f, 0.5f}};

static const bd_adamw_args settings = {
    .n = N,
    .learning_rate = 1e-2f,
    .beta1 = 0.9f,
    .beta2 = 0.95f,
    .epsilon = 1e-8f,
    .gradient_scale = 0.25f,
    .n_parts = sizeof parts / sizeof parts[0],
    .parts = parts,
};

static float *gradient_of_step(int step)
{
    uint64_t seed = 20 + (uint64_t)step;
    float *gradient = random_tensor(&seed, N, 1.0);
    gradient[3] = 0.0f;  // a parameter that never had a gradient only decays
    return gradient;
}

// ---- AdamW ----------------------------------------------------------------------------------

static const bd_adamw_part *part_of(int i)
{
    int part = 0;
    while (i >= parts[part].end)
        part++;
    return &parts[part];
}

static void reference_step(int step, const float *gradient, double *parameter, double *m,
                           double *v)
{
    const double beta1 = (double)settings.beta1;
    const double beta2 = (double)settings.beta2;
    for (int i = 0; i < N; i++) {
        const double g = (double)settings.gradient_scale * (double)gradient[i];
        m[i] = beta1 * m[i] + (1.0 - beta1) * g;
        v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
        const double rate = (double)settings.learning_rate * (double)part_of(i)->rate_factor;
        parameter[i] -= rate * (double)part_of(i)->weight_decay * parameter[i];
        parameter[i] -= rate * (m[i] / (1.0 - pow(beta1, step))) /
                        (sqrt(v[i] / (1.0 - pow(beta2, step))) + (double)settings.epsilon);
    }
}

static void run_step(bd_backend *backend, int step, const float *gradient, float *parameter,
                     float *m, float *v, uint16_t *rounded)
{
    bd_adamw_args args = settings;
    args.rounded = rounded;
    args.step = step;
    args.gradient = gradient;
    args.parameter = parameter;
    args.m = m;
    args.v = v;
    bd_error err = {0};
    assert_int_equal(backend->operations->adamw(backend, &args, &err), BD_OK);
}

static void check_adamw(bd_backend *backend, void *context)
{
    const float *start = context;
    float *parameter = guarded_copy(start, N), *m = guarded(N), *v = guarded(N);
    uint16_t *rounded = malloc(N * sizeof *rounded);
    double *wanted = to_double(start, N);
    double *wanted_m = calloc(N, sizeof *wanted_m), *wanted_v = calloc(N, sizeof *wanted_v);
    memset(m, 0, N * sizeof *m);
    memset(v, 0, N * sizeof *v);
    for (int step = 1; step <= N_STEPS; step++) {
        float *gradient = gradient_of_step(step);
        reference_step(step, gradient, wanted, wanted_m, wanted_v);
        run_step(backend, step, gradient, parameter, m, v, step < N_STEPS ? NULL : rounded);
        free(gradient);
    }
    // Five steps of half a dozen roundings each, and 1 - beta rounded at 1: 6e-8 / 0.05 of v.
    expect_close("parameter", parameter, wanted, N, 1e-6);
    expect_close("m", m, wanted_m, N, 2e-6);
    expect_close("v", v, wanted_v, N, 4e-6);
    for (int i = 0; i < N; i++)
        assert_int_equal(rounded[i], bd_bf16_of_float(parameter[i]));
    free(rounded);
    guarded_free(parameter);
    guarded_free(m);
    guarded_free(v);
    free(wanted);
    free(wanted_m);
    free(wanted_v);
}

static void adamw_agrees_with_double_precision(void **state)
{
    (void)state;
    uint64_t seed = 30;
    float *start = random_tensor(&seed, N, 1.0);
    for_each_isa(check_adamw, start);
    free(start);
}

// ---- The norm -------------------------------------------------------------------------------

static void check_norm(bd_backend *backend, void *context)
{
    const float *x = context;
    for (int64_t n = 0; n <= N; n = n < 70 ? n + 1 : n * 3) {
        double wanted = 0.0, sum = NAN;
        for (int64_t i = 0; i < n; i++)
            wanted += (double)x[i] * (double)x[i];
        RUN(backend, sum_of_squares, {n, x, &sum});
        assert_true(fabs(sum - wanted) <= 1e-13 * wanted);  // doubles in another order
    }
}

static void norm_agrees_with_double_precision(void **state)
{
    (void)state;
    uint64_t seed = 31;
    float *x = random_tensor(&seed, N, 1.0);
    for_each_isa(check_norm, x);
    free(x);
}

// More than the largest number of parts, so that parts become longer.
static void check_long_norm(bd_backend *backend, void *context)
{
    const float *x = context;
    double sum = NAN;
    const int64_t n = 513 * 16384 + 5;
    RUN(backend, sum_of_squares, {n, x, &sum});
    assert_true(sum == (double)n * 0.25);
}

static void norm_of_many_parts_is_whole(void **state)
{
    (void)state;
    const int64_t n = 513 * 16384 + 5;
    float *x = get_memory((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.5f;
    for_each_isa(check_long_norm, x);
    free(x);
}

// ---- The average ----------------------------------------------------------------------------

static void check_average(bd_backend *backend, void *context)
{
    const float *x = context;
    uint64_t seed = 33;
    float *before = random_tensor(&seed, N, 1.0), *average = guarded_copy(before, N);
    float *copy = guarded(N);
    double *wanted = to_double(before, N);
    for (int i = 0; i < N; i++)
        wanted[i] += 0.25 * ((double)x[i] - wanted[i]);
    RUN(backend, average, {.n = N, .rate = 0.25f, .parameter = x, .average = average});
    expect_close("average", average, wanted, N, 3e-7);
    before[5] = average[5] = -0.0f;  // a copy does not even change a sign
    float *kept = guarded_copy(average, N);
    RUN(backend, average, {.n = N, .average = average, .copy = copy});
    expect_same("average", average, kept, N);
    expect_same("copy", copy, kept, N);
    free(before);
    free(wanted);
    guarded_free(average);
    guarded_free(copy);
    guarded_free(kept);
}

static void average_agrees_with_double_precision(void **state)
{
    (void)state;
    uint64_t seed = 34;
    float *x = random_tensor(&seed, N, 1.0);
    for_each_isa(check_average, x);
    free(x);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const float *start = context;
    float *gradient = gradient_of_step(1);
    memcpy(out, start, N * sizeof *out);
    memset(out + N, 0, 2 * (size_t)N * sizeof *out);
    run_step(backend, 1, gradient, out, out + N, out + 2 * N, NULL);
    double sum;
    RUN(backend, sum_of_squares, {N, out, &sum});
    memcpy(out + 3 * N, &sum, sizeof sum);
    free(gradient);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    uint64_t seed = 32;
    float *start = random_tensor(&seed, N, 1.0);
    expect_same_for_any_threads(compute_everything, 3 * (int64_t)N + 2, start);
    free(start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_agrees_with_double_precision),
        cmocka_unit_test(norm_agrees_with_double_precision),
        cmocka_unit_test(norm_of_many_parts_is_whole),
        cmocka_unit_test(average_agrees_with_double_precision),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
