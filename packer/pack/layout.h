// layout.h - which piece of which document lies in which row. Pure: lengths in, rows out.
//
//   lengths = { 5, 12, 2 }, seq_len = 8, split           cuts of document 1:
//                                                          0 1 2 3 4 5 6 7
//   row 0   0 0 0 0 0 2 2 .    best-fit                                  7 8 9 10 11
//   row 1   1 1 1 1 1 1 1 1                               token 7 is repeated as context
//   row 2   1 1 1 1 1 . . .
//
// A piece after the first repeats the last token of the one before it, so that every token of
// a document but its first is a target exactly once. No piece has fewer than 2 tokens, except
// a document that has only one.
#ifndef BINDERY_PACKER_PACK_LAYOUT_H
#define BINDERY_PACKER_PACK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/config.h"

typedef struct bd_piece {
    uint32_t document;  // index of its document
    uint32_t offset;    // of its first token in the document
    int32_t length;     // tokens
} bd_piece;

typedef struct bd_layout {
    bd_piece *pieces;     // [n_pieces], owned; row by row, in input order within a row
    int64_t *row_begins;  // [n_rows + 1] into pieces, owned
    int64_t n_pieces, n_rows;
    // Tokens and documents that the policy for long documents left out.
    int64_t truncated, dropped;  // tokens
    int64_t truncated_documents, dropped_documents;
    int64_t split_documents;  // documents in more than one piece
} bd_layout;

// lengths [n], each at least 1, in input order. Uses seq_len, strategy, long_policy and
// max_documents of the config: a row with that many pieces gets no more, whatever its room.
// Rows come in the order of their earliest piece in the input. With BD_LONG_ERROR a document
// longer than seq_len is BD_ERR_ARGUMENT. More than INT32_MAX documents are
// BD_ERR_UNSUPPORTED. On failure *layout is empty.
bd_status bd_layout_make(bd_layout *layout, const uint32_t *lengths, size_t n,
                         const bd_dataset_config *config, bd_error *err);

void bd_layout_release(bd_layout *layout);  // safe on an empty struct and safe twice

#endif
