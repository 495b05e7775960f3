// attention_common.cuh - tiles of bf16 in shared memory, and products of them on tensor cores.
//
// A block is four warps. A tile is rows of D values (one head of one token each); warp w owns
// rows w * 16 * ROW_TILES and the following. Rows lie without gaps, their chunks of 8 values
// permuted so that neither ldmatrix nor a row's store meets a bank twice:
//
//   row r, chunk c is at   r * D + 8 * (c ^ (r % 8))
//
// Every row that a lane addresses is the lane's own plus a multiple of 8, so that r % 8 is a
// constant of the lane and the offsets between its rows are constants of the program.
#ifndef BINDERY_KERNELS_CUDA_ATTENTION_COMMON_CUH
#define BINDERY_KERNELS_CUDA_ATTENTION_COMMON_CUH

#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/warp.cuh"

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kTileRows = 64;  // of what is streamed through shared memory
constexpr float kLog2E = 1.4426950408889634f;

template <int D>
static __device__ __forceinline__ int tile_offset(int row, int chunk)
{
    return row * D + ((chunk ^ (row & 7)) << 3);
}

// Makes a value one that the compiler keeps in a register: it would rather compute a thread's
// offsets and addresses again in every turn of a loop.
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

// ---- Between global and shared memory -------------------------------------------------------

// One thread's share of loading a tile of ROWS rows and then the tiles before it: the same
// chunk of every kStep-th row, from the last one up.
template <int D, int ROWS = kTileRows>
struct tile_loader {
    static constexpr int kStep = kThreads / (D / 8);
    static constexpr int kLoads = ROWS / kStep;

    const char *from;  // what is loaded next
    int64_t step;      // from there to the chunk after it, in bytes

    __device__ __forceinline__ tile_loader(const uint16_t *rows, int64_t stride)
        : from(reinterpret_cast<const char *>(rows + chunk() * 8 +
                                              (first_row() + (kLoads - 1) * kStep) * stride)),
          step(-kStep * stride * int64_t(sizeof *rows))
    {
    }

    // The same rows of another tensor, of the same stride.
    __device__ __forceinline__ tile_loader moved(const uint16_t *here,
                                                 const uint16_t *there) const
    {
        tile_loader other = *this;
        other.from = reinterpret_cast<const char *>(there) +
                     (from - reinterpret_cast<const char *>(here));
        return other;
    }

    static __device__ __forceinline__ int first_row()
    {
        return int(threadIdx.x) / (D / 8);
    }

    static __device__ __forceinline__ int chunk()
    {
        return int(threadIdx.x) % (D / 8);
    }

    __device__ __forceinline__ void load(bf16_t *tile)
    {
        bf16_t *to = tile + tile_offset<D>(first_row(), chunk());
#pragma unroll
        for (int i = kLoads - 1; i >= 0; i--) {
            cp_async_16(to + i * kStep * D, from, true);
            from = keep(from + step);
        }
    }

    // Rows from n_rows on belong to somebody else: zeros take their place.
    __device__ __forceinline__ void load_part(bf16_t *tile, int n_rows)
    {
        const char *first = from + (first_row() * (step / kStep) + (kLoads - 1) * step);
        bf16_t *to = tile + tile_offset<D>(first_row(), chunk());
#pragma unroll
        for (int i = kLoads - 1; i >= 0; i--) {
            const bool exists = first_row() + i * kStep < n_rows;
            cp_async_16(to + i * kStep * D, exists ? from : first, exists);
            from = keep(from + step);
        }
    }
};

// The warp's accumulators of 16 rows, times `factor` of the lane's two rows, to global memory
// by way of `tile` (the warp's 16 rows of it), of which the warp is the only user. Rows from
// n_rows on are not written.
template <int D>
static __device__ __forceinline__ void store_rows(uint16_t *rows, int64_t stride, int n_rows,
                                                  bf16_t *tile, const float (&acc)[D / 8][4],
                                                  const float (&factor)[2])
{
    const int lane = threadIdx.x % kWarpSize;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 8; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            bf16_t *to = tile + tile_offset<D>(lane / 4 + 8 * half, i) + lane % 4 * 2;
            *reinterpret_cast<uint32_t *>(to) = pack_bf16x2(
                acc[i][2 * half] * factor[half], acc[i][2 * half + 1] * factor[half]);
        }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * (D / 8) / kWarpSize; i++) {
        const int row = (i * kWarpSize + lane) / (D / 8), chunk = lane % (D / 8);
        if (row < n_rows)
            *reinterpret_cast<uint4 *>(rows + row * stride + chunk * 8) =
                *reinterpret_cast<const uint4 *>(tile + tile_offset<D>(row, chunk));
    }
}

// ---- Products -------------------------------------------------------------------------------
//
// Fragments of mma.m16n8k16: of a 16 x 8 block of results, lane l holds row l / 4 (elements 0,
// 1) and row l / 4 + 8 (elements 2, 3), columns l % 4 * 2 and the next one.

// Where a lane's first chunk lies in a tile, in bytes, for each way in which ldmatrix reads it.
// Chunks 2 * k further on are at `place ^ 32 * k`, as long as they lie in the same 128 bytes.
struct lane_places {
    int left;     // of the warp's own rows, as left factor
    int right;    // of rows as right factor, summed along them
    int columns;  // of rows as right factor, summed across them
};

template <int D>
static __device__ __forceinline__ lane_places find_places(int warp_row)
{
    const int lane = threadIdx.x % kWarpSize;
    const int size = int(sizeof(bf16_t));
    return {keep(tile_offset<D>(warp_row + (lane & 15), lane >> 4) * size),
            keep(tile_offset<D>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1) * size),
            keep(tile_offset<D>(lane & 15, lane >> 4) * size)};
}

// The same in the tile that lies `distance` bytes further on, a power of two and no less than
// the size of a tile; of its own rows a warp has no second tile.
static __device__ __forceinline__ lane_places moved(const lane_places &places, int distance)
{
    return {places.left, places.right ^ distance, places.columns ^ distance};
}

static __device__ __forceinline__ bf16_t *moved(bf16_t *tile, int distance)
{
    return reinterpret_cast<bf16_t *>(reinterpret_cast<char *>(tile) + distance);
}

// The chunk at an even distance from the lane's first one, `row` rows below it.
template <int D>
static __device__ __forceinline__ const void *chunk_at(const bf16_t *tile, int place, int chunk,
                                                       int row)
{
    const char *bytes = reinterpret_cast<const char *>(tile);
    return bytes + (place ^ (chunk % 8 * 16)) + chunk / 8 * 128 + row * D * int(sizeof(bf16_t));
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

// products += left rows of the warp · right rows, over the D values of a row.
template <int D, int ROW_TILES>
static __device__ __forceinline__ void
add_row_products(float (&products)[ROW_TILES][kTileRows / 8][4], const bf16_t *left,
                 const bf16_t *right, const lane_places &places)
{
#pragma unroll
    for (int k = 0; k < D / 8; k += 2) {
        uint32_t a[ROW_TILES][4];
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
            ldmatrix_x4(a[t], chunk_at<D>(left, places.left, k, t * 16));
#pragma unroll
        for (int n = 0; n < kTileRows / 8; n += 2) {
            uint32_t b[4];
            ldmatrix_x4(b, chunk_at<D>(right, places.right, k, n * 8));
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++) {
                mma_m16n8k16_bf16(products[t][n], a[t], b, products[t][n]);
                mma_m16n8k16_bf16(products[t][n + 1], a[t], b + 2, products[t][n + 1]);
            }
        }
    }
}

// sums += weights · right, over the rows of `right`. Weights lie as products do and are rounded
// to bf16: two blocks of results, side by side, are the left fragment of the next product.
template <int D, int ROW_TILES>
static __device__ __forceinline__ void
add_weighted_rows(float (&sums)[ROW_TILES][D / 8][4],
                  const float (&weights)[ROW_TILES][kTileRows / 8][4], const bf16_t *right,
                  const lane_places &places)
{
#pragma unroll
    for (int k = 0; k < kTileRows / 16; k++) {
        uint32_t a[ROW_TILES][4];
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = weights[t][2 * k + i / 2] + i % 2 * 2;
                a[t][i] = pack_bf16x2(pair[0], pair[1]);
            }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, chunk_at<D>(right, places.columns, n, k * 16));
#pragma unroll
            for (int t = 0; t < ROW_TILES; t++) {
                mma_m16n8k16_bf16(sums[t][n], a[t], b, sums[t][n]);
                mma_m16n8k16_bf16(sums[t][n + 1], a[t], b + 2, sums[t][n + 1]);
            }
        }
    }
}

#endif
