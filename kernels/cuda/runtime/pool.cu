#include "kernels/cuda/runtime/pool.h"

#include <cassert>
#include <cstdlib>

#include "kernels/cuda/runtime/check.cuh"
#include "kernels/cuda/runtime/gpu.cuh"

struct bd_cuda_block {
    void *memory;
    size_t size_bytes;
    bool given_out;
    bd_cuda_block *next;
};

static constexpr size_t kGranule = 256;

// The smallest free block that is large enough, unless more than half of it would be unused.
static bd_cuda_block *find_free(const bd_cuda_pool *pool, size_t size_bytes)
{
    bd_cuda_block *best = NULL;
    for (bd_cuda_block *block = pool->blocks; block; block = block->next)
        if (!block->given_out && block->size_bytes >= size_bytes &&
            block->size_bytes / 2 <= size_bytes &&
            (!best || block->size_bytes < best->size_bytes))
            best = block;
    return best;
}

// Returns blocks to the device: the free ones, or all.
static void return_blocks(bd_cuda_pool *pool, bool all)
{
    bd_cuda_block **link = &pool->blocks;
    while (*link) {
        bd_cuda_block *block = *link;
        if (block->given_out && !all) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        cudaFree(block->memory);  // waits until queued work is done
        free(block);
    }
}

static bd_status add_block(bd_cuda_pool *pool, size_t size_bytes, bd_cuda_block **added,
                           bd_error *err)
{
    bd_cuda_block *block = (bd_cuda_block *)calloc(1, sizeof *block);
    if (!block)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the pool's list");
    block->size_bytes = size_bytes;
    cudaError_t code = cudaMalloc(&block->memory, size_bytes);
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // handled here: no later launch shall report it
        return_blocks(pool, false);
        code = cudaMalloc(&block->memory, size_bytes);
    }
    if (code != cudaSuccess) {
        cudaGetLastError();
        free(block);
        return bd_fail(err, bd_cuda_status(code), "cannot allocate %zu bytes on the device: %s",
                       size_bytes, cudaGetErrorString(code));
    }
    block->next = pool->blocks;
    pool->blocks = block;
    *added = block;
    return BD_OK;
}

bd_status bd_cuda_pool_allocate(bd_cuda_pool *pool, size_t size_bytes, void **memory,
                                bd_error *err)
{
    *memory = NULL;
    if (size_bytes > SIZE_MAX - kGranule)
        return bd_fail(err, BD_ERR_MEMORY, "cannot allocate %zu bytes", size_bytes);
    const size_t rounded = (size_bytes / kGranule + 1) * kGranule;
    bd_cuda_block *block = find_free(pool, rounded);
    if (!block)
        BD_TRY(add_block(pool, rounded, &block, err));
    block->given_out = true;
    *memory = block->memory;
    return BD_OK;
}

void bd_cuda_pool_release(bd_cuda_pool *pool, void *memory)
{
    if (!memory)
        return;
    bd_cuda_block *block = pool->blocks;
    while (block && block->memory != memory)
        block = block->next;
    assert(block && block->given_out);
    block->given_out = false;
}

void bd_cuda_pool_free(bd_cuda_pool *pool)
{
    return_blocks(pool, true);
}
