#include "kernels/cpu/vector_math.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

// The promise: 2 units in the last place, and 0 or infinity beyond the normal floats.
static const double promised_ulps = 2.0;

typedef float (*exp_function)(float x);

static float plain(float x)
{
    return bd_exp(x);
}

// With FMA the compiler rounds at other places; the promise holds for both.
#ifdef __x86_64__
__attribute__((target("avx2,fma"))) static float fused(float x)
{
    return bd_exp(x);
}
#endif

static exp_function functions[2];
static int n_functions;

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
            check(functions[f], from_bits((uint32_t)bits));
}

static void exp_is_right_around_its_limits(void **state)
{
    (void)state;
    for (int f = 0; f < n_functions; f++) {
        float low = -87.34f, high = 88.72f;
        while (low < -87.33f)
            check(functions[f], low = nextafterf(low, 0.0f));
        while (high < 88.73f)
            check(functions[f], high = nextafterf(high, INFINITY));
    }
}

static void exp_of_special_values_is_exact(void **state)
{
    (void)state;
    for (int f = 0; f < n_functions; f++) {
        assert_true(functions[f](0.0f) == 1.0f);
        assert_true(functions[f](-0.0f) == 1.0f);
        assert_true(functions[f](-INFINITY) == 0.0f && !signbit(functions[f](-INFINITY)));
        assert_true(isinf(functions[f](INFINITY)) && functions[f](INFINITY) > 0.0f);
        assert_true(isnan(functions[f](NAN)));
    }
}

int main(void)
{
    functions[n_functions++] = plain;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        functions[n_functions++] = fused;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulps_everywhere),
        cmocka_unit_test(exp_is_right_around_its_limits),
        cmocka_unit_test(exp_of_special_values_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
