// dolma_index.h - reads the table that dolma writes beside raw ids: where documents end.
//
//   0,3,id,source,loc      start and end of a document in tokens; there is no header line
//   3,3,"i,d",source,loc   other columns are skipped; a quoted field may hold commas and newlines
//
// The first row starts at token 0, and every other row where the row before it ends.
#ifndef BINDERY_PACKER_INPUT_DOLMA_INDEX_H
#define BINDERY_PACKER_INPUT_DOLMA_INDEX_H

#include <stdint.h>

#include "common/base/error.h"

// A table may have BD_DOLMA_MAX_SURPLUS rows more than there are tokens, because documents may be
// empty, but never more than BD_DOLMA_MAX_DOCUMENTS. Without limits, a few bytes that decompress
// to endless rows could fill the memory.
#define BD_DOLMA_MAX_SURPLUS   (INT64_C(1) << 20)
#define BD_DOLMA_MAX_DOCUMENTS (INT64_C(1) << 31)

typedef struct bd_dolma_index {
    int64_t *ends;  // [n_documents], owned; they never decrease and are at most n_tokens
    int64_t n_documents;
} bd_dolma_index;

// Reads the table at `path`, compressed or not (byte_stream.h). It describes the `n_tokens` ids
// of the file `ids_path`, which only messages use. A table that contradicts itself or `n_tokens`
// is BD_ERR_FORMAT, and the message names the file and the row, counted from 1. The caller has to
// check that the last document ends at the last token. On failure *index is left empty and needs
// no release.
bd_status bd_dolma_index_read(bd_dolma_index *index, const char *path, const char *ids_path,
                              int64_t n_tokens, bd_error *err);

void bd_dolma_index_release(bd_dolma_index *index);  // safe on an empty one and safe twice

#endif
