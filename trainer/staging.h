// staging.h - a batch brought to where the backend's operations read it.
//
// The loader hands over ids and boundaries in the host's memory, for neighbouring rows in the
// mapped file itself. A backend that works on the host reads them there; for any other they are
// copied, unchanged but for offsets that count from 0.
#ifndef BINDERY_TRAINER_STAGING_H
#define BINDERY_TRAINER_STAGING_H

#include <stdint.h>

#include "common/error.h"
#include "kernels/backend.h"

// A batch. The three boundaries are one and the same, except where `prove --sabotage` breaks
// one on purpose to show that it is noticed.
typedef struct bd_model_batch {
    const void *ids;
    int32_t id_bytes;
    bd_boundaries attention, positions, targets;
} bd_model_batch;

enum { BD_STAGED_BOUNDARIES = 3 };

typedef struct bd_staging {
    bd_backend *backend;                  // borrowed
    void *ids;                            // the backend's memory, owned, and so are the others;
    void *offsets[BD_STAGED_BOUNDARIES];  // NULL if the backend works on the host
    void *values[BD_STAGED_BOUNDARIES];
    int32_t *counted;  // owned: offsets that count from 0
} bd_staging;

// Room for batches of up to `max_tokens` tokens, padding included. Release what comes out.
bd_status bd_staging_init(bd_staging *staging, bd_backend *backend, int64_t max_tokens,
                          bd_error *err);
void bd_staging_release(bd_staging *staging);  // safe on an empty struct and safe twice

// *staged is `host`, its pointers in the backend's memory; good until the next call.
bd_status bd_stage(bd_staging *staging, const bd_model_batch *host, bd_model_batch *staged,
                   bd_error *err);

#endif
