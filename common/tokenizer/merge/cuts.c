// Making the records of cuts.h and asking them, one place at a time. cuts_lanes.h asks for 16
// places at once; the rules are the same.
#include "common/tokenizer/merge/cuts.h"

#include <stdlib.h>

// A merge has 1.1 records: about 3 % of the bits are set.
enum { BITS_PER_MERGE = 32, MIN_BITS = 16, MAX_BITS = 31 };

static inline uint32_t bit_of(const bd_cuts *cuts, uint32_t around, uint32_t kind)
{
    return around * kind >> (32 - cuts->bits);
}

static inline bool is_recorded(const bd_cuts *cuts, uint32_t around, uint32_t kind)
{
    const uint32_t bit = bit_of(cuts, around, kind);
    return cuts->filter[bit >> 5] >> (bit & 31) & 1;
}

static inline bd_cut_pair *pair_of(const bd_cuts *cuts, uint8_t first, uint8_t second)
{
    return &cuts->pairs[(size_t)first << 8 | second];
}

// ---- Recording -----------------------------------------------------------------------------

// A symbol beside the place where it is merged.
typedef struct side {
    uint8_t near, far;  // the byte at the place, and the one beyond it
    bool is_one;        // the symbol is the byte at the place alone
    bool is_sure;       // the two bytes are joined before anything else of the symbol
} side;

static side side_before(const bd_merge_table *table, const bd_bpe_model *model, uint32_t symbol)
{
    const char *end = model->bytes + model->begins[table->ids[symbol] + 1];
    const bool is_one = table->sizes[symbol] == 1;
    side s = {(uint8_t)end[-1], is_one ? 0 : (uint8_t)end[-2], is_one, false};
    // The last two bytes of a symbol are a pair of their own if its parts at that end, taken
    // apart again and again, come to a symbol of just those two.
    while (table->sizes[symbol] > 2)
        symbol = table->parts[symbol].right;
    s.is_sure = table->sizes[symbol] == 2;
    return s;
}

static side side_after(const bd_merge_table *table, const bd_bpe_model *model, uint32_t symbol)
{
    const char *begin = model->bytes + model->begins[table->ids[symbol]];
    const bool is_one = table->sizes[symbol] == 1;
    side s = {(uint8_t)begin[0], is_one ? 0 : (uint8_t)begin[1], is_one, false};
    while (table->sizes[symbol] > 2)
        symbol = table->parts[symbol].left;
    s.is_sure = table->sizes[symbol] == 2;
    return s;
}

static void record_kind(bd_cuts *cuts, const side *before, const side *after, uint32_t kind)
{
    const uint32_t bit =
        bit_of(cuts, BD_CUT_AROUND(before->far, before->near, after->near, after->far), kind);
    cuts->filter[bit >> 5] |= 1u << (bit & 31);
}

// Records the merge by all kinds that a search may ask for: a side that is SURE is also TWO,
// because the search does not always know that it is sure. A pair of single bytes is in `pairs`
// already.
static void record_merge(bd_cuts *cuts, const side *before, const side *after)
{
    if (before->is_one && after->is_one)
        return;
    record_kind(cuts, before, after,
                before->is_one  ? BD_CUT_ONE_TWO
                : after->is_one ? BD_CUT_TWO_ONE
                                : BD_CUT_TWO_TWO);
    if (before->is_sure)
        record_kind(cuts, before, after, after->is_one ? BD_CUT_SURE_ONE : BD_CUT_SURE_TWO);
    if (after->is_sure)
        record_kind(cuts, before, after, before->is_one ? BD_CUT_ONE_SURE : BD_CUT_TWO_SURE);
    if (before->is_sure && after->is_sure)
        record_kind(cuts, before, after, BD_CUT_SURE_SURE);
}

static uint16_t earlier(uint16_t a, uint16_t b)
{
    return a < b ? a : b;
}

static uint32_t rough_pair(const bd_cuts *cuts, uint8_t first, uint8_t second)
{
    const uint32_t index = (uint32_t)first << 8 | second;
    return cuts->rough_pairs[index >> 4] >> (index & 15) * 2 & 3;
}

static void know_merge(bd_cuts *cuts, const side *before, const side *after, uint16_t time)
{
    const uint32_t index = (uint32_t)before->near << 8 | after->near;
    const bool is_pair = before->is_one && after->is_one;
    const uint32_t what = BD_CUT_ANY | (is_pair ? BD_CUT_MERGES : 0);
    cuts->rough_pairs[index >> 4] |= what << (index & 15) * 2;
    bd_cut_pair *pair = &cuts->pairs[index];
    pair->any = 1;
    if (is_pair)
        pair->merges = (uint16_t)(time + 1);  // rounded up and the others down: the safe side
    if (before->is_one)
        pair->takes_first = earlier(pair->takes_first, time);
    if (after->is_one)
        pair->takes_second = earlier(pair->takes_second, time);
}

static bd_status allocate_cuts(bd_cuts *cuts, size_t n_merges, bd_error *err)
{
    while (cuts->bits < MAX_BITS && ((size_t)1 << cuts->bits) < n_merges * BITS_PER_MERGE)
        cuts->bits++;
    cuts->filter = calloc((size_t)1 << (cuts->bits - 5), sizeof *cuts->filter);
    cuts->pairs = malloc(256 * 256 * sizeof *cuts->pairs);
    if (!cuts->filter || !cuts->pairs) {
        bd_cuts_release(cuts);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    }
    for (size_t i = 0; i < 256 * 256; i++)
        cuts->pairs[i] = (bd_cut_pair){BD_CUT_NEVER, BD_CUT_NOTHING, BD_CUT_NOTHING, 0};
    return BD_OK;
}

bd_status bd_cuts_init(bd_cuts *cuts, const bd_merge_table *table, const bd_bpe_model *model,
                       bd_error *err)
{
    *cuts = (bd_cuts){.bits = MIN_BITS};
    BD_TRY(allocate_cuts(cuts, table->n_symbols, err));
    const uint32_t merges_per_time = table->n_symbols / BD_CUT_NOTHING + 1;
    for (uint32_t s = BD_FIRST_PRODUCT; s < table->n_symbols; s++) {
        const side before = side_before(table, model, table->parts[s].left);
        const side after = side_after(table, model, table->parts[s].right);
        record_merge(cuts, &before, &after);
        know_merge(cuts, &before, &after, (uint16_t)((s - BD_FIRST_PRODUCT) / merges_per_time));
    }
    return BD_OK;
}

void bd_cuts_release(bd_cuts *cuts)
{
    free(cuts->filter);
    free(cuts->pairs);
    *cuts = (bd_cuts){0};
}

// ---- Finding -------------------------------------------------------------------------------

// The bytes around a place, as far as there are any in the text.
typedef struct around {
    uint32_t both, before, after;  // with two bytes on both sides, or on one
    bool two_before, two_after;
} around;

static around around_place(const bd_cut_word *word, size_t at)
{
    const uint8_t *text = word->text;
    const bool two_before = at > 1, two_after = at + 1 < word->size_bytes;
    const uint8_t z = two_before ? text[at - 2] : 0, a = text[at - 1];
    const uint8_t b = text[at], c = two_after ? text[at + 1] : 0;
    return (around){BD_CUT_AROUND(z, a, b, c), BD_CUT_AROUND(z, a, b, 0),
                    BD_CUT_AROUND(0, a, b, c), two_before, two_after};
}

// Whether a merge across the place is recorded, whatever the bytes on both sides become before.
static bool can_lie_across(const bd_cuts *cuts, const bd_cut_word *word, size_t at)
{
    // If the two bytes merge themselves, or no merge has them side by side, the filter is not
    // asked.
    const uint32_t pair = rough_pair(cuts, word->text[at - 1], word->text[at]);
    if (pair != BD_CUT_ANY)
        return pair & BD_CUT_MERGES;
    const around here = around_place(word, at);
    return (here.two_before && is_recorded(cuts, here.before, BD_CUT_TWO_ONE)) ||
           (here.two_after && is_recorded(cuts, here.after, BD_CUT_ONE_TWO)) ||
           (here.two_before && here.two_after && is_recorded(cuts, here.both, BD_CUT_TWO_TWO));
}

// Whether the bytes on both sides of place `at` merge for certain: their merge comes before
// every merge that could take one of them away. A place outside the word tells nothing about
// it. Beyond the end of the text there is nothing that could take a byte.
static bool is_sure(const bd_cuts *cuts, const bd_cut_word *word, size_t at)
{
    if (at <= word->begin || at >= word->end)
        return false;
    const uint8_t *text = word->text;
    const uint16_t merges = pair_of(cuts, text[at - 1], text[at])->merges;
    const uint16_t takes_first =
        at > 1 ? pair_of(cuts, text[at - 2], text[at - 1])->takes_second : BD_CUT_NOTHING;
    const uint16_t takes_second = at + 1 < word->size_bytes
                                      ? pair_of(cuts, text[at], text[at + 1])->takes_first
                                      : BD_CUT_NOTHING;
    return merges <= takes_first && merges <= takes_second;
}

// The same as can_lie_across(), with the knowledge of which neighbouring pairs merge for
// certain.
static bool can_surely_lie_across(const bd_cuts *cuts, const bd_cut_word *word, size_t at)
{
    if (is_sure(cuts, word, at))
        return true;  // the two bytes at the place become one symbol
    // A symbol that ends at the place ends with a pair that is sure, so only records of that
    // kind can apply.
    const bool sure_before = is_sure(cuts, word, at - 1);
    const bool sure_after = is_sure(cuts, word, at + 1);
    const around here = around_place(word, at);
    if (sure_before && sure_after)
        return is_recorded(cuts, here.both, BD_CUT_SURE_SURE);
    if (sure_before)
        return is_recorded(cuts, here.before, BD_CUT_SURE_ONE) ||
               (here.two_after && is_recorded(cuts, here.both, BD_CUT_SURE_TWO));
    if (sure_after)
        return is_recorded(cuts, here.after, BD_CUT_ONE_SURE) ||
               (here.two_before && is_recorded(cuts, here.both, BD_CUT_TWO_SURE));
    return can_lie_across(cuts, word, at);
}

static bool is_inside_character(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

bd_cut_places bd_cuts_plain(const bd_cuts *cuts, const bd_cut_word *word, size_t first)
{
    const uint8_t *text = word->text;
    const bool is_ascii = (text[first - 1] | text[first]) < 0x80;
    const bool is_cut = !is_inside_character(text[first]) &&
                        !(is_ascii ? can_surely_lie_across(cuts, word, first)
                                   : can_lie_across(cuts, word, first));
    return (bd_cut_places){1, is_cut};
}

bd_cuts_function *bd_cuts_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return bd_cuts_avx512;
    if (__builtin_cpu_supports("avx2"))
        return bd_cuts_avx2;
#endif
    return bd_cuts_plain;
}
