// segment_index.h - an index of a shard's segments by document.
//
//   rows        | A | C1 |   | B | C2 |
//   gathered     A C1 B C2                 row by row
//   sorted       A  B  C1 C2               by input, position and offset
//
// Sorting takes linear time in the usual cases. A shard whose documents are in order is
// recognised in one pass. Otherwise input and position become one number (place_keys.h), the
// segment's index is put into its low bits, and a radix sort of these numbers gives the order,
// by which the segments are then moved, cycle by cycle. The pieces of one document are sorted
// afterwards; they are few. A comparison sort remains for places so far apart that key and
// index do not fit into 64 bits.
#ifndef BINDERY_COMMON_DATASET_SEGMENT_INDEX_H
#define BINDERY_COMMON_DATASET_SEGMENT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/shard.h"

typedef struct bd_indexed_segment {
    uint64_t position;  // of its document
    uint32_t input;
    uint32_t offset, length;  // as in `documents`
    uint32_t row;             // of the shard
    int32_t from, n_tokens;   // where it lies in its row
    uint32_t first_id, last_id;
} bd_indexed_segment;

typedef struct bd_segment_index {
    bd_indexed_segment *items;  // [n], owned
    size_t n;
} bd_segment_index;

// Counts the segments of the shard's record batches. More than UINT32_MAX segments or rows are
// BD_ERR_UNSUPPORTED.
bd_status bd_segment_index_count(const bd_shard *shard, size_t *n, bd_error *err);

// Segment `k` of row `index` of a shard; the row was checked.
bd_indexed_segment bd_indexed_segment_of_row(const bd_row *row, const bd_dataset_config *config,
                                             uint32_t index, int64_t k);

// Reads and checks every row of the shard, and sorts the segments. On failure *index is empty.
// Memory: 40 bytes per segment, and that of sorting.
bd_status bd_segment_index_build(bd_segment_index *index, const bd_shard *shard, bd_error *err);

// Sorts by input, position and offset. Memory: 16 bytes more per segment during the call.
bd_status bd_segment_index_sort(bd_segment_index *index, bd_error *err);

// Whether two segments belong to one document.
static inline bool bd_same_document(const bd_indexed_segment *a, const bd_indexed_segment *b)
{
    return a->input == b->input && a->position == b->position;
}

// The end of the run of segments of one document that begins at `begin`, in sorted order.
size_t bd_segment_index_document_end(const bd_segment_index *index, size_t begin);

// The ids of the segment's tokens, bd_dataset_id_bytes() each. Borrowed from the shard.
const void *bd_indexed_segment_ids(const bd_indexed_segment *segment, const bd_shard *shard);

void bd_segment_index_release(bd_segment_index *index);  // safe when empty, and twice

#endif
