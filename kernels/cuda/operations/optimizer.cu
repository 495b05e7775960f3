#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cuda/operations/elements.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/squares.cuh"
#include "kernels/cuda/runtime/check.cuh"

// ---- AdamW ----------------------------------------------------------------------------------

struct adamw_step {
    bd_adamw_args a;
    double learning_rate;
    float rate, v_factor;  // the factors that depend only on the step, computed in double

    // The part that element i lies in.
    __device__ int64_t part_of(int64_t i) const
    {
        int64_t low = 0, high = a.n_parts - 1;
        while (low < high) {  // parts before `low` end at or before i, `high` ends after it
            const int64_t middle = (low + high) / 2;
            if (a.parts[middle].end <= i)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
    struct rates {
        float rate, decay;
    };
    __device__ rates rates_of(int64_t part) const
    {
        const bd_adamw_part p = a.parts[part];
        return {rate * p.rate_factor,
                float(1.0 - learning_rate * double(p.rate_factor) * double(p.weight_decay))};
    }
    __device__ void update(const rates &r, float gradient, float &parameter, float &m,
                           float &v) const
    {
        const float g = a.gradient_scale * gradient;
        m = a.beta1 * m + (1.0f - a.beta1) * g;
        v = a.beta2 * v + (1.0f - a.beta2) * (g * g);
        parameter = parameter * r.decay - r.rate * m / (sqrtf(v * v_factor) + a.epsilon);
    }
    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        const pack<W> gradient = load_pack<W>(a.gradient + i, aligned);
        pack<W> parameter = load_pack<W>(a.parameter + i, aligned);
        pack<W> m = load_pack<W>(a.m + i, aligned), v = load_pack<W>(a.v + i, aligned);
        int64_t part = part_of(i);
        rates r = rates_of(part);
#pragma unroll
        for (int k = 0; k < W; k++) {
            while (i + k >= a.parts[part].end)
                r = rates_of(++part);
            update(r, gradient.at[k], parameter.at[k], m.at[k], v.at[k]);
        }
        store_pack<W>(a.parameter + i, parameter, aligned);
        store_pack<W>(a.m + i, m, aligned);
        store_pack<W>(a.v + i, v, aligned);
        if (a.rounded)
            store_pack<W>((bf16_t *)a.rounded + i, parameter, aligned);
    }
};

BD_CUDA_NO_SCRATCH(adamw)
extern "C" BD_CUDA_OPERATION(adamw)
{
    const double rate = double(args->learning_rate), step = double(args->step);
    const adamw_step update = {
        *args,
        rate,
        float(rate / (1.0 - pow(double(args->beta1), step))),
        float(1.0 / (1.0 - pow(double(args->beta2), step))),
    };
    const bool aligned =
        all_aligned({args->gradient, args->parameter, args->m, args->v, args->rounded});
    return for_each_element<kPackSize<float>>(update, args->n, aligned, "adamw", queue->stream,
                                              err);
}

// ---- The norm -------------------------------------------------------------------------------

// One block for each part.
static __global__ void squares_kernel(const float *x, int64_t n, int64_t per_part, bool aligned,
                                      double *parts)
{
    SHARED_ARRAY(double, staging, kWarpsPerBlock);
    const int64_t first = int64_t(blockIdx.x) * per_part;
    const int64_t last = first + per_part < n ? first + per_part : n;
    double sum = 0.0;
    int64_t i = first + int(threadIdx.x) * kSquares;
#pragma unroll 4
    for (; i + kSquares <= last; i += kThreadsPerBlock * kSquares) {
        const pack<kSquares> p = load_pack<kSquares>(x + i, aligned);
#pragma unroll
        for (int k = 0; k < kSquares; k++)
            sum += double(p.at[k]) * double(p.at[k]);
    }
    for (; i < last; i++)  // only one thread has the incomplete pack
        sum += double(x[i]) * double(x[i]);
    sum = sum_over_block(sum, staging);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

// One block.
static __global__ void add_parts_kernel(const double *parts, int64_t n_parts, double *out)
{
    SHARED_ARRAY(double, staging, kWarpsPerBlock);
    const double sum = sum_of_parts(parts, n_parts, staging);
    if (threadIdx.x == 0)
        *out = sum;
}

extern "C" BD_CUDA_SCRATCH(sum_of_squares)
{
    return parts_of(args->n) * sizeof(double);
}

extern "C" BD_CUDA_OPERATION(sum_of_squares)
{
    const unsigned n_parts = parts_of(args->n);
    double *parts = (double *)queue->scratch;
    LAUNCH(squares_kernel, n_parts, kThreadsPerBlock, 0, queue->stream, args->x, args->n,
           elements_per_part(args->n), all_aligned({args->x}), parts);
    BD_TRY(bd_cuda_check_launch("squares", err));
    LAUNCH(add_parts_kernel, 1, kThreadsPerBlock, 0, queue->stream, parts, int64_t(n_parts),
           args->sum);
    return bd_cuda_check_launch("add_parts", err);
}

// ---- The average ----------------------------------------------------------------------------

template <class T>
struct average_step {
    bd_average_args a;

    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        pack<W> average = load_pack<W>(a.average + i, aligned);
        if (a.parameter) {
            const pack<W> parameter = load_pack<W>(a.parameter + i, aligned);
#pragma unroll
            for (int k = 0; k < W; k++)
                average.at[k] += a.rate * (parameter.at[k] - average.at[k]);
            store_pack<W>(a.average + i, average, aligned);
        }
        if (a.copy)
            store_pack<W>((T *)a.copy + i, average, aligned);
    }
};

BD_CUDA_NO_SCRATCH(average)
extern "C" BD_CUDA_OPERATION(average)
{
    const bool aligned = all_aligned({args->parameter, args->average, args->copy});
    return for_elements_of(args->type, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        return for_each_element<packs.width>(average_step<T>{*args}, args->n, aligned,
                                             "average", queue->stream, err);
    });
}
