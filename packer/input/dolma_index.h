// dolma_index.h - where documents of raw ids end, by the table that dolma keeps beside them.
//
//   0,3,id,source,loc      start and end of a document in tokens; there is no header line
//   3,3,"i,d",source,loc   the other three are skipped; quotes may hold commas and newlines
//
// Rows lie end to end: the first starts at token 0, any other where the one before it ends.
#ifndef BINDERY_PACKER_INPUT_DOLMA_INDEX_H
#define BINDERY_PACKER_INPUT_DOLMA_INDEX_H

#include <stdint.h>

#include "common/base/error.h"

// Documents without a token, which nothing else bounds, may be this many more than there are
// tokens; and no table may have more rows than BD_DOLMA_MAX_DOCUMENTS. So a few bytes that
// decompress to endless rows cannot fill the memory.
#define BD_DOLMA_MAX_SURPLUS   (INT64_C(1) << 20)
#define BD_DOLMA_MAX_DOCUMENTS (INT64_C(1) << 31)

typedef struct bd_dolma_index {
    int64_t *ends;  // [n_documents], owned; never decreasing, at most n_tokens
    int64_t n_documents;
} bd_dolma_index;

// Reads the table at `path`, compressed or not (see byte_stream.h), of the ids at `ids_path`,
// of which there are `n_tokens`; that path is for messages alone. A table that contradicts
// itself or `n_tokens` is BD_ERR_FORMAT, and the message names the file and the row, counted
// from 1. Whether the last document ends at the last token is the caller's to check. On failure
// *index is left empty and needs no release.
bd_status bd_dolma_index_read(bd_dolma_index *index, const char *path, const char *ids_path,
                              int64_t n_tokens, bd_error *err);

void bd_dolma_index_release(bd_dolma_index *index);  // safe on an empty one and safe twice

#endif
