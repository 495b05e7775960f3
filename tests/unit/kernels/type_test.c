#include "kernels/type.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/random.h"

enum { SIGN = 0x8000, INFINITE = 0x7f80, LARGEST = 0x7f7f };  // bits of bf16

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static bool is_nan(uint16_t b)
{
    return (b & ~SIGN) > INFINITE;
}

static void expect_rounding(uint32_t bits, uint16_t wanted)
{
    const uint16_t got = bd_bf16_of_float(float_of_bits(bits));
    if (got != wanted)
        fail_msg("the float %08x became %04x, not %04x", bits, got, wanted);
}

static void every_number_survives_as_a_float(void **state)
{
    (void)state;
    for (uint32_t b = 0; b <= UINT16_MAX; b++)
        if (!is_nan((uint16_t)b))
            assert_int_equal(bd_bf16_of_float(bd_float_of_bf16((uint16_t)b)), b);
    assert_true(bd_float_of_bf16(0x3fc0) == 1.5f);
    assert_true(bd_float_of_bf16(0xc000) == -2.0f);
    assert_true(bd_float_of_bf16(INFINITE) == INFINITY);
}

// Halfway between every two neighbours. The largest number's neighbour is infinity.
static void the_middle_becomes_even_and_all_else_the_nearest(void **state)
{
    (void)state;
    for (uint32_t b = 0; b <= LARGEST; b++)
        for (uint32_t sign = 0; sign <= SIGN; sign += SIGN) {
            const uint32_t below = b | sign, above = below + 1, middle = below << 16 | 0x8000;
            expect_rounding(middle - 0x7fff, (uint16_t)below);
            expect_rounding(middle - 1, (uint16_t)below);
            expect_rounding(middle, (uint16_t)(below % 2 == 0 ? below : above));
            expect_rounding(middle + 1, (uint16_t)above);
            expect_rounding(middle + 0x7fff, (uint16_t)above);
        }
}

static void too_large_numbers_become_infinite(void **state)
{
    (void)state;
    expect_rounding(0x7f7f7fff, LARGEST);
    expect_rounding(0x7f7f8000, INFINITE);
    expect_rounding(0x7f7fffff, INFINITE);  // FLT_MAX
    expect_rounding(0xff7fffff, SIGN | INFINITE);
    expect_rounding(0x7f800000, INFINITE);
    expect_rounding(0xff800000, SIGN | INFINITE);
}

// Even if only the discarded half makes it NaN, or rounding up would carry.
static void nan_stays_nan(void **state)
{
    (void)state;
    static const uint32_t lower[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t upper = INFINITE; upper < SIGN; upper++)
        for (size_t i = 0; i < sizeof lower / sizeof *lower; i++)
            for (uint32_t sign = 0; sign <= SIGN; sign += SIGN) {
                const uint32_t bits = (upper | sign) << 16 | lower[i];
                if (bits << 1 == (uint32_t)INFINITE << 17)
                    continue;  // the infinities
                const uint16_t got = bd_bf16_of_float(float_of_bits(bits));
                if (!is_nan(got) || (got & SIGN) != sign)
                    fail_msg("the NaN %08x became %04x", bits, got);
            }
}

// The nearest multiple of the distance between neighbours of that size, ties to even: computed
// in double, where all of it is exact.
static double rounded_in_double(float x)
{
    int exponent;
    frexp((double)x, &exponent);
    const double apart = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 8);
    const double y = nearbyint((double)x / apart) * apart;
    return fabs(y) < ldexp(1.0, 128) ? y : copysign((double)INFINITY, y);
}

static void any_float_is_rounded_as_in_double(void **state)
{
    (void)state;
    uint64_t seed = 21;
    for (int i = 0; i < 1000000; i++) {
        const float x = float_of_bits((uint32_t)next_random(&seed));
        if (isnan(x))
            continue;
        const double got = (double)bd_float_of_bf16(bd_bf16_of_float(x));
        const double wanted = isinf(x) ? (double)x : rounded_in_double(x);
        if (got != wanted || !signbit(got) != !signbit(x))
            fail_msg("%.9g became %.9g, not %.9g", (double)x, got, wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_survives_as_a_float),
        cmocka_unit_test(the_middle_becomes_even_and_all_else_the_nearest),
        cmocka_unit_test(too_large_numbers_become_infinite),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(any_float_is_rounded_as_in_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
