// vector_math.h - exp() that a compiler can turn into vector code: no branch, no table, no
// call.
#ifndef BINDERY_KERNELS_CPU_VECTOR_MATH_H
#define BINDERY_KERNELS_CPU_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

// e^x within 2 units in the last place (tests/unit/kernels/cpu/vector_math_test.c). Where the true value is
// below the smallest normal float (x < -87.3365) it is exactly 0, from 88.7229 on infinity;
// exp of -infinity is 0, of NaN NaN.
static inline float bd_exp(float x)
{
    const float log2_e = 0x1.715476p+0f;
    const float ln2_high = 0x1.62e400p-1f,
                ln2_low = 0x1.7f7d1cp-20f;  // high has 12 zeros at its end
    const float round = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits

    const float shifted = x * log2_e + round;
    const float n = shifted - round;
    const float r = x - n * ln2_high - n * ln2_low;  // |r| <= ln(2) / 2

    // Minimax on that interval, in Horner's form.
    float p = 0x1.6a2434p-10f;
    p = p * r + 0x1.1239e2p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * r * r + r + 1.0f;

    // 2^n goes straight into the exponent, so that n = 128 works for p below 1.
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

#endif
