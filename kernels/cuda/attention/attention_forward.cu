// Attention forward in bf16, as in FlashAttention-2: a block holds a tile of queries of a
// document and goes through the keys in tiles of 64, from the diagonal down to the start of the
// document. Scores and probabilities exist only in registers:
//
//   S = Q·Kᵀ    P = 2^(scale * log2(e) * S - base)    total = sum of P    out = P·V / total
//   lse = base * ln(2) + log(total)
//
// `base` is near the largest score so far of the query; when it is raised, total and P·V are
// scaled down. Going down from the diagonal, only the first tiles need a mask or are cut off by
// the end of the document, and only the last ones need a mask at the edge of a window. The loop
// over all others needs neither, and loads whole tiles. A query sees itself in the first tile
// that its warp visits, so its base is finite before a tile comes of which it sees nothing.
#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/attention/attention_common.cuh"
#include "kernels/cuda/runtime/check.cuh"

// The number of row tiles of 16 queries that a warp has. Two of them share each read of k and
// v, but for head size 128 there are not enough registers.
template <int D>
constexpr int kRowTiles = D == 64 ? 2 : 1;
template <int D>
constexpr int kWarpQueries = 16 * kRowTiles<D>;
template <int D>
constexpr int kQueries = kWarpQueries<D> *kWarps;

template <int D>
using score_block = float[kRowTiles<D>][kTileRows / 8][4];

// A lane's part of the warp's queries: rows lane / 4 and lane / 4 + 8 of each row tile.
template <int D>
struct forward_state {
    float sums[kRowTiles<D>][D / 8][4];  // sum of probability times v
    float total[kRowTiles<D>][2];        // sum of the lane's probabilities
    float base[kRowTiles<D>][2];         // probabilities are 2^(score * scale_log2 - base)
};

// A score in base 2 may exceed the base of its query by this much before the base is raised.
// The base need not follow the largest score at every step: a float is as precise at 2^8 as at
// 1, and 2^8 times the length of any document is far from overflow.
constexpr float kHeadroom = 8.0f;

// Hides the keys after each query, or those before its window. `first_key` is relative to the
// warp's first query.
template <int D, bool LATER>
static __device__ __forceinline__ void hide_keys(score_block<D> &scores, int first_key,
                                                 int window)
{
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int t = 0; t < kRowTiles<D>; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int last = t * 16 + lane / 4 + 8 * half - first_key - lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < kTileRows / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (LATER ? n * 8 + e > last : n * 8 + e <= last - window)
                        scores[t][n][2 * half + e] = -INFINITY;
        }
}

// The largest of the lane's scores of one of its queries.
static __device__ __forceinline__ float largest_score(const float (&scores)[kTileRows / 8][4],
                                                      int half)
{
    float top = fmaxf(scores[0][2 * half], scores[0][2 * half + 1]);
#pragma unroll
    for (int n = 1; n < kTileRows / 8; n++)
        top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    return top;
}

// Makes the largest score so far the base of each query.
template <int D>
static __device__ __forceinline__ void
raise_base(forward_state<D> &s, float (&top)[kRowTiles<D>][2], float scale_log2)
{
#pragma unroll
    for (int t = 0; t < kRowTiles<D>; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float base = top[t][half];
            base = fmaxf(base, __shfl_xor_sync(kWholeWarp, base, 1));
            base = fmaxf(base, __shfl_xor_sync(kWholeWarp, base, 2));
            base = fmaxf(base * scale_log2, s.base[t][half]);
            const float shrink = ex2(s.base[t][half] - base);
            s.base[t][half] = base;
            s.total[t][half] *= shrink;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                s.sums[t][n][2 * half] *= shrink;
                s.sums[t][n][2 * half + 1] *= shrink;
            }
        }
}

// Turns scores into probabilities.
template <int D>
static __device__ __forceinline__ void soften(forward_state<D> &s, score_block<D> &scores,
                                              float scale_log2)
{
    float top[kRowTiles<D>][2];
    bool too_large = false;
#pragma unroll
    for (int t = 0; t < kRowTiles<D>; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            top[t][half] = largest_score(scores[t], half);
            too_large |= top[t][half] * scale_log2 - s.base[t][half] > kHeadroom;
        }
    if (__any_sync(kWholeWarp, too_large))
        raise_base<D>(s, top, scale_log2);
#pragma unroll
    for (int t = 0; t < kRowTiles<D>; t++)
#pragma unroll
        for (int n = 0; n < kTileRows / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float &x = scores[t][n][e];
                x = ex2(x * scale_log2 - s.base[t][e / 2]);
                s.total[t][e / 2] += x;
            }
}

// The shared memory and the loaders of a block that goes through keys.
template <int D>
struct key_stream {
    lane_places places;
    bf16_t *q, *k, *v;
    tile_loader<D> load_k, load_v;
    float scale_log2;
};

// Visits one tile of keys, whose load into `k` is under way on entry. If there are `more`, the
// load of the tile before it is under way on return. v is loaded while scores are computed, and
// the next k while probabilities and sums are. first_key matters for a tile with a mask: its
// first key relative to the warp's first query. n_keys matters on the diagonal: the number of
// keys up to the block's last query.
template <int D, tile_mask MASK>
static __device__ __forceinline__ void visit_keys(forward_state<D> &s, key_stream<D> &in,
                                                  bool sees, bool more, int first_key,
                                                  int n_keys, int window)
{
    score_block<D> scores;
    count_for_tests(PASS_FORWARD);
    cp_async_wait<0>();
    __syncthreads();  // k has arrived, and nobody needs the last tile's v any more
    if (MASK == ON_DIAGONAL)
        in.load_v.load_part(in.v, n_keys);
    else
        in.load_v.load(in.v);
    cp_async_commit();
    // Warps that see nothing of the tile compute scores as well: for values that exist only on
    // one side of a branch and live across a barrier the compiler does not find registers.
    set_zero(scores);
    add_row_products<D>(scores, in.q, in.k, in.places);
    cp_async_wait<0>();
    __syncthreads();  // v has arrived, and nobody needs k any more
    if (more)
        in.load_k.load(in.k);
    cp_async_commit();
    if (!sees)
        return;
    if (MASK == ON_DIAGONAL)
        hide_keys<D, true>(scores, first_key, window);
    if (MASK != NOTHING_HIDDEN && kWarpQueries<D> - 1 - first_key >= window)
        hide_keys<D, false>(scores, first_key, window);
    soften<D>(s, scores, in.scale_log2);
    weight_block<kRowTiles<D>, kTileRows / 16> weights;
    round_weights(weights, scores);
    add_weighted_rows<D>(s.sums, weights, in.v, in.places);
}

// Writes out and the log-sum-exp of the warp's queries, out by way of the warp's rows of `q`.
template <int D>
static __device__ __forceinline__ void finish_queries(const forward_state<D> &s,
                                                      const bd_attention_forward_args &a,
                                                      const attention_work &work, bf16_t *q)
{
    const int lane = threadIdx.x % kWarpSize;
    const int warp_first = int(threadIdx.x) / kWarpSize * kWarpQueries<D>;
    const int first = work.tile * kQueries<D> + warp_first;
    const int64_t stride = a.n_heads * D;
#pragma unroll
    for (int t = 0; t < kRowTiles<D>; t++) {
        const int n_rows = work.length - first - t * 16;
        const int64_t token = work.first_token + first + t * 16;
        float inverse[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = s.total[t][half];
            total += __shfl_xor_sync(kWholeWarp, total, 1);
            total += __shfl_xor_sync(kWholeWarp, total, 2);
            inverse[half] = 1.0f / total;
            const int row = lane / 4 + 8 * half;
            if (lane % 4 == 0 && row < n_rows)
                a.lse[(token + row) * a.n_heads + work.head] =
                    s.base[t][half] * kLn2 + logf(total);
        }
        store_rows<D>(bf16_at(a.out, token * stride + work.head * D), stride, n_rows,
                      q + (warp_first + t * 16) * kRow<D>, s.sums[t], inverse);
    }
}

template <int D>
static __device__ __forceinline__ void attend(const bd_attention_forward_args &a,
                                              const attention_work &work, bf16_t *shared)
{
    const int first = work.tile * kQueries<D>;  // query, in the document
    const int n_queries = min(kQueries<D>, work.length - first);
    const int warp_first = int(threadIdx.x) / kWarpSize * kWarpQueries<D>;  // in the tile
    int key = (first + n_queries - 1) / kTileRows * kTileRows;
    const int64_t kv_at =
        (work.first_token + key) * a.kv_stride + work.head / (a.n_heads / a.n_kv_heads) * D;
    const tile_loader<D> load_k(bf16_at(a.k, kv_at), a.kv_stride);
    key_stream<D> in = {
        find_places<D>(threadIdx.x % kWarpSize, warp_first),
        shared,
        shared + kQueries<D> * kRow<D>,
        shared + (kQueries<D> + kTileRows) * kRow<D>,
        load_k,
        load_k.moved(a.k, a.v),
        a.scale * kLog2E,
    };
    tile_loader<D, kQueries<D>> load_q(
        bf16_at(a.q, (work.first_token + first) * a.q_stride + work.head * D), a.q_stride);
    load_q.load_part(in.q, n_queries);
    in.load_k.load_part(in.k, first + n_queries - key);
    cp_async_commit();

    forward_state<D> s;
    set_zero(s.sums);
#pragma unroll
    for (int t = 0; t < kRowTiles<D>; t++) {
        s.base[t][0] = s.base[t][1] = -INFINITY;
        s.total[t][0] = s.total[t][1] = 0.0f;
    }
    const bool warp_exists = warp_first < n_queries;
    const int lowest = oldest_key(work, first) / kTileRows * kTileRows;
    // These tiles hold keys after the first query, so they need a mask. Tiles begin at
    // multiples of 64 and warps at multiples of 16 or 32: the first key of a tile comes after
    // all queries of a warp, or after none.
#pragma unroll 1
    for (; key >= first; key -= kTileRows) {
        const int first_key = key - first - warp_first;
        visit_keys<D, ON_DIAGONAL>(s, in, warp_exists && first_key <= 0, key > lowest,
                                   first_key, first + n_queries - key, work.window);
    }
    int left = key - lowest;  // keys to visit before those of the present tile
    const int seen_by_all = oldest_key(work, first + n_queries - 1) - lowest;
#pragma unroll 1
    for (; left >= seen_by_all; left -= kTileRows)
        visit_keys<D, NOTHING_HIDDEN>(s, in, warp_exists, left > 0, 0, kTileRows, 0);
#pragma unroll 1
    for (; left >= 0; left -= kTileRows) {
        const int first_key = lowest + left - first - warp_first;
        const bool seen = 1 - kTileRows - first_key < work.window;
        visit_keys<D, AT_WINDOW_EDGE>(s, in, warp_exists && seen, left > 0, first_key,
                                      kTileRows, work.window);
    }
    cp_async_wait<0>();
    if (warp_exists)
        finish_queries<D>(s, a, work, in.q);
}

template <int D>
static __global__ void __launch_bounds__(kThreads)
    forward_kernel(bd_attention_forward_args a, attention_plan plan)
{
    DYN_SHARED(bf16_t, shared);
    SHARED_ARRAY(attention_work, work, 1);
    while (take_work(work, plan, a.boundaries, a.window, unsigned(a.n_heads)))
        attend<D>(a, *work, shared);
}

template <int D>
static bd_status launch_attention_forward(const bd_attention_forward_args *args,
                                          const attention_shape &shape, bd_cuda_queue *queue,
                                          bd_error *err)
{
    const attention_plan plan = attention_plan_at(queue->scratch);
    BD_TRY(attention_make_plan(plan, shape, kQueries<D>, QUERY_TILES, queue, err));
    LAUNCH(forward_kernel<D>, dim3(attention_blocks(shape, kQueries<D>, args->n_heads)),
           dim3(kThreads), (kQueries<D> + 2 * kTileRows) * kRow<D> * sizeof(bf16_t),
           queue->stream, *args, plan);
    return bd_cuda_check_launch("attention forward", err);
}

extern "C" size_t bd_cuda_attention_bf16_forward_scratch(const bd_attention_forward_args *args)
{
    return attention_plan_bytes(attention_shape(*args));
}

extern "C" bd_status bd_cuda_attention_bf16_forward(const bd_attention_forward_args *args,
                                                    bd_cuda_queue *queue, bd_error *err)
{
    const attention_shape shape(*args);
    BD_TRY(attention_check(shape, bd_cuda_attention_bf16_forward_scratch(args), queue, err));
    BD_TRY(attention_check_bf16(shape, {args->q, args->k, args->v, args->out}, err));
    if (shape.n_tokens() == 0)
        return BD_OK;
    const int64_t out_words = args->n_heads * args->head_size / 2;
    const padded_tensor outputs[3] = {
        {args->out, out_words, out_words}, {args->lse, args->n_heads, args->n_heads}, {}};
    BD_TRY(attention_clear_padding(shape, outputs, queue, err));
    return args->head_size == 64 ? launch_attention_forward<64>(args, shape, queue, err)
                                 : launch_attention_forward<128>(args, shape, queue, err);
}
