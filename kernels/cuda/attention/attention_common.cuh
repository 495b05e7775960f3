// attention_common.cuh - tiles of bf16 in shared memory, and products of them on tensor cores.
//
// A block is four warps. A tile is rows of D values (one head of one token each); warp w owns
// rows w * 16 * ROW_TILES and the following. Between two rows lie 16 unused bytes: any eight
// rows one after the other then begin in eight different groups of banks, so that neither
// ldmatrix nor a row's store meets a bank twice; and every address is one of a few that belong
// to the lane plus a constant of the program, which costs no instruction.
#ifndef BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_COMMON_CUH
#define BINDERY_KERNELS_CUDA_ATTENTION_ATTENTION_COMMON_CUH

#include "kernels/cuda/attention/attention_plan.cuh"
#include "kernels/cuda/operations/warp.cuh"
#include "kernels/cuda/runtime/gpu.cuh"

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kTileRows = 64;  // of what is streamed through shared memory
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// From a row of a tile to the next one, in values.
template <int D>
constexpr int kRow = D + 8;

template <int D>
constexpr int kTileValues = kTileRows *kRow<D>;

// Makes a value one that the compiler keeps in a register: it would rather compute a thread's
// addresses again in every turn of a loop.
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

// threadIdx.x, computed anew: whatever depends on the thread alone the compiler would compute
// before the first of many works, and keep through all of them.
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

// One thread's share of loading a tile of ROWS rows and then the tiles before it: the same
// chunk of every kStep-th row, from the last one up.
template <int D, int ROWS = kTileRows>
struct tile_loader {
    static constexpr int kChunks = D / 8;  // of a row
    static constexpr int kStep = kThreads / kChunks;
    static constexpr int kLoads = ROWS / kStep;

    const char *from;  // what is loaded next
    int64_t step;      // from there to the chunk after it, in bytes

    __device__ __forceinline__ tile_loader(const uint16_t *rows, int64_t stride)
        : step(-kStep * stride * int64_t(sizeof *rows))
    {
        const int thread = this_thread();
        const int row = thread / kChunks + (kLoads - 1) * kStep;
        from = reinterpret_cast<const char *>(rows + thread % kChunks * 8 + row * stride);
    }

    // The same rows of another tensor, of the same stride.
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

    // Rows from n_rows on belong to somebody else: zeros take their place.
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

    // Of the first row's chunk, in values: row * kRow<D> + chunk * 8, in two instructions.
    static __device__ __forceinline__ int own_place(int thread)
    {
        return (thread + int(unsigned(thread) / kChunks)) * 8;
    }
};

// The warp's accumulators of 16 rows, COLUMNS of each, times `factor` of the lane's two rows, to
// global memory by way of `tile` (the warp's 16 rows of it), of which the warp is the only user.
// Rows from n_rows on are not written.
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

// ---- Products -------------------------------------------------------------------------------
//
// Fragments of mma.m16n8k16: of a 16 x 8 block of results, lane l holds row l / 4 (elements 0,
// 1) and row l / 4 + 8 (elements 2, 3), columns l % 4 * 2 and the next one.

// Where a lane finds something in a tile, in bytes: the compiler would multiply a number of
// values by 2 again and again.
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

// The places of what it reads of a tile's first 16 rows by ldmatrix.
struct lane_places {
    int left;     // of the warp's own rows, as left factor
    int right;    // of rows as right factor, summed along them
    int columns;  // of rows as right factor, summed across them
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

// products += left rows of the warp · right rows, over the D values of a row; N blocks of 8
// right rows.
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

// Left factors in bf16: K fragments of 16 columns, for each row tile.
template <int ROW_TILES, int K>
using weight_block = uint32_t[K][ROW_TILES][4];

// Two blocks of results, side by side, are one fragment of the next product's left factor.
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

// sums += weights · right, over the 16 * K rows of `right`; N blocks of 8 columns.
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
