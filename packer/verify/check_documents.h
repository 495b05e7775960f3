// check_documents.h - the documents of a shard that is checked: each is there once and whole
// (S3), and long enough (S7).
//
//   whole document   counted when its row is read; only its place is kept, as a number
//   piece            kept, and counted when all of its document's are there
#ifndef BINDERY_PACKER_VERIFY_CHECK_DOCUMENTS_H
#define BINDERY_PACKER_VERIFY_CHECK_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/figures.h"
#include "common/dataset/place_keys.h"
#include "common/dataset/segment_index.h"
#include "common/dataset/shard.h"

// The documents of one record batch. Batches may be filled at the same time.
typedef struct bd_batch_documents {
    uint64_t *places;  // [n_places] of whole documents; borrowed from the shard's
    size_t n_places;
    bd_segment_index pieces;  // owned
    size_t pieces_capacity;
} bd_batch_documents;

// The documents of a shard.
typedef struct bd_check_documents {
    const bd_shard *shard;  // borrowed
    bd_place_keys keys;
    bool too_far_apart;           // places have no keys of 64 bits: no corpus is as large
    uint64_t *places;             // [segments of the shard], owned
    bd_batch_documents *batches;  // [n_batches], owned
    int64_t n_batches;
} bd_check_documents;

// Memory: 8 bytes per segment of the shard. `shard` must outlive *documents.
bd_status bd_check_documents_init(bd_check_documents *documents, const bd_shard *shard,
                                  bd_error *err);

// Takes segment `k` of a row of record batch `batch` that was checked, and is row `index` of
// its shard. A whole document is counted in *figures. Memory: 40 bytes per piece.
bd_status bd_check_documents_add(bd_check_documents *documents, int64_t batch,
                                 const bd_row *row, uint32_t index, int64_t k,
                                 bd_figures *figures, bd_error *err);

// All segments were taken: counts the documents that are in pieces. BD_ERR_FORMAT names shard,
// row and rule. Memory: 8 bytes per segment and 56 per piece more, for the time of the call.
bd_status bd_check_documents_end(bd_check_documents *documents, bd_figures *figures,
                                 bd_error *err);

void bd_check_documents_release(bd_check_documents *documents);  // safe when empty, and twice

#endif
