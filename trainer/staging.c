#include "trainer/staging.h"

#include <stdlib.h>

#include "common/size.h"

static bd_status allocate(bd_staging *staging, void **memory, int64_t n, size_t size_bytes,
                          bd_error *err)
{
    size_t total;
    if (!bd_size_mul((size_t)n, size_bytes, &total))
        return bd_fail(err, BD_ERR_MEMORY, "a batch is too large");
    return staging->backend->operations->allocate(staging->backend, total, memory, err);
}

bd_status bd_staging_init(bd_staging *staging, bd_backend *backend, int64_t max_tokens,
                          bd_error *err)
{
    *staging = (bd_staging){.backend = backend};
    if (backend->operations->works_on_host)
        return BD_OK;
    // Every token may be a segment, and even a row.
    bd_status status = BD_OK;
    staging->counted = malloc(((size_t)max_tokens + 1) * sizeof *staging->counted);
    if (!staging->counted)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a batch");
    if (status == BD_OK)
        status = allocate(staging, &staging->ids, max_tokens, sizeof(uint32_t), err);
    for (int i = 0; status == BD_OK && i < BD_STAGED_BOUNDARIES; i++) {
        status = allocate(staging, &staging->offsets[i], max_tokens + 1, sizeof(int32_t), err);
        if (status == BD_OK)
            status =
                allocate(staging, &staging->values[i], 2 * max_tokens, sizeof(int32_t), err);
    }
    if (status != BD_OK)
        bd_staging_release(staging);
    return status;
}

void bd_staging_release(bd_staging *staging)
{
    if (!staging->backend)
        return;
    const bd_operations *operations = staging->backend->operations;
    operations->release(staging->backend, staging->ids);
    for (int i = 0; i < BD_STAGED_BOUNDARIES; i++) {
        operations->release(staging->backend, staging->offsets[i]);
        operations->release(staging->backend, staging->values[i]);
    }
    free(staging->counted);
    *staging = (bd_staging){0};
}

static bd_status stage_boundaries(bd_staging *staging, int which, const bd_boundaries *host,
                                  bd_boundaries *staged, bd_error *err)
{
    const bd_operations *operations = staging->backend->operations;
    const int32_t first = host->offsets[0];
    const size_t n_offsets = (size_t)host->n_rows + 1;
    const size_t n_values = (size_t)(host->offsets[host->n_rows] - first);
    for (size_t i = 0; i < n_offsets; i++)
        staging->counted[i] = host->offsets[i] - first;
    BD_TRY(operations->upload(staging->backend, staging->offsets[which], staging->counted,
                              n_offsets * sizeof(int32_t), err));
    BD_TRY(operations->upload(staging->backend, staging->values[which], host->values + first,
                              n_values * sizeof(int32_t), err));
    *staged = (bd_boundaries){host->n_rows, host->seq_len, staging->offsets[which],
                              staging->values[which]};
    return BD_OK;
}

static bool same_boundaries(const bd_boundaries *a, const bd_boundaries *b)
{
    return a->n_rows == b->n_rows && a->offsets == b->offsets && a->values == b->values;
}

bd_status bd_stage(bd_staging *staging, const bd_model_batch *host, bd_model_batch *staged,
                   bd_error *err)
{
    const bd_operations *operations = staging->backend->operations;
    const int64_t n_tokens = host->attention.n_rows * host->attention.seq_len;
    *staged = *host;
    if (operations->works_on_host)
        return BD_OK;
    staged->ids = staging->ids;
    BD_TRY(operations->upload(staging->backend, staging->ids, host->ids,
                              (size_t)(n_tokens * host->id_bytes), err));
    BD_TRY(stage_boundaries(staging, 0, &host->attention, &staged->attention, err));
    staged->positions = staged->targets = staged->attention;
    if (!same_boundaries(&host->positions, &host->attention))
        BD_TRY(stage_boundaries(staging, 1, &host->positions, &staged->positions, err));
    if (!same_boundaries(&host->targets, &host->attention))
        BD_TRY(stage_boundaries(staging, 2, &host->targets, &staged->targets, err));
    return BD_OK;
}
