// row.h - rows as they lie in memory and in Arrow buffers, and the rules that each obeys.
//
//   ids        [n_rows][seq_len]           a a a a a | b | c c c c c | p p p
//   boundaries  row-local, as stored       0           6   8           14
//   segments    one per interval           A           B   C
//
// A bd_row_batch is what one record batch holds; a bd_row points into it.
#ifndef BINDERY_COMMON_DATASET_ROW_H
#define BINDERY_COMMON_DATASET_ROW_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "common/dataset/config.h"

// The columns of `documents`, one entry per segment; see schemas/shard-v1.md.
typedef struct bd_segments {
    const uint32_t *input;
    const uint64_t *position;
    const uint32_t *offset;  // of the segment in its document, tokens
    const uint32_t *length;  // of the whole document, tokens
} bd_segments;

// All pointers are borrowed from whoever made the batch.
typedef struct bd_row_batch {
    int64_t n_rows;
    const void *ids;                 // [n_rows][seq_len] uint16_t or uint32_t
    const int32_t *bound_offsets;    // [n_rows + 1] into bounds
    const int32_t *bounds;           // cu_seqlens of all rows
    const int32_t *segment_offsets;  // [n_rows + 1] into segments
    bd_segments segments;
    const uint64_t *checksums;  // [n_rows]
} bd_row_batch;

typedef struct bd_row {
    const void *ids;        // [seq_len]
    int64_t n_bounds;       // n_segments + 1 in a row that obeys the rules
    const int32_t *bounds;  // [n_bounds]
    int64_t n_segments;
    bd_segments segments;  // [n_segments]
    uint64_t checksum;     // as stored
} bd_row;

// How many segments all rows of a batch have together.
static inline size_t bd_row_batch_n_segments(const bd_row_batch *batch)
{
    return (size_t)(batch->segment_offsets[batch->n_rows] - batch->segment_offsets[0]);
}

// Row r of a batch.
bd_row bd_row_of_batch(const bd_row_batch *batch, const bd_packing *packing, int64_t r);

// Token t of ids that are `id_bytes` wide.
static inline uint32_t bd_id_at(const void *ids, int id_bytes, int64_t t)
{
    return id_bytes == 2 ? ((const uint16_t *)ids)[t] : ((const uint32_t *)ids)[t];
}

// How many of ids[from … to - 1] are `id`.
int64_t bd_ids_count(const void *ids, int id_bytes, int64_t from, int64_t to, uint32_t id);

// Tokens of the segment [from, to) of a row or a document that are text and yet have the
// separator's id (rule 2 of a row: they are counted and mean nothing). `offset` and
// `document_length` say which of them are context, BOS and the document's own separator.
int64_t bd_separator_collisions(const bd_packing *packing, const void *ids, int64_t from,
                                int64_t to, int64_t offset, int64_t document_length);

// The row's own checksum, to be compared with the stored one. The hasher must be fresh.
uint64_t bd_row_checksum(const bd_row *row, const bd_packing *packing, bd_hasher *hasher);

// Checks every rule of a row, R1 to R9 of schemas/shard-v1.md. BD_ERR_FORMAT begins its
// message with the rule: "R3: token 17 has id 300, the vocabulary 257".
bd_status bd_row_check(const bd_row *row, const bd_packing *packing, bd_hasher *hasher,
                       bd_error *err);

#endif
