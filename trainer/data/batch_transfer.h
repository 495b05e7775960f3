// batch_transfer.h - brings batches to where the backend's operations read them.
//
// The loader hands over tokens, boundaries and masks in the host's memory, for neighbouring rows
// in the mapped file itself. A backend that works on the host reads them there; for any other
// they are copied into a transfer slot, unchanged except for offsets, which count from the first
// value or byte that is sent.
// There are two slots, so that one batch travels while another is computed. Every batch passes
// through
//
//   bd_batch_send()     the batch travels to a free slot
//   bd_batch_receive()  operations that are queued from now on may read it there
//   bd_batch_finish()   operations that are queued from now on do not; the slot is free again
#ifndef BINDERY_TRAINER_DATA_BATCH_TRANSFER_H
#define BINDERY_TRAINER_DATA_BATCH_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/data/batch.h"

// The backend's memory, owned; all NULL if the backend works on the host.
typedef struct bd_transfer_slot {
    void *ids;
    void *mask_bits, *mask_offsets;
    void *offsets[BD_BATCH_BOUNDARIES];
    void *values[BD_BATCH_BOUNDARIES];
    bool in_use;  // a batch was sent here and is not finished
} bd_transfer_slot;

typedef struct bd_batch_transfer {
    bd_backend *backend;  // borrowed
    bd_transfer_slot slots[BD_TRANSFER_SLOTS];
    int last_slot;          // to which a batch was sent last
    int32_t *counted;       // owned: offsets that count from 0
    int64_t *counted_bits;  // the same for masks
} bd_batch_transfer;

// A batch that was sent. No batch: an empty struct.
typedef struct bd_sent_batch {
    bd_model_batch host;  // the batch in the host's memory
    int slot;
} bd_sent_batch;

static inline bool bd_is_sent(const bd_sent_batch *sent)
{
    return sent->host.attention.n_rows > 0;
}

// What one slot takes of the backend's memory, for batches of up to `max_tokens` tokens.
size_t bd_transfer_slot_bytes(int64_t max_tokens);

// Room for batches of up to `max_tokens` tokens, padding included. Release what comes out.
bd_status bd_batch_transfer_init(bd_batch_transfer *transfer, bd_backend *backend,
                                 int64_t max_tokens, bd_error *err);
void bd_batch_transfer_release(bd_batch_transfer *transfer);  // safe when empty, and twice

// Sends a batch of at least one row, which must stay as it is until it is finished. At most two
// batches may be unfinished at a time.
bd_status bd_batch_send(bd_batch_transfer *transfer, const bd_model_batch *host,
                        bd_sent_batch *sent, bd_error *err);
// *there is the batch as operations take it, until it is finished.
bd_status bd_batch_receive(bd_batch_transfer *transfer, const bd_sent_batch *sent,
                           bd_model_batch *there, bd_error *err);
bd_status bd_batch_finish(bd_batch_transfer *transfer, const bd_sent_batch *sent,
                          bd_error *err);

#endif
