// batch.h - rows of a dataset, ready for the model: tokens, boundaries and loss masks as the
// shards have them.
#ifndef BINDERY_TRAINER_DATA_BATCH_H
#define BINDERY_TRAINER_DATA_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "kernels/boundaries.h"
#include "kernels/loss_mask.h"
#include "trainer/data/rows.h"

// What a step minimises: the sum of its terms, divided by their number in the global batch.
#define BD_LOSS_KINDS(X)                                                         \
    X(BD_LOSS_PER_TOKEN, "per-token")       /* a term is the loss of a target */ \
    X(BD_LOSS_PER_DOCUMENT, "per-document") /* the mean over the targets of a segment \
                                               that has one */
BD_ENUM(bd_loss_kind, BD_LOSS_KINDS);

// How many targets rows have, and how many of their segments have one.
typedef struct bd_target_count {
    int64_t n_targets, n_segments;
} bd_target_count;

bd_target_count bd_count_row_targets(const bd_boundaries *boundaries, const bd_loss_mask *mask);

// The number of terms of the loss.
static inline int64_t bd_loss_terms(bd_target_count count, bd_loss_kind kind)
{
    return kind == BD_LOSS_PER_DOCUMENT ? count.n_segments : count.n_targets;
}

// The factor that makes a mean of the sum of the terms; 0 if there is none.
static inline double bd_loss_scale(bd_target_count count, bd_loss_kind kind)
{
    const int64_t n = bd_loss_terms(count, kind);
    return n > 0 ? 1.0 / (double)n : 0.0;
}

// Rows side by side. For neighbouring rows of one record batch ids, boundaries and the bits of
// masks point into the mapped file; otherwise the rows are copied one after another, their
// boundaries and the bytes that hold their masks unchanged, and only the offsets are counted
// again.
typedef struct bd_batch {
    bd_boundaries boundaries;  // borrowed from the file or from the buffers below
    bd_loss_mask mask;         // likewise; offsets are always those below
    const void *ids;           // [n_rows][seq_len], likewise
    int32_t id_bytes;
    int64_t *row_numbers;  // [n_rows], owned: which rows of the datasets these are
    bd_target_count targets;
    // Owned; grow as needed. All but mask_offsets are for rows that are not neighbours.
    void *id_buffer;
    int32_t *offset_buffer, *value_buffer;
    uint8_t *mask_buffer;
    int64_t *mask_offsets;
    size_t n_mask_bytes;  // in use
    size_t id_capacity, offset_capacity, value_capacity, mask_capacity, mask_offset_capacity,
        row_capacity;
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
    const void *ids;  // [n_rows][seq_len]
    int32_t id_bytes;
    bd_loss_mask mask;
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

// A batch of nothing but ids, without a mask, with the same boundaries for every use.
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
