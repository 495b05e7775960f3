// block_window.h - the record batches of compressed shards that were read last, decompressed.
//
// The order of rows (row_order.h) stays among a few blocks of a dataset for a long time. When
// it moves on, the least recently used block is evicted.
#ifndef BINDERY_TRAINER_DATA_BLOCK_WINDOW_H
#define BINDERY_TRAINER_DATA_BLOCK_WINDOW_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/shard.h"

typedef struct bd_block {
    bd_shard *shard;  // borrowed
    int64_t batch;
    int64_t last_read;  // a time
} bd_block;

typedef struct bd_block_window {
    bd_block *blocks;  // [capacity], owned; n are loaded
    size_t n, capacity;
    int64_t time;
} bd_block_window;

// For at most `capacity` blocks, at least 1. Memory: that of the blocks, uncompressed. Release
// what comes out before the shards are closed.
bd_status bd_block_window_init(bd_block_window *window, size_t capacity, bd_error *err);
void bd_block_window_release(bd_block_window *window);  // safe on an empty one and safe twice

// Loads record batch `batch` of a shard that loads later, unless it is loaded. It stays loaded
// until `capacity` other blocks were read.
bd_status bd_block_window_load(bd_block_window *window, bd_shard *shard, int64_t batch,
                               bd_error *err);

#endif
