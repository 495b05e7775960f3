#include "kernels/cross_entropy.h"

#include <cfloat>

#include "kernels/cuda/boundaries.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/operations.h"

// ---- The largest logit, and the sum of exp(logit - largest), in one pass --------------------

struct exponential_sum {
    float top, sum;
};

// Not -infinity: infinity minus infinity is no number, and a logit may be -infinity itself.
static __device__ __forceinline__ exponential_sum empty_sum()
{
    return {-FLT_MAX, 0.0f};
}

// A NaN is never above the largest, so it goes into the sum and stays.
static __device__ __forceinline__ void add_logit(exponential_sum &s, float x)
{
    if (x > s.top) {
        s.sum = s.sum * expf(s.top - x) + 1.0f;
        s.top = x;
    } else {
        s.sum += expf(x - s.top);
    }
}

static __device__ __forceinline__ exponential_sum merge(exponential_sum a, exponential_sum b)
{
    const float top = a.top > b.top ? a.top : b.top;
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

// Of all threads of the block, to each of them. `staging` is shared memory [kWarpsPerBlock].
static __device__ exponential_sum merge_over_block(exponential_sum s, exponential_sum *staging)
{
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
        const float top = __shfl_xor_sync(kWholeWarp, s.top, distance);
        const float sum = __shfl_xor_sync(kWholeWarp, s.sum, distance);
        s = merge(s, {top, sum});
    }
    if (lane_of_thread() == 0)
        staging[int(threadIdx.x) / kWarpSize] = s;
    __syncthreads();
    s = staging[0];
    for (int w = 1; w < kWarpsPerBlock; w++)
        s = merge(s, staging[w]);
    return s;
}

// ---- The kernel -----------------------------------------------------------------------------

static __device__ void clear_row(float *logits, int64_t n)
{
    for (int64_t i = threadIdx.x; i < n; i += kThreadsPerBlock)
        logits[i] = 0.0f;
}

// One block per token.
static __global__ void cross_entropy_kernel(bd_cross_entropy_args a)
{
    SHARED_ARRAY(exponential_sum, staging, kWarpsPerBlock);
    const int64_t token = a.first + blockIdx.x;
    const int64_t n = a.n_vocabulary;
    float *logits = a.logits + int64_t(blockIdx.x) * n;
    const token_segment segment = segment_around(a.boundaries, token);
    if (segment.t + 1 >= segment.end) {  // the last of its segment, or padding
        if (a.want_gradient)
            clear_row(logits, n);
        if (threadIdx.x == 0)
            a.losses[token] = 0.0f;
        return;
    }

    const int64_t target = token_id(a.ids, a.id_bytes, token + 1);
    const float of_target = logits[target];
    exponential_sum s = empty_sum();
    for (int64_t i = threadIdx.x; i < n; i += kThreadsPerBlock)
        add_logit(s, logits[i]);
    s = merge_over_block(s, staging);  // its barrier lets everyone read before anyone writes

    if (threadIdx.x == 0)
        a.losses[token] = logf(s.sum) + (s.top - of_target);
    if (!a.want_gradient)
        return;
    const float factor = a.gradient_scale / s.sum;
    for (int64_t i = threadIdx.x; i < n; i += kThreadsPerBlock) {
        const float e = expf(logits[i] - s.top);
        // Of the target in one piece: 1 - p has few digits left where p is nearly 1.
        logits[i] = i == target ? a.gradient_scale * ((e - s.sum) / s.sum) : e * factor;
    }
}

extern "C" BD_CUDA_OPERATION(cross_entropy)
{
    if (args->n == 0)
        return BD_OK;
    LAUNCH(cross_entropy_kernel, unsigned(args->n), kThreadsPerBlock, 0, queue->stream, *args);
    return bd_cuda_check_launch("cross_entropy", err);
}
