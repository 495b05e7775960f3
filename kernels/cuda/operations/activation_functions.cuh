// activation_functions.cuh - the functions of kernels/activation.h and their derivatives.
//
//   F::value(x)            f(x)
//   F::tangent(x)          f(x) and f'(x)
//   F::gradient(x, d_out)  d_out * f'(x)
//
// A NaN stays a NaN.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_ACTIVATION_FUNCTIONS_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_ACTIVATION_FUNCTIONS_CUH

#include <cassert>

#include "common/base/error.h"
#include "kernels/activation.h"
#include "kernels/cuda/runtime/gpu.cuh"

struct function_tangent {
    float value, slope;
};

struct relu {
    static __device__ __forceinline__ float value(float x)
    {
        return x <= 0.0f ? 0.0f : x;
    }
    static __device__ __forceinline__ function_tangent tangent(float x)
    {
        return {value(x), x <= 0.0f ? 0.0f : 1.0f};
    }
    // Not a product, which would be -0 for negative d_out.
    static __device__ __forceinline__ float gradient(float x, float d_out)
    {
        return x <= 0.0f ? 0.0f : d_out;
    }
};

struct gelu {
    // Returns -2u, where u is the argument of tanh in activation.h. We use 0.5 (1 + tanh(u)) =
    // 1 / (1 + exp(-2u)), which loses no digits near 0 and is right at both infinities.
    static __device__ __forceinline__ float exponent(float x)
    {
        const float factor = -2.0f * 0.7978845608f;  // -2 sqrt(2 / pi)
        return factor * (x + 0.044715f * x * x * x);
    }
    static __device__ __forceinline__ float value(float x)
    {
        return x / (1.0f + expf(exponent(x)));
    }
    // Beyond ±9 the derivative is 1 or 0 to within 1e-26, so x is clamped, and nothing
    // overflows.
    static __device__ __forceinline__ function_tangent tangent(float x)
    {
        const float above = x < -9.0f ? -9.0f : x;
        const float inside = above > 9.0f ? 9.0f : above;
        const float e = expf(exponent(inside));
        const float s = 1.0f / (1.0f + e);
        const float slope = 2.0f * 0.7978845608f * (1.0f + 3.0f * 0.044715f * inside * inside);
        return {above * s, s + inside * slope * s * (e * s)};
    }
    static __device__ __forceinline__ float gradient(float x, float d_out)
    {
        return d_out * tangent(x).slope;
    }
};

struct silu {
    // Below -88.8 the exponential is infinite and the result -0. The clamp makes it so at
    // -infinity as well.
    static __device__ __forceinline__ float value(float x)
    {
        const float above = x < -100.0f ? -100.0f : x;
        return above / (1.0f + expf(-above));
    }
    // Beyond ±87 the derivative is 1 or 0 to within 1e-35, so x is clamped, and nothing
    // overflows.
    static __device__ __forceinline__ function_tangent tangent(float x)
    {
        const float above = x < -87.0f ? -87.0f : x;
        const float inside = above > 87.0f ? 87.0f : above;
        const float e = expf(-inside);
        const float s = 1.0f / (1.0f + e);
        return {above * s, s + inside * s * (e * s)};
    }
    static __device__ __forceinline__ float gradient(float x, float d_out)
    {
        return d_out * tangent(x).slope;
    }
};

// Calls work(F()) for the function of an activation other than BD_ACTIVATION_NONE.
template <class Work>
static inline bd_status for_function_of(bd_activation activation, Work work)
{
    switch (activation) {
    case BD_ACTIVATION_RELU:
        return work(relu());
    case BD_ACTIVATION_GELU:
        return work(gelu());
    default:
        assert(activation == BD_ACTIVATION_SILU);
        return work(silu());
    }
}

#endif
