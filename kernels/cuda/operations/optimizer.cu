#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cuda/operations/elements.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
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
    __device__ float decay_of(int64_t part) const
    {
        return float(1.0 - learning_rate * double(a.parts[part].weight_decay));
    }
    __device__ void update(float decay, float gradient, float &parameter, float &m,
                           float &v) const
    {
        const float g = a.gradient_scale * gradient;
        m = a.beta1 * m + (1.0f - a.beta1) * g;
        v = a.beta2 * v + (1.0f - a.beta2) * (g * g);
        parameter = parameter * decay - rate * m / (sqrtf(v * v_factor) + a.epsilon);
    }
    template <int W>
    __device__ void run(int64_t i, bool aligned) const
    {
        const pack<W> gradient = load_pack<W>(a.gradient + i, aligned);
        pack<W> parameter = load_pack<W>(a.parameter + i, aligned);
        pack<W> m = load_pack<W>(a.m + i, aligned), v = load_pack<W>(a.v + i, aligned);
        int64_t part = part_of(i);
        float decay = decay_of(part);
#pragma unroll
        for (int k = 0; k < W; k++) {
            while (i + k >= a.parts[part].end)
                decay = decay_of(++part);
            update(decay, gradient.at[k], parameter.at[k], m.at[k], v.at[k]);
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

// Enough parts to fill any device, and few enough for one block to add them.
static constexpr int64_t kMaxParts = 1024;
static constexpr int64_t kLeastPerPart = 4096;
static constexpr int kSquares = kPackSize<float>;  // that a thread reads at once

static int64_t elements_per_part(int64_t n)
{
    const int64_t per_part =
        ((n + kMaxParts - 1) / kMaxParts + kSquares - 1) / kSquares * kSquares;
    return per_part > kLeastPerPart ? per_part : kLeastPerPart;
}

// The sum over all threads of the block; only the first thread gets it. `staging` is shared
// memory [kWarpsPerBlock].
static __device__ double sum_over_block(double x, double *staging)
{
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(kWholeWarp, x, distance);
    if (lane_of_thread() == 0)
        staging[int(threadIdx.x) / kWarpSize] = x;
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0)
        for (int w = 0; w < kWarpsPerBlock; w++)
            sum += staging[w];
    return sum;
}

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
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n_parts; i += kThreadsPerBlock)
        sum += parts[i];
    sum = sum_over_block(sum, staging);
    if (threadIdx.x == 0)
        *out = sum;
}

extern "C" BD_CUDA_SCRATCH(sum_of_squares)
{
    return blocks_for(args->n, elements_per_part(args->n)) * sizeof(double);
}

extern "C" BD_CUDA_OPERATION(sum_of_squares)
{
    const int64_t per_part = elements_per_part(args->n);
    const unsigned n_parts = blocks_for(args->n, per_part);
    double *parts = (double *)queue->scratch;
    LAUNCH(squares_kernel, n_parts, kThreadsPerBlock, 0, queue->stream, args->x, args->n,
           per_part, all_aligned({args->x}), parts);
    BD_TRY(bd_cuda_check_launch("squares", err));
    LAUNCH(add_parts_kernel, 1, kThreadsPerBlock, 0, queue->stream, parts, int64_t(n_parts),
           args->sum);
    return bd_cuda_check_launch("add_parts", err);
}
