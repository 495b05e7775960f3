// document_hashes.h - a hash of the tokens of every document of a shard, whole or in pieces.
#ifndef BINDERY_PACKER_INSPECT_DOCUMENT_HASHES_H
#define BINDERY_PACKER_INSPECT_DOCUMENT_HASHES_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/shard.h"

typedef struct bd_hashed_document {
    uint64_t hash;  // XXH3-64 over its tokens in rows, BOS and separator included, as stored
    uint64_t position;  // of its record in its input
    int64_t number;     // in the shard, from 0, by the row and segment in which it begins
    int64_t row;        // in which it begins
    int64_t n_tokens;   // in rows, without repeats: fewer than it had if it was truncated
    uint32_t input;
} bd_hashed_document;

typedef bd_status (*bd_hashed_document_visit)(void *context, const bd_hashed_document *document,
                                              bd_error *err);

// Calls `visit` once for every document of the shard, split ones last. Every row is checked,
// and that pieces follow each other; a shard that has not as many documents as its metadata
// says is BD_ERR_FORMAT. Memory: at most 100 bytes for each segment that is not a whole document.
bd_status bd_document_hashes_visit(const bd_shard *shard, bd_hashed_document_visit visit,
                                   void *context, bd_error *err);

#endif
