// attention_common.cuh - tiles of bf16 in shared memory, and products of them on tensor cores.
//
// A block has four warps. A tile has rows of D values, each one head of one token. Warp w owns
// the 16 * ROW_TILES rows from row w * 16 * ROW_TILES on. There are 16 unused bytes between two
// rows, so that any eight consecutive rows begin in eight different groups of banks, and
// neither ldmatrix nor the store of a row has a bank conflict. Every address is then one of a
// few that depend on the lane plus a compile-time constant, which costs no instruction.
#ifndef BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_COMMON_CUH
#define BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_COMMON_CUH

#include "kernels/cuda/attention/attention_plan.cuh"
#include "kernels/cuda/operations/warp.cuh"
#include "kernels/cuda/runtime/gpu.cuh"

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kTileRows = 64;  // of a tile that is streamed through shared memory
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// The distance from a row of a tile to the next one, in values.
template <int D>
constexpr int kRow = D + 8;

template <int D>
constexpr int kTileValues = kTileRows *kRow<D>;

// Makes the compiler keep a value in a register. Otherwise it would compute the addresses of a
// thread again in every iteration of a loop.
static __device__ __forceinline__ int keep(int value)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(value));
#endif
    return value;
}

template <class Wide>
static __device__ __forceinline__ Wide keep(Wide value)
{
#ifdef __CUDACC__
    asm volatile("" : "+l"(value));
#endif
    return value;
}

// threadIdx.x, read anew. Otherwise the compiler would compute everything that depends only on
// the thread before the first work item, and keep it in registers through all of them.
static __device__ __forceinline__ int this_thread()
{
    return keep(int(threadIdx.x));
}

// ---- Between global and shared memory -------------------------------------------------------

// Value i of a tensor of bf16.
static __device__ __forceinline__ const uint16_t *bf16_at(const void *tensor, int64_t i)
{
    return static_cast<const uint16_t *>(tensor) + i;
}

static __device__ __forceinline__ uint16_t *bf16_at(void *tensor, int64_t i)
{
    return static_cast<uint16_t *>(tensor) + i;
}

// One thread's share of loading a tile of ROWS rows, and then the tiles before it, one after
// the other: the same chunk of every kStep-th row, from the last row to the first.
template <int D, int ROWS = kTileRows>
struct tile_loader {
    static constexpr int kChunks = D / 8;  // of a row
    static constexpr int kStep = kThreads / kChunks;
    static constexpr int kLoads = ROWS / kStep;

    const char *from;  // the chunk that is loaded next
    int64_t step;      // from there to the chunk after it, in bytes

    __device__ __forceinline__ tile_loader(const uint16_t *rows, int64_t stride)
        : step(keep(-kStep * stride * int64_t(sizeof *rows)))
    {
        const int thread = this_thread();
        const int row = thread / kChunks + (kLoads - 1) * kStep;
        from = reinterpret_cast<const char *>(rows + thread % kChunks * 8 + row * stride);
    }

    // A loader of the same rows of another tensor, which has the same stride.
    __device__ __forceinline__ tile_loader moved(const void *here, const void *there) const
    {
        tile_loader other = *this;
        other.from = reinterpret_cast<const char *>(there) +
                     (from - reinterpret_cast<const char *>(here));
        return other;
    }

    __device__ __forceinline__ void load(bf16_t *tile)
    {
        bf16_t *to = tile + own_place(int(threadIdx.x));
#pragma unroll
        for (int i = kLoads - 1; i >= 0; i--) {
            cp_async_16(to + i * kStep * kRow<D>, from, true);
            from = keep(from + step);
        }
    }

    // Rows from n_rows on belong to another document: they become zeros.
    __device__ __forceinline__ void load_part(bf16_t *tile, int n_rows)
    {
        const int thread = this_thread(), first_row = thread / kChunks;
        const char *first = from + (first_row * (step / kStep) + (kLoads - 1) * step);
        bf16_t *to = tile + own_place(thread);
#pragma unroll
        for (int i = kLoads - 1; i >= 0; i--) {
            const bool exists = first_row + i * kStep < n_rows;
            cp_async_16(to + i * kStep * kRow<D>, exists ? from : first, exists);
            from = keep(from + step);
        }
    }

    // The place of the chunk of the first row, in values: row * kRow<D> + chunk * 8, written so
    // that it takes two instructions.
    static __device__ __forceinline__ int own_place(int thread)
    {
        return (thread + int(unsigned(thread) / kChunks)) * 8;
    }
};

// Writes the warp's accumulators of 16 rows, COLUMNS of each, to global memory, multiplied by
// `factor` for the lane's two rows. They are put into `tile` first, in 16 rows that only this
// warp uses, so that the writes are wide. Rows from n_rows on are not written.
template <int D, int COLUMNS = D>
static __device__ __forceinline__ void
store_rows(uint16_t *rows, int64_t stride, int n_rows, bf16_t *tile,
           const float (&acc)[COLUMNS / 8][4], const float (&factor)[2])
{
    constexpr int kChunks = COLUMNS / 8;
    const int lane = this_thread() % kWarpSize;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kChunks; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            bf16_t *to = tile + (lane / 4 + 8 * half) * kRow<D> + i * 8 + lane % 4 * 2;
            *reinterpret_cast<uint32_t *>(to) = pack_bf16x2(
                acc[i][2 * half] * factor[half], acc[i][2 * half + 1] * factor[half]);
        }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * kChunks / kWarpSize; i++) {
        const int row = (i * kWarpSize + lane) / kChunks, chunk = lane % kChunks;
        if (row < n_rows)
            *reinterpret_cast<uint4 *>(rows + row * stride + chunk * 8) =
                *reinterpret_cast<const uint4 *>(tile + row * kRow<D> + chunk * 8);
    }
}

// ---- Masks ----------------------------------------------------------------------------------

// Why a pair of tiles needs a mask. The main loops are over pairs that need none. A pair on the
// diagonal may have the edge of a short window in it as well.
enum tile_mask { NOTHING_HIDDEN, ON_DIAGONAL, AT_WINDOW_EDGE };

// ---- Products -------------------------------------------------------------------------------
//
// The fragments of mma.m16n8k16: in a 16 x 8 block of results, lane l holds row l / 4 (elements
// 0 and 1) and row l / 4 + 8 (elements 2 and 3), in columns l % 4 * 2 and the next one.

// A place in a tile, in bytes. (The compiler would multiply a number of values by 2 again and
// again.)
static __device__ __forceinline__ int place_of(int row, int row_values, int column)
{
    return keep((row * row_values + column) * int(sizeof(bf16_t)));
}

static __device__ __forceinline__ bf16_t *at(bf16_t *tile, int place)
{
    return reinterpret_cast<bf16_t *>(reinterpret_cast<char *>(tile) + place);
}

static __device__ __forceinline__ const bf16_t *at(const bf16_t *tile, int place)
{
    return reinterpret_cast<const bf16_t *>(reinterpret_cast<const char *>(tile) + place);
}

// The places at which a lane reads the first 16 rows of a tile by ldmatrix.
struct lane_places {
    int left;     // the warp's own rows as the left factor
    int right;    // rows as the right factor of a sum along rows
    int columns;  // rows as the right factor of a sum over rows
};

template <int D>
static __device__ __forceinline__ lane_places find_places(int lane, int warp_row)
{
    return {place_of(warp_row + lane % 16, kRow<D>, lane / 16 * 8),
            place_of(lane % 8 + lane / 16 * 8, kRow<D>, lane / 8 % 2 * 8),
            place_of(lane % 16, kRow<D>, lane / 16 * 8)};
}

template <int ROW_TILES, int N>
static __device__ __forceinline__ void set_zero(float (&x)[ROW_TILES][N][4])
{
#pragma unroll
    for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[t][n][e] = 0.0f;
}

// products += (the warp's left rows) · (right rows), summed over the D values of a row. There
// are N blocks of 8 right rows.
template <int D, int ROW_TILES, int N>
static __device__ __forceinline__ void add_row_products(float (&products)[ROW_TILES][N][4],
                                                        const bf16_t *left, const bf16_t *right,
                                                        const lane_places &places)
{
#pragma unroll
    for (int k = 0; k < D / 8; k += 2) {
        uint32_t a[ROW_TILES][4];
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            ldmatrix_x4(a[t], at(left, places.left) + t * 16 * kRow<D> + k * 8);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            ldmatrix_x4(b, at(right, places.right) + n * 8 * kRow<D> + k * 8);
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++) {
                mma_m16n8k16_bf16(products[t][n], a[t], b, products[t][n]);
                mma_m16n8k16_bf16(products[t][n + 1], a[t], b + 2, products[t][n + 1]);
            }
        }
    }
}

// A left factor in bf16: K fragments of 16 columns for each row tile.
template <int ROW_TILES, int K>
using weight_block = uint32_t[K][ROW_TILES][4];

// Two blocks of results side by side, rounded, are one fragment of the left factor of the next
// product.
template <int ROW_TILES, int K>
static __device__ __forceinline__ void
round_weights(weight_block<ROW_TILES, K> &weights, const float (&products)[ROW_TILES][2 * K][4])
{
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = products[t][2 * k + i / 2] + i % 2 * 2;
                weights[k][t][i] = pack_bf16x2(pair[0], pair[1]);
            }
}

// sums += weights · right, summed over the 16 * K rows of `right`. There are N blocks of 8
// columns.
template <int D, int ROW_TILES, int N, int K>
static __device__ __forceinline__ void
add_weighted_rows(float (&sums)[ROW_TILES][N][4], const weight_block<ROW_TILES, K> &weights,
                  const bf16_t *right, const lane_places &places)
{
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, at(right, places.columns) + k * 16 * kRow<D> + n * 8);
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++) {
                mma_m16n8k16_bf16(sums[t][n], weights[k][t], b, sums[t][n]);
                mma_m16n8k16_bf16(sums[t][n + 1], weights[k][t], b + 2, sums[t][n + 1]);
            }
        }
}

#endif
