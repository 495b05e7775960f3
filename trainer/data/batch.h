// batch.h - rows of a dataset, ready for the model: tokens and boundaries as the shards have
// them.
#ifndef BINDERY_TRAINER_DATA_BATCH_H
#define BINDERY_TRAINER_DATA_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "kernels/boundaries.h"
#include "trainer/data/rows.h"

// The bits of a value in a column of a batch. Ids are all that the trainer reads.
static inline int bd_batch_bits(int column, int id_bytes)
{
    return column == BD_COLUMN_ids ? 8 * id_bytes : 0;
}

// Rows side by side. For neighbouring rows of one record batch the tokens and boundaries point
// into the mapped file; otherwise the rows are copied one after another, their boundaries
// unchanged, and only the offsets are counted again.
typedef struct bd_batch {
    bd_boundaries boundaries;  // borrowed from the file or from the buffers below
    BD_TOKENS;                 // [n_rows][seq_len], borrowed likewise
    int32_t id_bytes;
    int64_t *row_numbers;  // [n_rows], owned: which rows of the datasets these are
    int64_t n_targets;
    // Buffers for rows that are not neighbours, owned; grow as needed.
    void *column_buffers[BD_N_TOKEN_COLUMNS];
    int32_t *offset_buffer, *value_buffer;
    size_t column_bytes[BD_N_TOKEN_COLUMNS], offset_capacity, value_capacity, row_capacity;
} bd_batch;

// Fills `batch` (zero-initialised at first, reused later) with the rows `numbers` [n], n >= 1,
// each checked by bd_row_check(). `hasher` is scratch. The message names shard, row and rule.
// On failure the batch holds nothing to use, but can be reused.
bd_status bd_batch_load(bd_batch *batch, const bd_rows *rows, const int64_t *numbers, int64_t n,
                        bd_hasher *hasher, bd_error *err);

// Fills `batch`, likewise, with copies of all rows of another one: first row order[0] of that,
// then row order[1], and so on.
bd_status bd_batch_rearrange(bd_batch *batch, const bd_batch *from, const int64_t *order,
                             bd_error *err);

void bd_batch_release(bd_batch *batch);  // safe on an empty struct and safe twice

enum { BD_BATCH_BOUNDARIES = 4 };

// A batch as the model takes it. The boundaries are one and the same for every use, except where
// `prove --sabotage` breaks one on purpose to show that it is noticed.
typedef struct bd_model_batch {
    BD_TOKENS;  // [n_rows][seq_len]
    int32_t id_bytes;
    union {
        struct {
            bd_boundaries attention;
            bd_boundaries positions;        // learned ones, and by which keys are rotated
            bd_boundaries query_positions;  // by which queries are rotated
            bd_boundaries targets;
        };
        bd_boundaries boundaries[BD_BATCH_BOUNDARIES];  // the same, by number
    };
} bd_model_batch;

// A batch of nothing but ids, with the same boundaries for every use.
static inline bd_model_batch bd_model_batch_of(const void *ids, int32_t id_bytes,
                                               bd_boundaries boundaries)
{
    return (bd_model_batch){.ids = ids,
                            .id_bytes = id_bytes,
                            .attention = boundaries,
                            .positions = boundaries,
                            .query_positions = boundaries,
                            .targets = boundaries};
}

// Rows [first, first + n) of a batch, as the model takes them.
bd_model_batch bd_batch_part(const bd_batch *batch, int64_t first, int64_t n);

#endif
