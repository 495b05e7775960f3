// Attention backward in bf16: probabilities are computed again from the saved log-sum-exp.
//
//   P = exp(scale * Q·K - lse)    dV = Pᵀ·dO    dP = dO·Vᵀ    dS = P * (dP - delta)
//   dK = scale * dSᵀ·Q            dQ = scale * dS·K           delta = sum of out * dO
//
// One kernel computes the scores of each pair of tiles once, transposed: a block holds a tile
// of keys and goes through the queries that see it, from the document's end down to the
// diagonal. P and dS then are in registers in the very layout that the sums of dV and dK need
// for their left factor. dQ of a tile of queries is summed across blocks, in float in scratch
// memory, and still in one order: the blocks of its keys take turns, from the document's first
// tile of keys, or the first inside the window, to the one on the diagonal, which finds the sum
// complete and rounds it. Nothing is added atomically.
//
// A block waits only for blocks with lower tiles of the same document, and those are listed
// before its own: the block that took such a work took it earlier, is running, and needs
// nothing from this block. So no block waits for ever, in whatever order the device starts
// them. It hardly waits at all: blocks of many heads and documents come between two tiles of
// the same document, and where they do not, the second block follows the first from one tile of
// queries to the next.
#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/attention/attention_common.cuh"
#include "kernels/cuda/runtime/check.cuh"

static constexpr int kTile = kTileRows;  // queries and keys alike: 16 rows for each warp
static_assert(kWarps * 16 == kTile, "a warp owns 16 rows of a tile");

typedef bd_attention_backward_args backward_args;

// The number of queries of a tile, and of columns of their gradient, that are worked on at a
// time. It is so small that the sums of dK and dV stay in registers meanwhile.
static constexpr int kQueriesAtOnce = 32, kColumnsAtOnce = 64;

typedef float product[1][kQueriesAtOnce / 8][4];
typedef weight_block<1, kQueriesAtOnce / 16> product_weights;
typedef weight_block<1, kTile / 16> tile_weights;
typedef float query_sums[1][kColumnsAtOnce / 8][4];

// The two numbers from which a query's probabilities and their gradients are computed.
struct alignas(8) query_row {
    float lse_log2;  // log-sum-exp in base 2
    float minus_delta;
};

// Device memory between the kernels.
struct backward_memory {
    query_row *rows;  // [head][token]
    // The sums of dQ so far, for all tiles of queries but the first of a document:
    // [tile][warp][D / 8][lane]. A tile uses the place of the tile before it, which is always a
    // whole one. A place counts query rows, [token of the tile before][head][query], and fits
    // in an int.
    float4 *d_q;
    // [place / 64]: the tile of keys that is to be added next. As long as the sum is empty this
    // is 0, whichever tile of keys the window lets begin.
    unsigned *turns;
};

// ---- Rows -----------------------------------------------------------------------------------

// x and y hold two bf16 each. A bf16 is the upper half of the float of the same value.
static __device__ __forceinline__ float dot_of_two(uint32_t x, uint32_t y)
{
    return __uint_as_float(x << 16) * __uint_as_float(y << 16) +
           __uint_as_float(x & 0xffff0000u) * __uint_as_float(y & 0xffff0000u);
}

// Fills backward_memory: delta and the base-2 log-sum-exp of every row, and zeros for the sums.
// There are D / 8 lanes for each token and head, in the order of `out` in memory.
template <int D>
static __global__ void __launch_bounds__(kThreads)
    rows_kernel(backward_args a, int64_t n_tokens, backward_memory memory)
{
    constexpr int kLanes = D / 8;
    const int lane = threadIdx.x % kLanes;
    const int64_t at = int64_t(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
    const bool exists = at < n_tokens * a.n_heads;
    float delta = 0.0f;
    if (exists) {
        const int64_t chunk = at * D + lane * 8;
        const uint4 out = *reinterpret_cast<const uint4 *>(bf16_at(a.out, chunk));
        const uint4 d_out = *reinterpret_cast<const uint4 *>(bf16_at(a.d_out, chunk));
        delta = dot_of_two(out.x, d_out.x) + dot_of_two(out.y, d_out.y) +
                dot_of_two(out.z, d_out.z) + dot_of_two(out.w, d_out.w);
        memory.d_q[chunk / 4] = memory.d_q[chunk / 4 + 1] = float4{};
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
        delta += __shfl_xor_sync(kWholeWarp, delta, distance);
    if (exists && lane == 0) {
        memory.rows[at % a.n_heads * n_tokens + at / a.n_heads] = {a.lse[at] * kLog2E, -delta};
        if (at % kTile == 0)
            memory.turns[at / kTile] = 0;
    }
}

// ---- Shared memory --------------------------------------------------------------------------

// Two query rows of a tile, in the layout in which they are read by the lane that holds these
// two columns of a product.
struct alignas(16) shared_rows {
    float minus_delta[4];  // first, second, first, second: one for each element of a fragment
    float lse_log2[2];
};

// The shared memory of one block. d_s is [key][query]: a warp writes the rows of its keys, and
// reads these rows and the columns of its queries.
template <int D>
struct backward_tiles {
    bf16_t k[kTileValues<D>], v[kTileValues<D>], q[kTileValues<D>], d_out[kTileValues<D>];
    bf16_t d_s[kTileValues<kTile>];
    shared_rows rows[kTile / 2];
    // The present head of queries, and the places of the document's first token in
    // backward_memory for this head. They are here because there are no registers left for
    // them.
    int head, first_row, first_place;
};

static __device__ __forceinline__ void put_row(shared_rows *rows, query_row row)
{
    shared_rows &to = rows[threadIdx.x / 2];
    const int i = threadIdx.x % 2;
    to.lse_log2[i] = row.lse_log2;
    to.minus_delta[i] = to.minus_delta[2 + i] = row.minus_delta;
}

// The places in shared memory that a lane reads and writes.
template <int D>
struct backward_places {
    lane_places tile;                // in k, v, q and d_out
    int d_s, d_s_rows, d_s_columns;  // of d_s: written, and read by ldmatrix in two ways

    __device__ __forceinline__ backward_places()
    {
        const int thread = this_thread();
        const int lane = thread % kWarpSize, warp_row = thread / kWarpSize * 16;
        tile = find_places<D>(lane, warp_row);
        d_s = place_of(warp_row + lane / 4, kRow<kTile>, lane % 4 * 2);
        d_s_rows = place_of(warp_row + lane % 16, kRow<kTile>, lane / 16 * 8);
        d_s_columns =
            place_of(lane % 8 + lane / 16 * 8, kRow<kTile>, warp_row + lane / 8 % 2 * 8);
    }
};

static __device__ __forceinline__ void put_weights(bf16_t *to, const product_weights &x)
{
#pragma unroll
    for (int k = 0; k < kQueriesAtOnce / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            *reinterpret_cast<uint32_t *>(to + i % 2 * 8 * kRow<kTile> + k * 16 + i / 2 * 8) =
                x[k][0][i];
}

// Reads the rows of d_s of the warp's keys.
static __device__ __forceinline__ void get_rows(tile_weights &x, const bf16_t *from)
{
#pragma unroll
    for (int k = 0; k < kTile / 16; k++)
        ldmatrix_x4(x[k][0], from + k * 16);
}

// Reads the columns of d_s of the warp's queries, as rows of a left factor.
static __device__ __forceinline__ void get_columns(tile_weights &x, const bf16_t *from)
{
#pragma unroll
    for (int k = 0; k < kTile / 16; k++)
        ldmatrix_x4_trans(x[k][0], from + k * 16 * kRow<kTile>);
}

// ---- One pair of tiles ----------------------------------------------------------------------

// The sums of a block's keys so far.
template <int D>
struct key_state {
    float d_k[1][D / 8][4], d_v[1][D / 8][4];
};

// The places and loaders of a block that goes through queries.
template <int D>
struct query_stream {
    backward_places<D> places;
    tile_loader<D> load_q, load_d_out;
};

// The products V·dOᵀ, [key][query], are then added to -delta, which gives dP - delta.
static __device__ __forceinline__ void start_at_minus_delta(product &d_p,
                                                            const shared_rows *rows)
{
#pragma unroll
    for (int n = 0; n < kQueriesAtOnce / 8; n++) {
        const float4 start = *reinterpret_cast<const float4 *>(rows[n * 4].minus_delta);
        d_p[0][n][0] = start.x;
        d_p[0][n][1] = start.y;
        d_p[0][n][2] = start.z;
        d_p[0][n][3] = start.w;
    }
}

// Whether queries see keys so many tiles before their own.
static __device__ __forceinline__ bool are_seen(const attention_work &work, int n_tiles)
{
    return (n_tiles - 1) * kTile + 1 < work.window;
}

// Turns scores into probabilities, and dP - delta into dS; all are [key][query]. The first
// query is number `query` of the tile. At the edge, a query sees fewer than `window` keys back,
// if both are counted from the first ones of their tiles.
template <tile_mask MASK>
static __device__ __forceinline__ void differentiate(product &p, product &d_p,
                                                     const shared_rows *rows, int query,
                                                     float scale_log2, int window)
{
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
#pragma unroll
    for (int n = 0; n < kQueriesAtOnce / 8; n++) {
        const float2 lse_log2 = *reinterpret_cast<const float2 *>(rows[n * 4].lse_log2);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = ex2(p[0][n][e] * scale_log2 - (e % 2 ? lse_log2.y : lse_log2.x));
            const int key = warp * 16 + lane / 4 + e / 2 * 8;
            const int back = query + n * 8 + lane % 4 * 2 + e % 2 - key;
            if ((MASK == ON_DIAGONAL && back < 0) || (MASK == AT_WINDOW_EDGE && back >= window))
                x = 0.0f;
            p[0][n][e] = x;
            d_p[0][n][e] *= x;
        }
    }
}

// Hides the keys before the windows of queries of their own tile.
static __device__ __forceinline__ void hide_old_keys(product &p, product &d_s, int query,
                                                     int window)
{
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
#pragma unroll
    for (int n = 0; n < kQueriesAtOnce / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int key = warp * 16 + lane / 4 + e / 2 * 8;
            if (query + n * 8 + lane % 4 * 2 + e % 2 - key >= window)
                p[0][n][e] = d_s[0][n][e] = 0.0f;
        }
}

// Adds to dV of the warp's keys, and puts dS of these keys into shared memory. The window is
// that of differentiate().
template <int D, tile_mask MASK>
static __device__ __forceinline__ void add_to_values(key_state<D> &s, backward_tiles<D> &tiles,
                                                     const backward_places<D> &places,
                                                     float scale_log2, int window)
{
    const shared_rows *own_rows = tiles.rows + this_thread() % 4;
#pragma unroll
    for (int query = 0; query < kTile; query += kQueriesAtOnce) {
        const bf16_t *q = tiles.q + query * kRow<D>, *d_out = tiles.d_out + query * kRow<D>;
        const shared_rows *rows = own_rows + query / 2;
        product p, d_p;
        product_weights rounded;
        set_zero(p);
        add_row_products<D>(p, tiles.k, q, places.tile);
        start_at_minus_delta(d_p, rows);
        add_row_products<D>(d_p, tiles.v, d_out, places.tile);
        differentiate<MASK>(p, d_p, rows, query, scale_log2, window);
        if (MASK == ON_DIAGONAL && window < kTile)
            hide_old_keys(p, d_p, query, window);
        round_weights(rounded, p);
        add_weighted_rows<D>(s.d_v, rounded, d_out, places.tile);
        round_weights(rounded, d_p);
        put_weights(at(tiles.d_s, places.d_s) + query, rounded);
    }
}

template <int D>
static __device__ __forceinline__ void add_to_keys(key_state<D> &s, backward_tiles<D> &tiles,
                                                   const backward_places<D> &places)
{
    tile_weights d_s;
    get_rows(d_s, at(tiles.d_s, places.d_s_rows));
    add_weighted_rows<D>(s.d_k, d_s, tiles.q, places.tile);
}

// The place of the sum of dQ of a tile of queries; the first tile of a document has none.
template <int D>
static __device__ __forceinline__ int place_of_gradient(const backward_tiles<D> &tiles,
                                                        const backward_args &a, int tile)
{
    return tiles.first_place + (tile - 1) * (kTile * int(a.n_heads));
}

// Waits until the turn is that of tile number `tile` of keys: then all tiles before it are in
// the sum. Returns the address of this lane's share of the sum.
template <int D>
static __device__ __forceinline__ float4 *take_turn(const backward_memory &memory, int place,
                                                    int tile)
{
    const int thread = this_thread(), lane = thread % kWarpSize, warp = thread / kWarpSize;
    while (read_published(memory.turns + unsigned(place) / kTile) != unsigned(tile)) {
    }
    __syncwarp();  // the lanes leave the loop one by one, but what follows needs the whole warp
    return memory.d_q + int64_t(place) * (D / 4) + warp * (16 * D / 4) + lane;
}

// Lets the block of the next tile of keys add to the tile of queries after `tile`, if there is
// one that this block has visited. It must come after a barrier that follows the last put_sum()
// of that tile; such a barrier is at the beginning of the visit of `tile`.
template <int D, tile_mask MASK>
static __device__ __forceinline__ void
pass_turn(const backward_tiles<D> &tiles, const backward_args &a, const backward_memory &memory,
          const attention_work &work, int tile)
{
    const int place = place_of_gradient(tiles, a, tile + 1);
    if (threadIdx.x == 0 && (tile + 1) * kTile < work.length &&
        (MASK == NOTHING_HIDDEN || are_seen(work, tile + 1 - work.tile)))
        publish(memory.turns + unsigned(place) / kTile, unsigned(work.tile) + 1);
}

static __device__ __forceinline__ void get_sum(query_sums &d_q, const float4 *from)
{
#pragma unroll
    for (int n = 0; n < kColumnsAtOnce / 8; n++) {
        const float4 sum = from[n * kWarpSize];
        d_q[0][n][0] = sum.x;
        d_q[0][n][1] = sum.y;
        d_q[0][n][2] = sum.z;
        d_q[0][n][3] = sum.w;
    }
}

static __device__ __forceinline__ void put_sum(const query_sums &d_q, float4 *to)
{
#pragma unroll
    for (int n = 0; n < kColumnsAtOnce / 8; n++)
        to[n * kWarpSize] = {d_q[0][n][0], d_q[0][n][1], d_q[0][n][2], d_q[0][n][3]};
}

// Visits tile number `tile` of queries. Its load into shared memory is under way on entry; on
// return the load of the tile before it is.
template <int D, tile_mask MASK>
static __device__ __forceinline__ void
visit_queries(key_state<D> &s, query_stream<D> &in, backward_tiles<D> &tiles,
              const backward_args &a, const backward_memory &memory, const attention_work &work,
              int tile)
{
    tile_weights d_s;
    query_sums d_q;
    query_row row = {};
    count_for_tests(PASS_KEY_GRADIENT);
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived
    pass_turn<D, MASK>(tiles, a, memory, work, tile);
    if (threadIdx.x < kTile)
        row = memory.rows[tiles.first_row + (tile - 1) * kTile + int(threadIdx.x)];
    add_to_values<D, MASK>(s, tiles, in.places, a.scale * kLog2E,
                           work.window - (tile - work.tile) * kTile);
    __syncthreads();  // d_s is complete, and nobody needs d_out and rows any more
    in.load_d_out.load(tiles.d_out);
    cp_async_commit();
    if (threadIdx.x < kTile)
        put_row(tiles.rows, row);
    add_to_keys<D>(s, tiles, in.places);
    __syncthreads();  // nobody needs q any more
    in.load_q.load(tiles.q);
    cp_async_commit();
    get_columns(d_s, at(tiles.d_s, in.places.d_s_columns));
    // At the window's edge this may be the first tile of keys in the sum.
    const bool first = MASK == AT_WINDOW_EDGE && !are_seen(work, tile - work.tile + 1);
    float4 *sum =
        take_turn<D>(memory, place_of_gradient(tiles, a, tile), first ? 0 : work.tile);
#pragma unroll
    for (int column = 0; column < D; column += kColumnsAtOnce) {
        get_sum(d_q, sum + column / 8 * kWarpSize);
        add_weighted_rows<D>(d_q, d_s, tiles.k + column, in.places.tile);
        put_sum(d_q, sum + column / 8 * kWarpSize);
    }
}

// Visits the tile of queries on the diagonal, which is the last one and completes its gradient.
template <int D>
static __device__ __forceinline__ void
visit_diagonal(key_state<D> &s, query_stream<D> &in, backward_tiles<D> &tiles,
               const backward_args &a, const backward_memory &memory,
               const attention_work &work)
{
    const int warp_row = this_thread() / kWarpSize * 16;
    const int first = work.tile * kTile + warp_row;
    count_for_tests(PASS_KEY_GRADIENT);
    cp_async_wait<0>();
    __syncthreads();  // the tile has arrived
    pass_turn<D, ON_DIAGONAL>(tiles, a, memory, work, work.tile);
    if (first < work.length)
        add_to_values<D, ON_DIAGONAL>(s, tiles, in.places, a.scale * kLog2E, work.window);
    else
        for (int query = 0; query < kTile; query += kQueriesAtOnce)
            put_weights(at(tiles.d_s, in.places.d_s) + query, {});
    const int head = tiles.head, place = place_of_gradient(tiles, a, work.tile);
    __syncthreads();  // d_s is complete, and nobody needs d_out and what is said of the head
    if (first >= work.length)
        return;
    add_to_keys<D>(s, tiles, in.places);
    const float4 *sum = nullptr;
    if (work.tile > 0 && are_seen(work, 1))
        sum = take_turn<D>(memory, place, work.tile);
    tile_weights d_s;
    get_columns(d_s, at(tiles.d_s, in.places.d_s_columns));
    uint16_t *to = bf16_at(a.d_q, (work.first_token + first) * a.q_stride + head * D);
#pragma unroll 1
    for (int column = 0; column < D; column += kColumnsAtOnce) {
        query_sums d_q;
        set_zero(d_q);
        if (sum)
            get_sum(d_q, sum + column / 8 * kWarpSize);
        add_weighted_rows<D>(d_q, d_s, tiles.k + column, in.places.tile);
        store_rows<D, kColumnsAtOnce>(to + column, a.q_stride, work.length - first,
                                      tiles.d_out + warp_row * kRow<D>, d_q[0],
                                      {a.scale, a.scale});
    }
}

// ---- A tile of keys -------------------------------------------------------------------------

// Visits all queries of one head that see the tile of keys, from the end of the document or of
// the window down to the diagonal: only the first tile can be cut off by the document's end.
// Masks are only needed by the first two, at the window's edge, and by the last one.
template <int D>
static __device__ __forceinline__ void
add_head(key_state<D> &s, const backward_args &a, const attention_work &work,
         const backward_memory &memory, backward_tiles<D> &tiles)
{
    const int last_key = min((work.tile + 1) * kTile, work.length) - 1;
    const int last = newest_query(work, last_key) / kTile, head = tiles.head;
    const int n_queries = work.length - last * kTile;
    const int64_t token = work.first_token + last * kTile;
    query_stream<D> in = {
        backward_places<D>(),
        tile_loader<D>(bf16_at(a.q, token * a.q_stride + head * D), a.q_stride),
        tile_loader<D>(bf16_at(a.d_out, (token * a.n_heads + head) * D), a.n_heads * D),
    };
    in.load_q.load_part(tiles.q, n_queries);
    in.load_d_out.load_part(tiles.d_out, n_queries);
    cp_async_commit();
    // Queries past the end add nothing whatever their probability is, because their d_out is 0.
    if (threadIdx.x < kTile)
        put_row(tiles.rows, int(threadIdx.x) < n_queries
                                ? memory.rows[tiles.first_row + last * kTile + int(threadIdx.x)]
                                : query_row{});
    int tile = last;
#pragma unroll 1
    for (; tile > work.tile && (tile - work.tile + 1) * kTile > work.window; tile--)
        visit_queries<D, AT_WINDOW_EDGE>(s, in, tiles, a, memory, work, tile);
#pragma unroll 1
    for (; tile > work.tile; tile--)
        visit_queries<D, NOTHING_HIDDEN>(s, in, tiles, a, memory, work, tile);
    visit_diagonal<D>(s, in, tiles, a, memory, work);
}

// Writes dK and dV of the tile, by way of the warp's rows of v, which no other warp reads.
template <int D>
static __device__ __forceinline__ void finish_keys(const key_state<D> &s,
                                                   const backward_args &a,
                                                   const attention_work &work, bf16_t *v)
{
    const int warp_row = this_thread() / kWarpSize * 16;
    const int first = work.tile * kTile + warp_row, n_keys = work.length - first;
    const int64_t at = (work.first_token + first) * a.kv_stride + work.head * D;
    bf16_t *rows = v + warp_row * kRow<D>;
    store_rows<D>(bf16_at(a.d_k, at), a.kv_stride, n_keys, rows, s.d_k[0], {a.scale, a.scale});
    store_rows<D>(bf16_at(a.d_v, at), a.kv_stride, n_keys, rows, s.d_v[0], {1.0f, 1.0f});
}

template <int D>
static __device__ __forceinline__ void
set_head(backward_tiles<D> &tiles, const backward_args &a, const attention_work &work, int head)
{
    const int64_t n_tokens = a.boundaries.n_rows * a.boundaries.seq_len;
    tiles.head = head;
    tiles.first_row = int(head * n_tokens + work.first_token);
    tiles.first_place = int(work.first_token * a.n_heads) + head * kTile;
}

// Computes the gradients of a tile of keys. The query heads of the group that shares the key
// head are added in their order.
template <int D>
static __device__ __forceinline__ void
differentiate_tile(const backward_args &a, int group, const attention_work &work,
                   const backward_memory &memory, backward_tiles<D> &tiles)
{
    const int first = work.tile * kTile, n_keys = work.length - first;
    const int64_t kv_at = (work.first_token + first) * a.kv_stride + work.head * D;
    tile_loader<D> load_k(bf16_at(a.k, kv_at), a.kv_stride), load_v = load_k.moved(a.k, a.v);
    load_k.load_part(tiles.k, n_keys);
    load_v.load_part(tiles.v, n_keys);

    key_state<D> s;
    set_zero(s.d_k);
    set_zero(s.d_v);
    if (threadIdx.x == 0)
        set_head(tiles, a, work, work.head * group);
    __syncthreads();
#pragma unroll 1
    while (tiles.head < (work.head + 1) * group) {
        add_head<D>(s, a, work, memory, tiles);
        if (threadIdx.x == 0)
            set_head(tiles, a, work, tiles.head + 1);
        __syncthreads();  // the head is done with shared memory
    }
    finish_keys<D>(s, a, work, tiles.v);
}

template <int D>
static __global__ void __launch_bounds__(kThreads)
    backward_kernel(backward_args a, int group, backward_memory memory, attention_plan plan)
{
    DYN_SHARED(backward_tiles<D>, tiles);
    SHARED_ARRAY(attention_work, work, 1);
    while (take_work(work, plan, a.boundaries, a.window, unsigned(a.n_kv_heads)))
        differentiate_tile<D>(a, group, *work, memory, *tiles);
}

// ---- The operation --------------------------------------------------------------------------

// The scratch holds the plan and then backward_memory, whose parts are in the order of their
// alignment.
static size_t sum_bytes(const attention_shape &shape)
{
    return size_t(shape.n_tokens() * shape.n_heads * shape.head_size) * sizeof(float);
}

static size_t row_bytes(const attention_shape &shape)
{
    return size_t(shape.n_tokens() * shape.n_heads) * sizeof(query_row);
}

static size_t turn_bytes(const attention_shape &shape)
{
    return size_t(shape.n_tokens() * shape.n_heads / kTile + 1) * sizeof(unsigned);
}

static backward_memory memory_in(void *scratch, const attention_shape &shape)
{
    char *d_q = static_cast<char *>(scratch) + attention_plan_bytes(shape);
    char *rows = d_q + sum_bytes(shape), *turns = rows + row_bytes(shape);
    return {reinterpret_cast<query_row *>(rows), reinterpret_cast<float4 *>(d_q),
            reinterpret_cast<unsigned *>(turns)};
}

template <int D>
static bd_status launch_attention_backward(const backward_args *args,
                                           const attention_shape &shape, bd_cuda_queue *queue,
                                           bd_error *err)
{
    const attention_plan plan = attention_plan_at(queue->scratch);
    const backward_memory memory = memory_in(queue->scratch, shape);
    BD_TRY(attention_make_plan(plan, shape, kTile, KEY_TILES, queue, err));

    const int rows_per_block = kThreads / (D / 8);
    const int64_t row_blocks = (shape.n_tokens() * args->n_heads - 1) / rows_per_block + 1;
    LAUNCH(rows_kernel<D>, dim3(unsigned(row_blocks)), dim3(kThreads), 0, queue->stream, *args,
           shape.n_tokens(), memory);
    BD_TRY(bd_cuda_check_launch("attention backward, rows", err));

    LAUNCH(backward_kernel<D>, dim3(attention_blocks(shape, kTile, args->n_kv_heads)),
           dim3(kThreads), sizeof(backward_tiles<D>), queue->stream, *args,
           int(args->n_heads / args->n_kv_heads), memory, plan);
    return bd_cuda_check_launch("attention backward", err);
}

extern "C" size_t bd_cuda_attention_bf16_backward_scratch(const backward_args *args)
{
    const attention_shape shape(*args);
    return attention_plan_bytes(shape) + sum_bytes(shape) + row_bytes(shape) +
           turn_bytes(shape);
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
    return args->head_size == 64 ? launch_attention_backward<64>(args, shape, queue, err)
                                 : launch_attention_backward<128>(args, shape, queue, err);
}
