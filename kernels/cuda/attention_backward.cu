// Attention backward in bf16: probabilities are computed again from the saved log-sum-exp.
//
//   P = exp(scale * Q·K - lse)    dV = Pᵀ·dO    dP = dO·Vᵀ    dS = P * (dP - delta)
//   dK = scale * dSᵀ·Q            dQ = scale * dS·K           delta = sum of out * dO
//
// Two kernels, so that each gradient is summed by one block in one order and no atomics are
// needed: one goes through the queries of a tile of keys, the other through the keys of a tile
// of queries. Scores are computed twice, but the first kernel computes them transposed: P and
// dS then are in registers just as the next product wants its left factor, and never pass
// through shared memory.
#include "kernels/cuda/attention.h"

#include "kernels/cuda/attention_common.cuh"
#include "kernels/cuda/check.cuh"

static constexpr int kTile = kTileRows;  // of both sides: 16 rows for each warp
static constexpr int kTilesInShared = 5;
static_assert(kWarps * 16 == kTile, "a warp owns 16 rows of a tile");

typedef bd_cuda_attention_bf16_backward_args backward_args;
typedef float product[1][kTile / 8][4];

template <int D>
constexpr int kTileBytes = int(sizeof(bf16_t)) * kTile *D;

// What a query's row of probabilities and of gradients is computed from.
struct alignas(8) query_row {
    float lse_log2;  // log-sum-exp in base 2
    float minus_delta;
};

// ---- Rows -----------------------------------------------------------------------------------

// Two bf16 in a register each. A bf16 is the upper half of the same float.
static __device__ __forceinline__ float dot_of_two(uint32_t x, uint32_t y)
{
    return __uint_as_float(x << 16) * __uint_as_float(y << 16) +
           __uint_as_float(x & 0xffff0000u) * __uint_as_float(y & 0xffff0000u);
}

// rows[head][token]. D / 8 lanes for each, in the order of `out` in memory.
template <int D>
static __global__ void __launch_bounds__(kThreads)
    rows_kernel(backward_args a, int64_t n_tokens, query_row *rows)
{
    constexpr int kLanes = D / 8;
    const int lane = threadIdx.x % kLanes;
    const int64_t at = int64_t(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
    const bool exists = at < n_tokens * a.n_heads;
    float delta = 0.0f;
    if (exists) {
        const int64_t chunk = at * D + lane * 8;
        const uint4 out = *reinterpret_cast<const uint4 *>(a.out + chunk);
        const uint4 d_out = *reinterpret_cast<const uint4 *>(a.d_out + chunk);
        delta = dot_of_two(out.x, d_out.x) + dot_of_two(out.y, d_out.y) +
                dot_of_two(out.z, d_out.z) + dot_of_two(out.w, d_out.w);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        delta += __shfl_xor_sync(kWholeWarp, delta, distance);
    if (exists && lane == 0)
        rows[at % a.n_heads * n_tokens + at / a.n_heads] = {a.lse[at] * kLog2E, -delta};
}

// ---- Gradients of keys and values -----------------------------------------------------------

template <int D>
struct key_state {
    float d_k[1][D / 8][4], d_v[1][D / 8][4];
};

// A tile's query rows in shared memory, as the lane that holds columns 2 * i and 2 * i + 1 of
// two rows of a product reads them.
struct shared_rows {
    float4 minus_delta[kTile / 2];  // of column 2 * i, 2 * i + 1, and again
    float2 lse_log2[kTile / 2];
};

// Shared memory and loaders of a block that goes through queries.
template <int D>
struct query_stream {
    lane_places places;
    const bf16_t *k, *v;
    bf16_t *q;    // two tiles, since q is needed first and last
    int q_stage;  // where the present one lies, in bytes: 0 or kTileBytes
    bf16_t *d_out;
    shared_rows *rows;
    tile_loader<D> load_q, load_d_out;
    const query_row *from_rows;  // this thread's, in the tile to be loaded next
};

static __device__ __forceinline__ void put_row(shared_rows *rows, query_row row)
{
    const int i = threadIdx.x;
    reinterpret_cast<float *>(rows->lse_log2)[i] = row.lse_log2;
    float *minus_delta = reinterpret_cast<float *>(rows->minus_delta) + i / 2 * 4 + i % 2;
    minus_delta[0] = minus_delta[2] = row.minus_delta;
}

// dP - delta = V·dOᵀ - delta, [key][query]: products are added to what is there.
static __device__ __forceinline__ void start_at_minus_delta(product &d_p,
                                                            const shared_rows &rows)
{
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int n = 0; n < kTile / 8; n++) {
        const float4 start = rows.minus_delta[n * 4 + lane % 4];
        d_p[0][n][0] = start.x;
        d_p[0][n][1] = start.y;
        d_p[0][n][2] = start.z;
        d_p[0][n][3] = start.w;
    }
}

// Scores and dP - delta, both [key][query], to probabilities and dS.
template <bool ON_DIAGONAL>
static __device__ __forceinline__ void differentiate(product &p, product &d_p,
                                                     const shared_rows &rows, float scale_log2)
{
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
#pragma unroll
    for (int n = 0; n < kTile / 8; n++) {
        const float2 lse_log2 = rows.lse_log2[n * 4 + lane % 4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = ex2(p[0][n][e] * scale_log2 - (e % 2 ? lse_log2.y : lse_log2.x));
            const int key = warp * 16 + lane / 4 + e / 2 * 8;
            if (ON_DIAGONAL && n * 8 + lane % 4 * 2 + e % 2 < key)
                x = 0.0f;
            p[0][n][e] = x;
            d_p[0][n][e] *= x;
        }
    }
}

// One tile of queries, which is on its way into shared memory; on return the one before it is.
// The tile on the diagonal is the last.
template <int D, bool ON_DIAGONAL>
static __device__ __forceinline__ void visit_queries(key_state<D> &s, query_stream<D> &in,
                                                     bool exists, float scale_log2)
{
    product p, d_p;
    const lane_places q_places = moved(in.places, in.q_stage);
    query_row row = {};
    COUNT_TILE(PASS_KEY_GRADIENT);
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and nobody needs the q before any more
    if (!ON_DIAGONAL) {
        in.load_q.load(moved(in.q, in.q_stage ^ kTileBytes<D>));
        cp_async_commit();
        in.from_rows -= kTile;
        if (threadIdx.x < kTile)
            row = *in.from_rows;
    }
    if (exists) {
        set_zero(p);
        add_row_products<D, 1>(p, in.k, in.q, q_places);
        start_at_minus_delta(d_p, *in.rows);
        add_row_products<D, 1>(d_p, in.v, in.d_out, in.places);
        differentiate<ON_DIAGONAL>(p, d_p, *in.rows, scale_log2);
        add_weighted_rows<D, 1>(s.d_v, p, in.d_out, in.places);
    }
    if (!ON_DIAGONAL) {
        __syncthreads();  // nobody needs d_out and rows any more
        in.load_d_out.load(in.d_out);
        cp_async_commit();
        if (threadIdx.x < kTile)
            put_row(in.rows, row);
    }
    if (exists)
        add_weighted_rows<D, 1>(s.d_k, d_p, in.q, q_places);
    in.q_stage ^= kTileBytes<D>;
}

// All queries of one head that see the tile, from the document's end down to the diagonal: only
// the first tile can be cut off by the end, only the last one needs a mask.
template <int D>
static __device__ __forceinline__ void
add_head(key_state<D> &s, const backward_args &a, const attention_work &work, int head,
         const query_row *rows, bf16_t *shared, shared_rows *in_shared, bool exists)
{
    bf16_t *k = shared, *v = k + kTile * D, *q = v + kTile * D;
    const int warp_row = threadIdx.x / kWarpSize * 16;
    const int tile = (work.length - 1) / kTile;
    const int n_queries = work.length - tile * kTile;
    const int64_t token = work.first_token + tile * kTile;
    query_stream<D> in = {
        find_places<D>(warp_row),
        k,
        v,
        q,
        0,
        q + 2 * kTile * D,
        in_shared,
        tile_loader<D>(a.q + token * a.q_stride + head * D, a.q_stride),
        tile_loader<D>(a.d_out + (token * a.n_heads + head) * D, a.n_heads * D),
        rows + head * (a.boundaries.n_rows * a.boundaries.seq_len) + token + threadIdx.x,
    };
    __syncthreads();  // the head before is done with shared memory
    in.load_q.load_part(in.q, n_queries);
    in.load_d_out.load_part(in.d_out, n_queries);
    cp_async_commit();
    // d_out of a query past the end is 0, so that it adds nothing whatever its probability is.
    if (threadIdx.x < kTile)
        put_row(in.rows, int(threadIdx.x) < n_queries ? *in.from_rows : query_row{});
    const float scale_log2 = a.scale * kLog2E;
#pragma unroll 1
    for (int left = tile - work.tile; left > 0; left--)
        visit_queries<D, false>(s, in, exists, scale_log2);
    visit_queries<D, true>(s, in, exists, scale_log2);
}

// By way of the warp's rows of k and v.
template <int D>
static __device__ __forceinline__ void finish_keys(const key_state<D> &s,
                                                   const backward_args &a,
                                                   const attention_work &work, bf16_t *shared)
{
    const int warp_row = int(threadIdx.x) / kWarpSize * 16;
    const int first = work.tile * kTile + warp_row, n_keys = work.length - first;
    const int64_t at = (work.first_token + first) * a.kv_stride + work.head * D;
    bf16_t *k = shared + warp_row * D, *v = k + kTile * D;
    store_rows<D>(a.d_k + at, a.kv_stride, n_keys, k, s.d_k[0], {a.scale, a.scale});
    store_rows<D>(a.d_v + at, a.kv_stride, n_keys, v, s.d_v[0], {1.0f, 1.0f});
}

// Query heads that share the key head are added in their order.
template <int D>
static __device__ __forceinline__ void
key_gradient(const backward_args &a, const attention_work &work, const query_row *rows,
             bf16_t *shared, shared_rows *in_shared)
{
    const int first = work.tile * kTile, n_keys = work.length - first;
    const int64_t kv_at = (work.first_token + first) * a.kv_stride + work.head * D;
    tile_loader<D> load_k(a.k + kv_at, a.kv_stride), load_v = load_k.moved(a.k, a.v);
    load_k.load_part(shared, n_keys);
    load_v.load_part(shared + kTile * D, n_keys);

    key_state<D> s;
    set_zero(s.d_k);
    set_zero(s.d_v);
    const bool exists = int(threadIdx.x) / kWarpSize * 16 < n_keys;
    const int group = int(a.n_heads / a.n_kv_heads);
#pragma unroll 1
    for (int i = 0; i < group; i++)
        add_head<D>(s, a, work, work.head * group + i, rows, shared, in_shared, exists);
    if (exists)
        finish_keys<D>(s, a, work, shared);
}

template <int D>
static __global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(backward_args a, const query_row *rows, attention_plan plan)
{
    DYN_SHARED(bf16_t, shared);
    SHARED_ARRAY(shared_rows, in_shared, 1);
    SHARED_ARRAY(attention_work, work, 1);
    while (take_work(work, plan, a.boundaries, unsigned(a.n_kv_heads)))
        key_gradient<D>(a, *work, rows, shared, in_shared);
}

// ---- Gradient of queries --------------------------------------------------------------------

// Shared memory and loaders of a block that goes through keys.
template <int D>
struct key_stream {
    lane_places places;
    const bf16_t *q, *d_out;
    bf16_t *k;    // two tiles, since k is needed first and last
    int k_stage;  // where the present one lies, in bytes: 0 or kTileBytes
    bf16_t *v;
    tile_loader<D> load_k, load_v;
};

// Scores and dP - delta, both [query][key], to dS in d_p.
template <bool ON_DIAGONAL>
static __device__ __forceinline__ void
differentiate_rows(const product &p, product &d_p, const query_row (&rows)[2], float scale_log2)
{
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
#pragma unroll
    for (int n = 0; n < kTile / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = ex2(p[0][n][e] * scale_log2 - rows[e / 2].lse_log2);
            const int query = warp * 16 + lane / 4 + e / 2 * 8;
            if (ON_DIAGONAL && n * 8 + lane % 4 * 2 + e % 2 > query)
                x = 0.0f;
            d_p[0][n][e] *= x;
        }
}

// One tile of keys, which is on its way into shared memory; on return the one before it is, if
// there is `more`. The tile on the diagonal is the first.
template <int D, bool ON_DIAGONAL>
static __device__ __forceinline__ void visit_keys(float (&d_q)[1][D / 8][4], key_stream<D> &in,
                                                  const query_row (&rows)[2], bool more,
                                                  bool exists, float scale_log2)
{
    product p, d_p;
    const lane_places k_places = moved(in.places, in.k_stage);
    COUNT_TILE(PASS_QUERY_GRADIENT);
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived, and nobody needs the k before any more
    if (more) {
        in.load_k.load(moved(in.k, in.k_stage ^ kTileBytes<D>));
        cp_async_commit();
    }
    if (exists) {
        set_zero(p);
        add_row_products<D, 1>(p, in.q, in.k, k_places);
#pragma unroll
        for (int n = 0; n < kTile / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                d_p[0][n][e] = rows[e / 2].minus_delta;
        add_row_products<D, 1>(d_p, in.d_out, in.v, in.places);
        differentiate_rows<ON_DIAGONAL>(p, d_p, rows, scale_log2);
    }
    if (more) {
        __syncthreads();  // nobody needs v any more
        in.load_v.load(in.v);
        cp_async_commit();
    }
    if (exists)
        add_weighted_rows<D, 1>(d_q, d_p, in.k, k_places);
    in.k_stage ^= kTileBytes<D>;
}

template <int D>
static __device__ __forceinline__ void query_gradient(const backward_args &a,
                                                      const attention_work &work,
                                                      const query_row *all_rows, bf16_t *shared)
{
    bf16_t *q = shared, *d_out = q + kTile * D, *k = d_out + kTile * D;
    const int lane = threadIdx.x % kWarpSize, warp_row = threadIdx.x / kWarpSize * 16;
    const int first = work.tile * kTile, n_queries = work.length - first;
    const int64_t token = work.first_token + first;
    const int64_t q_at = token * a.q_stride + work.head * D;
    const int64_t kv_at = token * a.kv_stride + work.head / (a.n_heads / a.n_kv_heads) * D;
    tile_loader<D> load_q(a.q + q_at, a.q_stride);
    tile_loader<D> load_d_out(a.d_out + (token * a.n_heads + work.head) * D, a.n_heads * D);
    const tile_loader<D> load_k(a.k + kv_at, a.kv_stride);
    key_stream<D> in = {
        find_places<D>(warp_row), q, d_out, k, 0, k + 2 * kTile * D, load_k,
        load_k.moved(a.k, a.v),
    };
    load_q.load_part(q, n_queries);
    load_d_out.load_part(d_out, n_queries);
    in.load_k.load_part(in.k, n_queries);  // on the diagonal: as many keys
    in.load_v.load_part(in.v, n_queries);
    cp_async_commit();

    query_row rows[2];
    const query_row *from_rows =
        all_rows + work.head * (a.boundaries.n_rows * a.boundaries.seq_len) + token;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = warp_row + lane / 4 + 8 * half;
        rows[half] = row < n_queries ? from_rows[row] : query_row{};
    }
    float d_q[1][D / 8][4];
    set_zero(d_q);
    const bool exists = warp_row < n_queries;
    const float scale_log2 = a.scale * kLog2E;
    visit_keys<D, true>(d_q, in, rows, work.tile > 0, exists, scale_log2);
#pragma unroll 1
    for (int tile = work.tile - 1; tile >= 0; tile--)
        visit_keys<D, false>(d_q, in, rows, tile > 0, exists, scale_log2);
    if (exists)
        store_rows<D>(a.d_q + q_at + warp_row * a.q_stride, a.q_stride, n_queries - warp_row,
                      q + warp_row * D, d_q[0], {a.scale, a.scale});
}

template <int D>
static __global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(backward_args a, const query_row *rows, attention_plan plan)
{
    DYN_SHARED(bf16_t, shared);
    SHARED_ARRAY(attention_work, work, 1);
    while (take_work(work, plan, a.boundaries, unsigned(a.n_heads)))
        query_gradient<D>(a, *work, rows, shared);
}

// ---- The operation --------------------------------------------------------------------------

template <int D>
static bd_status launch_backward(const backward_args *args, const attention_shape &shape,
                                 bd_cuda_queue *queue, bd_error *err)
{
    backward_scratch scratch;
    BD_TRY(attention_plan_backward(&scratch, shape, kTile, queue, err));
    query_row *rows = static_cast<query_row *>(scratch.values);

    const int rows_per_block = kThreads / (D / 8);
    const int64_t row_blocks = (shape.n_tokens() * args->n_heads - 1) / rows_per_block + 1;
    LAUNCH(rows_kernel<D>, dim3(unsigned(row_blocks)), dim3(kThreads), 0, queue->stream, *args,
           shape.n_tokens(), rows);
    BD_TRY(bd_cuda_check_launch("attention backward, rows", err));

    const size_t tile_bytes = size_t(kTilesInShared * kTile * D) * sizeof(bf16_t);
    LAUNCH(key_gradient_kernel<D>, dim3(attention_blocks(shape, kTile, args->n_kv_heads)),
           dim3(kThreads), tile_bytes, queue->stream, *args, rows, scratch.keys);
    BD_TRY(bd_cuda_check_launch("attention backward, keys", err));
    LAUNCH(query_gradient_kernel<D>, dim3(attention_blocks(shape, kTile, args->n_heads)),
           dim3(kThreads), tile_bytes, queue->stream, *args, rows, scratch.queries);
    return bd_cuda_check_launch("attention backward, queries", err);
}

extern "C" size_t bd_cuda_attention_bf16_backward_scratch(const backward_args *args)
{
    return attention_backward_scratch_bytes(attention_shape(*args), sizeof(query_row));
}

extern "C" bd_status bd_cuda_attention_bf16_backward(const backward_args *args,
                                                     bd_cuda_queue *queue, bd_error *err)
{
    const attention_shape shape(*args);
    BD_TRY(attention_check(shape, bd_cuda_attention_bf16_backward_scratch(args), queue, err));
    BD_TRY(attention_check_bf16(
        shape,
        {args->q, args->k, args->v, args->out, args->d_out, args->d_q, args->d_k, args->d_v},
        err));
    if (shape.n_tokens() == 0)
        return BD_OK;
    const int64_t q_words = args->n_heads * args->head_size / 2;
    const int64_t kv_words = args->n_kv_heads * args->head_size / 2;
    const padded_tensor gradients[3] = {{args->d_q, args->q_stride / 2, q_words},
                                        {args->d_k, args->kv_stride / 2, kv_words},
                                        {args->d_v, args->kv_stride / 2, kv_words}};
    BD_TRY(attention_clear_padding(shape, gradients, queue, err));
    return args->head_size == 64 ? launch_backward<64>(args, shape, queue, err)
                                 : launch_backward<128>(args, shape, queue, err);
}
