#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

// Not a multiple of anything, and more than one chunk.
enum { N = 40003 };

// Small and large values of both signs; 0 comes first.
static float *make_input(void)
{
    uint64_t seed = 15;
    float *x = random_tensor(&seed, N, 8.0);
    for (int i = 0; i < N; i += 3)
        x[i] *= 1e-3f;
    const float special[] = {0.0f, 1e-20f, -1e-20f, 30.0f, -30.0f, 1e4f, -1e4f, 3e38f, -3e38f};
    memcpy(x, special, sizeof special);
    return x;
}

static void check_forward(bd_backend *backend, void *context)
{
    const float *x = context;
    for (bd_activation activation = BD_ACTIVATION_RELU; activation <= BD_ACTIVATION_SILU;
         activation++) {
        float *out = guarded(N);
        apply_activation(backend, activation, N, x, out);
        for (int i = 0; i < N; i++) {
            const double wanted = reference_activation(activation, (double)x[i]);
            // The quotient of three rounded numbers has a relative error of 4e-7, and the
            // exponential one of up to 80 * 6e-8, from the rounding of its exponent: relative
            // to x, not to the result, which is arbitrarily small far below 0.
            if (!(fabs((double)out[i] - wanted) <=
                  4e-7 * fabs(wanted) + 1e-7 * fmin(fabs((double)x[i]), 1.0)))
                fail_msg("f(%a) is %.9g, not %.9g", (double)x[i], (double)out[i], wanted);
        }
        assert_true(out[0] == 0.0f);
        guarded_free(out);
    }
}

static void values_agree_with_double_precision(void **state)
{
    (void)state;
    float *x = make_input();
    for_each_isa(check_forward, x);
    free(x);
}

static void check_backward(bd_backend *backend, void *context)
{
    const float *x = context;
    uint64_t seed = 16;
    float *d_out = random_tensor(&seed, N, 1.0);
    for (bd_activation activation = BD_ACTIVATION_RELU; activation <= BD_ACTIVATION_SILU;
         activation++) {
        float *d_x = guarded(N), *in_place = guarded_copy(d_out, N);
        RUN(backend, activation_backward, {BD_FLOAT, activation, N, x, d_out, d_x});
        RUN(backend, activation_backward, {BD_FLOAT, activation, N, x, in_place, in_place});
        expect_same("in place", in_place, d_x, N);
        for (int i = 0; i < N; i++) {
            const double at = fmax(-1e4, fmin((double)x[i], 1e4));  // the reference overflows
            const double wanted = (double)d_out[i] * reference_activation_slope(activation, at);
            if (!(fabs((double)d_x[i] - wanted) <= 1e-6))  // the slope is at most 1.13
                fail_msg("f'(%a) * %g is %.9g, not %.9g", (double)x[i], (double)d_out[i],
                         (double)d_x[i], wanted);
        }
        assert_true(d_x[0] == (activation == BD_ACTIVATION_RELU ? 0.0f : 0.5f * d_out[0]));
        guarded_free(d_x);
        guarded_free(in_place);
    }
    free(d_out);
}

static void gradients_agree_with_double_precision(void **state)
{
    (void)state;
    float *x = make_input();
    for_each_isa(check_backward, x);
    free(x);
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    const double step = 1e-5;
    for (bd_activation activation = BD_ACTIVATION_RELU; activation <= BD_ACTIVATION_SILU;
         activation++) {
        for (double x = -5.0; x < 5.0; x += 0.03) {
            const double above = reference_activation(activation, x + step);
            const double below = reference_activation(activation, x - step);
            assert_true(fabs((above - below) / (2.0 * step) -
                             reference_activation_slope(activation, x)) < 1e-8);
        }
    }
}

// Where numbers overflow, f is 0 or x, and its slope 0 or 1.
static void check_infinities(bd_backend *backend, void *context)
{
    (void)context;
    const float x[] = {-INFINITY, -3e38f, -88.8f, 88.8f, 3e38f, INFINITY};
    const float ones[] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    float out[6], d_x[6];
    apply_activation(backend, BD_ACTIVATION_SILU, 6, x, out);
    RUN(backend, activation_backward, {BD_FLOAT, BD_ACTIVATION_SILU, 6, x, ones, d_x});
    for (int i = 0; i < 6; i++) {
        assert_true(fabsf(d_x[i] - (x[i] < 0.0f ? 0.0f : 1.0f)) < 1e-35f);
        if (x[i] < 0.0f)
            assert_true(fabsf(out[i]) < 1e-35f);
        else
            assert_true(out[i] == x[i]);
    }
}

static void silu_is_right_at_infinity(void **state)
{
    (void)state;
    for_each_isa(check_infinities, NULL);
}

static void check_add(bd_backend *backend, void *context)
{
    const float *x = context;
    uint64_t seed = 17;
    float *y = random_tensor(&seed, N, 1.0);
    float *out = guarded(N), *in_place = guarded_copy(x, N);
    RUN(backend, add, {BD_FLOAT, N, x, y, out});
    RUN(backend, add, {BD_FLOAT, N, in_place, y, in_place});
    for (int i = 0; i < N; i++)
        assert_true(out[i] == x[i] + y[i]);
    expect_same("in place", in_place, out, N);
    guarded_free(out);
    guarded_free(in_place);
    free(y);
}

static void add_adds(void **state)
{
    (void)state;
    float *x = make_input();
    for_each_isa(check_add, x);
    free(x);
}

// Lengths around the width of every register: the tail is neither skipped nor overrun.
static void check_tails(bd_backend *backend, void *context)
{
    const float *x = (const float *)context + 9;  // after the special values
    for (bd_activation f = BD_ACTIVATION_RELU; f <= BD_ACTIVATION_SILU; f++) {
        float *all = guarded(70);
        apply_activation(backend, f, 70, x, all);
        for (int64_t n = 0; n <= 70; n++) {
            float *out = guarded(n);
            apply_activation(backend, f, n, x, out);
            expect_same("a shorter array", out, all, n);
            guarded_free(out);
        }
        guarded_free(all);
    }
}

static void tails_are_whole(void **state)
{
    (void)state;
    float *x = make_input();
    for_each_isa(check_tails, x);
    free(x);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const float *x = context;
    for (bd_activation f = BD_ACTIVATION_RELU; f <= BD_ACTIVATION_SILU; f++, out += 2 * N) {
        apply_activation(backend, f, N, x, out);
        RUN(backend, activation_backward, {BD_FLOAT, f, N, x, out, out + N});
    }
    RUN(backend, add, {BD_FLOAT, N, x, x, out});
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    uint64_t seed = 18;
    float *x = random_tensor(&seed, N, 4.0);
    expect_same_for_any_threads(compute_everything, 7 * (int64_t)N, x);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_agree_with_double_precision),
        cmocka_unit_test(gradients_agree_with_double_precision),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(silu_is_right_at_infinity),
        cmocka_unit_test(add_adds),
        cmocka_unit_test(tails_are_whole),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
