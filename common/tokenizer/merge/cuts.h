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
// Such rough cuts leave long parts where most pairs of bytes are tokens, as in ASCII. There it
// is looked at what the pairs on both sides of the place become, for finer cuts:
//
//   z a | b c      `za` merges for certain if its product comes before that of every merge that
//                  could take one of the two away: of `z` alone with what ends before it, or of
//                  `a` alone with what begins with `b`. Then the symbol that ends at the place,
//                  whatever it is, is made of that pair (SURE). Likewise `bc`.
//
// Records are bits of one filter by their hash. Two that share a bit cost a cut, never make a
// wrong one. Inside a character is no cut: there are enough without, and fewer places to look
// at.
//
// Three ways of finding them, of which the processor decides: in plain C, in AVX2 and in
// AVX-512. They need not find the same, since all are cuts.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_CUTS_H
#define BINDERY_COMMON_TOKENIZER_MERGE_CUTS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/merge/merge_table.h"
#include "common/tokenizer/model/bpe_model.h"

// What is known of two bytes side by side, 16 bits each: when they merge, the earliest merge of
// the second alone with anything that ends with the first, the earliest of the first alone with
// anything that begins with the second, and whether there is any merge between them.
// A pair is certain if its `merges` is at most the neighbours' `takes_second` and
// `takes_first`: times are rounded so that this is on the safe side.
typedef struct bd_cut_pair {
    uint16_t merges, takes_second, takes_first, any;
} bd_cut_pair;

#define BD_CUT_NEVER   UINT16_MAX        // `merges`: they do not
#define BD_CUT_NOTHING (UINT16_MAX - 1)  // takes them: later than any merge

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

// Some places of a word that were looked at together.
typedef struct bd_cut_places {
    uint32_t n;      // so many: 1 to 16
    uint32_t found;  // bit i: place i is a cut. None from the word's end on is.
} bd_cut_places;

// Looks at the places before byte `first` of the text and those after it; `first` is inside the
// word, after its first byte.
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

// What the hash multiplies them with: which kind of record it is, before and after the place.
// (ONE on either side is a pair that merges, which `pairs` tells.)
#define BD_CUT_SURE_SURE 0x9E3779B1u
#define BD_CUT_SURE_TWO  0x85EBCA77u
#define BD_CUT_SURE_ONE  0xC2B2AE3Du
#define BD_CUT_TWO_SURE  0x27D4EB2Fu
#define BD_CUT_ONE_SURE  0x165667B1u
#define BD_CUT_TWO_TWO   0xD3A2646Du
#define BD_CUT_TWO_ONE   0xFD7046C5u
#define BD_CUT_ONE_TWO   0xB55A4F09u

#endif
