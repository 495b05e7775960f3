#include "packer/input/slice_buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/base/memory.h"

static bd_status copy_record(bd_slice_buffer *g, const bd_record *record, bd_error *err)
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
static void point_into_bytes(bd_slice_buffer *g)
{
    const char *data = g->bytes;
    for (size_t i = 0; i < g->n; i++) {
        g->records[i].data = data;
        data += g->records[i].size_bytes;
    }
    if (g->bytes)
        memset(g->bytes + g->n_bytes, 0, BD_RECORD_PADDING);
}

bd_status bd_slice_buffer_fill(bd_slice_buffer *buffer, bd_reader *reader, int64_t limit,
                               bd_error *err)
{
    assert(limit > 0);
    buffer->n = buffer->n_bytes = 0;
    bd_record record = {0};
    bool found = true;
    while ((int64_t)buffer->n < limit) {
        BD_TRY(bd_reader_next(reader, &record, &found, err));
        if (!found)
            break;
        BD_TRY(copy_record(buffer, &record, err));
    }
    buffer->last = found;
    if (!found)
        BD_TRY(bd_reader_is_last(reader, &buffer->last, err));
    point_into_bytes(buffer);
    return BD_OK;
}

bd_status bd_slice_buffer_digests(const bd_slice_buffer *buffer, size_t n,
                                  bd_record_digests *digests, bd_error *err)
{
    bd_record_hashes *hashes = bd_record_hashes_new();
    if (!hashes)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    for (size_t i = 0; i < n; i++)
        bd_record_hashes_add(hashes, 0, &buffer->records[i]);  // all are of one input
    *digests = bd_record_hashes_take(hashes);
    bd_record_hashes_free(hashes);
    return BD_OK;
}

void bd_slice_buffer_release(bd_slice_buffer *buffer)
{
    free(buffer->bytes);
    free(buffer->records);
    *buffer = (bd_slice_buffer){0};
}
