// cuts.h - places in a word that no token can lie across, so that both sides merge alone.
//
// The first merge across a place is of a symbol that ends there and one that begins there. The
// two bytes on either side tell which symbols those can be: every merge is recorded by the
// bytes around the place where it joins its parts, two on a side (TWO), or one that is a symbol
// of its own (ONE). Where nothing recorded fits is a cut.
//
//   merge  ab + cd = abcd     is recorded as  ab|cd: TWO_TWO
//   merge  a + bcd = abcd                     a|bc: ONE_TWO
//   word   x a b c d y        x|a, x|ab … are not recorded: a cut
//
// Such rough cuts leave long parts where most pairs of bytes are tokens, as in ASCII. There
// finer cuts are found, by what the pairs on both sides of the place become:
//
//   z a | b c      `za` merges for certain if its product comes before that of every merge that
//                  could take one of the two away: of `z` alone with what ends before it, or of
//                  `a` alone with what begins with `b`. Then the symbol that ends at the place,
//                  whatever it is, is made of that pair (SURE). Likewise `bc`.
//
// Each record is a bit of one filter, at the index of its hash (a Bloom filter with one hash).
// Two records that share a bit may cost a cut, but never make a wrong one. Places inside a
// character are left out: there are enough cuts without them, and fewer places to examine.
//
// There are three implementations, in plain C, in AVX2 and in AVX-512, and the processor
// decides which one runs. They need not find the same places, since all of them are cuts.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_CUTS_H
#define BINDERY_COMMON_TOKENIZER_MERGE_CUTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/merge/merge_table.h"
#include "common/tokenizer/model/bpe_model.h"

// The knowledge about two bytes side by side, in times of 16 bits: `merges`, when they merge;
// `takes_second`, the earliest merge of the second byte alone with a symbol that ends with the
// first; `takes_first`, the earliest merge of the first byte alone with a symbol that begins
// with the second; `any`, whether any merge has the two side by side. A pair is certain if its
// `merges` is at most the `takes_second` of the pair before and the `takes_first` of the pair
// after: times are rounded so that this errs on the safe side.
typedef struct bd_cut_pair {
    uint16_t merges, takes_second, takes_first, any;
} bd_cut_pair;

#define BD_CUT_NEVER   UINT16_MAX        // in `merges`: they do not merge
#define BD_CUT_NOTHING (UINT16_MAX - 1)  // no merge takes the byte: later than any merge

// The same for rough cuts, in two bits: is there any merge, and do they merge.
enum { BD_CUT_ANY = 1, BD_CUT_MERGES = 2 };

typedef struct bd_cuts {
    uint32_t rough_pairs[256 * 256 / 16];
    bd_cut_pair *pairs;  // [256 * 256], owned: first * 256 + second
    uint32_t *filter;    // [1 << (bits - 5)], owned
    int bits;
} bd_cuts;

// On failure *cuts is empty.
bd_status bd_cuts_init(bd_cuts *cuts, const bd_merge_table *table, const bd_bpe_model *model,
                       bd_error *err);
void bd_cuts_release(bd_cuts *cuts);  // safe on an empty one and safe twice

// The word [begin, end) of a text.
typedef struct bd_cut_word {
    const uint8_t *text;
    size_t size_bytes;  // of the text
    size_t begin, end;
} bd_cut_word;

// Some places of a word that were examined together.
typedef struct bd_cut_places {
    uint32_t n;      // how many: 1 to 16
    uint32_t found;  // bit i: place i is a cut. None from the word's end on is.
} bd_cut_places;

// Examines the place before byte `first` of the text and those that follow it; `first` is
// inside the word, after its first byte.
typedef bd_cut_places bd_cuts_function(const bd_cuts *cuts, const bd_cut_word *word,
                                       size_t first);

bd_cuts_function bd_cuts_plain;
bd_cuts_function bd_cuts_avx2;
bd_cuts_function bd_cuts_avx512;

bd_cuts_function *bd_cuts_best(void);  // the quickest that this processor has

// ---- The filter's bits, which all ways ask for

// The bytes around a place: z and a before it, b and c after it; 0 where a side has ONE.
#define BD_CUT_AROUND(z, a, b, c) \
    ((uint32_t)(z) << 24 | (uint32_t)(c) << 16 | (uint32_t)(a) << 8 | (uint32_t)(b))

// The factors of the hash, one for each kind of record: the side before the place, and the one
// after it. (ONE on both sides is a pair that merges, which is in `pairs`.)
#define BD_CUT_SURE_SURE 0x9E3779B1u
#define BD_CUT_SURE_TWO  0x85EBCA77u
#define BD_CUT_SURE_ONE  0xC2B2AE3Du
#define BD_CUT_TWO_SURE  0x27D4EB2Fu
#define BD_CUT_ONE_SURE  0x165667B1u
#define BD_CUT_TWO_TWO   0xD3A2646Du
#define BD_CUT_TWO_ONE   0xFD7046C5u
#define BD_CUT_ONE_TWO   0xB55A4F09u

#endif
