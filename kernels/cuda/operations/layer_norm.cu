#include "kernels/layer_norm.h"

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/columns.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

// ---- Forward --------------------------------------------------------------------------------

struct row_statistics {
    float mean, rstd;
};

// Called by one warp. It reads the vector twice and the caller reads it once more, all but the
// first time from the cache; so the vector can have any length. A variance in one pass would
// lose digits where the mean is large.
template <int W, class T>
static __device__ __forceinline__ row_statistics statistics_of(const T *x, int64_t n,
                                                               float epsilon, bool aligned)
{
    const int64_t first = lane_of_thread() * W;
    float sum = 0.0f;
    for (int64_t c = first; c < n; c += kWarpSize * W) {
        const pack<W> v = load_pack<W>(x + c, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            sum += v.at[k];
    }
    const float mean = warp_sum(sum) / float(n);

    float squares = 0.0f;
    for (int64_t c = first; c < n; c += kWarpSize * W) {
        const pack<W> v = load_pack<W>(x + c, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            squares += (v.at[k] - mean) * (v.at[k] - mean);
    }
    return {mean, 1.0f / sqrtf(warp_sum(squares) / float(n) + epsilon)};
}

// One warp per token.
template <class T, int W>
static __global__ void layer_norm_forward_kernel(bd_layer_norm_forward_args a, bool aligned)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries))
        return;
    const int64_t n = a.n_channels, first = lane_of_thread() * W;
    const T *x = (const T *)a.x + token * n, *gamma = (const T *)a.gamma;
    const T *beta = (const T *)a.beta;
    T *out = (T *)a.out + token * n;
    row_statistics row = {0.0f, 0.0f};
    if (token_is_used(a.boundaries, token)) {
        row = statistics_of<W>(x, n, a.epsilon, aligned);
        for (int64_t c = first; c < n; c += kWarpSize * W) {
            const pack<W> g = load_pack<W>(gamma + c, aligned);
            const pack<W> b = load_pack<W>(beta + c, aligned);
            pack<W> v = load_pack<W>(x + c, aligned);
#pragma unroll
            for (int k = 0; k < W; k++)
                v.at[k] = (v.at[k] - row.mean) * row.rstd * g.at[k] + b.at[k];
            store_pack<W>(out + c, v, aligned);
        }
    } else {
        for (int64_t c = first; c < n; c += kWarpSize * W)
            store_pack<W>(out + c, zero_pack<W>(), aligned);
    }
    if (first == 0) {
        a.mean[token] = row.mean;
        a.rstd[token] = row.rstd;
    }
}

BD_CUDA_NO_SCRATCH(layer_norm_forward)
extern "C" BD_CUDA_OPERATION(layer_norm_forward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const bool aligned = all_aligned({args->x, args->gamma, args->beta, args->out});
    return for_rows_of(args->type, args->n_channels, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        LAUNCH((layer_norm_forward_kernel<T, packs.width>),
               blocks_for(n_tokens, kWarpsPerBlock), kThreadsPerBlock, 0, queue->stream, *args,
               aligned);
        return bd_cuda_check_launch("layer_norm_forward", err);
    });
}

// ---- Backward -------------------------------------------------------------------------------

// One warp per token. With h = (x - mean) * rstd and g = d_out * gamma:
//   d_x += rstd * (g - average(g) - h * average(g * h))
template <class T, int W>
static __global__ void layer_norm_input_kernel(bd_layer_norm_backward_args a, bool aligned)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries) || !token_is_used(a.boundaries, token))
        return;
    const int64_t n = a.n_channels, first = lane_of_thread() * W;
    const T *x = (const T *)a.x + token * n, *d_out = (const T *)a.d_out + token * n;
    const T *gamma = (const T *)a.gamma;
    const float mean = a.mean[token], rstd = a.rstd[token];

    float g_sum = 0.0f, gh_sum = 0.0f;
    for (int64_t c = first; c < n; c += kWarpSize * W) {
        const pack<W> d = load_pack<W>(d_out + c, aligned), v = load_pack<W>(x + c, aligned);
        const pack<W> factor = load_pack<W>(gamma + c, aligned);
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float g = d.at[k] * factor.at[k];
            g_sum += g;
            gh_sum += g * ((v.at[k] - mean) * rstd);
        }
    }
    const float g_average = warp_sum(g_sum) / float(n);
    const float gh_average = warp_sum(gh_sum) / float(n);

    T *d_x = (T *)a.d_x + token * n;
    for (int64_t c = first; c < n; c += kWarpSize * W) {
        const pack<W> d = load_pack<W>(d_out + c, aligned), v = load_pack<W>(x + c, aligned);
        const pack<W> factor = load_pack<W>(gamma + c, aligned);
        pack<W> sum = load_pack<W>(d_x + c, aligned);
#pragma unroll
        for (int k = 0; k < W; k++) {
            const float h = (v.at[k] - mean) * rstd;
            sum.at[k] += rstd * (d.at[k] * factor.at[k] - g_average - h * gh_average);
        }
        store_pack<W>(d_x + c, sum, aligned);
    }
}

// One block for each chunk of tokens and strip of channels; see columns.cuh.
template <class T, int W>
static __global__ void layer_norm_partials_kernel(bd_layer_norm_backward_args a, bool aligned,
                                                  float *gamma_partials, float *beta_partials)
{
    SHARED_ARRAY(pack<W>, staging, kThreadsPerBlock);
    const T *x = (const T *)a.x, *d_out = (const T *)a.d_out;
    const int64_t n = a.n_channels, begin = int64_t(blockIdx.x) * kTokensPerChunk;
    const int64_t c = int64_t(blockIdx.y) * kColumnsPerStrip<W> + lane_of_thread() * W;
    pack<W> gamma_sums = zero_pack<W>(), beta_sums = zero_pack<W>();
#pragma unroll 4
    for (int i = int(threadIdx.x) / kWarpSize; i < kTokensPerChunk; i += kWarpsPerBlock) {
        const int64_t token = begin + i;
        if (c >= n || token >= n_tokens_of(a.boundaries) || !token_is_used(a.boundaries, token))
            continue;
        const pack<W> d = load_pack<W>(d_out + token * n + c, aligned);
        const pack<W> v = load_pack<W>(x + token * n + c, aligned);
        const float mean = a.mean[token], rstd = a.rstd[token];
#pragma unroll
        for (int k = 0; k < W; k++) {
            gamma_sums.at[k] += d.at[k] * ((v.at[k] - mean) * rstd);
            beta_sums.at[k] += d.at[k];
        }
    }
    store_partials<W>(gamma_sums, staging, n, gamma_partials);
    store_partials<W>(beta_sums, staging, n, beta_partials);
}

template <class T, int W>
static bd_status launch_layer_norm_backward(const bd_layer_norm_backward_args *args,
                                            float *gamma_partials, float *beta_partials,
                                            void *stream, bd_error *err)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const bool aligned = all_aligned({args->x, args->d_out, args->gamma, args->d_x});
    LAUNCH((layer_norm_input_kernel<T, W>), blocks_for(n_tokens, kWarpsPerBlock),
           kThreadsPerBlock, 0, stream, *args, aligned);
    BD_TRY(bd_cuda_check_launch("layer_norm_input", err));
    LAUNCH((layer_norm_partials_kernel<T, W>), chunks_and_strips<W>(n_tokens, args->n_channels),
           kThreadsPerBlock, 0, stream, *args, aligned, gamma_partials, beta_partials);
    return bd_cuda_check_launch("layer_norm_partials", err);
}

extern "C" BD_CUDA_SCRATCH(layer_norm_backward)
{
    const int64_t n_chunks = n_chunks_of(args->boundaries.n_rows * args->boundaries.seq_len);
    return 2 * size_t(n_chunks) * size_t(args->n_channels) * sizeof(float);
}

extern "C" BD_CUDA_OPERATION(layer_norm_backward)
{
    const int64_t n_chunks = n_chunks_of(args->boundaries.n_rows * args->boundaries.seq_len);
    const int64_t n = args->n_channels;
    float *gamma_partials = (float *)queue->scratch;
    float *beta_partials = gamma_partials + n_chunks * n;
    BD_TRY(for_rows_of(args->type, n, [&](auto packs) {
        return launch_layer_norm_backward<typename decltype(packs)::value, packs.width>(
            args, gamma_partials, beta_partials, queue->stream, err);
    }));
    BD_TRY(add_column_sums(gamma_partials, n_chunks, n, args->d_gamma, queue->stream, err));
    return add_column_sums(beta_partials, n_chunks, n, args->d_beta, queue->stream, err);
}
