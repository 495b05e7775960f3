// token_file.h - files of token ids made by other tools, read as documents.
//
//   Megatron   NAME.bin holds ids end to end, NAME.idx where each document lies; either name
//              stands for both
//   llm.c      256 int32 of header, then ids; an end-of-text token precedes each document
//   raw        ids end to end, document ends in a sidecar: NAME.index (uint64 each, in tokens;
//              datatrove's .ds) or, for NAME.npy without an NPY header, dolma's NAME.csv.gz
//              (start, end, id, source, loc; in tokens; no header line)
//
// A document has a position, which no other document of its file has: in an indexed file
// (Megatron, raw) its number in the index, from 0 on; in llm.c's the index of the end-of-text
// token before it, which is not part of it, or 0 if there is none (headers are not counted).
// No token is lost: an index that leaves one to no document is refused.
#ifndef BINDERY_PACKER_INPUT_TOKEN_FILE_H
#define BINDERY_PACKER_INPUT_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct bd_token_layout bd_token_layout;  // token_layout.h
extern const bd_token_layout bd_megatron_layout, bd_llm_c_layout, bd_raw_layout;

typedef struct bd_token_file bd_token_file;

// Opens and checks all of it that can be checked without reading the ids: headers, every index
// entry in order and inside the file, sizes. `raw_id_bytes` (2 or 4) is for raw ids alone;
// `end_of_text` is for llm.c alone. Damage is BD_ERR_FORMAT and names the file
// and the entry (entries count from 0, rows of a .csv.gz from 1). An `end_of_text` that no id
// of the file could be, another `raw_id_bytes`, or a Megatron file of another ending is
// BD_ERR_ARGUMENT. On failure *file is NULL. Close with bd_token_file_close(). Memory: the
// files are mapped, an index is not copied (a sidecar .csv.gz is: 8 bytes per document).
bd_status bd_token_file_open(bd_token_file **file, const char *path,
                             const bd_token_layout *layout, int raw_id_bytes,
                             int64_t end_of_text, bd_error *err);

int bd_token_file_id_bytes(const bd_token_file *file);    // 1, 2, 4 or 8
bool bd_token_file_is_signed(const bd_token_file *file);  // then a negative id is possible
int64_t bd_token_file_n_tokens(const bd_token_file *file);
bool bd_token_file_is_indexed(const bd_token_file *file);

// How many positions there are: documents of an indexed file, tokens of any other. Slices that
// cover [0, extent) without overlap give every document exactly once.
int64_t bd_token_file_extent(const bd_token_file *file);

// The index of the first token of document `number`, 0 <= number <= extent, of an indexed file;
// n_tokens for the one after the last. So slices can be cut by size. -1 if the index was
// changed since and makes no sense any more, which bd_token_file_next() will refuse.
int64_t bd_token_file_document_begin(const bd_token_file *file, int64_t number);

// The path of the file that holds the ids, borrowed: Megatron's .bin, even if the .idx is what
// was opened.
const char *bd_token_file_path(const bd_token_file *file);

// The path of the file that says where documents lie, borrowed: Megatron's .idx, even if that
// is what was opened, or the sidecar of raw ids. NULL if there is none (llm.c).
const char *bd_token_file_sidecar(const bd_token_file *file);

typedef struct bd_token_document {
    const void *ids;  // [n_ids] of id_bytes, little-endian, borrowed from the mapping; may be
                      // unaligned. Ids of a signed type may be negative
    int64_t n_ids;
    int64_t position;
    bool headless;  // llm.c: what lies before the file's first end-of-text token
} bd_token_document;

// From now on the documents at positions [begin, end), 0 <= begin <= end, in order. Any order
// of slices is allowed; what comes out depends on the slice alone.
void bd_token_file_begin(bd_token_file *file, int64_t begin, int64_t end);

// The next of them; *found is false after the last, and before the first slice was begun. A
// document may be empty, and in llm.c's files it may run past `end`. BD_ERR_FORMAT if the index
// was changed since.
bd_status bd_token_file_next(bd_token_file *file, bd_token_document *document, bool *found,
                             bd_error *err);

void bd_token_file_close(void *file);  // a bd_token_file; safe on NULL

#endif
