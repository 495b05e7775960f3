// batch_transfer.h - a batch brought to where the backend's operations read it.
//
// The loader hands over ids and boundaries in the host's memory, for neighbouring rows in the
// mapped file itself. A backend that works on the host reads them there; for any other they are
// copied, unchanged but for offsets that count from 0. There is room for two batches, so that
// one travels while the other is computed.
#ifndef BINDERY_TRAINER_DATA_BATCH_TRANSFER_H
#define BINDERY_TRAINER_DATA_BATCH_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/data/batch.h"

enum { BD_STAGED_BOUNDARIES = 3 };

// The backend's memory, owned; all NULL if the backend works on the host.
typedef struct bd_staged_batch {
    void *columns[BD_N_TOKEN_COLUMNS];
    void *offsets[BD_STAGED_BOUNDARIES];
    void *values[BD_STAGED_BOUNDARIES];
    bd_model_batch host;  // what was sent
    bool sent_ahead;      // and is not used yet
} bd_staged_batch;

typedef struct bd_staging {
    bd_backend *backend;                         // borrowed
    bd_staged_batch batches[BD_TRANSFER_SLOTS];  // one for each of the backend's lanes
    int turn;                                    // the lane of the batch that is used next
    int32_t *counted;                            // owned: offsets that count from 0
} bd_staging;

// Room for batches of up to `max_tokens` tokens, padding included. Release what comes out.
bd_status bd_staging_init(bd_staging *staging, bd_backend *backend, int64_t max_tokens,
                          bd_error *err);
void bd_staging_release(bd_staging *staging);  // safe on an empty struct and safe twice

// The batch as operations take it, from now until bd_stage_done().
bd_status bd_stage(bd_staging *staging, const bd_model_batch *host, bd_model_batch *staged,
                   bd_error *err);
// No operation that is queued later reads that batch.
bd_status bd_stage_done(bd_staging *staging, bd_error *err);
// Sends the batch that the next bd_stage() will ask for; what it points to must stay as it is
// until then.
bd_status bd_stage_ahead(bd_staging *staging, const bd_model_batch *host, bd_error *err);

#endif
