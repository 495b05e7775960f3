#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

static void check_activation(bd_activation activation, int64_t n, double tolerance)
{
    uint64_t seed = 15;
    float *x = random_tensor(&seed, n, 12.0), *d_out = random_tensor(&seed, n, 1.0);
    x[0] = 0.0f;
    float *d_x = guarded(n);
    bd_activation_backward_args g = {BD_FLOAT, activation, n, x, d_out, d_x};
    RUN(cpu, activation_backward, g);
    g.x = floats_on_device(x, n);
    g.d_x = floats_on_device(d_out, n);  // in place, as the contract allows
    g.d_out = g.d_x;
    RUN(cuda, activation_backward, g);
    compare("gradient of the activation", g.d_x, d_x, n, tolerance);
    release_device();
    free(x);
    free(d_out);
    guarded_free(d_x);
}

void check_add(int64_t n)
{
    uint64_t seed = 16;
    float *a = random_tensor(&seed, n, 1.0), *b = random_tensor(&seed, n, 1.0);
    float *out = guarded(n);
    bd_add_args add = {BD_FLOAT, n, a, b, out};
    RUN(cpu, add, add);
    add.a = floats_on_device(a, n);
    add.b = floats_on_device(b, n);
    add.out = floats_on_device(NULL, n);
    RUN(cuda, add, add);
    compare("sum", add.out, out, n, 0.0);
    add.out = (float *)add.a;
    RUN(cuda, add, add);
    compare("sum in place", add.out, out, n, 0.0);
    release_device();
    free(a);
    free(b);
    guarded_free(out);
}

static void check_adamw(int64_t n, int64_t step)
{
    const bd_adamw_part whole = {n, 0.1f, 0.5f};
    uint64_t seed = 17;
    float *gradient = random_tensor(&seed, n, 1.0), *parameter = random_tensor(&seed, n, 1.0);
    float *m = random_tensor(&seed, n, 0.1), *v = random_tensor(&seed, n, 0.1);
    for (int64_t i = 0; i < n; i++)
        v[i] = fabsf(v[i]);
    bd_adamw_args a = {
        .n = n,
        .step = step,
        .learning_rate = 0.01f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .epsilon = 1e-8f,
        .gradient_scale = 0.3f,
        .n_parts = 1,
        .parts = &whole,
        .gradient = gradient,
        .parameter = parameter,
        .m = m,
        .v = v,
    };
    bd_adamw_args d = a;
    d.gradient = floats_on_device(gradient, n);
    d.parameter = floats_on_device(parameter, n);
    d.m = floats_on_device(m, n);
    d.parts = device_array(&whole, 1, sizeof whole);
    d.v = floats_on_device(v, n);
    RUN(cpu, adamw, a);
    RUN(cuda, adamw, d);
    compare("parameter", d.parameter, parameter, n, few_roundings);
    compare("m", d.m, m, n, few_roundings);
    compare("v", d.v, v, n, few_roundings);
    release_device();
    free(gradient);
    free(parameter);
    free(m);
    free(v);
}

static void for_each_length(void (*check)(int64_t n))
{
    for (int i = 0; i < N_SIZES; i++)
        check(sizes[i]);
    check(4099);
}

static void check_elements(int64_t n)
{
    check_activation(BD_ACTIVATION_RELU, n, 0.0);
    check_activation(BD_ACTIVATION_GELU, n, few_roundings);
    check_activation(BD_ACTIVATION_SILU, n, few_roundings);
    check_add(n);
    check_adamw(n, 1);
    check_adamw(n, 1000);
}

void elements_agree(void)
{
    for_each_length(check_elements);
}

static void check_squares(int64_t n)
{
    uint64_t seed = 18;
    float *x = random_tensor(&seed, n, 1.0);
    double wanted = NAN, got = NAN;
    RUN(cpu, sum_of_squares, {n, x, &wanted});
    RUN(cuda, sum_of_squares, {n, floats_on_device(x, n), &got});
    if (!(fabs(got - wanted) <= 1e-13 * wanted))
        fail_msg("sum of %lld squares is %.17g, not %.17g", (long long)n, got, wanted);
    expect_same_in_every_run("sum of squares", &got, sizeof got);
    release_device();
    free(x);
}

void sum_of_squares_agrees(void)
{
    check_squares(0);
    for_each_length(check_squares);
    check_squares(3 * 4096);
    check_squares(5 * 4096 + 77);
}
