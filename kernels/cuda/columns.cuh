// columns.cuh - sums down the columns of a [n_tokens][n_columns] tensor, in a fixed order.
//
// A first kernel (the operation's own, because it knows what is summed) gives each block a
// chunk of tokens and a strip of columns, and writes one partial sum per chunk and column; a
// second one adds the chunks' partial sums, in double, in the order of the chunks, to the
// result. The cut depends on the shape alone.
#ifndef BINDERY_KERNELS_CUDA_COLUMNS_CUH
#define BINDERY_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/grid.cuh"

// A block of the first kernel: its warps take tokens in turn, its lanes a column each.
static constexpr int kTokensPerChunk = 128;

static inline int64_t n_chunks_of(int64_t n_tokens)
{
    return (n_tokens + kTokensPerChunk - 1) / kTokensPerChunk;
}

// Adds up what the warps of a block have for the lane's column; all threads call it, and the
// first warp gets the sum. `staging` is shared memory [kThreadsPerBlock].
static __device__ __forceinline__ float sum_over_warps(float x, float *staging)
{
    __syncthreads();  // the staging may still be read from a call before
    staging[threadIdx.x] = x;
    __syncthreads();
    float sum = 0.0f;
    if (int(threadIdx.x) < kWarpSize)
        for (int w = 0; w < kWarpsPerBlock; w++)
            sum += staging[w * kWarpSize + int(threadIdx.x)];
    return sum;
}

// out[c] += sum over chunks of partials[chunk][c]; one thread per column.
static __global__ void add_column_sums_kernel(const float *partials, int64_t n_chunks,
                                              int64_t n_columns, float *out)
{
    const int64_t c = thread_of_grid();
    if (c >= n_columns)
        return;
    double sum = 0.0;
    for (int64_t chunk = 0; chunk < n_chunks; chunk++)
        sum += double(partials[chunk * n_columns + c]);
    out[c] += float(sum);
}

static inline bd_status add_column_sums(const float *partials, int64_t n_chunks,
                                        int64_t n_columns, float *out, void *stream,
                                        bd_error *err)
{
    LAUNCH(add_column_sums_kernel, blocks_for(n_columns, kThreadsPerBlock), kThreadsPerBlock, 0,
           stream, partials, n_chunks, n_columns, out);
    return bd_cuda_check_launch("add_column_sums", err);
}

#endif
