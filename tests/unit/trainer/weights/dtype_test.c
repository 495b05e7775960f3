#include "trainer/weights/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { N_HALVES = 1 << 16 };

// A number of 1 sign bit, `exponent_bits` and the other bits as fraction, by the formula of
// IEEE 754.
static double value_of(unsigned bits, int exponent_bits)
{
    const int fraction_bits = 15 - exponent_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1, last = (1 << exponent_bits) - 1;
    const double sign = bits >> 15 ? -1 : 1;
    const int exponent = (int)(bits >> fraction_bits) & last;
    const double fraction = (double)(bits % (1u << fraction_bits)) / (1 << fraction_bits);
    if (exponent == last)
        return fraction > 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias);
    return sign * ldexp(1 + fraction, exponent - bias);
}

static void check_all(bd_dtype dtype, int exponent_bits)
{
    static uint16_t halves[N_HALVES];
    static float floats[N_HALVES];
    for (int i = 0; i < N_HALVES; i++)
        halves[i] = (uint16_t)i;
    assert_true(bd_dtype_to_floats(dtype, halves, N_HALVES, floats));
    for (unsigned i = 0; i < N_HALVES; i++) {
        const double expected = value_of(i, exponent_bits);
        if (isnan(expected)
                ? !isnan(floats[i])
                : (double)floats[i] != expected || !signbit(floats[i]) != !(i >> 15))
            fail_msg("0x%04x is %a, not %a", i, (double)floats[i], expected);
    }
}

static void every_f16_is_converted(void **state)
{
    (void)state;
    check_all(BD_DTYPE_F16, 5);
}

static void every_bf16_is_converted(void **state)
{
    (void)state;
    check_all(BD_DTYPE_BF16, 8);
}

static void numbers_need_not_be_aligned(void **state)
{
    (void)state;
    static const struct {
        bd_dtype dtype;
        unsigned char bytes[12];
    } cases[] = {{BD_DTYPE_F32, {0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0}},  // after a byte: 1.5, -2
                 {BD_DTYPE_BF16, {0, 0xc0, 0x3f, 0, 0xc0}},
                 {BD_DTYPE_F16, {0, 0, 0x3e, 0, 0xc0}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float floats[3] = {7, 7, 7};
        assert_true(bd_dtype_to_floats(cases[i].dtype, cases[i].bytes + 1, 2, floats));
        assert_true(floats[0] == 1.5f && floats[1] == -2.0f && floats[2] == 7.0f);
    }
    assert_true(bd_dtype_to_floats(BD_DTYPE_F16, NULL, 0, NULL));
}

static void other_types_are_not_converted(void **state)
{
    (void)state;
    for (int i = BD_DTYPE_F32; i <= BD_DTYPE_F4; i++) {
        const bool converted = i == BD_DTYPE_F32 || i == BD_DTYPE_F16 || i == BD_DTYPE_BF16;
        assert_int_equal(bd_dtype_to_floats((bd_dtype)i, NULL, 0, NULL), converted);
    }
}

static void a_name_is_found_again(void **state)
{
    (void)state;
    bd_dtype dtype;
    for (int i = BD_DTYPE_F32; i <= BD_DTYPE_F4; i++) {
        assert_true(bd_dtype_from_name(&dtype, bd_dtype_name((bd_dtype)i)));
        assert_int_equal(dtype, i);
    }
    assert_false(bd_dtype_from_name(&dtype, "F3"));
    assert_false(bd_dtype_from_name(&dtype, "f32"));
    assert_false(bd_dtype_from_name(&dtype, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_is_converted),
        cmocka_unit_test(every_bf16_is_converted),
        cmocka_unit_test(numbers_need_not_be_aligned),
        cmocka_unit_test(other_types_are_not_converted),
        cmocka_unit_test(a_name_is_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
