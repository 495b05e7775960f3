// pool.h - the pool that all device memory of the CUDA backend comes from.
//
// Released blocks are kept and given out again, so that memory which is allocated and released
// in every step costs no call of the driver. All work is queued on one stream. Therefore a
// block can be given out again while work on it is still queued: whatever uses it next is
// queued behind that work. (transfer.h takes care of the copies on a second stream.)
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_POOL_H
#define BINDERY_KERNELS_CUDA_RUNTIME_POOL_H

#include <stddef.h>

#include "common/base/error.h"

typedef struct bd_cuda_pool {
    struct bd_cuda_block *blocks;  // owned: a list of all blocks, given out or not
} bd_cuda_pool;

// Uninitialized device memory, 256-aligned. If the device has none left, the blocks that are
// not given out are returned to it before the allocation is tried again.
bd_status bd_cuda_pool_allocate(bd_cuda_pool *pool, size_t size_bytes, void **memory,
                                bd_error *err);

// `memory` is from this pool, or NULL.
void bd_cuda_pool_release(bd_cuda_pool *pool, void *memory);

// Returns all blocks to the device, given out or not. Safe on an empty pool and safe twice.
void bd_cuda_pool_free(bd_cuda_pool *pool);

#endif
