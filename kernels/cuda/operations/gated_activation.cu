#include "kernels/gated_activation.h"

#include "kernels/cuda/operations/activation_functions.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

// One warp for each token (x) and strip of channels (y), of which every lane has some packs.
static constexpr int kPacksPerLane = 4;

template <int W>
static constexpr int kStrip = kPacksPerLane *kWarpSize *W;

template <int W>
static dim3 tokens_and_strips(int64_t n_tokens, int64_t n_channels)
{
    return dim3(blocks_for(n_tokens, kWarpsPerBlock), blocks_for(n_channels, kStrip<W>));
}

// Calls step(c) for the channels of this lane's packs.
template <int W, class Step>
static __device__ __forceinline__ void for_packs_of_lane(int64_t n_channels, Step step)
{
    const int64_t first = int64_t(blockIdx.y) * kStrip<W> + lane_of_thread() * W;
#pragma unroll
    for (int i = 0; i < kPacksPerLane; i++) {
        const int64_t c = first + i * kWarpSize * W;
        if (c < n_channels)
            step(c);
    }
}

template <class T, int W, class F>
static __global__ void gated_forward_kernel(bd_gated_activation_forward_args a, bool aligned)
{
    const int64_t token = warp_of_grid(), n = a.n_channels;
    if (token >= a.n_tokens)
        return;
    const T *gate = (const T *)a.x + token * 2 * n, *up = gate + n;
    T *out = (T *)a.out + token * n;
    for_packs_of_lane<W>(n, [&](int64_t c) {
        const pack<W> g = load_pack<W>(gate + c, aligned);
        pack<W> u = load_pack<W>(up + c, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            u.at[k] *= F::value(g.at[k]);
        store_pack<W>(out + c, u, aligned);
    });
}

template <class T, int W, class F>
static __global__ void gated_backward_kernel(bd_gated_activation_backward_args a, bool aligned)
{
    const int64_t token = warp_of_grid(), n = a.n_channels;
    if (token >= a.n_tokens)
        return;
    const T *gate = (const T *)a.x + token * 2 * n, *up = gate + n;
    const T *d_out = (const T *)a.d_out + token * n;
    T *d_gate = (T *)a.d_x + token * 2 * n, *d_up = d_gate + n;
    for_packs_of_lane<W>(n, [&](int64_t c) {
        pack<W> g = load_pack<W>(gate + c, aligned), u = load_pack<W>(up + c, aligned);
        const pack<W> d = load_pack<W>(d_out + c, aligned);
#pragma unroll
        for (int k = 0; k < W; k++) {
            const function_tangent f = F::tangent(g.at[k]);
            u.at[k] = d.at[k] * u.at[k] * f.slope;
            g.at[k] = d.at[k] * f.value;
        }
        store_pack<W>(d_gate + c, u, aligned);
        store_pack<W>(d_up + c, g, aligned);
    });
}

BD_CUDA_NO_SCRATCH(gated_activation_forward)
extern "C" BD_CUDA_OPERATION(gated_activation_forward)
{
    const int64_t n = args->n_channels;
    const bool aligned = all_aligned({args->x, args->out});
    return for_rows_of(args->type, n, [&](auto packs) {
        return for_function_of(args->activation, [&](auto function) {
            typedef typename decltype(packs)::value T;
            LAUNCH((gated_forward_kernel<T, packs.width, decltype(function)>),
                   tokens_and_strips<packs.width>(args->n_tokens, n), kThreadsPerBlock, 0,
                   queue->stream, *args, aligned);
            return bd_cuda_check_launch("gated_activation_forward", err);
        });
    });
}

BD_CUDA_NO_SCRATCH(gated_activation_backward)
extern "C" BD_CUDA_OPERATION(gated_activation_backward)
{
    const int64_t n = args->n_channels;
    const bool aligned = all_aligned({args->x, args->d_out, args->d_x});
    return for_rows_of(args->type, n, [&](auto packs) {
        return for_function_of(args->activation, [&](auto function) {
            typedef typename decltype(packs)::value T;
            LAUNCH((gated_backward_kernel<T, packs.width, decltype(function)>),
                   tokens_and_strips<packs.width>(args->n_tokens, n), kThreadsPerBlock, 0,
                   queue->stream, *args, aligned);
            return bd_cuda_check_launch("gated_activation_backward", err);
        });
    });
}
