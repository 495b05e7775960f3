#include "trainer/weights/dtype.h"

#include <math.h>
#include <string.h>

#include "kernels/type.h"

static const struct {
    const char *name;
    int bits;
} dtypes[] = {
    [BD_DTYPE_F32] = {"F32", 32},
    [BD_DTYPE_F64] = {"F64", 64},
    [BD_DTYPE_F16] = {"F16", 16},
    [BD_DTYPE_BF16] = {"BF16", 16},
    [BD_DTYPE_I64] = {"I64", 64},
    [BD_DTYPE_I32] = {"I32", 32},
    [BD_DTYPE_I16] = {"I16", 16},
    [BD_DTYPE_I8] = {"I8", 8},
    [BD_DTYPE_U64] = {"U64", 64},
    [BD_DTYPE_U32] = {"U32", 32},
    [BD_DTYPE_U16] = {"U16", 16},
    [BD_DTYPE_U8] = {"U8", 8},
    [BD_DTYPE_BOOL] = {"BOOL", 8},
    [BD_DTYPE_C64] = {"C64", 64},
    [BD_DTYPE_F8_E4M3] = {"F8_E4M3", 8},
    [BD_DTYPE_F8_E5M2] = {"F8_E5M2", 8},
    [BD_DTYPE_F8_E8M0] = {"F8_E8M0", 8},
    [BD_DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [BD_DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [BD_DTYPE_F6_E2M3] = {"F6_E2M3", 6},
    [BD_DTYPE_F6_E3M2] = {"F6_E3M2", 6},
    [BD_DTYPE_F4] = {"F4", 4},
};

enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *bd_dtype_name(bd_dtype dtype)
{
    return dtypes[dtype].name;
}

bool bd_dtype_from_name(bd_dtype *dtype, const char *name)
{
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *dtype = (bd_dtype)i;
            return true;
        }
    }
    return false;
}

int bd_dtype_bits(bd_dtype dtype)
{
    return dtypes[dtype].bits;
}

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// A half has 1 bit of sign, 5 of exponent (bias 15) and 10 of fraction; a float has 8 of
// exponent (bias 127). Shifted to the float's places, the exponent is therefore 112 too small.
// The largest exponent means infinity or NaN and must become the float's largest: 112 more.
// Exponent 0 means a subnormal, fraction x 2^-24 without a leading 1: it is read with the
// smallest exponent, which implies a leading 1, and that 1 is subtracted again.
static float float_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    const uint32_t exponent = magnitude & UINT32_C(0x0f800000), step = UINT32_C(112) << 23;
    if (exponent == UINT32_C(0x0f800000))
        return float_of_bits(sign | (magnitude + 2 * step));
    if (exponent != 0)
        return float_of_bits(sign | (magnitude + step));
    const uint32_t one = UINT32_C(113) << 23;  // 2^-14
    return copysignf(float_of_bits(magnitude + one) - float_of_bits(one), float_of_bits(sign));
}

static uint16_t half_at(const unsigned char *bytes, int64_t i)
{
    uint16_t half;
    memcpy(&half, bytes + (size_t)i * sizeof half, sizeof half);
    return half;
}

bool bd_dtype_to_floats(bd_dtype dtype, const void *bytes, int64_t n, float *to)
{
    switch (dtype) {
    case BD_DTYPE_F32:
        if (n > 0)
            memcpy(to, bytes, (size_t)n * sizeof *to);
        return true;
    case BD_DTYPE_F16:
        for (int64_t i = 0; i < n; i++)
            to[i] = float_of_f16(half_at(bytes, i));
        return true;
    case BD_DTYPE_BF16:
        for (int64_t i = 0; i < n; i++)
            to[i] = bd_float_of_bf16(half_at(bytes, i));
        return true;
    default:
        return false;
    }
}
