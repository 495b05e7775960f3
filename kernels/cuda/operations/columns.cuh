// columns.cuh - sums down the columns of a [n_tokens][n_columns] tensor, in a fixed order.
//
// It takes two kernels. The first belongs to the operation, which knows what is summed: each of
// its blocks has a chunk of tokens and a strip of columns, and writes one partial sum for each
// column. The second adds up the partial sums of all chunks in double and adds them to the
// result. The division into chunks and the order of additions depend only on the shape.
#ifndef BINDERY_KERNELS_CUDA_OPERATIONS_COLUMNS_CUH
#define BINDERY_KERNELS_CUDA_OPERATIONS_COLUMNS_CUH

#include "kernels/cuda/operations/grid.cuh"
#include "kernels/cuda/operations/packs.cuh"
#include "kernels/cuda/runtime/check.cuh"

// In a block of the first kernel the warps take tokens in turn; each lane has a pack of
// columns.
static constexpr int kTokensPerChunk = 128;

template <int W>
static constexpr int kColumnsPerStrip = kWarpSize *W;

static inline int64_t n_chunks_of(int64_t n_tokens)
{
    return (n_tokens + kTokensPerChunk - 1) / kTokensPerChunk;
}

// The grid of the first kernel: chunks of tokens (x) and strips of columns (y).
template <int W>
static inline dim3 chunks_and_strips(int64_t n_tokens, int64_t n_columns)
{
    return dim3(blocks_for(n_tokens, kTokensPerChunk),
                blocks_for(n_columns, kColumnsPerStrip<W>));
}

// Adds up the sums of all warps of a block and writes them as the partial sums of the chunk.
// All threads call it. `staging` is shared memory [kThreadsPerBlock].
template <int W>
static __device__ __forceinline__ void store_partials(const pack<W> &sums, pack<W> *staging,
                                                      int64_t n_columns, float *partials)
{
    __syncthreads();  // an earlier call may still read the staging
    staging[threadIdx.x] = sums;
    __syncthreads();
    const int i = threadIdx.x;
    const int64_t column = int64_t(blockIdx.y) * kColumnsPerStrip<W> + i;
    if (i >= kColumnsPerStrip<W> || column >= n_columns)
        return;
    float sum = 0.0f;
    for (int w = 0; w < kWarpsPerBlock; w++)
        sum += staging[w * kWarpSize + i / W].at[i % W];
    partials[blockIdx.x * n_columns + column] = sum;
}

// out[c] += sum over chunks of partials[chunk][c]. There is one block for 32 columns; its warps
// take chunks in turn.
static __global__ void add_column_sums_kernel(const float *partials, int64_t n_chunks,
                                              int64_t n_columns, float *out)
{
    SHARED_ARRAY(double, staging, kThreadsPerBlock);
    const int lane = lane_of_thread(), warp = int(threadIdx.x) / kWarpSize;
    const int64_t c = int64_t(blockIdx.x) * kWarpSize + lane;
    double sum = 0.0;
    for (int64_t chunk = warp; chunk < n_chunks && c < n_columns; chunk += kWarpsPerBlock)
        sum += double(partials[chunk * n_columns + c]);
    staging[threadIdx.x] = sum;
    __syncthreads();
    if (warp != 0 || c >= n_columns)
        return;
    for (int w = 1; w < kWarpsPerBlock; w++)
        sum += staging[w * kWarpSize + lane];
    out[c] += float(sum);
}

static inline bd_status add_column_sums(const float *partials, int64_t n_chunks,
                                        int64_t n_columns, float *out, void *stream,
                                        bd_error *err)
{
    LAUNCH(add_column_sums_kernel, blocks_for(n_columns, kWarpSize), kThreadsPerBlock, 0,
           stream, partials, n_chunks, n_columns, out);
    return bd_cuda_check_launch("add_column_sums", err);
}

#endif
