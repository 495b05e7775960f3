#include "kernels/cuda/attention/attention_plan.cuh"

#include <climits>

#include "kernels/cuda/operations/warp.cuh"
#include "kernels/cuda/runtime/check.cuh"

static constexpr int kPlanThreads = 256;
static constexpr int kPaddingThreads = 128;
static constexpr unsigned kPaddingBlocks = 16;  // for each row

// More than any device holds at once.
static constexpr int64_t kMaxBlocks = 2048;

// ---- The list of tiles ----------------------------------------------------------------------

// The number of tiles of the document that begins at values[i]. The last boundary of a row
// begins no document: the next value is the 0 of the next row, so that `length` is not
// positive.
static __device__ __forceinline__ int document_tiles(const int32_t *values, int64_t i,
                                                     int tile_size)
{
    const int length = values[i + 1] - values[i];
    return length > 0 ? (length - 1) / tile_size + 1 : 0;
}

static __device__ __forceinline__ int row_of(const bd_boundaries &b, int64_t i)
{
    int64_t low = 0, high = b.n_rows;  // offsets[low] <= i < offsets[high]
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (b.offsets[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return int(low);
}

// The sum of `value` over the threads before this one; *total is the sum over all threads.
// warp_totals is shared memory, one int for each warp; it may be reused on return.
static __device__ __forceinline__ int sum_before(int value, int *total, int *warp_totals)
{
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
    int sum = value;
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
        const int below = __shfl_up_sync(kWholeWarp, sum, distance);
        sum += lane >= distance ? below : 0;
    }
    if (lane == kWarpSize - 1)
        warp_totals[warp] = sum;
    __syncthreads();
    int before = sum - value;
    *total = 0;
    for (int w = 0; w < kPlanThreads / kWarpSize; w++) {
        before += w < warp ? warp_totals[w] : 0;
        *total += warp_totals[w];
    }
    __syncthreads();
    return before;
}

// Block c lists the tiles that visit c tiles besides themselves: each document with more than c
// tiles has one of them. They are listed in the order of the batch, behind the tiles that visit
// more; so block c first counts those.
static __global__ void plan_kernel(bd_boundaries b, int tile_size, int side,
                                   attention_plan plan)
{
    SHARED_ARRAY(int, warp_totals, kPlanThreads / kWarpSize);
    const int others = int(blockIdx.x);
    const int64_t first = b.offsets[0], last = int64_t(b.offsets[b.n_rows]) - 1;

    int n_before = 0, n_all = 0, place, total;
    for (int64_t i = first + threadIdx.x; i < last; i += kPlanThreads) {
        const int n = document_tiles(b.values, i, tile_size);
        n_before += n > others ? n - others - 1 : 0;
        n_all += n;
    }
    sum_before(n_before, &place, warp_totals);
    sum_before(n_all, &total, warp_totals);
    if (others == 0 && threadIdx.x == 0) {
        *plan.taken = 0;
        *plan.n_tiles = unsigned(total);
    }

    for (int64_t start = first; start < last; start += kPlanThreads) {
        const int64_t i = start + threadIdx.x;
        const int n = i < last ? document_tiles(b.values, i, tile_size) : 0;
        int n_listed;
        const int at = place + sum_before(n > others, &n_listed, warp_totals);
        if (n > others)
            plan.tiles[at] = {row_of(b, i), b.values[i], b.values[i + 1],
                              side == QUERY_TILES ? others : n - 1 - others};
        place += n_listed;
    }
}

static int64_t tiles_in_row(const attention_shape &shape, int tile_size)
{
    return (shape.boundaries.seq_len - 1) / tile_size + 1;
}

static constexpr size_t kPlanHead = 16;  // the two counters

size_t attention_plan_bytes(const attention_shape &shape)
{
    return kPlanHead + size_t(shape.n_tokens()) * sizeof(attention_tile);
}

attention_plan attention_plan_at(void *memory)
{
    unsigned *counters = static_cast<unsigned *>(memory);
    void *tiles = static_cast<char *>(memory) + kPlanHead;
    return {counters, counters + 1, static_cast<attention_tile *>(tiles)};
}

bd_status attention_make_plan(const attention_plan &plan, const attention_shape &shape,
                              int tile_size, attention_side side, bd_cuda_queue *queue,
                              bd_error *err)
{
    const unsigned blocks = unsigned(tiles_in_row(shape, tile_size));
    LAUNCH(plan_kernel, dim3(blocks), dim3(kPlanThreads), 0, queue->stream, shape.boundaries,
           tile_size, int(side), plan);
    return bd_cuda_check_launch("attention plan", err);
}

unsigned attention_blocks(const attention_shape &shape, int tile_size, int64_t n_heads)
{
    const int64_t n = shape.boundaries.n_rows * tiles_in_row(shape, tile_size) * n_heads;
    return unsigned(n < kMaxBlocks ? n : kMaxBlocks);
}

// ---- Padding --------------------------------------------------------------------------------

struct padded_tensors {
    padded_tensor of[3];
};

static __global__ void attention_clear_padding_kernel(bd_boundaries b, padded_tensors tensors)
{
    const int64_t row = blockIdx.x;
    const int64_t used = b.values[b.offsets[row + 1] - 1];
    for (int64_t t = used + blockIdx.y; t < b.seq_len; t += kPaddingBlocks)
        for (int k = 0; k < 3; k++) {
            const padded_tensor &x = tensors.of[k];
            uint32_t *words = static_cast<uint32_t *>(x.data);
            for (int64_t c = threadIdx.x; words && c < x.width; c += kPaddingThreads)
                words[(row * b.seq_len + t) * x.stride + c] = 0;
        }
}

bd_status attention_clear_padding(const attention_shape &shape, const padded_tensor tensors[3],
                                  bd_cuda_queue *queue, bd_error *err)
{
    const padded_tensors all = {{tensors[0], tensors[1], tensors[2]}};
    LAUNCH(attention_clear_padding_kernel,
           dim3(unsigned(shape.boundaries.n_rows), kPaddingBlocks), dim3(kPaddingThreads), 0,
           queue->stream, shape.boundaries, all);
    return bd_cuda_check_launch("attention padding", err);
}

// ---- Checks ---------------------------------------------------------------------------------

bd_status attention_check(const attention_shape &shape, size_t scratch_bytes,
                          const bd_cuda_queue *queue, bd_error *err)
{
    if (shape.n_kv_heads <= 0 || shape.n_heads <= 0 || shape.n_heads % shape.n_kv_heads != 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "%lld heads cannot share %lld key heads",
                       (long long)shape.n_heads, (long long)shape.n_kv_heads);
    // Works are counted in 32 bits. There is at most one for each token and head, and each
    // block asks once more than it gets.
    const bd_boundaries &b = shape.boundaries;
    if (b.n_rows > INT_MAX || b.seq_len > INT_MAX ||
        (b.n_rows > 0 && b.seq_len > INT_MAX / shape.n_heads / b.n_rows))
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "attention over %lld rows of %lld tokens is more than a launch counts",
                       (long long)b.n_rows, (long long)b.seq_len);
    if (scratch_bytes > queue->scratch_bytes)
        return bd_fail(err, BD_ERR_ARGUMENT, "attention needs %zu bytes of scratch, not %zu",
                       scratch_bytes, queue->scratch_bytes);
    return BD_OK;
}

bd_status attention_check_bf16(const attention_shape &shape,
                               std::initializer_list<const void *> pointers, bd_error *err)
{
    if (shape.head_size != 64 && shape.head_size != 128)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "attention in bf16 has head sizes 64 and 128, not %lld",
                       (long long)shape.head_size);
    bool aligned = shape.q_stride % 8 == 0 && shape.kv_stride % 8 == 0;
    for (const void *p : pointers)
        aligned = aligned && reinterpret_cast<uintptr_t>(p) % 16 == 0;
    if (!aligned)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "attention in bf16 needs tokens that are aligned to 16 bytes");
    return BD_OK;
}
