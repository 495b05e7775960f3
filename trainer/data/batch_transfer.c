#include "trainer/data/batch_transfer.h"

#include <assert.h>
#include <stdlib.h>

#include "common/base/memory.h"

static bd_status allocate(bd_batch_transfer *transfer, void **memory, int64_t n,
                          size_t size_bytes, bd_error *err)
{
    size_t total;
    if (!bd_size_mul((size_t)n, size_bytes, &total))
        return bd_fail(err, BD_ERR_MEMORY, "a batch is too large");
    return transfer->backend->operations->allocate(transfer->backend, total, memory, err);
}

// Every token may be a segment, and even a row. A mask's row of n tokens lies in at most
// (n + 14) / 8 bytes, which is never more than n.
static bd_status allocate_slot(bd_batch_transfer *transfer, bd_transfer_slot *slot,
                               int64_t max_tokens, bd_error *err)
{
    BD_TRY(allocate(transfer, &slot->ids, max_tokens, sizeof(uint32_t), err));
    BD_TRY(allocate(transfer, &slot->mask_bits, max_tokens, 1, err));
    BD_TRY(allocate(transfer, &slot->mask_offsets, max_tokens, sizeof(int64_t), err));
    for (int i = 0; i < BD_BATCH_BOUNDARIES; i++) {
        BD_TRY(allocate(transfer, &slot->offsets[i], max_tokens + 1, sizeof(int32_t), err));
        BD_TRY(allocate(transfer, &slot->values[i], 2 * max_tokens, sizeof(int32_t), err));
    }
    return BD_OK;
}

// As much as allocate_slot() allocates.
size_t bd_transfer_slot_bytes(int64_t max_tokens)
{
    const size_t n = (size_t)max_tokens, n_of_mask = n * (1 + sizeof(int64_t));
    return n * sizeof(uint32_t) + n_of_mask +
           BD_BATCH_BOUNDARIES * (3 * n + 1) * sizeof(int32_t);
}

bd_status bd_batch_transfer_init(bd_batch_transfer *transfer, bd_backend *backend,
                                 int64_t max_tokens, bd_error *err)
{
    *transfer = (bd_batch_transfer){.backend = backend};
    if (backend->operations->works_on_host)
        return BD_OK;
    bd_status status = BD_OK;
    transfer->counted = malloc(((size_t)max_tokens + 1) * sizeof *transfer->counted);
    transfer->counted_bits = malloc((size_t)max_tokens * sizeof *transfer->counted_bits);
    if (!transfer->counted || !transfer->counted_bits)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a batch");
    for (int i = 0; status == BD_OK && i < BD_TRANSFER_SLOTS; i++)
        status = allocate_slot(transfer, &transfer->slots[i], max_tokens, err);
    if (status != BD_OK)
        bd_batch_transfer_release(transfer);
    return status;
}

void bd_batch_transfer_release(bd_batch_transfer *transfer)
{
    if (!transfer->backend)
        return;
    const bd_operations *operations = transfer->backend->operations;
    for (int i = 0; i < BD_TRANSFER_SLOTS; i++) {
        const bd_transfer_slot *slot = &transfer->slots[i];
        operations->release(transfer->backend, slot->ids);
        operations->release(transfer->backend, slot->mask_bits);
        operations->release(transfer->backend, slot->mask_offsets);
        for (int k = 0; k < BD_BATCH_BOUNDARIES; k++) {
            operations->release(transfer->backend, slot->offsets[k]);
            operations->release(transfer->backend, slot->values[k]);
        }
    }
    free(transfer->counted);
    free(transfer->counted_bits);
    *transfer = (bd_batch_transfer){0};
}

static bool same_boundaries(const bd_boundaries *a, const bd_boundaries *b)
{
    return a->n_rows == b->n_rows && a->seq_len == b->seq_len && a->offsets == b->offsets &&
           a->values == b->values;
}

// Sends the whole bytes that hold the rows' bits, as they are.
static bd_status send_mask(bd_batch_transfer *transfer, const bd_model_batch *host, int number,
                           bd_error *err)
{
    bd_backend *backend = transfer->backend;
    const bd_transfer_slot *slot = &transfer->slots[number];
    const int64_t n_rows = host->attention.n_rows, seq_len = host->attention.seq_len;
    int64_t first = INT64_MAX, last = 0;  // bytes
    for (int64_t r = 0; r < n_rows; r++)
        if (bd_row_has_mask(&host->mask, r)) {
            const int64_t begin = host->mask.offsets[r] / 8;
            const int64_t end = (host->mask.offsets[r] + seq_len + 7) / 8;
            first = begin < first ? begin : first;
            last = end > last ? end : last;
        }
    for (int64_t r = 0; r < n_rows; r++)
        transfer->counted_bits[r] = bd_row_has_mask(&host->mask, r)
                                        ? host->mask.offsets[r] - 8 * first
                                        : BD_ALL_TRAINED;
    BD_TRY(backend->operations->send(backend, number, slot->mask_offsets,
                                     transfer->counted_bits, (size_t)n_rows * sizeof(int64_t),
                                     err));
    if (last == 0)  // no row of this batch has one
        return BD_OK;
    assert(last - first <= n_rows * ((seq_len + 14) / 8));
    return backend->operations->send(backend, number, slot->mask_bits, host->mask.bits + first,
                                     (size_t)(last - first), err);
}

bd_status bd_batch_send(bd_batch_transfer *transfer, const bd_model_batch *host,
                        bd_sent_batch *sent, bd_error *err)
{
    bd_backend *backend = transfer->backend;
    const bd_operations *operations = backend->operations;
    *sent = (bd_sent_batch){.host = *host};
    if (operations->works_on_host)
        return BD_OK;
    // In turn, because operations that were queued earlier may still read from the last slot.
    int number = (transfer->last_slot + 1) % BD_TRANSFER_SLOTS;
    if (transfer->slots[number].in_use)
        number = transfer->last_slot;
    bd_transfer_slot *slot = &transfer->slots[number];
    assert(!slot->in_use);
    slot->in_use = true;
    transfer->last_slot = sent->slot = number;
    const int64_t n_tokens = host->attention.n_rows * host->attention.seq_len;
    BD_TRY(operations->send(backend, number, slot->ids, host->ids,
                            (size_t)(n_tokens * host->id_bytes), err));
    if (host->mask.bits)
        BD_TRY(send_mask(transfer, host, number, err));
    for (int k = 0; k < BD_BATCH_BOUNDARIES; k++) {
        const bd_boundaries *boundaries = &host->boundaries[k];
        if (k > 0 && same_boundaries(boundaries, &host->boundaries[0]))
            continue;  // the first serve for both
        const int32_t first = boundaries->offsets[0];
        const size_t n_offsets = (size_t)boundaries->n_rows + 1;
        const size_t n_values = (size_t)(boundaries->offsets[boundaries->n_rows] - first);
        for (size_t i = 0; i < n_offsets; i++)
            transfer->counted[i] = boundaries->offsets[i] - first;
        BD_TRY(operations->send(backend, number, slot->offsets[k], transfer->counted,
                                n_offsets * sizeof(int32_t), err));
        BD_TRY(operations->send(backend, number, slot->values[k], boundaries->values + first,
                                n_values * sizeof(int32_t), err));
    }
    return BD_OK;
}

bd_status bd_batch_receive(bd_batch_transfer *transfer, const bd_sent_batch *sent,
                           bd_model_batch *there, bd_error *err)
{
    *there = sent->host;
    if (transfer->backend->operations->works_on_host)
        return BD_OK;
    BD_TRY(transfer->backend->operations->arrive(transfer->backend, sent->slot, err));
    const bd_transfer_slot *slot = &transfer->slots[sent->slot];
    there->ids = slot->ids;
    if (there->mask.bits)
        there->mask = (bd_loss_mask){slot->mask_bits, slot->mask_offsets};
    for (int k = 0; k < BD_BATCH_BOUNDARIES; k++) {
        const int at =
            same_boundaries(&there->boundaries[k], &sent->host.boundaries[0]) ? 0 : k;
        there->boundaries[k].offsets = slot->offsets[at];
        there->boundaries[k].values = slot->values[at];
    }
    return BD_OK;
}

bd_status bd_batch_finish(bd_batch_transfer *transfer, const bd_sent_batch *sent, bd_error *err)
{
    if (transfer->backend->operations->works_on_host)
        return BD_OK;
    transfer->slots[sent->slot].in_use = false;
    return transfer->backend->operations->leave(transfer->backend, sent->slot, err);
}
