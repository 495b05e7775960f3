#include "kernels/activation.h"

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/operations.h"

// ---- The functions --------------------------------------------------------------------------

struct relu {
    static __device__ float value(float x)
    {
        return x <= 0.0f ? 0.0f : x;  // NaN stays NaN
    }
    static __device__ float gradient(float x, float d_out)
    {
        return x <= 0.0f ? 0.0f : d_out;
    }
};

struct gelu {
    // -2u, with u as in activation.h: 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), which keeps
    // every digit near 0 and is right at both infinities.
    static __device__ float exponent(float x)
    {
        const float factor = -2.0f * 0.7978845608f;  // -2 sqrt(2 / pi)
        return factor * (x + 0.044715f * x * x * x);
    }
    static __device__ float value(float x)
    {
        return x / (1.0f + expf(exponent(x)));
    }
    // Beyond 9 the derivative is 1, or 0 to within 1e-26; held there, nothing overflows.
    static __device__ float gradient(float x, float d_out)
    {
        x = x < -9.0f ? -9.0f : x;
        x = x > 9.0f ? 9.0f : x;
        const float e = expf(exponent(x));
        const float s = 1.0f / (1.0f + e);
        const float slope = 2.0f * 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
        return d_out * (s + x * slope * s * (e * s));
    }
};

// ---- The steps ------------------------------------------------------------------------------

template <class F>
struct forward_step {
    const float *x;
    float *out;

    __device__ void one(int64_t i) const
    {
        out[i] = F::value(x[i]);
    }
    __device__ void four(int64_t i) const
    {
        const float4 v = load_four(x, i);
        store_four(out, i,
                   make_float4(F::value(v.x), F::value(v.y), F::value(v.z), F::value(v.w)));
    }
};

template <class F>
struct backward_step {
    const float *x, *d_out;
    float *d_x;

    __device__ void one(int64_t i) const
    {
        d_x[i] = F::gradient(x[i], d_out[i]);
    }
    __device__ void four(int64_t i) const
    {
        const float4 v = load_four(x, i), d = load_four(d_out, i);
        store_four(d_x, i,
                   make_float4(F::gradient(v.x, d.x), F::gradient(v.y, d.y),
                               F::gradient(v.z, d.z), F::gradient(v.w, d.w)));
    }
};

struct add_step {
    const float *a, *b;
    float *out;

    __device__ void one(int64_t i) const
    {
        out[i] = a[i] + b[i];
    }
    __device__ void four(int64_t i) const
    {
        const float4 x = load_four(a, i), y = load_four(b, i);
        store_four(out, i, make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w));
    }
};

// ---- The operations -------------------------------------------------------------------------

template <class F>
static bd_status forward(const bd_activation_forward_args *args, void *stream, bd_error *err)
{
    const forward_step<F> step = {args->x, args->out};
    return for_each_element(step, args->n, is_aligned(args->x) && is_aligned(args->out),
                            "activation_forward", stream, err);
}

extern "C" BD_CUDA_OPERATION(activation_forward)
{
    return args->activation == BD_ACTIVATION_RELU ? forward<relu>(args, queue->stream, err)
                                                  : forward<gelu>(args, queue->stream, err);
}

template <class F>
static bd_status backward(const bd_activation_backward_args *args, void *stream, bd_error *err)
{
    const backward_step<F> step = {args->x, args->d_out, args->d_x};
    const bool aligned =
        is_aligned(args->x) && is_aligned(args->d_out) && is_aligned(args->d_x);
    return for_each_element(step, args->n, aligned, "activation_backward", stream, err);
}

extern "C" BD_CUDA_OPERATION(activation_backward)
{
    return args->activation == BD_ACTIVATION_RELU ? backward<relu>(args, queue->stream, err)
                                                  : backward<gelu>(args, queue->stream, err);
}

extern "C" BD_CUDA_OPERATION(add)
{
    const add_step step = {args->a, args->b, args->out};
    const bool aligned = is_aligned(args->a) && is_aligned(args->b) && is_aligned(args->out);
    return for_each_element(step, args->n, aligned, "add", queue->stream, err);
}
