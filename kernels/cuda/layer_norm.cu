#include "kernels/layer_norm.h"

#include "kernels/cuda/boundaries.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/operations.h"

// ---- Forward --------------------------------------------------------------------------------

// One warp per token. The vector is read three times (from the cache but once), so that no
// vector is too long; a one-pass variance would lose its digits where the mean is large.
static __global__ void layer_norm_forward_kernel(bd_layer_norm_forward_args a)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries))
        return;
    const int lane = lane_of_thread();
    const int64_t n = a.n_channels;
    const float *x = a.x + token * n;
    float *out = a.out + token * n;
    float mean = 0.0f, rstd = 0.0f;
    if (token_is_used(a.boundaries, token)) {
        float sum = 0.0f;
        for (int64_t c = lane; c < n; c += kWarpSize)
            sum += x[c];
        mean = warp_sum(sum) / float(n);

        float squares = 0.0f;
        for (int64_t c = lane; c < n; c += kWarpSize)
            squares += (x[c] - mean) * (x[c] - mean);
        rstd = 1.0f / sqrtf(warp_sum(squares) / float(n) + a.epsilon);

        for (int64_t c = lane; c < n; c += kWarpSize)
            out[c] = (x[c] - mean) * rstd * a.gamma[c] + a.beta[c];
    } else {
        for (int64_t c = lane; c < n; c += kWarpSize)
            out[c] = 0.0f;
    }
    if (lane == 0) {
        a.mean[token] = mean;
        a.rstd[token] = rstd;
    }
}

extern "C" BD_CUDA_OPERATION(layer_norm_forward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    LAUNCH(layer_norm_forward_kernel, blocks_for(n_tokens, kWarpsPerBlock), kThreadsPerBlock, 0,
           queue->stream, *args);
    return bd_cuda_check_launch("layer_norm_forward", err);
}

// ---- Backward -------------------------------------------------------------------------------

// One warp per token. With h = (x - mean) * rstd and g = d_out * gamma:
//   d_x += rstd * (g - average(g) - h * average(g * h))
static __global__ void layer_norm_input_kernel(bd_layer_norm_backward_args a)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries) || !token_is_used(a.boundaries, token))
        return;
    const int lane = lane_of_thread();
    const int64_t n = a.n_channels;
    const float *x = a.x + token * n, *d_out = a.d_out + token * n;
    const float mean = a.mean[token], rstd = a.rstd[token];

    float g_sum = 0.0f, gh_sum = 0.0f;
    for (int64_t c = lane; c < n; c += kWarpSize) {
        const float g = d_out[c] * a.gamma[c];
        g_sum += g;
        gh_sum += g * ((x[c] - mean) * rstd);
    }
    const float g_average = warp_sum(g_sum) / float(n);
    const float gh_average = warp_sum(gh_sum) / float(n);

    float *d_x = a.d_x + token * n;
    for (int64_t c = lane; c < n; c += kWarpSize) {
        const float h = (x[c] - mean) * rstd;
        d_x[c] += rstd * (d_out[c] * a.gamma[c] - g_average - h * gh_average);
    }
}

// One block per chunk of tokens (x) and strip of channels (y); see columns.cuh.
static __global__ void layer_norm_partials_kernel(bd_layer_norm_backward_args a,
                                                  float *gamma_partials, float *beta_partials)
{
    SHARED_ARRAY(float, staging, kThreadsPerBlock);
    const int warp = int(threadIdx.x) / kWarpSize;
    const int64_t n = a.n_channels;
    const int64_t c = int64_t(blockIdx.y) * kWarpSize + lane_of_thread();
    const int64_t begin = int64_t(blockIdx.x) * kTokensPerChunk;
    float gamma_sum = 0.0f, beta_sum = 0.0f;
    for (int i = warp; i < kTokensPerChunk; i += kWarpsPerBlock) {
        const int64_t token = begin + i;
        if (c >= n || token >= n_tokens_of(a.boundaries) || !token_is_used(a.boundaries, token))
            continue;
        const float d_out = a.d_out[token * n + c];
        gamma_sum += d_out * ((a.x[token * n + c] - a.mean[token]) * a.rstd[token]);
        beta_sum += d_out;
    }
    gamma_sum = sum_over_warps(gamma_sum, staging);
    beta_sum = sum_over_warps(beta_sum, staging);
    if (warp == 0 && c < n) {
        gamma_partials[blockIdx.x * n + c] = gamma_sum;
        beta_partials[blockIdx.x * n + c] = beta_sum;
    }
}

extern "C" BD_CUDA_SCRATCH(layer_norm_backward)
{
    const int64_t n_chunks = n_chunks_of(args->boundaries.n_rows * args->boundaries.seq_len);
    return 2 * size_t(n_chunks) * size_t(args->n_channels) * sizeof(float);
}

extern "C" BD_CUDA_OPERATION(layer_norm_backward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const int64_t n_chunks = n_chunks_of(n_tokens), n = args->n_channels;
    float *gamma_partials = (float *)queue->scratch;
    float *beta_partials = gamma_partials + n_chunks * n;

    LAUNCH(layer_norm_input_kernel, blocks_for(n_tokens, kWarpsPerBlock), kThreadsPerBlock, 0,
           queue->stream, *args);
    BD_TRY(bd_cuda_check_launch("layer_norm_input", err));
    LAUNCH(layer_norm_partials_kernel, dim3(unsigned(n_chunks), blocks_for(n, kWarpSize)),
           kThreadsPerBlock, 0, queue->stream, *args, gamma_partials, beta_partials);
    BD_TRY(bd_cuda_check_launch("layer_norm_partials", err));
    BD_TRY(add_column_sums(gamma_partials, n_chunks, n, args->d_gamma, queue->stream, err));
    return add_column_sums(beta_partials, n_chunks, n, args->d_beta, queue->stream, err);
}
