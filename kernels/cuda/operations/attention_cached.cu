// The cache has, of keys and of values, [slot][head][token][width]. One kernel adds the new
// tokens. In the next one each block has a query (a token and a head) and a chunk of its keys: it
// computes the largest score (top), the sum of exp(score - top), and the sum of exp(score - top) *
// v. A third kernel joins the chunks of each query in order.
//
// Chunks are counted from the start of the document, so that the order of a query's sums depends
// only on its position.
#include "kernels/attention_cached.h"

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

static constexpr int kKeysPerChunk = 256, kMaxHeadSize = BD_MOST_HEAD_SIZE;
static_assert(kKeysPerChunk == kThreadsPerBlock, "each thread has one key of a chunk");

struct cached_arguments : bd_attention_cached_args {
    int64_t width;     // bd_cache_width()
    int64_t n_chunks;  // of the longest document
    float *partials;   // [query][chunk][2 + head_size]: top, sum, sum of values
};

// ---- Documents ------------------------------------------------------------------------------

// A new token: its slot and its position in the document.
struct cached_token {
    int64_t slot, position;
};

static __device__ __forceinline__ cached_token find_token(const cached_arguments &a,
                                                          int64_t token)
{
    const token_segment segment = segment_around(a.boundaries, token);
    return {a.slots[segment.number], position_of(segment, a.past)};
}

// Where a token of a slot begins in either cache.
static __device__ __forceinline__ int64_t cache_offset(const cached_arguments &a, int64_t slot,
                                                       int64_t kv_head, int64_t token)
{
    return ((slot * a.n_kv_heads + kv_head) * a.capacity + token) * a.width;
}

static __device__ __forceinline__ int64_t first_visible(const cached_arguments &a,
                                                        int64_t position)
{
    return a.window > 0 && position >= a.window ? position + 1 - a.window : 0;
}

// One warp for each new token and head of keys.
template <class T>
static __global__ void remember_kernel(cached_arguments a)
{
    const int64_t number = warp_of_grid(), token = number / a.n_kv_heads;
    const int64_t kv_head = number % a.n_kv_heads;
    if (token >= n_tokens_of(a.boundaries))
        return;
    const cached_token at = find_token(a, token);
    const int64_t from = token * a.kv_stride + kv_head * a.head_size;
    const int64_t to = cache_offset(a, at.slot, kv_head, at.position);
    for (int64_t c = lane_of_thread(); c < a.head_size; c += kWarpSize) {
        ((T *)a.keys)[to + c] = ((const T *)a.k)[from + c];
        ((T *)a.values)[to + c] = ((const T *)a.v)[from + c];
    }
}

// ---- One chunk ------------------------------------------------------------------------------

static __device__ __forceinline__ float *partial_at(const cached_arguments &a, int64_t query,
                                                    int64_t chunk)
{
    return a.partials + (query * a.n_chunks + chunk) * (2 + a.head_size);
}

// The largest of, then the sum over, all threads of the block. `staging` is shared memory
// [kWarpsPerBlock].
static __device__ __forceinline__ float block_max(float x, float *staging)
{
    x = warp_max(x);
    if (lane_of_thread() == 0)
        staging[int(threadIdx.x) / kWarpSize] = x;
    __syncthreads();
    x = staging[0];
    for (int w = 1; w < kWarpsPerBlock; w++)
        x = fmaxf(x, staging[w]);
    return x;
}

static __device__ __forceinline__ float block_sum(float x, float *staging)
{
    x = warp_sum(x);
    __syncthreads();  // nobody needs the maxima any more
    if (lane_of_thread() == 0)
        staging[int(threadIdx.x) / kWarpSize] = x;
    __syncthreads();
    x = staging[0];
    for (int w = 1; w < kWarpsPerBlock; w++)
        x += staging[w];
    return x;
}

// One key of the chunk after the other by each warp.
template <class T, int W>
static __device__ __forceinline__ void score_keys(const cached_arguments &a, const T *q,
                                                  const T *keys, int first, int last,
                                                  bool aligned, float *scores)
{
    const int warp = int(threadIdx.x) / kWarpSize;
    for (int j = first + warp; j < last; j += kWarpsPerBlock) {
        float sum = 0.0f;
        for (int64_t c = lane_of_thread() * W; c < a.head_size; c += kWarpSize * W) {
            const pack<W> x = load_pack<W>(q + c, aligned);
            const pack<W> k = load_pack<W>(keys + j * a.width + c, aligned);
#pragma unroll
            for (int i = 0; i < W; i++)
                sum += x.at[i] * k.at[i];
        }
        sum = warp_sum(sum);
        if (lane_of_thread() == 0)
            scores[j] = a.scale * sum;
    }
}

// The threads form groups of one thread for each channel. Group g sums over every n_groups-th key
// from the g-th visible one of the chunk on; then the first group adds the sums of all, in order.
// `sums` is shared memory [kThreadsPerBlock].
template <class T>
static __device__ __forceinline__ void
gather_values(const cached_arguments &a, const float *weights, const T *values, int first,
              int last, float *sums, float *out)
{
    const int head_size = int(a.head_size), thread = int(threadIdx.x);
    const int n_groups = kThreadsPerBlock / head_size;
    const int group = thread / head_size, channel = thread % head_size;
    float sum = 0.0f;
    if (group < n_groups)
        for (int j = first + group; j < last; j += n_groups)
            sum += weights[j] * load_value(values + j * a.width + channel);
    sums[thread] = sum;
    __syncthreads();
    if (thread >= head_size)
        return;
    for (int g = 1; g < n_groups; g++)
        sum += sums[g * head_size + thread];
    out[thread] = sum;
}

template <class T, int W>
static __global__ void __launch_bounds__(kThreadsPerBlock)
    cached_chunk_kernel(cached_arguments a, bool aligned)
{
    SHARED_ARRAY(float, scores, kKeysPerChunk);
    SHARED_ARRAY(float, sums, kThreadsPerBlock);
    SHARED_ARRAY(float, staging, kWarpsPerBlock);
    const int64_t query = int64_t(blockIdx.x) / a.n_chunks,
                  chunk = int64_t(blockIdx.x) % a.n_chunks;
    const int64_t token = query / a.n_heads, head = query % a.n_heads;
    const int64_t kv_head = head / (a.n_heads / a.n_kv_heads), key = chunk * kKeysPerChunk;
    const cached_token at = find_token(a, token);
    const int64_t visible = first_visible(a, at.position);
    if (at.position < key || visible >= key + kKeysPerChunk)
        return;
    const int first = visible > key ? int(visible - key) : 0;
    const int last =
        at.position + 1 < key + kKeysPerChunk ? int(at.position + 1 - key) : kKeysPerChunk;
    const int64_t offset = cache_offset(a, at.slot, kv_head, key);
    score_keys<T, W>(a, (const T *)a.q + token * a.q_stride + head * a.head_size,
                     (const T *)a.keys + offset, first, last, aligned, scores);
    __syncthreads();
    const int thread = int(threadIdx.x);
    const bool sees = first <= thread && thread < last;
    const float score = sees ? scores[thread] : -INFINITY;
    const float top = block_max(score, staging);
    const float weight = sees ? expf(score - top) : 0.0f;
    const float sum = block_sum(weight, staging);
    scores[thread] = weight;
    __syncthreads();
    float *partial = partial_at(a, query, chunk);
    gather_values<T>(a, scores, (const T *)a.values + offset, first, last, sums, partial + 2);
    if (thread == 0) {
        partial[0] = top;
        partial[1] = sum;
    }
}

// ---- Joining the chunks ---------------------------------------------------------------------

// One warp for each query.
template <class T>
static __global__ void join_chunks_kernel(cached_arguments a)
{
    const int64_t query = warp_of_grid();
    if (query >= n_tokens_of(a.boundaries) * a.n_heads)
        return;
    const int64_t position = find_token(a, query / a.n_heads).position;
    const int64_t first = first_visible(a, position) / kKeysPerChunk;
    const int64_t last = position / kKeysPerChunk;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t chunk = first; chunk <= last; chunk++)
        top = fmaxf(top, *partial_at(a, query, chunk));
    for (int64_t chunk = first; chunk <= last; chunk++) {
        const float *partial = partial_at(a, query, chunk);
        sum += expf(partial[0] - top) * partial[1];
    }
    for (int64_t c = lane_of_thread(); c < a.head_size; c += kWarpSize) {
        float value = 0.0f;
        for (int64_t chunk = first; chunk <= last; chunk++) {
            const float *partial = partial_at(a, query, chunk);
            value += expf(partial[0] - top) * partial[2 + c];
        }
        store_value((T *)a.out + query * a.head_size + c, value / sum);
    }
}

// ---- The operation --------------------------------------------------------------------------

static int64_t count_chunks(const bd_attention_cached_args *args)
{
    return (args->longest + kKeysPerChunk - 1) / kKeysPerChunk;
}

static int64_t count_queries(const bd_attention_cached_args *args)
{
    return args->boundaries.seq_len * args->n_heads;
}

extern "C" BD_CUDA_SCRATCH(attention_cached)
{
    return size_t(count_queries(args) * count_chunks(args) * (2 + args->head_size)) *
           sizeof(float);
}

extern "C" BD_CUDA_OPERATION(attention_cached)
{
    if (args->head_size > kMaxHeadSize)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "attention has head sizes up to %d, not %lld",
                       kMaxHeadSize, (long long)args->head_size);
    const cached_arguments a = {*args, bd_cache_width(args->head_size), count_chunks(args),
                                (float *)queue->scratch};
    const int64_t n_queries = count_queries(args);
    return for_rows_of(args->type, args->head_size, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const bool aligned =
            all_aligned({args->q, args->keys}) && all_multiples({args->q_stride}, packs.width);
        LAUNCH(remember_kernel<T>,
               blocks_for(args->boundaries.seq_len * args->n_kv_heads, kWarpsPerBlock),
               kThreadsPerBlock, 0, queue->stream, a);
        BD_TRY(bd_cuda_check_launch("remember", err));
        LAUNCH((cached_chunk_kernel<T, packs.width>), blocks_for(n_queries * a.n_chunks, 1),
               kThreadsPerBlock, 0, queue->stream, a, aligned);
        BD_TRY(bd_cuda_check_launch("cached_chunk", err));
        LAUNCH(join_chunks_kernel<T>, blocks_for(n_queries, kWarpsPerBlock), kThreadsPerBlock,
               0, queue->stream, a);
        return bd_cuda_check_launch("join_chunks", err);
    });
}
