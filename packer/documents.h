// documents.h - the documents of one unit as tokens, in memory.
//
//   ids   t t t t | t t | t t t t t t |      '|' is each document's separator
//         ^ begin   ^     ^
#ifndef BINDERY_PACKER_DOCUMENTS_H
#define BINDERY_PACKER_DOCUMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/packing.h"
#include "common/tokenizer/tokenizer.h"

typedef struct bd_document {
    int64_t begin;      // of its tokens in ids
    uint64_t position;  // of its record in the input
    uint32_t input;
    uint32_t length;  // tokens, BOS and separator included
} bd_document;

typedef struct bd_documents {
    const bd_packing *packing;      // borrowed
    const bd_tokenizer *tokenizer;  // borrowed
    void *ids;                      // [n_ids] of bd_packing_id_bytes(), owned
    size_t n_ids, ids_capacity;
    bd_document *items;  // [n], owned; in input order
    size_t n, capacity;
    uint32_t *scratch;  // owned; ids of the document that is being tokenised
    size_t scratch_capacity;
    int64_t text, bos, separators;  // tokens so far, by kind: the input's side of the ledger
} bd_documents;

// An empty collection; `packing` and `tokenizer` must outlive it.
void bd_documents_init(bd_documents *documents, const bd_packing *packing,
                       const bd_tokenizer *tokenizer);

// Tokenises `text` and appends it as a document, with BOS and separator as the packing says.
// A document of more than UINT32_MAX tokens is BD_ERR_UNSUPPORTED.
bd_status bd_documents_append(bd_documents *documents, const char *text, size_t size_bytes,
                              uint32_t input, uint64_t position, bd_error *err);

void bd_documents_release(bd_documents *documents);  // safe on an empty struct and safe twice

#endif
