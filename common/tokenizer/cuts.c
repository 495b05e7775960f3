#include "common/tokenizer/cuts.h"

#include <stdlib.h>
#include <string.h>

enum { BITS_PER_TOKEN = 128, MIN_BITS = 16 };  // measured: about 2 % of the bits are set

// What lies around a place: one or two bytes before it and one or two after it.
typedef enum sides { ONE_ONE, ONE_TWO, TWO_ONE, TWO_TWO } sides;

static inline uint32_t bytes_around(const uint8_t *place, bool two_before, bool two_after)
{
    return (uint32_t)place[-1] << 8 | place[0] | (two_before ? (uint32_t)place[-2] << 24 : 0) |
           (two_after ? (uint32_t)place[1] << 16 : 0);
}

static inline uint64_t bit_of(const bd_cuts *cuts, uint32_t around, sides kind)
{
    return ((uint64_t)kind << 32 | around) * 0x9E3779B97F4A7C15u >> (64 - cuts->bits);
}

static inline bool is_recorded(const bd_cuts *cuts, uint32_t around, sides kind)
{
    const uint64_t bit = bit_of(cuts, around, kind);
    return cuts->filter[bit >> 6] >> (bit & 63) & 1;
}

static void record_token(bd_cuts *cuts, const uint8_t *token, size_t n)
{
    for (size_t at = 1; at < n; at++) {
        const bool two_before = at > 1, two_after = at + 1 < n;
        const uint32_t around = bytes_around(token + at, two_before, two_after);
        const uint64_t bit = bit_of(cuts, around, (sides)(two_before * 2 + two_after));
        const uint32_t pair = around & 0xFFFF;
        cuts->filter[bit >> 6] |= (uint64_t)1 << (bit & 63);
        cuts->neighbours[pair >> 6] |= (uint64_t)1 << (pair & 63);
    }
}

// Whether a token can lie across the place, with no more bytes than there are on either side.
static inline bool can_lie_across(const bd_cuts *cuts, const uint8_t *place, bool two_before,
                                  bool two_after)
{
    const uint32_t pair = bytes_around(place, false, false);
    if (!(cuts->neighbours[pair >> 6] >> (pair & 63) & 1))
        return false;
    return is_recorded(cuts, pair, ONE_ONE) ||
           (two_after && is_recorded(cuts, bytes_around(place, false, true), ONE_TWO)) ||
           (two_before && is_recorded(cuts, bytes_around(place, true, false), TWO_ONE)) ||
           (two_before && two_after &&
            is_recorded(cuts, bytes_around(place, true, true), TWO_TWO));
}

bd_status bd_cuts_init(bd_cuts *cuts, const bd_bpe_model *model, bd_error *err)
{
    *cuts = (bd_cuts){.bits = MIN_BITS};
    while (((size_t)1 << cuts->bits) < (size_t)model->n_ids * BITS_PER_TOKEN)
        cuts->bits++;
    cuts->filter = calloc((size_t)1 << (cuts->bits - 6), sizeof *cuts->filter);
    if (!cuts->filter)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    for (size_t k = 0; k < model->n_merges; k++) {
        const uint32_t id = model->merges[k].product;
        record_token(cuts, (const uint8_t *)model->bytes + model->begins[id],
                     model->begins[id + 1] - model->begins[id]);
    }
    return BD_OK;
}

void bd_cuts_release(bd_cuts *cuts)
{
    free(cuts->filter);
    *cuts = (bd_cuts){0};
}

// No token lies across a cut, so what is before `from` does not matter.
size_t bd_cuts_next(const bd_cuts *cuts, const uint8_t *word, size_t n, size_t from)
{
    for (size_t at = from + 1; at < n; at++)
        if (!can_lie_across(cuts, word + at, at - from > 1, n - at > 1))
            return at;
    return n;
}
