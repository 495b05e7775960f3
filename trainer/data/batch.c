#include "trainer/data/batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

// Makes ids and boundaries the batch's row r, behind those before it.
static bd_status copy_row(bd_batch *batch, int64_t r, const void *ids, const int32_t *bounds,
                          int64_t n_bounds, bd_error *err)
{
    const size_t row_bytes = (size_t)(batch->boundaries.seq_len * batch->id_bytes);
    const size_t n_values = r > 0 ? (size_t)batch->offset_buffer[r] : 0;
    if (n_values + (size_t)n_bounds > INT32_MAX)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the rows of one batch have more than 2^31 - 1 boundaries");
    BD_TRY(bd_array_reserve(&batch->id_buffer, &batch->id_capacity, (size_t)(r + 1) * row_bytes,
                            1, err));
    BD_TRY(bd_array_reserve((void **)&batch->offset_buffer, &batch->offset_capacity,
                            (size_t)r + 2, sizeof *batch->offset_buffer, err));
    BD_TRY(bd_array_reserve((void **)&batch->value_buffer, &batch->value_capacity,
                            n_values + (size_t)n_bounds, sizeof *batch->value_buffer, err));
    memcpy((char *)batch->id_buffer + (size_t)r * row_bytes, ids, row_bytes);
    memcpy(batch->value_buffer + n_values, bounds,
           (size_t)n_bounds * sizeof *batch->value_buffer);
    batch->offset_buffer[0] = 0;
    batch->offset_buffer[r + 1] = (int32_t)(n_values + (size_t)n_bounds);
    return BD_OK;
}

// The record batch that holds the rows as neighbours, from its row *first on; NULL if none
// does.
static const bd_row_batch *common_record_batch(const bd_rows *rows, const int64_t *numbers,
                                               int64_t n, int64_t *first)
{
    for (int64_t i = 1; i < n; i++)
        if (numbers[i] != numbers[0] + i)
            return NULL;
    const bd_shard *shard = bd_rows_shard(rows, numbers[0], first);
    if (shard->loads_later)  // what is in memory now may not be for long
        return NULL;
    const int64_t block = *first / shard->packing.batch_rows;
    *first %= shard->packing.batch_rows;
    const bd_row_batch *record = bd_arrow_reader_batch(shard->reader, block);
    return *first + n <= record->n_rows ? record : NULL;
}

static void point_to_copies(bd_batch *batch)
{
    batch->ids = batch->id_buffer;
    batch->boundaries.offsets = batch->offset_buffer;
    batch->boundaries.values = batch->value_buffer;
}

// At the file itself.
static void point_to_record(bd_batch *batch, const bd_row_batch *record, int64_t first)
{
    const int64_t row_bytes = batch->boundaries.seq_len * batch->id_bytes;
    batch->ids = (const char *)record->ids + first * row_bytes;
    batch->boundaries.offsets = record->bound_offsets + first;
    batch->boundaries.values = record->bounds;
}

// A model was found to have positions for what the shard claims to be its longest segment.
static bd_status check_longest(const bd_shard *shard, int64_t number, const bd_row *row,
                               bd_error *err)
{
    for (int64_t k = 0; k < row->n_segments; k++)
        if (row->bounds[k + 1] - row->bounds[k] > shard->entry.figures.longest_segment)
            return bd_fail(err, BD_ERR_FORMAT,
                           "'%s', row %" PRId64
                           ": S5: a segment is longer than the metadata's longest",
                           shard->path, number);
    return BD_OK;
}

bd_status bd_batch_load(bd_batch *batch, const bd_rows *rows, const int64_t *numbers, int64_t n,
                        bd_hasher *hasher, bd_error *err)
{
    const bd_packing *packing = bd_rows_packing(rows);
    BD_TRY(bd_array_reserve((void **)&batch->row_numbers, &batch->row_capacity, (size_t)n,
                            sizeof *batch->row_numbers, err));
    memcpy(batch->row_numbers, numbers, (size_t)n * sizeof *numbers);
    batch->id_bytes = bd_packing_id_bytes(packing);
    batch->boundaries.n_rows = n;
    batch->boundaries.seq_len = packing->seq_len;
    batch->n_targets = 0;
    int64_t first = 0;
    const bd_row_batch *record = common_record_batch(rows, numbers, n, &first);
    for (int64_t r = 0; r < n; r++) {
        int64_t row_in_shard;
        bd_row row;
        const bd_shard *shard = bd_rows_shard(rows, numbers[r], &row_in_shard);
        BD_TRY(bd_rows_row(rows, numbers[r], hasher, &row, err));
        BD_TRY(check_longest(shard, row_in_shard, &row, err));
        if (!record)
            BD_TRY(copy_row(batch, r, row.ids, row.bounds, row.n_bounds, err));
        batch->n_targets += row.bounds[row.n_segments] - row.n_segments;
    }
    if (record)
        point_to_record(batch, record, first);
    else
        point_to_copies(batch);
    return BD_OK;
}

bd_status bd_batch_rearrange(bd_batch *batch, const bd_batch *from, const int64_t *order,
                             bd_error *err)
{
    const int64_t n = from->boundaries.n_rows, seq_len = from->boundaries.seq_len;
    BD_TRY(bd_array_reserve((void **)&batch->row_numbers, &batch->row_capacity, (size_t)n,
                            sizeof *batch->row_numbers, err));
    batch->id_bytes = from->id_bytes;
    batch->n_targets = from->n_targets;
    batch->boundaries.n_rows = n;
    batch->boundaries.seq_len = seq_len;
    for (int64_t r = 0; r < n; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(&from->boundaries, order[r], &n_segments);
        const char *ids = (const char *)from->ids + order[r] * seq_len * from->id_bytes;
        BD_TRY(copy_row(batch, r, ids, bounds, n_segments + 1, err));
        batch->row_numbers[r] = from->row_numbers[order[r]];
    }
    point_to_copies(batch);
    return BD_OK;
}

void bd_batch_release(bd_batch *batch)
{
    free(batch->row_numbers);
    free(batch->id_buffer);
    free(batch->offset_buffer);
    free(batch->value_buffer);
    *batch = (bd_batch){0};
}

bd_model_batch bd_batch_part(const bd_batch *batch, int64_t first, int64_t n)
{
    const bd_boundaries boundaries = {n, batch->boundaries.seq_len,
                                      batch->boundaries.offsets + first,
                                      batch->boundaries.values};
    return (bd_model_batch){
        .ids = (const char *)batch->ids + first * batch->boundaries.seq_len * batch->id_bytes,
        .id_bytes = batch->id_bytes,
        .attention = boundaries,
        .positions = boundaries,
        .targets = boundaries,
    };
}
