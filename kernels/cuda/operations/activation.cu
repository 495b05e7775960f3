#include "kernels/activation.h"

#include "kernels/cuda/operations/elements.cuh"
#include "kernels/cuda/operations/operations.h"

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
    // Returns -2u, where u is the argument of tanh in activation.h. We use 0.5 (1 + tanh(u)) =
    // 1 / (1 + exp(-2u)), which loses no digits near 0 and is right at both infinities.
    static __device__ float exponent(float x)
    {
        const float factor = -2.0f * 0.7978845608f;  // -2 sqrt(2 / pi)
        return factor * (x + 0.044715f * x * x * x);
    }
    static __device__ float value(float x)
    {
        return x / (1.0f + expf(exponent(x)));
    }
    // Beyond ±9 the derivative is 1 or 0 to within 1e-26, so x is clamped, and nothing
    // overflows.
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

template <class T, class F>
struct forward_step {
    const T *x;
    T *out;

    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        pack<W> p = load_pack<W>(x + i, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            p.at[k] = F::value(p.at[k]);
        store_pack<W>(out + i, p, aligned);
    }
};

template <class T, class F>
struct backward_step {
    const T *x, *d_out;
    T *d_x;

    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        const pack<W> p = load_pack<W>(x + i, aligned);
        pack<W> d = load_pack<W>(d_out + i, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            d.at[k] = F::gradient(p.at[k], d.at[k]);
        store_pack<W>(d_x + i, d, aligned);
    }
};

template <class T>
struct add_step {
    const T *a, *b;
    T *out;

    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        pack<W> p = load_pack<W>(a + i, aligned);
        const pack<W> q = load_pack<W>(b + i, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            p.at[k] += q.at[k];
        store_pack<W>(out + i, p, aligned);
    }
};

// ---- The operations -------------------------------------------------------------------------

template <class F>
static bd_status forward(const bd_activation_forward_args *args, void *stream, bd_error *err)
{
    return for_elements_of(args->type, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const forward_step<T, F> step = {(const T *)args->x, (T *)args->out};
        return for_each_element<packs.width>(step, args->n, all_aligned({args->x, args->out}),
                                             "activation_forward", stream, err);
    });
}

extern "C" BD_CUDA_OPERATION(activation_forward)
{
    return args->activation == BD_ACTIVATION_RELU ? forward<relu>(args, queue->stream, err)
                                                  : forward<gelu>(args, queue->stream, err);
}

template <class F>
static bd_status backward(const bd_activation_backward_args *args, void *stream, bd_error *err)
{
    return for_elements_of(args->type, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const backward_step<T, F> step = {(const T *)args->x, (const T *)args->d_out,
                                          (T *)args->d_x};
        return for_each_element<packs.width>(step, args->n,
                                             all_aligned({args->x, args->d_out, args->d_x}),
                                             "activation_backward", stream, err);
    });
}

BD_CUDA_NO_SCRATCH(activation_backward)
extern "C" BD_CUDA_OPERATION(activation_backward)
{
    return args->activation == BD_ACTIVATION_RELU ? backward<relu>(args, queue->stream, err)
                                                  : backward<gelu>(args, queue->stream, err);
}

BD_CUDA_NO_SCRATCH(add)
extern "C" BD_CUDA_OPERATION(add)
{
    return for_elements_of(args->type, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const add_step<T> step = {(const T *)args->a, (const T *)args->b, (T *)args->out};
        return for_each_element<packs.width>(step, args->n,
                                             all_aligned({args->a, args->b, args->out}), "add",
                                             queue->stream, err);
    });
}
