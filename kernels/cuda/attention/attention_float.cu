// Attention in float for any head size up to 256, written to be simple. The formulas are those
// of attention_forward.cu and attention_backward.cu. Tiles have 16 queries and 16 keys, so that
// each thread of a block computes one pair; then thread (r, c) sums columns c, c + 16, … of row
// r of the result. Backward takes one kernel for the gradients of keys and values and one for
// those of queries, which computes the scores again, so that no sum crosses blocks.
#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/attention/attention_plan.cuh"
#include "kernels/cuda/operations/warp.cuh"
#include "kernels/cuda/runtime/check.cuh"

static constexpr int kTile = 16;
static constexpr int kThreads = kTile * kTile;
static constexpr int kMaxHeadSize = BD_MOST_HEAD_SIZE;
static constexpr int kColumns = kMaxHeadSize / kTile;  // of a thread

static __device__ __forceinline__ const float *floats(const void *tensor)
{
    return (const float *)tensor;
}

static __device__ __forceinline__ float *floats(void *tensor)
{
    return (float *)tensor;
}

// The pairs of two tiles, [query][key]. With one more column neither rows nor columns have bank
// conflicts.
typedef float pairs[kTile][kTile + 1];

// The distance of rows of a tile in shared memory: odd, for the same reason.
static __host__ __device__ __forceinline__ int row_size(int64_t head_size)
{
    return int(head_size) | 1;
}

static size_t tile_bytes(int64_t head_size, int n_tiles)
{
    return size_t(n_tiles * kTile * row_size(head_size)) * sizeof(float);
}

// Loads n rows of `from`; the other rows of the tile become 0.
static __device__ __forceinline__ void load_rows(float *tile, const float *from, int64_t stride,
                                                 int n, int head_size)
{
    for (int i = threadIdx.x; i < kTile * head_size; i += kThreads) {
        const int row = i / head_size, column = i % head_size;
        tile[row * row_size(head_size) + column] = row < n ? from[row * stride + column] : 0.0f;
    }
}

static __device__ __forceinline__ float dot(const float *x, const float *y, int n)
{
    float sum = 0.0f;
    for (int c = 0; c < n; c++)
        sum += x[c] * y[c];
    return sum;
}

// Adds weights · rows to the sums of the thread's columns; the weight of row i is weights[i *
// step].
static __device__ __forceinline__ void add_weighted_rows(float (&sums)[kColumns],
                                                         const float *weights, int step,
                                                         const float *rows, int head_size)
{
    const int column = threadIdx.x % kTile;
#pragma unroll
    for (int n = 0; n < kColumns; n++)
        if (column + n * kTile < head_size)
            for (int i = 0; i < kTile; i++)
                sums[n] +=
                    weights[i * step] * rows[i * row_size(head_size) + column + n * kTile];
}

// Writes the thread's columns of its row, multiplied by `factor`.
static __device__ __forceinline__ void store_row(float *row, const float (&sums)[kColumns],
                                                 float factor, int head_size)
{
    const int column = threadIdx.x % kTile;
#pragma unroll
    for (int n = 0; n < kColumns; n++)
        if (column + n * kTile < head_size)
            row[column + n * kTile] = sums[n] * factor;
}

static __device__ __forceinline__ void set_zero(float (&sums)[kColumns])
{
#pragma unroll
    for (int n = 0; n < kColumns; n++)
        sums[n] = 0.0f;
}

// ---- Forward --------------------------------------------------------------------------------

// The maximum, or sum, over the 16 lanes that share a query.
static __device__ __forceinline__ float row_max(float x)
{
    for (int distance = kTile / 2; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, distance));
    return x;
}

static __device__ __forceinline__ float row_sum(float x)
{
    for (int distance = kTile / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(kWholeWarp, x, distance);
    return x;
}

static __device__ __forceinline__ void attend_in_float(const bd_attention_forward_args &a,
                                                       const attention_work &work,
                                                       float *shared, pairs &p)
{
    const int head_size = int(a.head_size), size = row_size(head_size);
    float *q = shared, *k = q + kTile * size, *v = k + kTile * size;
    const int row = threadIdx.x / kTile, column = threadIdx.x % kTile;
    const int first = work.tile * kTile;
    const int64_t token = work.first_token + first;
    const int64_t kv_head = work.head / (a.n_heads / a.n_kv_heads);
    load_rows(q, floats(a.q) + token * a.q_stride + work.head * head_size, a.q_stride,
              work.length - first, head_size);

    float sums[kColumns], top = -INFINITY, total = 0.0f;
    set_zero(sums);
    for (int key = oldest_key(work, first) / kTile * kTile; key <= first; key += kTile) {
        const int64_t at = (work.first_token + key) * a.kv_stride + kv_head * head_size;
        count_for_tests(PASS_FORWARD);
        __syncthreads();
        load_rows(k, floats(a.k) + at, a.kv_stride, work.length - key, head_size);
        load_rows(v, floats(a.v) + at, a.kv_stride, work.length - key, head_size);
        __syncthreads();
        const int distance = first + row - key - column;
        const bool sees = 0 <= distance && distance < work.window;
        const float score =
            sees ? a.scale * dot(q + row * size, k + column * size, head_size) : -INFINITY;
        // A query whose window begins after the tile has seen nothing yet: its top is
        // -infinity, from which no score can be subtracted.
        const float new_top = row_max(fmaxf(top, score));
        const float base = new_top == -INFINITY ? 0.0f : new_top, shrink = expf(top - base);
        p[row][column] = expf(score - base);
        total = total * shrink + row_sum(p[row][column]);
        top = new_top;
        for (int n = 0; n < kColumns; n++)
            sums[n] *= shrink;
        __syncthreads();
        add_weighted_rows(sums, p[row], 1, v, head_size);
    }
    if (first + row >= work.length)
        return;
    const int64_t at = (token + row) * a.n_heads + work.head;
    store_row(floats(a.out) + at * head_size, sums, 1.0f / total, head_size);
    if (column == 0)
        a.lse[at] = top + logf(total);
}

static __global__ void __launch_bounds__(kThreads)
    float_forward_kernel(bd_attention_forward_args a, attention_plan plan)
{
    DYN_SHARED(float, shared);
    SHARED_ARRAY(pairs, p, 1);
    SHARED_ARRAY(attention_work, work, 1);
    while (take_work(work, plan, a.boundaries, a.window, unsigned(a.n_heads)))
        attend_in_float(a, *work, shared, p[0]);
}

// ---- Backward -------------------------------------------------------------------------------

// deltas[token][head] = out · d_out, each by one warp.
static __global__ void __launch_bounds__(kThreads)
    deltas_kernel(bd_attention_backward_args a, int64_t n, float *deltas)
{
    const int lane = threadIdx.x % kWarpSize;
    const int64_t i = int64_t(blockIdx.x) * (kThreads / kWarpSize) + threadIdx.x / kWarpSize;
    if (i >= n)
        return;
    float sum = 0.0f;
    for (int64_t c = lane; c < a.head_size; c += kWarpSize)
        sum += floats(a.out)[i * a.head_size + c] * floats(a.d_out)[i * a.head_size + c];
    sum = warp_sum(sum);
    if (lane == 0)
        deltas[i] = sum;
}

// The shared memory of a block: two tiles of queries, two of keys, and the results of their
// pairs.
struct float_tiles {
    float *q, *d_out, *k, *v;
    pairs *p;    // probabilities
    pairs *d_s;  // gradients of the scores
};

static __device__ __forceinline__ float_tiles tiles_in(float *shared, pairs *two,
                                                       int64_t head_size)
{
    const int tile = kTile * row_size(head_size);
    return {shared, shared + tile, shared + 2 * tile, shared + 3 * tile, two, two + 1};
}

static __device__ __forceinline__ void load_queries(const float_tiles &t,
                                                    const bd_attention_backward_args &a,
                                                    const attention_work &work, int tile,
                                                    int64_t head)
{
    const int first = tile * kTile, n = work.length - first, head_size = int(a.head_size);
    const int64_t token = work.first_token + first;
    load_rows(t.q, floats(a.q) + token * a.q_stride + head * head_size, a.q_stride, n,
              head_size);
    load_rows(t.d_out, floats(a.d_out) + (token * a.n_heads + head) * head_size,
              a.n_heads * head_size, n, head_size);
}

static __device__ __forceinline__ void load_keys(const float_tiles &t,
                                                 const bd_attention_backward_args &a,
                                                 const attention_work &work, int tile,
                                                 int64_t kv_head)
{
    const int first = tile * kTile, n = work.length - first, head_size = int(a.head_size);
    const int64_t at = (work.first_token + first) * a.kv_stride + kv_head * head_size;
    load_rows(t.k, floats(a.k) + at, a.kv_stride, n, head_size);
    load_rows(t.v, floats(a.v) + at, a.kv_stride, n, head_size);
}

// Computes the thread's pair of the two tiles that are in shared memory.
static __device__ __forceinline__ void
compute_pair(const float_tiles &t, const bd_attention_backward_args &a, const float *deltas,
             const attention_work &work, int query_tile, int key_tile, int64_t head)
{
    const int row = threadIdx.x / kTile, column = threadIdx.x % kTile;
    const int query = query_tile * kTile + row, key = key_tile * kTile + column;
    const int head_size = int(a.head_size), size = row_size(head_size);
    float p = 0.0f, d_s = 0.0f;
    if (key <= query && query < work.length && query - key < work.window) {
        const int64_t at = (work.first_token + query) * a.n_heads + head;
        const float score = a.scale * dot(t.q + row * size, t.k + column * size, head_size);
        const float d_p = dot(t.d_out + row * size, t.v + column * size, head_size);
        p = expf(score - a.lse[at]);
        d_s = a.scale * p * (d_p - deltas[at]);
    }
    (*t.p)[row][column] = p;
    (*t.d_s)[row][column] = d_s;
}

// The gradients of the query heads that share the key head are added in the order of the heads.
static __device__ __forceinline__ void key_gradient(const bd_attention_backward_args &a,
                                                    const attention_work &work,
                                                    const float *deltas, const float_tiles &t)
{
    const int row = threadIdx.x / kTile, head_size = int(a.head_size);
    const int last_key = min((work.tile + 1) * kTile, work.length) - 1;
    const int last = newest_query(work, last_key) / kTile;
    const int64_t group = a.n_heads / a.n_kv_heads;
    float d_k[kColumns], d_v[kColumns];
    set_zero(d_k);
    set_zero(d_v);
    load_keys(t, a, work, work.tile, work.head);
    for (int64_t head = work.head * group; head < (work.head + 1) * group; head++)
        for (int tile = work.tile; tile <= last; tile++) {
            count_for_tests(PASS_KEY_GRADIENT);
            __syncthreads();
            load_queries(t, a, work, tile, head);
            __syncthreads();
            compute_pair(t, a, deltas, work, tile, work.tile, head);
            __syncthreads();
            add_weighted_rows(d_v, &(*t.p)[0][row], kTile + 1, t.d_out, head_size);
            add_weighted_rows(d_k, &(*t.d_s)[0][row], kTile + 1, t.q, head_size);
        }
    const int key = work.tile * kTile + row;
    if (key >= work.length)
        return;
    const int64_t at = (work.first_token + key) * a.kv_stride + work.head * head_size;
    store_row(floats(a.d_k) + at, d_k, 1.0f, head_size);
    store_row(floats(a.d_v) + at, d_v, 1.0f, head_size);
}

static __device__ __forceinline__ void query_gradient(const bd_attention_backward_args &a,
                                                      const attention_work &work,
                                                      const float *deltas, const float_tiles &t)
{
    const int row = threadIdx.x / kTile, head_size = int(a.head_size);
    float d_q[kColumns];
    set_zero(d_q);
    load_queries(t, a, work, work.tile, work.head);
    for (int tile = oldest_key(work, work.tile * kTile) / kTile; tile <= work.tile; tile++) {
        count_for_tests(PASS_QUERY_GRADIENT);
        __syncthreads();
        load_keys(t, a, work, tile, work.head / (a.n_heads / a.n_kv_heads));
        __syncthreads();
        compute_pair(t, a, deltas, work, work.tile, tile, work.head);
        __syncthreads();
        add_weighted_rows(d_q, (*t.d_s)[row], 1, t.k, head_size);
    }
    const int query = work.tile * kTile + row;
    if (query < work.length)
        store_row(floats(a.d_q) + (work.first_token + query) * a.q_stride +
                      work.head * head_size,
                  d_q, 1.0f, head_size);
}

static __global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(bd_attention_backward_args a, const float *deltas, attention_plan plan)
{
    DYN_SHARED(float, shared);
    SHARED_ARRAY(pairs, two, 2);
    SHARED_ARRAY(attention_work, work, 1);
    while (take_work(work, plan, a.boundaries, a.window, unsigned(a.n_kv_heads)))
        key_gradient(a, *work, deltas, tiles_in(shared, two, a.head_size));
}

static __global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(bd_attention_backward_args a, const float *deltas,
                          attention_plan plan)
{
    DYN_SHARED(float, shared);
    SHARED_ARRAY(pairs, two, 2);
    SHARED_ARRAY(attention_work, work, 1);
    while (take_work(work, plan, a.boundaries, a.window, unsigned(a.n_heads)))
        query_gradient(a, *work, deltas, tiles_in(shared, two, a.head_size));
}

// ---- The operations -------------------------------------------------------------------------

static bd_status check_float(const attention_shape &shape, size_t scratch_bytes,
                             const bd_cuda_queue *queue, bd_error *err)
{
    if (shape.head_size <= 0 || shape.head_size > kMaxHeadSize)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "attention has head sizes up to %d, not %lld",
                       kMaxHeadSize, (long long)shape.head_size);
    return attention_check(shape, scratch_bytes, queue, err);
}

extern "C" size_t bd_cuda_attention_float_forward_scratch(const bd_attention_forward_args *args)
{
    return attention_plan_bytes(attention_shape(*args));
}

extern "C" bd_status bd_cuda_attention_float_forward(const bd_attention_forward_args *args,
                                                     bd_cuda_queue *queue, bd_error *err)
{
    const attention_shape shape(*args);
    BD_TRY(check_float(shape, bd_cuda_attention_float_forward_scratch(args), queue, err));
    if (shape.n_tokens() == 0)
        return BD_OK;
    const int64_t width = args->n_heads * args->head_size;
    const padded_tensor outputs[3] = {
        {args->out, width, width}, {args->lse, args->n_heads, args->n_heads}, {}};
    BD_TRY(attention_clear_padding(shape, outputs, queue, err));
    const attention_plan plan = attention_plan_at(queue->scratch);
    BD_TRY(attention_make_plan(plan, shape, kTile, QUERY_TILES, queue, err));
    LAUNCH(float_forward_kernel, dim3(attention_blocks(shape, kTile, args->n_heads)),
           dim3(kThreads), tile_bytes(args->head_size, 3), queue->stream, *args, plan);
    return bd_cuda_check_launch("attention forward in float", err);
}

extern "C" size_t
bd_cuda_attention_float_backward_scratch(const bd_attention_backward_args *args)
{
    const attention_shape shape(*args);
    return 2 * attention_plan_bytes(shape) +
           size_t(shape.n_tokens()) * size_t(shape.n_heads) * sizeof(float);
}

extern "C" bd_status bd_cuda_attention_float_backward(const bd_attention_backward_args *args,
                                                      bd_cuda_queue *queue, bd_error *err)
{
    const attention_shape shape(*args);
    BD_TRY(check_float(shape, bd_cuda_attention_float_backward_scratch(args), queue, err));
    if (shape.n_tokens() == 0)
        return BD_OK;
    const int64_t kv_width = args->n_kv_heads * args->head_size;
    const padded_tensor gradients[3] = {
        {args->d_q, args->q_stride, args->n_heads * args->head_size},
        {args->d_k, args->kv_stride, kv_width},
        {args->d_v, args->kv_stride, kv_width}};
    BD_TRY(attention_clear_padding(shape, gradients, queue, err));

    // The scratch holds the plans of the two kernels, then the deltas.
    char *scratch = static_cast<char *>(queue->scratch);
    const attention_plan keys = attention_plan_at(scratch);
    const attention_plan queries = attention_plan_at(scratch + attention_plan_bytes(shape));
    float *deltas = reinterpret_cast<float *>(scratch + 2 * attention_plan_bytes(shape));
    BD_TRY(attention_make_plan(keys, shape, kTile, KEY_TILES, queue, err));
    BD_TRY(attention_make_plan(queries, shape, kTile, QUERY_TILES, queue, err));

    const int64_t n = shape.n_tokens() * args->n_heads;
    const int64_t delta_blocks = (n - 1) / (kThreads / kWarpSize) + 1;
    LAUNCH(deltas_kernel, dim3(unsigned(delta_blocks)), dim3(kThreads), 0, queue->stream, *args,
           n, deltas);
    BD_TRY(bd_cuda_check_launch("attention backward in float, deltas", err));
    LAUNCH(key_gradient_kernel, dim3(attention_blocks(shape, kTile, args->n_kv_heads)),
           dim3(kThreads), tile_bytes(args->head_size, 4), queue->stream, *args, deltas, keys);
    BD_TRY(bd_cuda_check_launch("attention backward in float, keys", err));
    LAUNCH(query_gradient_kernel, dim3(attention_blocks(shape, kTile, args->n_heads)),
           dim3(kThreads), tile_bytes(args->head_size, 4), queue->stream, *args, deltas,
           queries);
    return bd_cuda_check_launch("attention backward in float, queries", err);
}
