#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/operations.h"

// ---- AdamW ----------------------------------------------------------------------------------

struct adamw_step {
    bd_adamw_args a;
    float decay, rate, v_factor;  // what depends on the step alone, worked out in double

    __device__ void update(float gradient, float &parameter, float &m, float &v) const
    {
        const float g = a.gradient_scale * gradient;
        m = a.beta1 * m + (1.0f - a.beta1) * g;
        v = a.beta2 * v + (1.0f - a.beta2) * (g * g);
        parameter = parameter * decay - rate * m / (sqrtf(v * v_factor) + a.epsilon);
    }
    __device__ void one(int64_t i) const
    {
        update(a.gradient[i], a.parameter[i], a.m[i], a.v[i]);
    }
    __device__ void four(int64_t i) const
    {
        const float4 gradient = load_four(a.gradient, i);
        float4 parameter = load_four(a.parameter, i);
        float4 m = load_four(a.m, i), v = load_four(a.v, i);
        update(gradient.x, parameter.x, m.x, v.x);
        update(gradient.y, parameter.y, m.y, v.y);
        update(gradient.z, parameter.z, m.z, v.z);
        update(gradient.w, parameter.w, m.w, v.w);
        store_four(a.parameter, i, parameter);
        store_four(a.m, i, m);
        store_four(a.v, i, v);
    }
};

extern "C" BD_CUDA_OPERATION(adamw)
{
    const double rate = double(args->learning_rate), step = double(args->step);
    const adamw_step update = {
        *args,
        float(1.0 - rate * double(args->weight_decay)),
        float(rate / (1.0 - pow(double(args->beta1), step))),
        float(1.0 / (1.0 - pow(double(args->beta2), step))),
    };
    const bool aligned = is_aligned(args->gradient) && is_aligned(args->parameter) &&
                         is_aligned(args->m) && is_aligned(args->v);
    return for_each_element(update, args->n, aligned, "adamw", queue->stream, err);
}

// ---- The norm -------------------------------------------------------------------------------

// Enough parts to fill any device; never more than a block adds in one go.
static constexpr int64_t kMaxParts = 1024;
static constexpr int64_t kLeastPerPart = 4096;

static int64_t elements_per_part(int64_t n)
{
    const int64_t per_part = (n + kMaxParts - 1) / kMaxParts;
    return per_part > kLeastPerPart ? per_part : kLeastPerPart;
}

// Of all threads of the block, to the first of them. `staging` is shared memory
// [kWarpsPerBlock].
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

// One block per part.
static __global__ void squares_kernel(const float *x, int64_t n, int64_t per_part,
                                      double *parts)
{
    SHARED_ARRAY(double, staging, kWarpsPerBlock);
    const int64_t first = int64_t(blockIdx.x) * per_part;
    const int64_t last = first + per_part < n ? first + per_part : n;
    double sum = 0.0;
    for (int64_t i = first + int(threadIdx.x); i < last; i += kThreadsPerBlock)
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
           per_part, parts);
    BD_TRY(bd_cuda_check_launch("squares", err));
    LAUNCH(add_parts_kernel, 1, kThreadsPerBlock, 0, queue->stream, parts, int64_t(n_parts),
           args->sum);
    return bd_cuda_check_launch("add_parts", err);
}
