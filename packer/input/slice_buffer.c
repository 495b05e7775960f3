#include "packer/input/slice_buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/base/memory.h"

static bd_status add_record(bd_gathered *g, const bd_record *record, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&g->bytes, &g->capacity,
                            g->n_bytes + record->size_bytes + BD_RECORD_PADDING, 1, err));
    BD_TRY(bd_array_reserve((void **)&g->records, &g->records_capacity, g->n + 1,
                            sizeof *g->records, err));
    if (record->size_bytes > 0)
        memcpy(g->bytes + g->n_bytes, record->data, record->size_bytes);
    g->records[g->n++] = *record;
    g->n_bytes += record->size_bytes;
    return BD_OK;
}

// The bytes may have moved while they were gathered; now they stay where they are.
static void point_into_bytes(bd_gathered *g)
{
    const char *data = g->bytes;
    for (size_t i = 0; i < g->n; i++) {
        g->records[i].data = data;
        data += g->records[i].size_bytes;
    }
    if (g->bytes)
        memset(g->bytes + g->n_bytes, 0, BD_RECORD_PADDING);
}

bd_status bd_gather(bd_gathered *gathered, bd_reader *reader, int64_t limit, bd_error *err)
{
    assert(limit > 0);
    gathered->n = gathered->n_bytes = 0;
    bd_record record = {0};
    bool found = true;
    while ((int64_t)gathered->n < limit) {
        BD_TRY(bd_interrupt_check(err));
        BD_TRY(bd_reader_next(reader, &record, &found, err));
        if (!found)
            break;
        BD_TRY(add_record(gathered, &record, err));
    }
    gathered->last = found;
    if (!found)
        BD_TRY(bd_reader_is_last(reader, &gathered->last, err));
    point_into_bytes(gathered);
    return BD_OK;
}

bd_status bd_gathered_digests(const bd_gathered *gathered, size_t n, bd_record_digests *digests,
                              bd_error *err)
{
    bd_record_hashes *hashes = bd_record_hashes_new();
    if (!hashes)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    for (size_t i = 0; i < n; i++)
        bd_record_hashes_add(hashes, 0, &gathered->records[i]);  // all are of one input
    *digests = bd_record_hashes_take(hashes);
    bd_record_hashes_free(hashes);
    return BD_OK;
}

void bd_gathered_release(bd_gathered *gathered)
{
    free(gathered->bytes);
    free(gathered->records);
    *gathered = (bd_gathered){0};
}
