#include "trainer/data/batch_transfer.h"

#include <stdlib.h>

#include "common/base/size.h"

static bd_status allocate(bd_staging *staging, void **memory, int64_t n, size_t size_bytes,
                          bd_error *err)
{
    size_t total;
    if (!bd_size_mul((size_t)n, size_bytes, &total))
        return bd_fail(err, BD_ERR_MEMORY, "a batch is too large");
    return staging->backend->operations->allocate(staging->backend, total, memory, err);
}

// Every token may be a segment, and even a row.
static bd_status allocate_batch(bd_staging *staging, bd_staged_batch *batch, int64_t max_tokens,
                                bd_error *err)
{
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        BD_TRY(allocate(staging, &batch->columns[c],
                        (int64_t)bd_column_bytes(max_tokens, bd_token_bits(c, 4)), 1, err));
    for (int i = 0; i < BD_STAGED_BOUNDARIES; i++) {
        BD_TRY(allocate(staging, &batch->offsets[i], max_tokens + 1, sizeof(int32_t), err));
        BD_TRY(allocate(staging, &batch->values[i], 2 * max_tokens, sizeof(int32_t), err));
    }
    return BD_OK;
}

bd_status bd_staging_init(bd_staging *staging, bd_backend *backend, int64_t max_tokens,
                          bd_error *err)
{
    *staging = (bd_staging){.backend = backend};
    if (backend->operations->works_on_host)
        return BD_OK;
    bd_status status = BD_OK;
    staging->counted = malloc(((size_t)max_tokens + 1) * sizeof *staging->counted);
    if (!staging->counted)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a batch");
    for (int lane = 0; status == BD_OK && lane < BD_TRANSFER_SLOTS; lane++)
        status = allocate_batch(staging, &staging->batches[lane], max_tokens, err);
    if (status != BD_OK)
        bd_staging_release(staging);
    return status;
}

void bd_staging_release(bd_staging *staging)
{
    if (!staging->backend)
        return;
    const bd_operations *operations = staging->backend->operations;
    for (int lane = 0; lane < BD_TRANSFER_SLOTS; lane++) {
        const bd_staged_batch *batch = &staging->batches[lane];
        for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
            operations->release(staging->backend, batch->columns[c]);
        for (int i = 0; i < BD_STAGED_BOUNDARIES; i++) {
            operations->release(staging->backend, batch->offsets[i]);
            operations->release(staging->backend, batch->values[i]);
        }
    }
    free(staging->counted);
    *staging = (bd_staging){0};
}

static bool same_boundaries(const bd_boundaries *a, const bd_boundaries *b)
{
    return a->n_rows == b->n_rows && a->seq_len == b->seq_len && a->offsets == b->offsets &&
           a->values == b->values;
}

static bool same_batch(const bd_model_batch *a, const bd_model_batch *b)
{
    return a->ids == b->ids && a->id_bytes == b->id_bytes &&
           same_boundaries(&a->attention, &b->attention) &&
           same_boundaries(&a->positions, &b->positions) &&
           same_boundaries(&a->targets, &b->targets);
}

static bd_status send(bd_staging *staging, void *to, const void *from, size_t size_bytes,
                      bd_error *err)
{
    return staging->backend->operations->send(staging->backend, staging->turn, to, from,
                                              size_bytes, err);
}

static bd_status send_boundaries(bd_staging *staging, int which, const bd_boundaries *host,
                                 bd_error *err)
{
    const bd_staged_batch *batch = &staging->batches[staging->turn];
    const int32_t first = host->offsets[0];
    const size_t n_offsets = (size_t)host->n_rows + 1;
    const size_t n_values = (size_t)(host->offsets[host->n_rows] - first);
    for (size_t i = 0; i < n_offsets; i++)
        staging->counted[i] = host->offsets[i] - first;
    BD_TRY(send(staging, batch->offsets[which], staging->counted, n_offsets * sizeof(int32_t),
                err));
    return send(staging, batch->values[which], host->values + first, n_values * sizeof(int32_t),
                err);
}

static bd_status send_batch(bd_staging *staging, const bd_model_batch *host, bd_error *err)
{
    bd_staged_batch *batch = &staging->batches[staging->turn];
    const int64_t n_tokens = host->attention.n_rows * host->attention.seq_len;
    batch->host = *host;
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        BD_TRY(send(staging, batch->columns[c], host->columns[c],
                    bd_column_bytes(n_tokens, bd_token_bits(c, host->id_bytes)), err));
    BD_TRY(send_boundaries(staging, 0, &host->attention, err));
    if (!same_boundaries(&host->positions, &host->attention))
        BD_TRY(send_boundaries(staging, 1, &host->positions, err));
    if (!same_boundaries(&host->targets, &host->attention))
        BD_TRY(send_boundaries(staging, 2, &host->targets, err));
    return BD_OK;
}

bd_status bd_stage_ahead(bd_staging *staging, const bd_model_batch *host, bd_error *err)
{
    if (staging->backend->operations->works_on_host)
        return BD_OK;
    BD_TRY(send_batch(staging, host, err));
    staging->batches[staging->turn].sent_ahead = true;
    return BD_OK;
}

// Where boundary `which` lies, or the first if it is the same.
static bd_boundaries staged_boundaries(const bd_staged_batch *batch, int which,
                                       const bd_boundaries *host)
{
    const int at = same_boundaries(host, &batch->host.attention) ? 0 : which;
    return (bd_boundaries){host->n_rows, host->seq_len, batch->offsets[at], batch->values[at]};
}

bd_status bd_stage(bd_staging *staging, const bd_model_batch *host, bd_model_batch *staged,
                   bd_error *err)
{
    const bd_operations *operations = staging->backend->operations;
    bd_staged_batch *batch = &staging->batches[staging->turn];
    *staged = *host;
    if (operations->works_on_host)
        return BD_OK;
    const bool is_there = batch->sent_ahead && same_batch(&batch->host, host);
    batch->sent_ahead = false;
    if (!is_there)
        BD_TRY(send_batch(staging, host, err));
    BD_TRY(operations->arrive(staging->backend, staging->turn, err));
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        staged->columns[c] = batch->columns[c];
    staged->attention = staged_boundaries(batch, 0, &host->attention);
    staged->positions = staged_boundaries(batch, 1, &host->positions);
    staged->targets = staged_boundaries(batch, 2, &host->targets);
    return BD_OK;
}

bd_status bd_stage_done(bd_staging *staging, bd_error *err)
{
    const bd_operations *operations = staging->backend->operations;
    if (operations->works_on_host)
        return BD_OK;
    BD_TRY(operations->leave(staging->backend, staging->turn, err));
    staging->turn = (staging->turn + 1) % BD_TRANSFER_SLOTS;
    return BD_OK;
}
