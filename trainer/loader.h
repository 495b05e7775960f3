// loader.h - batches in the order of the run, one of them loaded ahead by a thread of its own.
#ifndef BINDERY_TRAINER_LOADER_H
#define BINDERY_TRAINER_LOADER_H

#include <stdint.h>

#include "common/error.h"
#include "trainer/batch.h"

typedef struct bd_loader bd_loader;

// Reads `rows` (borrowed) in the order of mixture.h with `seed`, `batch_rows` rows at a time,
// beginning with place `first_place` of the endless sequence. Free with bd_loader_free().
bd_status bd_loader_new(bd_loader **loader, const bd_rows *rows, uint64_t seed,
                        int64_t batch_rows, int64_t first_place, bd_error *err);

// The next batch, borrowed until the call after this one. A row that breaks a rule is an error
// that names it, and the end: every later call gives the same error.
bd_status bd_loader_next(bd_loader *loader, const bd_batch **batch, bd_error *err);

// The batch that bd_loader_next() will give, if it is loaded already; NULL if not. It stays as
// it is until the call after that.
const bd_batch *bd_loader_peek(bd_loader *loader);

void bd_loader_free(bd_loader *loader);  // safe on NULL

#endif
