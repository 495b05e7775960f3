// One block for each token. A first pass over the logits keeps, in every thread, the largest
// logit so far (top) and the sum of exp(logit - top); when top grows, the sum is scaled down.
// The sums of all threads are merged, which gives the log-sum-exp of logits: log(sum) + top.
// The loss is that minus logit[target]. A second pass overwrites the logits with the gradient.
#include "kernels/cross_entropy.h"

#include <cfloat>
#include <cmath>

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/loss_mask.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

// ---- The largest logit, and the sum of exp(logit - largest), in one pass --------------------

struct exponential_sum {
    float top, sum;
};

// Not -infinity: a logit may be -infinity itself, and the difference of the two would be NaN.
static __device__ __forceinline__ exponential_sum empty_sum()
{
    return {-FLT_MAX, 0.0f};
}

// fmaxf ignores a NaN, so that it does not become `top`; it goes into the sum and stays there.
template <int W>
static __device__ __forceinline__ void add_logits(exponential_sum &s, const pack<W> &x)
{
    float top = s.top;
#pragma unroll
    for (int k = 0; k < W; k++)
        top = fmaxf(top, x.at[k]);
    if (top > s.top) {
        s.sum *= expf(s.top - top);
        s.top = top;
    }
#pragma unroll
    for (int k = 0; k < W; k++)
        s.sum += expf(x.at[k] - top);
}

static __device__ __forceinline__ exponential_sum merge(exponential_sum a, exponential_sum b)
{
    const float top = a.top > b.top ? a.top : b.top;
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
}

// Merges the sums of all threads of the block; each thread gets the result. `staging` is shared
// memory [kWarpsPerBlock].
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

// The width of packs is chosen by the distance of rows, so that the last pack of a row may
// reach beyond its n logits. There it reads -infinity, and it writes nothing.
template <int W, class T>
static __device__ __forceinline__ pack<W> load_logits(const T *logits, int64_t i, int64_t n,
                                                      bool aligned)
{
    if (i + W <= n)
        return load_pack<W>(logits + i, aligned);
    pack<W> p;
#pragma unroll
    for (int k = 0; k < W; k++)
        p.at[k] = i + k < n ? load_value(logits + i + k) : -INFINITY;
    return p;
}

template <int W, class T>
static __device__ __forceinline__ void store_logits(T *logits, int64_t i, int64_t n,
                                                    const pack<W> &p, bool aligned)
{
    if (i + W <= n) {
        store_pack<W>(logits + i, p, aligned);
        return;
    }
#pragma unroll
    for (int k = 0; k < W; k++)
        if (i + k < n)
            store_value(logits + i + k, p.at[k]);
}

template <int W, class T>
static __device__ void clear_row(T *logits, int64_t n, bool aligned)
{
    for (int64_t i = int(threadIdx.x) * W; i < n; i += kThreadsPerBlock * W)
        store_logits<W>(logits, i, n, zero_pack<W>(), aligned);
}

template <int W, class T>
static __device__ __forceinline__ exponential_sum sum_of_thread(const T *logits, int64_t n,
                                                                bool aligned)
{
    exponential_sum s = empty_sum();
#pragma unroll 4
    for (int64_t i = int(threadIdx.x) * W; i < n; i += kThreadsPerBlock * W)
        add_logits<W>(s, load_logits<W>(logits, i, n, aligned));
    return s;
}

template <int W, class T>
static __device__ __forceinline__ void write_gradient(T *logits, int64_t n, int64_t target,
                                                      const exponential_sum &s, float scale,
                                                      float z_loss, bool aligned)
{
    // The gradient is scale * (p * (1 + pull) - one_hot). Without z_loss the pull is 0 and
    // changes no bit.
    const float pull = 2.0f * z_loss * (logf(s.sum) + s.top);
    const float per_e = scale / s.sum, factor = per_e * (1.0f + pull), pulled = per_e * pull;
#pragma unroll 4
    for (int64_t i = int(threadIdx.x) * W; i < n; i += kThreadsPerBlock * W) {
        pack<W> p = load_logits<W>(logits, i, n, aligned);
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float e = expf(p.at[k] - s.top);
            // For the target not scale * (p - 1), which has few digits left if p is nearly 1.
            p.at[k] = i + k == target ? scale * ((e - s.sum) / s.sum) + e * pulled : e * factor;
        }
        store_logits<W>(logits, i, n, p, aligned);
    }
}

template <class T, int W>
static __global__ void cross_entropy_kernel(bd_cross_entropy_args a, bool aligned)
{
    SHARED_ARRAY(exponential_sum, staging, kWarpsPerBlock);
    const int64_t token = blockIdx.x;
    const int64_t n = a.n_vocabulary;
    T *logits = (T *)a.logits + token * a.stride;
    const token_segment segment = segment_around(a.boundaries, token);
    const int64_t bits = mask_offset(a.mask, token / a.boundaries.seq_len);
    // The last of its segment, or padding, or followed by a token that is not trained.
    if (segment.t + 1 >= segment.end || !token_is_trained(a.mask, bits, segment.t + 1)) {
        if (a.want_gradient)
            clear_row<W>(logits, n, aligned);
        if (threadIdx.x == 0)
            a.losses[token] = 0.0f;
        return;
    }

    const int64_t target = token_id(a.ids, a.id_bytes, token + 1);
    const float of_target = load_value(logits + target);
    // The barrier in merge_over_block() lets all threads read before any of them writes.
    const exponential_sum s = merge_over_block(sum_of_thread<W>(logits, n, aligned), staging);
    const float divisor = a.per_document ? float(count_targets(a.mask, bits, segment)) : 1.0f;
    if (threadIdx.x == 0)
        a.losses[token] = (logf(s.sum) + (s.top - of_target)) / divisor;
    if (a.want_gradient)
        write_gradient<W>(logits, n, target, s, a.gradient_scale / divisor, a.z_loss, aligned);
}

BD_CUDA_NO_SCRATCH(cross_entropy)
extern "C" BD_CUDA_OPERATION(cross_entropy)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    if (n_tokens == 0)
        return BD_OK;
    bd_cross_entropy_args a = *args;
    a.stride = bd_stride(args->stride, args->n_vocabulary);
    return for_rows_of(a.type, a.stride, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        LAUNCH((cross_entropy_kernel<T, packs.width>), unsigned(n_tokens), kThreadsPerBlock, 0,
               queue->stream, a, all_aligned({a.logits}));
        return bd_cuda_check_launch("cross_entropy", err);
    });
}
