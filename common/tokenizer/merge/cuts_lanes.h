// cuts_lanes.h - finding cuts at 16 places at a time, one in a lane.
//
// Included once for each instruction set, by a file that says what 16 lanes are there: the type
// `lanes` of 16 uint32_t, LANES_ISA before each function, and the functions on lanes below.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_CUTS_LANES_H
#define BINDERY_COMMON_TOKENIZER_MERGE_CUTS_LANES_H

#include "common/tokenizer/merge/cuts.h"

enum { LANES = 16 };

// Bit i of a mask is about lane i.

LANES_ISA static inline lanes sixteen(const uint8_t *bytes);      // 16 bytes as 16 numbers
LANES_ISA static inline lanes all(uint32_t value);                // in every lane
LANES_ISA static inline lanes either(lanes a, lanes b);           // a | b
LANES_ISA static inline lanes shifted(lanes values, int n_bits);  // to the left
LANES_ISA static inline lanes choose(unsigned where, lanes chosen, lanes others);

// Which bytes begin a character.
LANES_ISA static inline unsigned character_begins(lanes bytes);

// Of the places in `asked` those whose bytes `around` are recorded as of their `kinds`.
LANES_ISA static inline unsigned recorded(const bd_cuts *cuts, unsigned asked, lanes around,
                                          lanes kinds);

// What is known of pairs, first * 256 + second. `sure` are those that merge for certain, of
// which the first and the last lane mean nothing; `rough_pairs_of` knows nothing of it, nor of
// any place that is not in `asked`.
typedef struct known_pairs {
    unsigned any, merging, sure;
} known_pairs;

LANES_ISA static inline known_pairs pairs_of(const bd_cuts *cuts, lanes pairs);
LANES_ISA static inline known_pairs rough_pairs_of(const bd_cuts *cuts, unsigned asked,
                                                   lanes pairs);

// Bits from lane `from` on, up to lane `to`.
static inline unsigned lanes_between(size_t from, size_t to)
{
    return (to < LANES ? (1u << to) - 1 : (1u << LANES) - 1) & ~((1u << from) - 1);
}

// The bytes around places of which `pairs` are the two nearest.
LANES_ISA static inline lanes around_before(const uint8_t *place, lanes pairs)
{
    return either(shifted(sixteen(place - 2), 24), pairs);
}

LANES_ISA static inline lanes around_after(const uint8_t *place, lanes pairs)
{
    return either(shifted(sixteen(place + 1), 16), pairs);
}

// ---- Rough ---------------------------------------------------------------------------------

LANES_ISA static inline bd_cut_places cut_roughly(const bd_cuts *cuts, const bd_cut_word *word,
                                                  size_t first)
{
    const uint8_t *place = word->text + first;
    const lanes b = sixteen(place);
    const unsigned looked_at = character_begins(b) & lanes_between(0, word->end - first);
    const lanes pairs = either(shifted(sixteen(place - 1), 8), b);
    const known_pairs known = rough_pairs_of(cuts, looked_at, pairs);
    unsigned found = known.merging;
    const unsigned asked = looked_at & known.any & ~found;
    if (asked) {
        const lanes before = around_before(place, pairs), after = around_after(place, pairs);
        found |= recorded(cuts, asked, before, all(BD_CUT_TWO_ONE)) |
                 recorded(cuts, asked, after, all(BD_CUT_ONE_TWO)) |
                 recorded(cuts, asked, either(before, after), all(BD_CUT_TWO_TWO));
    }
    return (bd_cut_places){LANES, looked_at & ~found};
}

// ---- Fine ----------------------------------------------------------------------------------

// The two first and the two last places are only there because their neighbours need to know
// what they become.
enum { BEFORE = 2, FINE_PLACES = LANES - 2 * BEFORE };

// Of the places in `asked`, between which there is some merge, those that a token can lie
// across. `sure` are all pairs that are.
LANES_ISA static inline unsigned across(const bd_cuts *cuts, const uint8_t *place, lanes pairs,
                                        unsigned asked, unsigned sure)
{
    const unsigned sure_before = asked & sure << 1, sure_after = asked & sure >> 1;
    const unsigned both = sure_before & sure_after;
    const unsigned only_before = sure_before & ~both, only_after = sure_after & ~both;
    const unsigned neither = asked & ~sure_before & ~sure_after;
    const lanes before = around_before(place, pairs), after = around_after(place, pairs);
    lanes kinds = all(BD_CUT_TWO_TWO);
    kinds = choose(only_before, all(BD_CUT_SURE_TWO), kinds);
    kinds = choose(only_after, all(BD_CUT_TWO_SURE), kinds);
    kinds = choose(both, all(BD_CUT_SURE_SURE), kinds);
    unsigned found = recorded(cuts, asked, either(before, after), kinds);
    kinds = all(BD_CUT_TWO_ONE);
    kinds = choose(only_before, all(BD_CUT_SURE_ONE), kinds);
    kinds = choose(only_after, all(BD_CUT_ONE_SURE), kinds);
    found |= recorded(cuts, asked & ~both, choose(only_after, after, before), kinds);
    return found | recorded(cuts, neither, after, all(BD_CUT_ONE_TWO));
}

LANES_ISA static inline bd_cut_places cut_finely(const bd_cuts *cuts, const bd_cut_word *word,
                                                 size_t first)
{
    const uint8_t *place = word->text + first - BEFORE;  // of lane 0
    const size_t since_begin = first - word->begin;
    const lanes b = sixteen(place);
    const lanes pairs = either(shifted(sixteen(place - 1), 8), b);
    const known_pairs known = pairs_of(cuts, pairs);
    const unsigned in_word = lanes_between(since_begin > BEFORE ? 0 : BEFORE + 1 - since_begin,
                                           word->end - first + BEFORE);
    const unsigned sure = known.sure & in_word;
    const unsigned looked_at =
        in_word & character_begins(b) & lanes_between(BEFORE, BEFORE + FINE_PLACES);
    // Two bytes alone, of which nothing more is known.
    const unsigned alone = known.merging & ~(sure << 1) & ~(sure >> 1);
    const unsigned asked = looked_at & known.any & ~sure & ~alone;
    unsigned found = looked_at & (sure | alone);
    if (asked)
        found |= across(cuts, place, pairs, asked, sure);
    return (bd_cut_places){FINE_PLACES, (looked_at & ~found) >> BEFORE};
}

// ---- Either --------------------------------------------------------------------------------

LANES_ISA static inline bd_cut_places cut_lanes(const bd_cuts *cuts, const bd_cut_word *word,
                                                size_t first)
{
    if (first < BEFORE + 2 || word->size_bytes - first < LANES + 1)
        return bd_cuts_plain(cuts, word, first);
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(word->text + first - 1));
    return _mm_movemask_epi8(bytes) == 0 ? cut_finely(cuts, word, first)
                                         : cut_roughly(cuts, word, first);
}

#endif
