// locate_find.h - the documents of a dataset whose text contains another text.
//
// What a text's tokens are depends on what stands around it, so it is looked for in the bytes
// that the tokens stand for. BOS and separator are no part of a document's text, and a token
// that stands for nothing divides it.
#ifndef BINDERY_PACKER_LOCATE_LOCATE_FIND_H
#define BINDERY_PACKER_LOCATE_LOCATE_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "common/tokenizer/tokenizer.h"
#include "packer/locate/locate_address.h"

typedef struct bd_search {
    const char *folder;             // borrowed
    const bd_manifest *manifest;    // borrowed
    const bd_tokenizer *tokenizer;  // borrowed
    const char *text;               // [n_bytes], borrowed; at least one byte
    size_t n_bytes;
    int64_t limit;  // documents, at least 1
    int n_threads;
    bool quiet;
} bd_search;

// The first occurrence of the text in one document.
typedef struct bd_found {
    bd_token_address address;  // of its first token
    int64_t n_tokens;          // that it touches
} bd_found;

// The first `limit` documents that contain the text, one entry for each, by the address of the
// occurrence. A document that was split is searched as a whole, in whichever rows its pieces lie.
// *found is malloc'd, the caller's to free, also after a failure. Neither the result nor a failure
// depends on the number of threads. Memory, for each thread: 4 MB, or four times the text that is
// searched for, and 100 bytes for each piece of a split document in a shard.
bd_status bd_search_run(const bd_search *search, bd_found **found, size_t *n_found,
                        bd_error *err);

#endif
