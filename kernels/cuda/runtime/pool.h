// pool.h - the one pool that all device memory of the CUDA backend comes from.
//
// What is released is kept and given out again, so that memory which comes and goes costs no
// call of the driver. All work lies on one stream: a block that is released while work on it is
// still queued may be given out at once, because whatever is done to it next is queued behind.
// (transfer.h takes care of the copies on a second stream.)
#ifndef BINDERY_KERNELS_CUDA_RUNTIME_POOL_H
#define BINDERY_KERNELS_CUDA_RUNTIME_POOL_H

#include <stddef.h>

#include "common/base/error.h"

typedef struct bd_cuda_pool {
    struct bd_cuda_block *blocks;  // owned, of every block whether given out or not
} bd_cuda_pool;

// Device memory, 256-aligned, with any contents. If the device has none left, blocks that wait
// to be given out go back to it first.
bd_status bd_cuda_pool_allocate(bd_cuda_pool *pool, size_t size_bytes, void **memory,
                                bd_error *err);

// For memory of this pool, or NULL.
void bd_cuda_pool_release(bd_cuda_pool *pool, void *memory);

// Gives everything back to the device, released or not. Safe on an empty pool and safe twice.
void bd_cuda_pool_free(bd_cuda_pool *pool);

#endif
