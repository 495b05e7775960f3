// One warp for each token. Its lanes compute the cosine and the sine of each pair once and keep
// them in shared memory. Then they take packs of pairs of all heads in turn.
#include "kernels/rotary.h"

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

static constexpr int kMostPairs = BD_MOST_HEAD_SIZE / 2;  // of a head

// The fraction of a turn, as half turns in [-1, 1]: sincospif() takes them.
static __device__ __forceinline__ float half_turns(uint64_t position, uint64_t turns)
{
    const float per_unit = 1.0f / 9223372036854775808.0f;  // 2^-63
    return float(int64_t(position * turns)) * per_unit;
}

// The cosine and the sine of every pair, scaled; by the whole warp.
template <int W>
static __device__ __forceinline__ void fill_turn(const bd_rotary_args &a, uint64_t position,
                                                 pack<W> *cosines, pack<W> *sines)
{
    const float sine_scale = a.inverse ? -a.scale : a.scale;
    for (int i = lane_of_thread(); i < a.head_size / 2; i += kWarpSize) {
        float sine, cosine;
        sincospif(half_turns(position, a.turns[i]), &sine, &cosine);
        cosines[i / W].at[i % W] = a.scale * cosine;
        sines[i / W].at[i % W] = sine_scale * sine;
    }
}

template <int W>
static __device__ __forceinline__ void turn(pack<W> &x, pack<W> &y, const pack<W> &cosine,
                                            const pack<W> &sine)
{
#pragma unroll
    for (int k = 0; k < W; k++) {
        const float turned = x.at[k] * cosine.at[k] - y.at[k] * sine.at[k];
        y.at[k] = y.at[k] * cosine.at[k] + x.at[k] * sine.at[k];
        x.at[k] = turned;
    }
}

template <class T, int W>
static __global__ void rotary_kernel(bd_rotary_args a, bool aligned)
{
    SHARED_ARRAY(pack<W>, all_cosines, kWarpsPerBlock * kMostPairs / W);
    SHARED_ARRAY(pack<W>, all_sines, kWarpsPerBlock * kMostPairs / W);
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries))
        return;
    const token_segment segment = segment_around(a.boundaries, token);
    if (segment.end == 0)
        return;  // padding

    const int warp = int(threadIdx.x) / kWarpSize, lane = lane_of_thread();
    pack<W> *cosines = all_cosines + warp * (kMostPairs / W);
    pack<W> *sines = all_sines + warp * (kMostPairs / W);
    fill_turn<W>(a, uint64_t(position_of(segment, a.past)), cosines, sines);
    __syncwarp();

    const int half = int(a.head_size) / 2;
    const int n_packs = half / W;  // of a head
    int64_t head = lane / n_packs;
    int i = lane % n_packs;
    while (head < a.n_heads) {
        T *first = (T *)a.x + token * a.stride + head * a.head_size + i * W;
        T *second = first + half;
        pack<W> x = load_pack<W>(first, aligned), y = load_pack<W>(second, aligned);
        turn<W>(x, y, cosines[i], sines[i]);
        store_pack<W>(first, x, aligned);
        store_pack<W>(second, y, aligned);
        // The lane's next pack is kWarpSize packs further.
        head += kWarpSize / n_packs;
        i += kWarpSize % n_packs;
        if (i >= n_packs) {
            i -= n_packs;
            head++;
        }
    }
}

BD_CUDA_NO_SCRATCH(rotary)
extern "C" BD_CUDA_OPERATION(rotary)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    return for_rows_of(args->type, args->head_size / 2, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const bool aligned =
            all_aligned({args->x}) && all_multiples({args->stride}, packs.width);
        LAUNCH((rotary_kernel<T, packs.width>), blocks_for(n_tokens, kWarpsPerBlock),
               kThreadsPerBlock, 0, queue->stream, *args, aligned);
        return bd_cuda_check_launch("rotary", err);
    });
}
