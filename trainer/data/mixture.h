// mixture.h - which row of several datasets comes when: a formula of seed, weights and place,
// with no state to lose.
//
//   slots     0 1 2 3 …            of the endless sequence
//   blocks    1,024 slots each     hold so many rows of every dataset, its share, in an
//                                  order that seed and block decide
//   dataset   its own places       0 1 2 3 …, in the order of row_order.h, for ever
//
// Slot g lies in block b = g / 1,024. If the slot is the dataset's i-th one in that block, it
// has the dataset's place b * share + i: every dataset is read in its own order, nothing is
// skipped, and no slot depends on what was asked for earlier. A single dataset has the order of
// row_order.h itself.
#ifndef BINDERY_TRAINER_DATA_MIXTURE_H
#define BINDERY_TRAINER_DATA_MIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "trainer/data/row_order.h"
#include "trainer/data/rows.h"

enum { BD_MIXTURE_BLOCK = 1024 };

// The shares of n datasets by weights that are more than 0: rounded so that they add up to a
// block (largest remainders are rounded up). A dataset without a row is BD_ERR_ARGUMENT, which
// names it by its place, from 1 on.
bd_status bd_mixture_shares(const double *weights, size_t n, int64_t *shares, bd_error *err);

typedef struct bd_mixture {
    const bd_rows *rows;   // borrowed
    bd_row_order *orders;  // [rows->n_datasets], owned
    uint64_t seed;
    // The block that was asked for last.
    int64_t block;
    int64_t datasets[BD_MIXTURE_BLOCK];  // of each slot
    int64_t earlier[BD_MIXTURE_BLOCK];   // earlier slots of the block with the same dataset
} bd_mixture;

// `rows` must outlive the mixture. Release what comes out.
bd_status bd_mixture_init(bd_mixture *mixture, const bd_rows *rows, uint64_t seed,
                          bd_error *err);

// The number of the row at slot g. Cheap for neighbouring g.
bd_status bd_mixture_at(bd_mixture *mixture, int64_t g, int64_t *number, bd_error *err);

void bd_mixture_release(bd_mixture *mixture);  // safe on an empty struct and safe twice

#endif
