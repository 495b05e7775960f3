// cuts.h - places in a word that no token can lie across, so that both sides merge alone.
//
// A merge across a place makes a token that lies across it: it has the place's neighbours
// inside it, up to two bytes on either side. The bytes around every place inside every token
// are recorded; where nothing recorded fits, the word can be cut.
//
//   token  a b c d     places  a|bc   ab|cd   bc|d       (a token's end limits a side to one)
//   word   x a b c d y         x|a and x|ab are not recorded: a cut
//
// Records are bits of one filter by their hash. Two that share a bit cost a cut, never make a
// wrong one.
#ifndef BINDERY_COMMON_TOKENIZER_CUTS_H
#define BINDERY_COMMON_TOKENIZER_CUTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/tokenizer/bpe_model.h"

typedef struct bd_cuts {
    uint64_t neighbours[256 * 256 / 64];  // bit left * 256 + right: they are so in some token
    uint64_t *filter;                     // [1 << (bits - 6)], owned
    int bits;
} bd_cuts;

// On failure *cuts is empty.
bd_status bd_cuts_init(bd_cuts *cuts, const bd_bpe_model *model, bd_error *err);
void bd_cuts_release(bd_cuts *cuts);  // safe on an empty one and safe twice

// The first cut of a word of `n` bytes after `from`, which is 0 or a cut; `n` if there is none.
size_t bd_cuts_next(const bd_cuts *cuts, const uint8_t *word, size_t n, size_t from);

#endif
