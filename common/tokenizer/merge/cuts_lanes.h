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

// The places in `asked` whose bytes `around` are recorded with their `kinds`.
LANES_ISA static inline unsigned recorded(const bd_cuts *cuts, unsigned asked, lanes around,
                                          lanes kinds);

// The knowledge about pairs, first * 256 + second. `sure` are those that merge for certain; its
// first and last lane are undefined, because a neighbour is missing. rough_pairs_of() does not
// fill `sure`, and the other masks only for places in `asked`.
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

// The bytes around places; `pairs` are the two bytes beside each.
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

// The first two and the last two lanes serve their neighbours alone, which need to know whether
// those pairs are sure.
enum { BEFORE = 2, FINE_PLACES = LANES - 2 * BEFORE };

// The places in `asked` that a token can lie across; each has a pair that some merge has side
// by side. `sure` are all pairs that merge for certain. The rules are those of
// can_surely_lie_across() in cuts.c, for all places at once.
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
    // Pairs that merge if nothing takes a byte of theirs, and no neighbour surely does.
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
