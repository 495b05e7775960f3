#include "kernels/cpu/vector_math.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef float (*exp_function)(float x);
typedef void (*sin_cos_function)(uint64_t phase, float *sine, float *cosine);

static float plain_exp(float x)
{
    return bd_exp(x);
}

static void plain_sin_cos(uint64_t phase, float *sine, float *cosine)
{
    bd_sin_cos(phase, sine, cosine);
}

// With FMA the compiler rounds at other places; the promises hold for both.
#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static float fused_exp(float x)
{
    return bd_exp(x);
}

__attribute__((target("avx2,fma"))) static void fused_sin_cos(uint64_t phase, float *sine,
                                                              float *cosine)
{
    bd_sin_cos(phase, sine, cosine);
}
#endif

static struct {
    exp_function exp;
    sin_cos_function sin_cos;
} functions[2];
static int n_functions;

// ---- exp ------------------------------------------------------------------------------------

// The promise: 2 units in the last place, and 0 or infinity beyond the normal floats.
static const double promised_ulps = 2.0;

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double error_in_ulps(float x, float got)
{
    const double exact = exp((double)x);
    const float near = (float)exact;
    const double ulp = (double)nextafterf(near, INFINITY) - (double)near;
    return fabs((double)got - exact) / ulp;
}

static void check(exp_function f, float x)
{
    const float got = f(x);
    if (isnan(x)) {
        assert_true(isnan(got));
    } else if (exp((double)x) < 0x1p-126) {
        // At the threshold both results are right: the true value lies between 0 and a normal
        // float.
        if (got != 0.0f)
            assert_true(got <= 0x1.00001p-126f);
    } else if (exp((double)x) >= 0x1.ffffffp+127) {
        assert_true(isinf(got));
    } else if (error_in_ulps(x, got) > promised_ulps) {
        fail_msg("exp(%a) is %a: %.2f ulps off", (double)x, (double)got, error_in_ulps(x, got));
    }
}

// A prime stride through all floats of both signs, so that every exponent occurs and no pattern
// of low bits is preferred.
static void exp_is_within_two_ulps_everywhere(void **state)
{
    (void)state;
    for (int f = 0; f < n_functions; f++)
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1009)
            check(functions[f].exp, from_bits((uint32_t)bits));
}

static void exp_is_right_around_its_limits(void **state)
{
    (void)state;
    for (int f = 0; f < n_functions; f++) {
        float low = -87.34f, high = 88.72f;
        while (low < -87.33f)
            check(functions[f].exp, low = nextafterf(low, 0.0f));
        while (high < 88.73f)
            check(functions[f].exp, high = nextafterf(high, INFINITY));
    }
}

static void exp_of_special_values_is_exact(void **state)
{
    (void)state;
    for (int f = 0; f < n_functions; f++) {
        assert_true(functions[f].exp(0.0f) == 1.0f);
        assert_true(functions[f].exp(-0.0f) == 1.0f);
        assert_true(functions[f].exp(-INFINITY) == 0.0f &&
                    !signbit(functions[f].exp(-INFINITY)));
        assert_true(isinf(functions[f].exp(INFINITY)) && functions[f].exp(INFINITY) > 0.0f);
        assert_true(isnan(functions[f].exp(NAN)));
    }
}

// ---- sin and cos ----------------------------------------------------------------------------

static const long double promised_error = 1e-7L;

static void check_phase(sin_cos_function f, uint64_t phase)
{
    float sine, cosine;
    f(phase, &sine, &cosine);
    const long double angle = (long double)phase * 0x1p-63L * acosl(-1.0L);
    if (!(fabsl((long double)sine - sinl(angle)) <= promised_error))
        fail_msg("the sine of %.18Lg turns is %a", (long double)phase * 0x1p-64L, (double)sine);
    if (!(fabsl((long double)cosine - cosl(angle)) <= promised_error))
        fail_msg("the cosine of %.18Lg turns is %a", (long double)phase * 0x1p-64L,
                 (double)cosine);
}

// An odd stride, 2^64 divided by the golden ratio: any number of its multiples lies evenly.
static void sin_and_cos_are_within_their_error_everywhere(void **state)
{
    (void)state;
    for (int f = 0; f < n_functions; f++) {
        uint64_t phase = 0;
        for (int i = 0; i < 1000000; i++)
            check_phase(functions[f].sin_cos, phase += 0x9e3779b97f4a7c15u);
    }
}

// At odd eighths the polynomials change places, and the rest changes its sign.
static void sin_and_cos_are_right_around_eighths(void **state)
{
    (void)state;
    for (int f = 0; f < n_functions; f++)
        for (uint64_t eighth = 0; eighth < 8; eighth++)
            for (int bit = 0; bit < 50; bit++) {
                const uint64_t phase = eighth << 61, step = (uint64_t)1 << bit;
                check_phase(functions[f].sin_cos, phase);
                check_phase(functions[f].sin_cos, phase - step);
                check_phase(functions[f].sin_cos, phase + step);
            }
}

static void sin_and_cos_of_quarters_are_exact(void **state)
{
    (void)state;
    static const float sines[] = {0.0f, 1.0f, 0.0f, -1.0f},
                       cosines[] = {1.0f, 0.0f, -1.0f, 0.0f};
    for (int f = 0; f < n_functions; f++)
        for (uint64_t quarter = 0; quarter < 4; quarter++) {
            float sine, cosine;
            functions[f].sin_cos(quarter << 62, &sine, &cosine);
            assert_true(sine == sines[quarter] && cosine == cosines[quarter]);
        }
}

int main(void)
{
    functions[n_functions].exp = plain_exp;
    functions[n_functions++].sin_cos = plain_sin_cos;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        functions[n_functions].exp = fused_exp;
        functions[n_functions++].sin_cos = fused_sin_cos;
    }
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulps_everywhere),
        cmocka_unit_test(exp_is_right_around_its_limits),
        cmocka_unit_test(exp_of_special_values_is_exact),
        cmocka_unit_test(sin_and_cos_are_within_their_error_everywhere),
        cmocka_unit_test(sin_and_cos_are_right_around_eighths),
        cmocka_unit_test(sin_and_cos_of_quarters_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
