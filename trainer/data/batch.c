#include "trainer/data/batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

// Copies row `from` of `columns`, with its boundaries, behind the batch's rows 0 to r - 1.
static bd_status copy_row(bd_batch *batch, int64_t r, const void *const *columns, int64_t from,
                          const int32_t *bounds, int64_t n_bounds, bd_error *err)
{
    const int64_t seq_len = batch->boundaries.seq_len;
    const size_t n_values = r > 0 ? (size_t)batch->offset_buffer[r] : 0;
    if (n_values + (size_t)n_bounds > INT32_MAX)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the rows of one batch have more than 2^31 - 1 boundaries");
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        const int bits = bd_batch_bits(c, batch->id_bytes);
        if (bits == 0)
            continue;
        BD_TRY(bd_array_reserve(&batch->column_buffers[c], &batch->column_bytes[c],
                                bd_column_bytes((r + 1) * seq_len, bits), 1, err));
        bd_column_copy(batch->column_buffers[c], r * seq_len, columns[c], from * seq_len,
                       seq_len, bits);
    }
    BD_TRY(bd_array_reserve((void **)&batch->offset_buffer, &batch->offset_capacity,
                            (size_t)r + 2, sizeof *batch->offset_buffer, err));
    BD_TRY(bd_array_reserve((void **)&batch->value_buffer, &batch->value_capacity,
                            n_values + (size_t)n_bounds, sizeof *batch->value_buffer, err));
    memcpy(batch->value_buffer + n_values, bounds,
           (size_t)n_bounds * sizeof *batch->value_buffer);
    batch->offset_buffer[0] = 0;
    batch->offset_buffer[r + 1] = (int32_t)(n_values + (size_t)n_bounds);
    return BD_OK;
}

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

// Points the batch at rows from row `first` on of columns, offsets and values that lie
// elsewhere.
static void point_to(bd_batch *batch, const void *const *columns, const int32_t *offsets,
                     const int32_t *values, int64_t first)
{
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        batch->columns[c] = bd_column_at(columns[c], first * batch->boundaries.seq_len,
                                         bd_batch_bits(c, batch->id_bytes));
    batch->boundaries.offsets = offsets + first;
    batch->boundaries.values = values;
}

static void point_to_copies(bd_batch *batch)
{
    point_to(batch, (const void *const *)batch->column_buffers, batch->offset_buffer,
             batch->value_buffer, 0);
}

// Checks the row's segments against the longest one that the shard claims, for which the model
// was found to have positions, and counts the row's targets.
static bd_status look_at_segments(const bd_shard *shard, int64_t number, const bd_row *row,
                                  int64_t *n_targets, bd_error *err)
{
    for (int64_t k = 0; k < row->n_segments; k++) {
        if (row->bounds[k + 1] - row->bounds[k] > shard->entry.figures.longest_segment)
            return bd_shard_fail_row(
                shard, number, "S5: a segment is longer than the metadata's longest", err);
        *n_targets += bd_row_targets(row, k);
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
    batch->n_targets = 0;
    int64_t first = 0;
    const bd_row_batch *record = common_record_batch(rows, numbers, n, &first);
    for (int64_t r = 0; r < n; r++) {
        int64_t row_in_shard;
        bd_row row;
        const bd_shard *shard = bd_rows_shard(rows, numbers[r], &row_in_shard);
        BD_TRY(bd_rows_row(rows, numbers[r], hasher, &row, err));
        BD_TRY(look_at_segments(shard, row_in_shard, &row, &batch->n_targets, err));
        if (!record)
            BD_TRY(copy_row(batch, r, row.columns, 0, row.bounds, row.n_bounds, err));
    }
    if (record)  // at the file itself
        point_to(batch, record->columns, record->bound_offsets, record->bounds, first);
    else
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
    batch->n_targets = from->n_targets;
    batch->boundaries.n_rows = n;
    batch->boundaries.seq_len = from->boundaries.seq_len;
    for (int64_t r = 0; r < n; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(&from->boundaries, order[r], &n_segments);
        BD_TRY(copy_row(batch, r, from->columns, order[r], bounds, n_segments + 1, err));
        batch->row_numbers[r] = from->row_numbers[order[r]];
    }
    point_to_copies(batch);
    return BD_OK;
}

void bd_batch_release(bd_batch *batch)
{
    free(batch->row_numbers);
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        free(batch->column_buffers[c]);
    free(batch->offset_buffer);
    free(batch->value_buffer);
    *batch = (bd_batch){0};
}

bd_model_batch bd_batch_part(const bd_batch *batch, int64_t first, int64_t n)
{
    const bd_boundaries boundaries = {n, batch->boundaries.seq_len,
                                      batch->boundaries.offsets + first,
                                      batch->boundaries.values};
    bd_model_batch part = bd_model_batch_of(NULL, batch->id_bytes, boundaries);
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        part.columns[c] = bd_column_at(batch->columns[c], first * boundaries.seq_len,
                                       bd_batch_bits(c, batch->id_bytes));
    return part;
}
