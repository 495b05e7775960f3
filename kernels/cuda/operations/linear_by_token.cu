// For BD_WEIGHT_OUT_IN each warp has one output: its lanes multiply packs of a row of the weight
// and add their sums. For BD_WEIGHT_IN_OUT each lane has a pack of neighbouring outputs, the warps
// of a block take the inputs in turn, and their sums are added in the order of the warps. Both
// read a weight once for kTokens tokens. The order of a sum depends on n_in and the type alone.
#include "kernels/linear_by_token.h"

#include "kernels/cuda/operations/activation_functions.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

static constexpr int kTokens = 4;  // of a block

template <class T>
static __device__ __forceinline__ const T *inputs_of(const bd_linear_by_token_args &a,
                                                     int64_t t)
{
    return (const T *)a.x + (a.rows ? a.rows[t] : t) * a.n_in;
}

static __device__ __forceinline__ float activate(bd_activation activation, float x)
{
    switch (activation) {
    case BD_ACTIVATION_RELU:
        return relu::value(x);
    case BD_ACTIVATION_GELU:
        return gelu::value(x);
    case BD_ACTIVATION_SILU:
        return silu::value(x);
    default:
        return x;
    }
}

// Output j of token t.
template <class T>
static __device__ __forceinline__ void put_sum(const bd_linear_by_token_args &a, int64_t t,
                                               int64_t j, float sum)
{
    const float bias = a.bias ? load_value((const T *)a.bias + j) : 0.0f;
    store_value((T *)a.out + t * a.out_stride + j, activate(a.activation, sum + bias));
}

// ---- BD_WEIGHT_OUT_IN -----------------------------------------------------------------------

template <class T, int W>
static __global__ void linear_rows_kernel(bd_linear_by_token_args a, bool aligned)
{
    const int64_t j = warp_of_grid(), first = int64_t(blockIdx.y) * kTokens;
    if (j >= a.n_out)
        return;
    const T *weight = (const T *)a.weight + j * a.n_in, *x[kTokens];
    float sums[kTokens];
#pragma unroll
    for (int s = 0; s < kTokens; s++) {
        // Tokens that do not exist compute what the last one computes, and write nothing.
        x[s] = inputs_of<T>(a, first + s < a.n_tokens ? first + s : a.n_tokens - 1);
        sums[s] = 0.0f;
    }
#pragma unroll 2
    for (int64_t i = lane_of_thread() * W; i < a.n_in; i += kWarpSize * W) {
        const pack<W> w = load_pack<W>(weight + i, aligned);
#pragma unroll
        for (int s = 0; s < kTokens; s++) {
            const pack<W> v = load_pack<W>(x[s] + i, aligned);
#pragma unroll
            for (int k = 0; k < W; k++)
                sums[s] += w.at[k] * v.at[k];
        }
    }
#pragma unroll
    for (int s = 0; s < kTokens; s++) {
        const float sum = warp_sum(sums[s]);
        if (lane_of_thread() == 0 && first + s < a.n_tokens)
            put_sum<T>(a, first + s, j, sum);
    }
}

// ---- BD_WEIGHT_IN_OUT -----------------------------------------------------------------------

template <class T, int W>
static __global__ void linear_columns_kernel(bd_linear_by_token_args a, bool aligned)
{
    SHARED_ARRAY(pack<W>, staging, kThreadsPerBlock);
    const int warp = int(threadIdx.x) / kWarpSize, lane = lane_of_thread();
    const int64_t j = (int64_t(blockIdx.x) * kWarpSize + lane) * W;
    const int64_t first = int64_t(blockIdx.y) * kTokens;
    const T *x[kTokens];
    pack<W> sums[kTokens];
#pragma unroll
    for (int s = 0; s < kTokens; s++) {
        x[s] = inputs_of<T>(a, first + s < a.n_tokens ? first + s : a.n_tokens - 1);
        sums[s] = zero_pack<W>();
    }
#pragma unroll 2
    for (int64_t i = warp; i < a.n_in; i += kWarpsPerBlock) {
        const pack<W> w = j < a.n_out
                              ? load_pack<W>((const T *)a.weight + i * a.n_out + j, aligned)
                              : zero_pack<W>();
#pragma unroll
        for (int s = 0; s < kTokens; s++) {
            const float v = load_value(x[s] + i);
#pragma unroll
            for (int k = 0; k < W; k++)
                sums[s].at[k] += v * w.at[k];
        }
    }
#pragma unroll
    for (int s = 0; s < kTokens; s++) {
        __syncthreads();
        staging[threadIdx.x] = sums[s];
        __syncthreads();
        if (warp > 0 || j >= a.n_out || first + s >= a.n_tokens)
            continue;
        pack<W> sum = staging[lane];
        for (int other = 1; other < kWarpsPerBlock; other++)
#pragma unroll
            for (int k = 0; k < W; k++)
                sum.at[k] += staging[other * kWarpSize + lane].at[k];
#pragma unroll
        for (int k = 0; k < W; k++)
            put_sum<T>(a, first + s, j + k, sum.at[k]);
    }
}

// ---- The operation --------------------------------------------------------------------------

BD_CUDA_NO_SCRATCH(linear_by_token)
extern "C" BD_CUDA_OPERATION(linear_by_token)
{
    bd_linear_by_token_args a = *args;
    a.out_stride = bd_stride(a.out_stride, a.n_out);
    const bool rows = a.layout == BD_WEIGHT_OUT_IN, aligned = all_aligned({a.x, a.weight});
    const unsigned token_blocks = blocks_for(a.n_tokens, kTokens);
    if (a.n_tokens == 0)
        return BD_OK;
    return for_rows_of(a.type, rows ? a.n_in : a.n_out, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        if (rows)
            LAUNCH((linear_rows_kernel<T, packs.width>),
                   dim3(blocks_for(a.n_out, kWarpsPerBlock), token_blocks), kThreadsPerBlock, 0,
                   queue->stream, a, aligned);
        else
            LAUNCH((linear_columns_kernel<T, packs.width>),
                   dim3(blocks_for(a.n_out, kWarpSize * packs.width), token_blocks),
                   kThreadsPerBlock, 0, queue->stream, a, aligned);
        return bd_cuda_check_launch("linear_by_token", err);
    });
}
