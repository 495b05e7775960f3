#include "tests/emulation/sample_kernels.h"

#include "kernels/cuda/operations/warp.cuh"
#include "kernels/cuda/runtime/check.cuh"
#include "kernels/cuda/runtime/gpu.cuh"

// ---- Sums of rows: shuffles, static shared memory, a barrier --------------------------------

static constexpr int kSumThreads = 96;

// One block per row.
static __global__ void row_sums_kernel(float *out, const float *in, int64_t n_columns,
                                       sample_fault fault)
{
    SHARED_ARRAY(float, sums, kSumThreads / kWarpSize);
    const int thread = static_cast<int>(threadIdx.x);
    const float *row = in + int64_t(blockIdx.x) * n_columns;

    float sum = 0.0f;
    if (fault == SAMPLE_MISALIGNED_VECTOR) {
        const float4 *v = reinterpret_cast<const float4 *>(row + 1) + thread;
        sum = v->x + v->y + v->z + v->w;
    } else {
        for (int64_t i = thread; i < n_columns; i += kSumThreads)
            sum += row[i];
    }
    if (fault == SAMPLE_ENDED_LANES && thread % kWarpSize >= 16)
        return;
    if (fault != SAMPLE_ABSENT_LANES || thread % 2 == 0)
        sum = warp_sum(sum);
    if (thread % kWarpSize == 0)
        sums[thread / kWarpSize] = sum;

    if (fault == SAMPLE_UNREACHED_BARRIER && thread >= kSumThreads / 2)
        return;
    if (fault == SAMPLE_DIVERGENT_BARRIER && thread < kWarpSize)
        __syncthreads();
    else if (fault != SAMPLE_REMOVED_BARRIER)
        __syncthreads();

    if (fault == SAMPLE_PLAIN_STORE)
        out[0] = sums[0];
    else if (thread == 0)
        out[blockIdx.x] = sums[0] + sums[1] + sums[2];
}

extern "C" bd_status sample_row_sums(float *out, const float *in, int64_t n_rows,
                                     int64_t n_columns, sample_fault fault, void *stream,
                                     bd_error *err)
{
    LAUNCH(row_sums_kernel, unsigned(n_rows), kSumThreads, 0, stream, out, in, n_columns,
           fault);
    return bd_cuda_check_launch("row_sums", err);
}

// ---- Transposition: a tile of shared memory -------------------------------------------------

static constexpr int kTile = 32;

// A block of 32 x 8 threads per tile; a row of the tile is one longer to avoid bank conflicts.
static __global__ void transpose_kernel(float *out, const float *in, int64_t n_rows,
                                        int64_t n_columns, sample_fault fault)
{
    SHARED_ARRAY(float, tile, kTile *(kTile + 1));
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
    const int64_t first_row = int64_t(blockIdx.y) * kTile;
    const int64_t first_column = int64_t(blockIdx.x) * kTile;

    for (int r = y; r < kTile; r += int(blockDim.y))
        if (first_row + r < n_rows && first_column + x < n_columns)
            tile[r * (kTile + 1) + x] = in[(first_row + r) * n_columns + first_column + x];
    float *end = tile + kTile * (kTile + 1);
    if (fault == SAMPLE_ONE_PAST_END && x == 3 && y == 2)
        *end = 1.0f;
    if (fault != SAMPLE_REMOVED_BARRIER)
        __syncthreads();

    for (int c = y; c < kTile; c += int(blockDim.y))
        if (first_row + x < n_rows && first_column + c < n_columns)
            out[(first_column + c) * n_rows + first_row + x] =
                fault == SAMPLE_READ_PAST_END ? *end : tile[x * (kTile + 1) + c];
}

extern "C" bd_status sample_transpose(float *out, const float *in, int64_t n_rows,
                                      int64_t n_columns, sample_fault fault, void *stream,
                                      bd_error *err)
{
    const dim3 grid(unsigned((n_columns + kTile - 1) / kTile),
                    unsigned((n_rows + kTile - 1) / kTile));
    LAUNCH(transpose_kernel, grid, dim3(kTile, 8), 0, stream, out, in, n_rows, n_columns,
           fault);
    return bd_cuda_check_launch("transpose", err);
}

// ---- Tensor cores ---------------------------------------------------------------------------

static __device__ uint32_t pair_of(uint16_t lo, uint16_t hi)
{
    return uint32_t(hi) << 16 | lo;
}

// In the layout of the PTX manual, where lane 4g + q/2 holds the following.
static __device__ void gather_fragments(uint32_t fa[4], uint32_t fb[2], const uint16_t *a,
                                        const uint16_t *b)
{
    const int g = int(threadIdx.x) / 4, q = int(threadIdx.x) % 4 * 2;
    for (int i = 0; i < 4; i++) {
        const uint16_t *p = a + (g + i % 2 * 8) * 16 + q + i / 2 * 8;
        fa[i] = pair_of(p[0], p[1]);
    }
    for (int i = 0; i < 2; i++)
        fb[i] = pair_of(b[(q + i * 8) * 8 + g], b[(q + i * 8 + 1) * 8 + g]);
}

// The same by ldmatrix, as in attention kernels: a as it is, b transposed.
static __device__ void load_fragments(uint32_t fa[4], uint32_t fb[2], const uint16_t *a,
                                      const uint16_t *b)
{
    SHARED_ARRAY(uint4, shared_a, 16 * 2);
    SHARED_ARRAY(uint4, shared_b, 16);
    const int lane = int(threadIdx.x);
    shared_a[lane] = reinterpret_cast<const uint4 *>(a)[lane];
    if (lane < 16)
        shared_b[lane] = reinterpret_cast<const uint4 *>(b)[lane];
    __syncwarp();
    uint32_t twice[4];  // the addresses of the upper lanes repeat those of the lower ones
    ldmatrix_x4(fa, shared_a + lane % 16 * 2 + lane / 16);
    ldmatrix_x4_trans(twice, shared_b + lane % 16);
    fb[0] = twice[0];
    fb[1] = twice[1];
}

static __global__ void multiply_kernel(float *d, const uint16_t *a, const uint16_t *b,
                                       const float *c, int by_ldmatrix)
{
    const int g = int(threadIdx.x) / 4, q = int(threadIdx.x) % 4 * 2;
    uint32_t fa[4], fb[2];
    float fc[4], fd[4];
    if (by_ldmatrix)
        load_fragments(fa, fb, a, b);
    else
        gather_fragments(fa, fb, a, b);
    for (int i = 0; i < 4; i++)
        fc[i] = c[(g + i / 2 * 8) * 8 + q + i % 2];
    mma_m16n8k16_bf16(fd, fa, fb, fc);
    for (int i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + q + i % 2] = fd[i];
}

extern "C" bd_status sample_multiply(float *d, const uint16_t *a, const uint16_t *b,
                                     const float *c, int by_ldmatrix, void *stream,
                                     bd_error *err)
{
    LAUNCH(multiply_kernel, 1, kWarpSize, 0, stream, d, a, b, c, by_ldmatrix);
    return bd_cuda_check_launch("multiply", err);
}

template <bool kTransposed>
static __global__ void load_matrices_kernel(uint32_t *fragments, const uint16_t *tile)
{
    DYN_SHARED(uint16_t, shared);
    const int lane = int(threadIdx.x);
    for (int i = 0; i < 8; i++)
        shared[lane * 8 + i] = tile[lane * 8 + i];
    __syncwarp();
    uint32_t r[4];
    if (kTransposed)
        ldmatrix_x4_trans(r, shared + lane * 8);
    else
        ldmatrix_x4(r, shared + lane * 8);
    for (int i = 0; i < 4; i++)
        fragments[lane * 4 + i] = r[i];
}

extern "C" bd_status sample_load_matrices(uint32_t *fragments, const uint16_t *tile,
                                          int transposed, void *stream, bd_error *err)
{
    const size_t shared_bytes = 32 * 8 * sizeof(uint16_t);
    if (transposed)
        LAUNCH((load_matrices_kernel<true>), 1, kWarpSize, shared_bytes, stream, fragments,
               tile);
    else
        LAUNCH((load_matrices_kernel<false>), 1, kWarpSize, shared_bytes, stream, fragments,
               tile);
    return bd_cuda_check_launch("load_matrices", err);
}

// ---- Two buffers filled by cp.async ---------------------------------------------------------

static constexpr int kTileThreads = 64;
static constexpr int kTileFloats = 4 * kTileThreads;

// Every thread copies 16 bytes of the tile.
static __device__ void fetch_tile(float *buffer, const float *tile, sample_fault fault)
{
    const int at = 4 * int(threadIdx.x);
    cp_async_16(buffer + at, tile + at + (fault == SAMPLE_MISALIGNED_COPY), true);
    cp_async_commit();
}

static __global__ void sum_of_tiles_kernel(float *out, const float *in, int64_t n_tiles,
                                           sample_fault fault)
{
    DYN_SHARED(float, buffers);
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    fetch_tile(buffers, in, fault);
    for (int64_t t = 0; t < n_tiles; t++) {
        const bool more = t + 1 < n_tiles;
        if (more)
            fetch_tile(buffers + (t + 1) % 2 * kTileFloats, in + (t + 1) * kTileFloats, fault);
        if (more && fault != SAMPLE_WRONG_GROUP_COUNT)
            cp_async_wait<1>();
        else if (more)
            cp_async_wait<2>();
        else
            cp_async_wait<0>();
        if (fault != SAMPLE_REMOVED_BARRIER)
            __syncthreads();
        // Entry i ^ 1 belongs to another thread, so that a barrier is needed.
        const float *buffer = buffers + t % 2 * kTileFloats;
        for (int k = 0; k < 4; k++)
            sums[k] += buffer[(int(threadIdx.x) + k * kTileThreads) ^ 1];
        if (fault != SAMPLE_EARLY_REFILL)
            __syncthreads();  // before any thread refills this buffer
    }
    for (int k = 0; k < 4; k++)
        out[int(threadIdx.x) + k * kTileThreads] = sums[k];
}

extern "C" bd_status sample_sum_of_tiles(float *out, const float *in, int64_t n_tiles,
                                         sample_fault fault, void *stream, bd_error *err)
{
    LAUNCH(sum_of_tiles_kernel, 1, kTileThreads, 2 * kTileFloats * sizeof(float), stream, out,
           in, n_tiles, fault);
    return bd_cuda_check_launch("sum_of_tiles", err);
}

// ---- Atomics and votes ----------------------------------------------------------------------

static __global__ void count_kernel(int *histogram, unsigned *ballots, const int *values,
                                    int64_t n)
{
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&histogram[values[i]], 1);
    const unsigned odd = __ballot_sync(kWholeWarp, i < n && values[i] % 2 != 0);
    if (threadIdx.x % kWarpSize == 0)
        ballots[i / kWarpSize] = odd;
}

extern "C" bd_status sample_count(int *histogram, unsigned *ballots, const int *values,
                                  int64_t n, void *stream, bd_error *err)
{
    LAUNCH(count_kernel, unsigned((n + 63) / 64), 64, 0, stream, histogram, ballots, values, n);
    return bd_cuda_check_launch("count", err);
}

// ---- Launches -------------------------------------------------------------------------------

extern "C" bd_status sample_empty_grid(void *stream, bd_error *err)
{
    LAUNCH(row_sums_kernel, 0, kSumThreads, 0, stream, nullptr, nullptr, 0, SAMPLE_RIGHT);
    return bd_cuda_check_launch("row_sums", err);
}

extern "C" void sample_unchecked_launch(void *stream, bd_error *err)
{
    LAUNCH(row_sums_kernel, 0, kSumThreads, 0, stream, nullptr, nullptr, 0, SAMPLE_RIGHT);
    sample_empty_grid(stream, err);
}
