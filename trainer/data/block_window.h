// block_window.h - the record batches of compressed shards that were read last, decompressed.
//
// The order of rows (row_order.h) stays for long among a few blocks of a dataset; when it goes
// on, those that were not read for longest make room.
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

// For at most `capacity` blocks, at least 1. Memory: theirs, as they are uncompressed. Release
// what comes out before the shards are closed.
bd_status bd_block_window_init(bd_block_window *window, size_t capacity, bd_error *err);
void bd_block_window_release(bd_block_window *window);  // safe on an empty one and safe twice

// Makes sure that record batch `batch` of the shard, which loads later, is loaded, until as
// many others as there is room for were read.
bd_status bd_block_window_load(bd_block_window *window, bd_shard *shard, int64_t batch,
                               bd_error *err);

#endif
