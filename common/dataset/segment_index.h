// segment_index.h - the segments of a shard, each with the place where it was found, brought
// together document by document.
//
//   rows            | A | C1 |   | B | C2 |
//   gathered         A C1 B C2                 as they lie
//   sorted           A  B  C1 C2               by input, position and offset
#ifndef BINDERY_COMMON_DATASET_SEGMENT_INDEX_H
#define BINDERY_COMMON_DATASET_SEGMENT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/shard.h"

typedef struct bd_found_segment {
    uint64_t position;  // of its document
    uint32_t input;
    uint32_t offset, length;  // as in `documents`
    uint32_t row;             // of the shard
    int32_t from, n_tokens;   // where it lies in its row
    uint32_t first_id, last_id;
} bd_found_segment;

typedef struct bd_found_segments {
    bd_found_segment *items;  // [n], owned
    size_t n;
} bd_found_segments;

// How many segments the shard's record batches hold. More than UINT32_MAX, or as many rows, are
// BD_ERR_UNSUPPORTED.
bd_status bd_found_segments_count(const bd_shard *shard, size_t *n, bd_error *err);

// Segment `k` of a row that was checked, and is row `index` of its shard.
bd_found_segment bd_found_segment_of_row(const bd_row *row, const bd_packing *packing,
                                         uint32_t index, int64_t k);

// Reads and checks every row of the shard, and sorts what it holds. On failure *segments is
// empty. Memory: 40 bytes per segment, and that of sorting.
bd_status bd_found_segments_gather(bd_found_segments *segments, const bd_shard *shard,
                                   bd_error *err);

// Sorts by input, position and offset. Linear: in one pass if they are sorted already, else by
// a radix sort; only places so far apart that no corpus has them take a qsort(). Memory: 16
// bytes per segment more, for the time of the call.
bd_status bd_found_segments_sort(bd_found_segments *segments, bd_error *err);

// Whether two segments are of one document.
static inline bool bd_found_segments_same(const bd_found_segment *a, const bd_found_segment *b)
{
    return a->input == b->input && a->position == b->position;
}

// The end of the run of segments of one document that begins at `begin`, in sorted order.
size_t bd_found_segments_document_end(const bd_found_segments *segments, size_t begin);

// Where the segment's tokens lie, bd_packing_id_bytes() each. Borrowed from the shard.
const void *bd_found_segment_ids(const bd_found_segment *segment, const bd_shard *shard);

void bd_found_segments_release(bd_found_segments *segments);  // safe when empty, and twice

#endif
