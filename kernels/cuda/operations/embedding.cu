// The gradient of a row of a table is the sum over the tokens that use the row. One warp
// computes each sum, in the order of the tokens, and adds it to the table. So there are no
// atomics on floats, and the result has the same bits as that of the CPU backend.
//
// For the token table the tokens are first sorted by id into buckets. Integer atomics decide
// the places of the buckets, and at first the order of the tokens in a bucket; both differ from
// run to run. Then every token counts the smaller ones of its bucket, which gives its place in
// the final order. The place of a bucket does not change any sum.
//
//   ids        5 3 5 9 5              count[5] = 3, start[5] = 1 (for example)
//   unordered  3 | 4 0 2 | 1          tokens by bucket, in the order of the atomics
//   ordered    3 | 0 2 4 | 1          tokens by bucket, in the order of the sum
#include "kernels/embedding.h"

#include "kernels/cuda/operations/boundaries.cuh"
#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

// ---- Forward --------------------------------------------------------------------------------

// One warp per token.
template <class T, int W>
static __global__ void embedding_forward_kernel(bd_embedding_forward_args a, bool aligned)
{
    const int64_t token = warp_of_grid();
    if (token >= n_tokens_of(a.boundaries))
        return;
    const int64_t n = a.n_channels, first = lane_of_thread() * W;
    const token_segment segment = segment_around(a.boundaries, token);
    T *out = (T *)a.out + token * n;
    if (segment.end == 0) {
        for (int64_t c = first; c < n; c += kWarpSize * W)
            store_pack<W>(out + c, zero_pack<W>(), aligned);
        return;
    }
    const T *word = (const T *)a.token_table + token_id(a.ids, a.id_bytes, token) * n;
    const int64_t position = a.first_position + position_of(segment, a.past);
    const T *place = a.position_table ? (const T *)a.position_table + position * n : nullptr;
    for (int64_t c = first; c < n; c += kWarpSize * W) {
        pack<W> sum = load_pack<W>(word + c, aligned);
        const pack<W> other = place ? load_pack<W>(place + c, aligned) : zero_pack<W>();
#pragma unroll
        for (int k = 0; k < W; k++)
            sum.at[k] = a.token_scale * sum.at[k] + other.at[k];
        store_pack<W>(out + c, sum, aligned);
    }
}

BD_CUDA_NO_SCRATCH(embedding_forward)
extern "C" BD_CUDA_OPERATION(embedding_forward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const bool aligned = all_aligned({args->token_table, args->position_table, args->out});
    return for_rows_of(args->type, args->n_channels, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        LAUNCH((embedding_forward_kernel<T, packs.width>), blocks_for(n_tokens, kWarpsPerBlock),
               kThreadsPerBlock, 0, queue->stream, *args, aligned);
        return bd_cuda_check_launch("embedding_forward", err);
    });
}

// ---- Backward: sums of rows -----------------------------------------------------------------

// The sum of rows by one warp, for a strip of channels; each lane has a pack of them. Blocks of
// rows are summed in float, and their sums in double (kernels/summation.h), as on the CPU.
template <class T, int W>
struct strip_sum {
    static constexpr int kRowsPerBlock = 64;

    pack<W> block = {};
    int n_in_block = 0;
    double sum[W] = {};
    int64_t channel;  // this lane's first
    bool exists;
    bool aligned;

    __device__ strip_sum(int64_t n_channels, bool aligned)
        : channel((int64_t(blockIdx.y) * kWarpSize + lane_of_thread()) * W),
          exists(channel < n_channels), aligned(aligned)
    {
    }
    __device__ void end_block()
    {
#pragma unroll
        for (int k = 0; k < W; k++)
            sum[k] += double(block.at[k]);
        block = {};
        n_in_block = 0;
    }
    __device__ void add(const T *row)
    {
        if (!exists)
            return;
        const pack<W> more = load_pack<W>(row + channel, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            block.at[k] += more.at[k];
        if (++n_in_block == kRowsPerBlock)
            end_block();
    }
    // Adds `scale` times the sum to a row of the table.
    __device__ void add_to(float *row, float scale)
    {
        if (!exists)
            return;
        end_block();
        pack<W> result = load_pack<W>(row + channel, aligned);
#pragma unroll
        for (int k = 0; k < W; k++)
            result.at[k] += float(double(scale) * sum[k]);
        store_pack<W>(row + channel, result, aligned);
    }
};

// ---- Backward: the token table --------------------------------------------------------------

struct id_buckets {
    int32_t *n_used;     // [1] tokens in all buckets
    int32_t *count;      // [n_vocabulary] tokens in each bucket
    int32_t *filled;     // [n_vocabulary]
    int32_t *start;      // [n_vocabulary] where each bucket begins, if it is not empty
    int32_t *unordered;  // [n_tokens]
    int32_t *ordered;    // [n_tokens]
};

// The size of the first three arrays of id_buckets, which begin as zeros and lie side by side.
static size_t zeroed_bytes(const bd_embedding_backward_args *args)
{
    return (1 + 2 * size_t(args->n_vocabulary)) * sizeof(int32_t);
}

static id_buckets buckets_in(void *scratch, const bd_embedding_backward_args &a)
{
    id_buckets b;
    b.n_used = (int32_t *)scratch;
    b.count = b.n_used + 1;
    b.filled = b.count + a.n_vocabulary;
    b.start = b.filled + a.n_vocabulary;
    b.unordered = b.start + a.n_vocabulary;
    b.ordered = b.unordered + a.boundaries.n_rows * a.boundaries.seq_len;
    return b;
}

extern "C" BD_CUDA_SCRATCH(embedding_backward)
{
    const size_t n_tokens = size_t(args->boundaries.n_rows) * size_t(args->boundaries.seq_len);
    return zeroed_bytes(args) + (size_t(args->n_vocabulary) + 2 * n_tokens) * sizeof(int32_t);
}

// One thread per token.
static __global__ void count_ids_kernel(bd_embedding_backward_args a, id_buckets b)
{
    const int64_t token = thread_of_grid();
    if (token < n_tokens_of(a.boundaries) && token_is_used(a.boundaries, token))
        atomicAdd(&b.count[token_id(a.ids, a.id_bytes, token)], 1);
}

// One thread per id.
static __global__ void place_buckets_kernel(int64_t n_vocabulary, id_buckets b)
{
    const int64_t id = thread_of_grid();
    if (id < n_vocabulary && b.count[id] > 0)
        b.start[id] = atomicAdd(b.n_used, b.count[id]);
}

// One thread per token.
static __global__ void fill_buckets_kernel(bd_embedding_backward_args a, id_buckets b)
{
    const int64_t token = thread_of_grid();
    if (token >= n_tokens_of(a.boundaries) || !token_is_used(a.boundaries, token))
        return;
    const uint32_t id = token_id(a.ids, a.id_bytes, token);
    b.unordered[b.start[id] + atomicAdd(&b.filled[id], 1)] = int32_t(token);
}

// One warp for each place in `unordered`. The work grows with the square of a bucket's size,
// but in natural language the squares of all buckets add up to little.
static __global__ void order_buckets_kernel(bd_embedding_backward_args a, id_buckets b)
{
    const int64_t place = warp_of_grid();
    if (place >= *b.n_used)
        return;
    const int32_t token = b.unordered[place];
    const uint32_t id = token_id(a.ids, a.id_bytes, token);
    const int32_t *bucket = b.unordered + b.start[id];
    int32_t rank = 0;
    for (int32_t base = 0; base < b.count[id]; base += kWarpSize) {
        const int32_t i = base + lane_of_thread();
        const bool earlier = i < b.count[id] && bucket[i] < token;
        rank += __popc(__ballot_sync(kWholeWarp, earlier));
    }
    if (lane_of_thread() == 0)
        b.ordered[b.start[id] + rank] = token;
}

// One warp for each place in `ordered` and each strip; those at the start of a bucket sum the
// bucket.
template <class T, int W>
static __global__ void add_token_rows_kernel(bd_embedding_backward_args a, id_buckets b,
                                             bool aligned)
{
    const int64_t place = warp_of_grid();
    if (place >= *b.n_used)
        return;
    const uint32_t id = token_id(a.ids, a.id_bytes, b.ordered[place]);
    if (b.start[id] != place)
        return;
    strip_sum<T, W> strip(a.n_channels, aligned);
    float *word = a.d_token_table + int64_t(id) * a.n_channels;
    for (int32_t i = 0; i < b.count[id]; i++)
        strip.add((const T *)a.d_out + b.ordered[place + i] * a.n_channels);
    strip.add_to(word, a.token_scale);
}

static bd_status add_token_table(const bd_embedding_backward_args *args, bd_cuda_queue *queue,
                                 bd_error *err)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const id_buckets buckets = buckets_in(queue->scratch, *args);
    const unsigned token_blocks = blocks_for(n_tokens, kThreadsPerBlock);
    const unsigned place_blocks = blocks_for(n_tokens, kWarpsPerBlock);

    BD_TRY(bd_cuda_check(
        cudaMemsetAsync(queue->scratch, 0, zeroed_bytes(args), cudaStream_t(queue->stream)),
        "clear the counts of ids", err));
    LAUNCH(count_ids_kernel, token_blocks, kThreadsPerBlock, 0, queue->stream, *args, buckets);
    BD_TRY(bd_cuda_check_launch("count_ids", err));
    LAUNCH(place_buckets_kernel, blocks_for(args->n_vocabulary, kThreadsPerBlock),
           kThreadsPerBlock, 0, queue->stream, args->n_vocabulary, buckets);
    BD_TRY(bd_cuda_check_launch("place_buckets", err));
    LAUNCH(fill_buckets_kernel, token_blocks, kThreadsPerBlock, 0, queue->stream, *args,
           buckets);
    BD_TRY(bd_cuda_check_launch("fill_buckets", err));
    LAUNCH(order_buckets_kernel, place_blocks, kThreadsPerBlock, 0, queue->stream, *args,
           buckets);
    BD_TRY(bd_cuda_check_launch("order_buckets", err));
    const bool aligned = all_aligned({args->d_out, args->d_token_table});
    return for_rows_of(args->type, args->n_channels, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const dim3 grid(place_blocks, blocks_for(args->n_channels, kWarpSize * packs.width));
        LAUNCH((add_token_rows_kernel<T, packs.width>), grid, kThreadsPerBlock, 0,
               queue->stream, *args, buckets, aligned);
        return bd_cuda_check_launch("add_token_rows", err);
    });
}

// ---- Backward: the position table -----------------------------------------------------------

// One warp for each position and strip: sums that position of all segments that are long
// enough.
template <class T, int W>
static __global__ void add_position_rows_kernel(bd_embedding_backward_args a,
                                                int64_t n_positions, bool aligned)
{
    const int64_t position = warp_of_grid();
    if (position >= n_positions)
        return;
    strip_sum<T, W> strip(a.n_channels, aligned);
    float *place = a.d_position_table + (a.first_position + position) * a.n_channels;
    for (int64_t row = 0; row < a.boundaries.n_rows; row++) {
        const int32_t *bounds = a.boundaries.values + a.boundaries.offsets[row];
        const int32_t n_segments =
            a.boundaries.offsets[row + 1] - a.boundaries.offsets[row] - 1;
        const T *d_out = (const T *)a.d_out + row * a.boundaries.seq_len * a.n_channels;
        for (int32_t base = 0; base < n_segments; base += kWarpSize) {
            const int32_t s = base + lane_of_thread();
            const bool has = s < n_segments && position < bounds[s + 1] - bounds[s];
            const unsigned having = __ballot_sync(kWholeWarp, has);
            for (int i = 0; i < kWarpSize; i++)
                if (having >> i & 1)
                    strip.add(d_out + (bounds[base + i] + position) * a.n_channels);
        }
    }
    strip.add_to(place, 1.0f);
}

static bd_status add_position_table(const bd_embedding_backward_args *args,
                                    bd_cuda_queue *queue, bd_error *err)
{
    const int64_t in_table = args->n_positions - args->first_position;
    const int64_t seq_len = args->boundaries.seq_len;
    const int64_t n_positions = in_table < seq_len ? in_table : seq_len;
    const bool aligned = all_aligned({args->d_out, args->d_position_table});
    return for_rows_of(args->type, args->n_channels, [&](auto packs) {
        typedef typename decltype(packs)::value T;
        const dim3 grid(blocks_for(n_positions, kWarpsPerBlock),
                        blocks_for(args->n_channels, kWarpSize * packs.width));
        LAUNCH((add_position_rows_kernel<T, packs.width>), grid, kThreadsPerBlock, 0,
               queue->stream, *args, n_positions, aligned);
        return bd_cuda_check_launch("add_position_rows", err);
    });
}

extern "C" BD_CUDA_OPERATION(embedding_backward)
{
    if (args->boundaries.n_rows > INT32_MAX / args->boundaries.seq_len)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "a batch of more than 2^31 - 1 tokens at once");
    BD_TRY(add_token_table(args, queue, err));
    return args->d_position_table ? add_position_table(args, queue, err) : BD_OK;
}
