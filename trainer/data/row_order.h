// row_order.h - which row comes when: a formula of seed, epoch and place, with no state to
// lose.
//
//   blocks   the record batches of all shards, in order
//   epoch    the blocks shuffled; then windows of 16 neighbours of that order, and the rows of
//            each window shuffled among themselves
//
// so that every epoch has every row exactly once, and yet few files are read at a time. Both
// shuffles are seeded with seed and epoch (and window), so a place is found in three steps: its
// epoch, its window (by bisection, because blocks differ in size), and its row in the shuffled
// window; the last epoch and window are kept. The order is the same for any number of ranks and
// any batch size, and a resumed run just goes on counting.
#ifndef BINDERY_TRAINER_DATA_ROW_ORDER_H
#define BINDERY_TRAINER_DATA_ROW_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"

typedef struct bd_row_order {
    uint64_t seed;
    int64_t n_rows;
    int64_t n_blocks;
    int64_t *block_begins;  // [n_blocks + 1], owned: first row of each block in the dataset
    // The epoch and window that were asked for last.
    int64_t epoch, window;
    int64_t *blocks;         // [n_blocks], owned: the epoch's order of blocks
    int64_t *window_begins;  // [n_windows + 1], owned: first place of each window in the epoch
    int64_t n_windows;
    int64_t *rows;  // owned: the window's rows in order
    size_t rows_capacity;
} bd_row_order;

// For the rows of `manifest`, which is only read during the call. Release what comes out.
bd_status bd_row_order_init(bd_row_order *order, const bd_manifest *manifest, uint64_t seed,
                            bd_error *err);

// The row at place g of the endless sequence: place g % n_rows of epoch g / n_rows. Cheap for
// neighbouring g; otherwise a window, or an epoch's blocks, are shuffled anew.
bd_status bd_row_order_at(bd_row_order *order, int64_t g, int64_t *row, bd_error *err);

void bd_row_order_release(bd_row_order *order);  // safe on an empty struct and safe twice

#endif
