// vector_math.h - an exp() that compilers can vectorize: it has no branch, no table and no
// call.
//
// exp(x) = 2^n exp(r), where n is the integer nearest to x / ln(2) and r = x - n ln(2). A
// polynomial gives exp(r); n is added to the exponent bits.
#ifndef BINDERY_KERNELS_CPU_VECTOR_MATH_H
#define BINDERY_KERNELS_CPU_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

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

#endif
