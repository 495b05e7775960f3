#include "kernels/activation.h"

#include "kernels/cuda/operations/activation_functions.cuh"
#include "kernels/cuda/operations/elements.cuh"
#include "kernels/cuda/operations/operations.h"

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
    return for_function_of(args->activation, [&](auto function) {
        return forward<decltype(function)>(args, queue->stream, err);
    });
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
    return for_function_of(args->activation, [&](auto function) {
        return backward<decltype(function)>(args, queue->stream, err);
    });
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
