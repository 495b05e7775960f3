// activation_functions.h - the activations of kernels/activation.h for one number. The compiler
// vectorizes loops over them.
#ifndef BINDERY_KERNELS_CPU_ACTIVATION_FUNCTIONS_H
#define BINDERY_KERNELS_CPU_ACTIVATION_FUNCTIONS_H

#include "kernels/cpu/vector_math.h"

// f(x) and f'(x).
typedef struct bd_tangent {
    float value, slope;
} bd_tangent;

// ---- ReLU -----------------------------------------------------------------------------------

static inline float bd_relu(float x)
{
    return x <= 0.0f ? 0.0f : x;  // NaN stays NaN
}

static inline bd_tangent bd_relu_tangent(float x)
{
    return (bd_tangent){bd_relu(x), x <= 0.0f ? 0.0f : 1.0f};
}

// ---- GELU -----------------------------------------------------------------------------------

// Returns -2u, where u is the argument of tanh in activation.h. We use 0.5 (1 + tanh(u)) =
// 1 / (1 + exp(-2u)), which loses no digits near 0 and is right at both infinities.
static inline float bd_gelu_exponent(float x)
{
    const float factor = -2.0f * 0.7978845608f;  // -2 sqrt(2 / pi)
    return factor * (x + 0.044715f * x * x * x);
}

static inline float bd_gelu(float x)
{
    return x / (1.0f + bd_exp(bd_gelu_exponent(x)));
}

// Beyond ±9 the derivative is 1 or 0 to within 1e-26, so x is clamped, and nothing overflows.
static inline bd_tangent bd_gelu_tangent(float x)
{
    const float above = x < -9.0f ? -9.0f : x;
    const float inside = above > 9.0f ? 9.0f : above;
    const float e = bd_exp(bd_gelu_exponent(inside));
    const float s = 1.0f / (1.0f + e);
    const float slope = 2.0f * 0.7978845608f * (1.0f + 3.0f * 0.044715f * inside * inside);
    return (bd_tangent){above * s, s + inside * slope * s * (e * s)};
}

// ---- SiLU -----------------------------------------------------------------------------------

// Below -88.8 the exponential is infinite and the result -0. The clamp makes it so at -infinity
// as well.
static inline float bd_silu(float x)
{
    const float above = x < -100.0f ? -100.0f : x;
    return above / (1.0f + bd_exp(-above));
}

// Beyond ±87 value and derivative are those of ReLU to within 1e-35, so x is clamped, and
// nothing overflows.
static inline bd_tangent bd_silu_tangent(float x)
{
    const float above = x < -87.0f ? -87.0f : x;
    const float inside = above > 87.0f ? 87.0f : above;
    const float e = bd_exp(-inside);
    const float s = 1.0f / (1.0f + e);
    return (bd_tangent){above * s, s + inside * s * (e * s)};
}

#endif
