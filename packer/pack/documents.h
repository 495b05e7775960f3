// documents.h - the documents of one unit as tokens, in memory.
//
//   tokens   t t t t | t t | t t t t t t |      '|' is each document's separator
//            ^ begin   ^     ^
#ifndef BINDERY_PACKER_PACK_DOCUMENTS_H
#define BINDERY_PACKER_PACK_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/row.h"
#include "common/tokenizer/tokenizer.h"

typedef struct bd_document {
    int64_t begin;      // index of its first token
    uint64_t position;  // of its record in the input
    uint32_t input;
    uint32_t length;  // tokens, BOS and separator included
} bd_document;

typedef struct bd_documents {
    const bd_dataset_config *config;  // borrowed
    bd_encoder *encoder;  // borrowed; several collections of one thread may share it
    BD_WRITABLE_TOKENS;   // [n_tokens], owned; as wide as they will be stored
    size_t capacity_bytes[BD_N_TOKEN_COLUMNS];
    size_t n_tokens;
    bd_document *items;  // [n], owned; in input order
    size_t n, capacity;
    uint32_t *scratch;  // owned; ids of the document that is being tokenised
    size_t scratch_capacity;
    int64_t text, bos, separators;  // tokens so far, by kind: the input's side of the ledger
} bd_documents;

// An empty collection; `config` and `encoder` must outlive it. Only text needs the encoder: it
// may be NULL where documents come as ids, and may be filled later.
void bd_documents_init(bd_documents *documents, const bd_dataset_config *config,
                       bd_encoder *encoder);

// Tokenises `text` and appends it as a document, with BOS and separator as the config says.
// A document of more than UINT32_MAX tokens is BD_ERR_UNSUPPORTED. In a dataset with loss masks
// all of it is trained.
bd_status bd_documents_append(bd_documents *documents, const char *text, size_t size_bytes,
                              uint32_t input, uint64_t position, bd_error *err);

// Appends a document that came as ids, all below vocab_size; BOS and separator are added. No
// encoder is needed. In a dataset with loss masks, trained[i] (1 or 0) says whether ids[i] is
// trained, and `end_trained` the same of the separator; with NULL all of the document is. BOS,
// as any first token, is not trained. In other datasets both are ignored.
bd_status bd_documents_append_ids(bd_documents *documents, const uint32_t *ids,
                                  const uint8_t *trained, size_t n, bool end_trained,
                                  uint32_t input, uint64_t position, bd_error *err);

// A document that comes as pieces of rows of the same ids, BOS and separator included: each
// call of add_tokens appends tokens [from, from + n) of a row, and end_document makes a
// document of all that were appended since the document before. What the row does not have (a mask)
// is left to the caller.
bd_status bd_documents_add_tokens(bd_documents *documents, const bd_row *row, int64_t from,
                                  int64_t n, bd_error *err);
bd_status bd_documents_end_document(bd_documents *documents, uint32_t input, uint64_t position,
                                    bd_error *err);

// Removes all documents and sets all counts to 0, but keeps the memory for later documents.
void bd_documents_clear(bd_documents *documents);

// Removes the last document. It stays counted in text, bos and separators, because the ledger
// says where its tokens went.
bd_document bd_documents_remove_last(bd_documents *documents);

// Whether a token of document `index` can be a target, in a dataset with loss masks: whether one
// after the first is trained.
bool bd_documents_has_target(const bd_documents *documents, size_t index);

// Brings the documents into the order of their places (common/dataset/config.h), which is the
// input's unless the config shuffles. Memory: 50 bytes per document.
bd_status bd_documents_sort(bd_documents *documents, bd_error *err);

void bd_documents_release(bd_documents *documents);  // safe on an empty struct and safe twice

#endif
