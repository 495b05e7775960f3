#include "trainer/data/batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

BD_ENUM_NAMES(bd_loss_kind, BD_LOSS_KINDS);

bd_target_count bd_count_row_targets(const bd_boundaries *boundaries, const bd_loss_mask *mask)
{
    bd_target_count count = {0};
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
        for (int64_t k = 0; k < n_segments; k++) {
            const int64_t n_targets = bd_count_targets(mask, r, bounds[k], bounds[k + 1]);
            count.n_targets += n_targets;
            count.n_segments += n_targets > 0;
        }
    }
    return count;
}

// ---- Copies of rows -------------------------------------------------------------------------

// A row as it lies in a shard or in another batch.
typedef struct stored_row {
    const void *ids;
    const int32_t *bounds;
    int64_t n_bounds;
    const uint8_t *mask;  // NULL: all tokens are trained
    int64_t mask_bit;     // of `mask`, the row's first
} stored_row;

// Copies the bytes that hold the row's mask behind those of the rows before. Bits of other rows
// in the first and the last byte come along.
static bd_status copy_mask(bd_batch *batch, int64_t r, const stored_row *row, bd_error *err)
{
    if (r == 0)
        batch->n_mask_bytes = 0;
    BD_TRY(bd_array_reserve((void **)&batch->mask_offsets, &batch->mask_offset_capacity,
                            (size_t)r + 1, sizeof *batch->mask_offsets, err));
    batch->mask_offsets[r] = BD_ALL_TRAINED;
    if (!row->mask)
        return BD_OK;
    const int64_t first = row->mask_bit / 8, shift = row->mask_bit % 8;
    const size_t n_bytes = bd_column_bytes(shift + batch->boundaries.seq_len, 1);
    BD_TRY(bd_array_reserve((void **)&batch->mask_buffer, &batch->mask_capacity,
                            batch->n_mask_bytes + n_bytes, 1, err));
    memcpy(batch->mask_buffer + batch->n_mask_bytes, row->mask + first, n_bytes);
    batch->mask_offsets[r] = 8 * (int64_t)batch->n_mask_bytes + shift;
    batch->n_mask_bytes += n_bytes;
    return BD_OK;
}

// Copies a row behind the batch's rows 0 to r - 1.
static bd_status copy_row(bd_batch *batch, int64_t r, const stored_row *row, bd_error *err)
{
    const size_t row_bytes = (size_t)(batch->boundaries.seq_len * batch->id_bytes);
    const size_t n_values = r > 0 ? (size_t)batch->offset_buffer[r] : 0;
    const size_t n_bounds = (size_t)row->n_bounds;
    if (n_values + n_bounds > INT32_MAX)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the rows of one batch have more than 2^31 - 1 boundaries");
    BD_TRY(bd_array_reserve(&batch->id_buffer, &batch->id_capacity, (size_t)(r + 1) * row_bytes,
                            1, err));
    memcpy((char *)batch->id_buffer + (size_t)r * row_bytes, row->ids, row_bytes);
    BD_TRY(bd_array_reserve((void **)&batch->offset_buffer, &batch->offset_capacity,
                            (size_t)r + 2, sizeof *batch->offset_buffer, err));
    BD_TRY(bd_array_reserve((void **)&batch->value_buffer, &batch->value_capacity,
                            n_values + n_bounds, sizeof *batch->value_buffer, err));
    memcpy(batch->value_buffer + n_values, row->bounds, n_bounds * sizeof *batch->value_buffer);
    batch->offset_buffer[0] = 0;
    batch->offset_buffer[r + 1] = (int32_t)(n_values + n_bounds);
    return copy_mask(batch, r, row, err);
}

static void point_to_copies(bd_batch *batch)
{
    batch->ids = batch->id_buffer;
    batch->boundaries.offsets = batch->offset_buffer;
    batch->boundaries.values = batch->value_buffer;
    batch->mask = (bd_loss_mask){0};
    if (batch->n_mask_bytes > 0)
        batch->mask = (bd_loss_mask){batch->mask_buffer, batch->mask_offsets};
}

// ---- Neighbours -----------------------------------------------------------------------------

// The record batch that holds the rows as neighbours, from its row *first on; NULL if they are
// not neighbours or not in one record batch.
static const bd_row_batch *common_record_batch(const bd_rows *rows, const int64_t *numbers,
                                               int64_t n, int64_t *first)
{
    for (int64_t i = 1; i < n; i++)
        if (numbers[i] != numbers[0] + i)
            return NULL;
    const bd_shard *shard = bd_rows_shard(rows, numbers[0], first);
    if (shard->loads_later)  // its memory may be given up before the batch is used
        return NULL;
    const int64_t block = *first / shard->config.batch_rows;
    *first %= shard->config.batch_rows;
    const bd_row_batch *record = bd_arrow_reader_batch(shard->reader, block);
    return *first + n <= record->n_rows ? record : NULL;
}

// Points the batch at the record batch's rows from `first` on.
static bd_status point_to_file(bd_batch *batch, const bd_row_batch *record, int64_t first,
                               bd_error *err)
{
    const int64_t seq_len = batch->boundaries.seq_len, n = batch->boundaries.n_rows;
    batch->ids = (const char *)record->ids + first * seq_len * batch->id_bytes;
    batch->boundaries.offsets = record->bound_offsets + first;
    batch->boundaries.values = record->bounds;
    batch->mask = (bd_loss_mask){0};
    if (!record->loss_mask)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&batch->mask_offsets, &batch->mask_offset_capacity,
                            (size_t)n, sizeof *batch->mask_offsets, err));
    for (int64_t r = 0; r < n; r++)
        batch->mask_offsets[r] = (first + r) * seq_len;
    batch->mask = (bd_loss_mask){record->loss_mask, batch->mask_offsets};
    return BD_OK;
}

// ---- Loading --------------------------------------------------------------------------------

// Checks the row's segments against the longest one that the shard claims, for which the model
// was found to have positions, and counts the row's targets.
static bd_status look_at_segments(const bd_shard *shard, int64_t number, const bd_row *row,
                                  bd_target_count *targets, bd_error *err)
{
    for (int64_t k = 0; k < row->n_segments; k++) {
        if (row->bounds[k + 1] - row->bounds[k] > shard->entry.figures.longest_segment)
            return bd_shard_fail_row(
                shard, number, "S5: a segment is longer than the metadata's longest", err);
        const int64_t n_targets = bd_row_targets(row, k);
        targets->n_targets += n_targets;
        targets->n_segments += n_targets > 0;
    }
    return BD_OK;
}

bd_status bd_batch_load(bd_batch *batch, const bd_rows *rows, const int64_t *numbers, int64_t n,
                        bd_hasher *hasher, bd_error *err)
{
    const bd_dataset_config *dataset = bd_rows_config(rows);
    BD_TRY(bd_array_reserve((void **)&batch->row_numbers, &batch->row_capacity, (size_t)n,
                            sizeof *batch->row_numbers, err));
    memcpy(batch->row_numbers, numbers, (size_t)n * sizeof *numbers);
    batch->id_bytes = bd_dataset_id_bytes(dataset);
    batch->boundaries.n_rows = n;
    batch->boundaries.seq_len = dataset->seq_len;
    batch->targets = (bd_target_count){0};
    int64_t first = 0;
    const bd_row_batch *record = common_record_batch(rows, numbers, n, &first);
    for (int64_t r = 0; r < n; r++) {
        int64_t row_in_shard;
        bd_row row;
        const bd_shard *shard = bd_rows_shard(rows, numbers[r], &row_in_shard);
        BD_TRY(bd_rows_row(rows, numbers[r], hasher, &row, err));
        BD_TRY(look_at_segments(shard, row_in_shard, &row, &batch->targets, err));
        const stored_row stored = {row.ids, row.bounds, row.n_bounds, row.loss_mask,
                                   row.mask_bit};
        if (!record)
            BD_TRY(copy_row(batch, r, &stored, err));
    }
    if (record)
        return point_to_file(batch, record, first, err);
    point_to_copies(batch);
    return BD_OK;
}

bd_status bd_batch_rearrange(bd_batch *batch, const bd_batch *from, const int64_t *order,
                             bd_error *err)
{
    const int64_t n = from->boundaries.n_rows;
    BD_TRY(bd_array_reserve((void **)&batch->row_numbers, &batch->row_capacity, (size_t)n,
                            sizeof *batch->row_numbers, err));
    batch->id_bytes = from->id_bytes;
    batch->targets = from->targets;
    batch->boundaries.n_rows = n;
    batch->boundaries.seq_len = from->boundaries.seq_len;
    for (int64_t r = 0; r < n; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(&from->boundaries, order[r], &n_segments);
        const int64_t first_id = order[r] * from->boundaries.seq_len * from->id_bytes;
        stored_row stored = {(const char *)from->ids + first_id, bounds, n_segments + 1, 0, 0};
        if (bd_row_has_mask(&from->mask, order[r])) {
            stored.mask = from->mask.bits;
            stored.mask_bit = from->mask.offsets[order[r]];
        }
        BD_TRY(copy_row(batch, r, &stored, err));
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
    free(batch->mask_buffer);
    free(batch->mask_offsets);
    *batch = (bd_batch){0};
}

bd_model_batch bd_batch_part(const bd_batch *batch, int64_t first, int64_t n)
{
    const bd_boundaries boundaries = {n, batch->boundaries.seq_len,
                                      batch->boundaries.offsets + first,
                                      batch->boundaries.values};
    const int64_t first_id = first * boundaries.seq_len * batch->id_bytes;
    bd_model_batch part =
        bd_model_batch_of((const char *)batch->ids + first_id, batch->id_bytes, boundaries);
    if (batch->mask.bits)
        part.mask = (bd_loss_mask){batch->mask.bits, batch->mask.offsets + first};
    return part;
}
