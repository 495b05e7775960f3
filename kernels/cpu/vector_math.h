// vector_math.h - functions that compilers can vectorize: they have no branch, no table and no
// call.
#ifndef BINDERY_KERNELS_CPU_VECTOR_MATH_H
#define BINDERY_KERNELS_CPU_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

// exp(x) = 2^n exp(r), where n is the integer nearest to x / ln(2) and r = x - n ln(2). A
// polynomial gives exp(r); n is added to the exponent bits.
//
// e^x to within 2 units in the last place (tests/unit/kernels/cpu/vector_math_test.c). If the
// true value is below the smallest normal float (x < -87.3365), the result is exactly 0; from
// 88.7229 on it is infinity. exp(-infinity) is 0, exp(NaN) is NaN.
static inline float bd_exp(float x)
{
    const float log2_e = 0x1.715476p+0f;
    const float ln2_high = 0x1.62e400p-1f,
                ln2_low = 0x1.7f7d1cp-20f;  // high ends in 12 zero bits
    const float round = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits

    const float shifted = x * log2_e + round;
    const float n = shifted - round;
    const float r = x - n * ln2_high - n * ln2_low;  // |r| <= ln(2) / 2

    // The minimax polynomial on that interval, in Horner's form.
    float p = 0x1.6a2434p-10f;
    p = p * r + 0x1.1239e2p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * r * r + r + 1.0f;

    // Adding n to the exponent, and not multiplying by 2^n, also works for n = 128 if p is
    // below 1.
    uint32_t bits, power;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&power, &shifted, sizeof power);
    bits += power << 23;
    float result;
    memcpy(&result, &bits, sizeof result);

    result = x < -0x1.5d589ep+6f ? 0.0f : result;
    result = x > 0x1.62e42ep+6f ? INFINITY : result;
    return x != x ? x : result;
}

// The sine and the cosine of phase / 2^64 turns, each to within 1e-7
// (tests/unit/kernels/cpu/vector_math_test.c). At whole quarters of a turn they are exact.
//
// The angle is the nearest quarter of a turn plus a rest of at most an eighth, for which
// polynomials give both. Quarters swap the two and change their signs.
static inline void bd_sin_cos(uint64_t phase, float *sine, float *cosine)
{
    const uint32_t quarter = ((uint32_t)(phase >> 32) + (UINT32_C(1) << 29)) >> 30;
    // Without its quarter, the phase is the rest in units of 2^-64 turn, modulo a quarter. Of
    // these 62 bits the upper 32, signed, are enough: the others are less than 2^-34 turn.
    const int32_t rest = (int32_t)(uint32_t)(phase >> 30);
    const float t = (float)rest * 0x1p-34f;
    const float z = t * t;

    // Minimax polynomials of sin(2 pi t) / t and cos(2 pi t) for |t| <= 1/8.
    float s = -0x1.2ef848p+6f;
    s = s * z + 0x1.4668e6p+6f;
    s = s * z - 0x1.4abbe6p+5f;
    s = s * z * t + 0x1.921fb6p+2f * t;
    float c = 0x1.d47d46p+5f;
    c = c * z - 0x1.55b146p+6f;
    c = c * z + 0x1.03c1aep+6f;
    c = c * z - 0x1.3bd3ccp+4f;
    c = c * z + 1.0f;

    const float across = quarter & 1 ? c : s, along = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -across : across;
    *cosine = (quarter + 1) & 2 ? -along : along;
}

#endif
