// loader.h - batches in the order of the run, one of them loaded ahead by a thread of its own.
#ifndef BINDERY_TRAINER_DATA_LOADER_H
#define BINDERY_TRAINER_DATA_LOADER_H

#include <stdint.h>

#include "common/base/error.h"
#include "trainer/data/batch.h"

typedef struct bd_loader bd_loader;

typedef struct bd_loader_order {
    uint64_t seed;            // of the order of mixture.h
    int64_t batch_rows;       // rows of a batch
    int64_t first_place;      // of the endless sequence, where the first batch begins
    int32_t n_ranks;          // a batch is divided (balance.h) among so many ranks,
    int64_t n_micro_batches;  // each of which computes so many parts
} bd_loader_order;

// A batch of all ranks. Its rows lie part after part, within a part in the order of the run.
typedef struct bd_balanced_batch {
    bd_batch batch;
    int64_t *part_ends;  // [n_ranks * n_micro_batches], owned by the loader
} bd_balanced_batch;

// Reads `rows` (borrowed). Free with bd_loader_free().
bd_status bd_loader_new(bd_loader **loader, const bd_rows *rows, const bd_loader_order *order,
                        bd_error *err);

// The next batch, borrowed until the call after this one. A row that breaks a rule is an error
// that names it, and the end: every later call gives the same error.
bd_status bd_loader_next(bd_loader *loader, const bd_balanced_batch **batch, bd_error *err);

// The batch that bd_loader_next() will give, if it is loaded already; NULL if not. It stays as
// it is until the call after that.
const bd_balanced_batch *bd_loader_peek(bd_loader *loader);

void bd_loader_free(bd_loader *loader);  // safe on NULL

#endif
