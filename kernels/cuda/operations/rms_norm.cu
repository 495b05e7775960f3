// One warp for each token. Its lanes form groups, and each group takes one vector at a time: a
// long vector has all lanes, while short ones, the heads of queries and keys, share the warp.
//
//   bf16, 64 channels   groups of 8 lanes with 8 channels each: 4 heads at a time
#include "kernels/rms_norm.h"

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/columns.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

// ---- Groups of lanes ------------------------------------------------------------------------

// The number of lanes of a group for vectors of n channels: a power of two.
template <int W>
static int lanes_for(int64_t n)
{
    int n_lanes = 1;
    while (n_lanes < kWarpSize && n_lanes * W < n)
        n_lanes *= 2;
    return n_lanes;
}

struct lane_group {
    int n_lanes;
    int number;           // in its warp
    int64_t first, step;  // this lane's first channel, and the distance to its next pack
};

template <int W>
static __device__ __forceinline__ lane_group group_of_lane(int n_lanes)
{
    const int lane = lane_of_thread();
    return {n_lanes, lane / n_lanes, lane % n_lanes * W, n_lanes * W};
}

// The sum over the lanes of a group. All lanes of the warp must call it.
static __device__ __forceinline__ float group_sum(float v, const lane_group &group)
{
    for (int distance = group.n_lanes / 2; distance > 0; distance /= 2)
        v += __shfl_xor_sync(kWholeWarp, v, distance);
    return v;
}

// Clears the n values of a token, by the whole warp.
template <int W, class T>
static __device__ __forceinline__ void clear_token(T *out, int64_t n, bool aligned)
{
    for (int64_t c = lane_of_thread() * W; c < n; c += kWarpSize * W)
        store_pack<W>(out + c, zero_pack<W>(), aligned);
}

// ---- Forward --------------------------------------------------------------------------------

// The sum over the group's vector. The caller reads the vector a second time, then from the
// cache; so it can have any length.
template <int W, class T>
static __device__ __forceinline__ float sum_of_squares(const T *x, int64_t n,
                                                       const lane_group &group, bool aligned)
{
    float sum = 0.0f;
    for (int64_t c = group.first; c < n; c += group.step) {
        const pack<W> v = load_pack<W>(x + c, aligned);
        float of_pack = 0.0f;
#pragma unroll
        for (int k = 0; k < W; k++)
            of_pack += v.at[k] * v.at[k];
        sum += of_pack;
    }
    return group_sum(sum, group);
}

template <class T, int W>
static __global__ void rms_norm_forward_kernel(bd_rms_norm_forward_args a, int n_lanes,
                                               bool aligned)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries))
        return;
    T *of_token = (T *)a.out + token * a.out_stride;
    float *rstds = a.rstd + token * a.n_vectors;
    if (!token_is_used(a.boundaries, token)) {
        clear_token<W>(of_token, a.n_vectors * a.n_channels, aligned);
        for (int64_t v = lane_of_thread(); v < a.n_vectors; v += kWarpSize)
            rstds[v] = 0.0f;
        return;
    }
    const lane_group group = group_of_lane<W>(n_lanes);
    for (int64_t base = 0; base < a.n_vectors; base += kWarpSize / n_lanes) {
        const int64_t vector = base + group.number;
        const int64_t n = vector < a.n_vectors ? a.n_channels : 0;  // 0: no vector is left
        const T *x = (const T *)a.x + token * a.x_stride + vector * a.n_channels;
        const T *gain = (const T *)a.gain;
        T *out = of_token + vector * a.n_channels;
        const float squares = sum_of_squares<W>(x, n, group, aligned);
        const float rstd = 1.0f / sqrtf(squares / float(a.n_channels) + a.epsilon);
        for (int64_t c = group.first; c < n; c += group.step) {
            const pack<W> g = load_pack<W>(gain + c, aligned);
            pack<W> h = load_pack<W>(x + c, aligned);
#pragma unroll
            for (int k = 0; k < W; k++)
                h.at[k] *= rstd * (a.gain_offset + g.at[k]);
            store_pack<W>(out + c, h, aligned);
        }
        if (n > 0 && group.first == 0)
            rstds[vector] = rstd;
    }
}

BD_CUDA_NO_SCRATCH(rms_norm_forward)
extern "C" BD_CUDA_OPERATION(rms_norm_forward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    bd_rms_norm_forward_args a = *args;
    a.x_stride = bd_stride(a.x_stride, a.n_vectors * a.n_channels);
    a.out_stride = bd_stride(a.out_stride, a.n_vectors * a.n_channels);
    return for_rows_of(a.type, a.n_channels, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const bool aligned = all_aligned({a.x, a.gain, a.out}) &&
                             all_multiples({a.x_stride, a.out_stride}, packs.width);
        LAUNCH((rms_norm_forward_kernel<T, packs.width>), blocks_for(n_tokens, kWarpsPerBlock),
               kThreadsPerBlock, 0, queue->stream, a, lanes_for<packs.width>(a.n_channels),
               aligned);
        return bd_cuda_check_launch("rms_norm_forward", err);
    });
}

// ---- Backward -------------------------------------------------------------------------------

// With h = x * rstd and g = d_out * (gain_offset + gain), rstd * (g - h * average(g * h))
// becomes d_x or is added to it.
template <class T, int W>
static __global__ void rms_norm_input_kernel(bd_rms_norm_backward_args a, int n_lanes,
                                             bool aligned)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries))
        return;
    T *of_token = (T *)a.d_x + token * a.d_x_stride;
    if (!token_is_used(a.boundaries, token)) {
        if (!a.adds)
            clear_token<W>(of_token, a.n_vectors * a.n_channels, aligned);
        return;
    }
    const lane_group group = group_of_lane<W>(n_lanes);
    for (int64_t base = 0; base < a.n_vectors; base += kWarpSize / n_lanes) {
        const int64_t vector = base + group.number;
        const int64_t n = vector < a.n_vectors ? a.n_channels : 0;  // 0: no vector is left
        const T *x = (const T *)a.x + token * a.x_stride + vector * a.n_channels;
        const T *d_out = (const T *)a.d_out + token * a.d_out_stride + vector * a.n_channels;
        const T *gain = (const T *)a.gain;
        T *d_x = of_token + vector * a.n_channels;
        const float rstd = n > 0 ? a.rstd[token * a.n_vectors + vector] : 0.0f;

        float sum = 0.0f;
        for (int64_t c = group.first; c < n; c += group.step) {
            const pack<W> d = load_pack<W>(d_out + c, aligned),
                          v = load_pack<W>(x + c, aligned);
            const pack<W> factor = load_pack<W>(gain + c, aligned);
            float of_pack = 0.0f;
#pragma unroll
            for (int k = 0; k < W; k++)
                of_pack += d.at[k] * (a.gain_offset + factor.at[k]) * (v.at[k] * rstd);
            sum += of_pack;
        }
        const float average = group_sum(sum, group) / float(a.n_channels);

        for (int64_t c = group.first; c < n; c += group.step) {
            const pack<W> d = load_pack<W>(d_out + c, aligned),
                          v = load_pack<W>(x + c, aligned);
            const pack<W> factor = load_pack<W>(gain + c, aligned);
            pack<W> result = a.adds ? load_pack<W>(d_x + c, aligned) : zero_pack<W>();
#pragma unroll
            for (int k = 0; k < W; k++) {
                const float g = d.at[k] * (a.gain_offset + factor.at[k]);
                result.at[k] += rstd * (g - v.at[k] * rstd * average);
            }
            store_pack<W>(d_x + c, result, aligned);
        }
    }
}

// One block for each chunk of tokens and strip of columns; see columns.cuh. All vectors of a
// token lie side by side as columns: the partial sums [chunk][vector][channel] are those of the
// channels in n_chunks * n_vectors chunks.
template <class T, int W>
static __global__ void rms_norm_partials_kernel(bd_rms_norm_backward_args a, bool aligned,
                                                float *partials)
{
    SHARED_ARRAY(pack<W>, staging, kThreadsPerBlock);
    const int64_t n = a.n_vectors * a.n_channels, begin = int64_t(blockIdx.x) * kTokensPerChunk;
    const int64_t c = int64_t(blockIdx.y) * kColumnsPerStrip<W> + lane_of_thread() * W;
    const T *x = (const T *)a.x + c, *d_out = (const T *)a.d_out + c;
    const float *rstds = a.rstd + c / a.n_channels;
    pack<W> sums = zero_pack<W>();
#pragma unroll 4
    for (int i = int(threadIdx.x) / kWarpSize; i < kTokensPerChunk; i += kWarpsPerBlock) {
        const int64_t token = begin + i;
        if (c >= n || token >= n_tokens_of(a.boundaries) || !token_is_used(a.boundaries, token))
            continue;
        const pack<W> d = load_pack<W>(d_out + token * a.d_out_stride, aligned);
        const pack<W> v = load_pack<W>(x + token * a.x_stride, aligned);
        const float rstd = rstds[token * a.n_vectors];
#pragma unroll
        for (int k = 0; k < W; k++)
            sums.at[k] += d.at[k] * (v.at[k] * rstd);
    }
    store_partials<W>(sums, staging, n, partials);
}

// The partial sums come first, because d_x may be d_out.
template <class T, int W>
static bd_status launch_rms_norm_backward(const bd_rms_norm_backward_args &a,
                                          bd_cuda_queue *queue, bd_error *err)
{
    const int64_t n_tokens = a.boundaries.n_rows * a.boundaries.seq_len;
    const bool aligned = all_aligned({a.x, a.d_out, a.gain, a.d_x}) &&
                         all_multiples({a.x_stride, a.d_out_stride, a.d_x_stride}, W);
    LAUNCH((rms_norm_partials_kernel<T, W>),
           chunks_and_strips<W>(n_tokens, a.n_vectors * a.n_channels), kThreadsPerBlock, 0,
           queue->stream, a, aligned, (float *)queue->scratch);
    BD_TRY(bd_cuda_check_launch("rms_norm_partials", err));
    LAUNCH((rms_norm_input_kernel<T, W>), blocks_for(n_tokens, kWarpsPerBlock),
           kThreadsPerBlock, 0, queue->stream, a, lanes_for<W>(a.n_channels), aligned);
    return bd_cuda_check_launch("rms_norm_input", err);
}

static int64_t n_partial_rows(const bd_rms_norm_backward_args *args)
{
    return n_chunks_of(args->boundaries.n_rows * args->boundaries.seq_len) * args->n_vectors;
}

extern "C" BD_CUDA_SCRATCH(rms_norm_backward)
{
    return size_t(n_partial_rows(args)) * size_t(args->n_channels) * sizeof(float);
}

extern "C" BD_CUDA_OPERATION(rms_norm_backward)
{
    bd_rms_norm_backward_args a = *args;
    a.x_stride = bd_stride(a.x_stride, a.n_vectors * a.n_channels);
    a.d_out_stride = bd_stride(a.d_out_stride, a.n_vectors * a.n_channels);
    a.d_x_stride = bd_stride(a.d_x_stride, a.n_vectors * a.n_channels);
    BD_TRY(for_rows_of(a.type, a.n_channels, [&](auto packs) {
        return launch_rms_norm_backward<typename decltype(packs)::value, packs.width>(a, queue,
                                                                                      err);
    }));
    return add_column_sums((float *)queue->scratch, n_partial_rows(args), a.n_channels,
                           a.d_gain, queue->stream, err);
}
