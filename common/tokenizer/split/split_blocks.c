// The loop over blocks of 64 bytes. For each block:
//
//   1. classify() (split_masks.h) turns the NEXT block into masks of 64 bits, one for each
//      class; the rules need the bytes behind a block to know what a word at its end becomes.
//   2. The pattern's function (split_starts.h) combines the masks of the block before, this one
//      and the next into one mask of the places where words begin.
//   3. put_places() writes the positions of its bits: each start is the end of the word before.
//
// A block hands over to the next what no mask tells: bytes of a character that crosses the
// border, a group of digits that is not full, a run of blanks whose end is not seen yet
// (bd_block_cutter).
//
// o200k has letters that masks do not decide (o200k_trouble()). Blocks with such letters are
// cut one word at a time by the scalar code, from the last known start until behind them; then
// the blocks begin anew at the start of a word, which needs no memory of what lies before.
#include "common/tokenizer/split/split_blocks.h"

#include "common/tokenizer/split/split_scalar.h"
#include "common/tokenizer/split/split_starts.h"

#define PASTE(a, b)        a##b
#define FOR_ISA(name, isa) PASTE(name, isa)

// Writes `base` plus the index of each bit of `starts`. Up to 16 entries behind them are
// overwritten, so that neither loop needs a branch for each bit.
ALWAYS_INLINE uint32_t *put_places(uint32_t *ends, size_t base, uint64_t starts)
{
#ifdef __AVX512F__
    const __m512i sixteen = _mm512_set1_epi32(16);
    __m512i places = _mm512_add_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32((int)(uint32_t)base));
    for (int i = 0; i < 4; i++) {
        const __mmask16 some = (__mmask16)(starts >> 16 * i);
        _mm512_storeu_si512(ends, _mm512_maskz_compress_epi32(some, places));
        ends += __builtin_popcount(some);
        places = _mm512_add_epi32(places, sixteen);
    }
    return ends;
#else
    uint32_t *last = ends + __builtin_popcountll(starts);
    while (ends < last) {
        for (int i = 0; i < 4; i++) {
            ends[i] = (uint32_t)base + (uint32_t)__builtin_ctzll(starts | (uint64_t)1 << 63);
            starts &= starts - 1;
        }
        ends += 4;
    }
    return last;
#endif
}

ALWAYS_INLINE void classify_at(const bd_block_cutter *c, bd_block_masks *m,
                               bd_block_spill *spill, size_t at, bd_pattern pattern)
{
    if (at < c->end)
        classify(m, spill, c->text + at, c->end - at, pattern == BD_PATTERN_O200K);
    else
        memset(m, 0, sizeof *m);
}

// Begins anew at `at`, where a word begins, so that the text before does not matter.
ALWAYS_INLINE void begin_blocks(bd_block_cutter *c, size_t at, bd_pattern pattern)
{
    *c = (bd_block_cutter){.text = c->text,
                           .begin = at,
                           .at = at,
                           .end = c->end,
                           .last_start = at,
                           .scalar_until = at,
                           .started = true};
    classify_at(c, &c->current, &c->spill, at, pattern);
}

// Cuts the next word by the scalar code; begins anew with blocks behind `scalar_until`.
ALWAYS_INLINE uint32_t *cut_one(bd_block_cutter *c, bd_pattern pattern, uint32_t *ends)
{
    const size_t at = c->last_start;
    c->last_start = at + bd_scalar_word(pattern, c->text + at, c->end - at);
    if (c->last_start >= c->scalar_until)
        begin_blocks(c, c->last_start, pattern);
    if (c->last_start < c->end)
        *ends++ = (uint32_t)c->last_start;
    return ends;
}

ALWAYS_INLINE uint64_t starts_of(bd_block_cutter *c, place p, bd_pattern pattern,
                                 uint32_t **ends)
{
    if (pattern == BD_PATTERN_GPT2 || pattern == BD_PATTERN_DIGIT_GPT2)
        return gpt2_starts(c, p, pattern == BD_PATTERN_DIGIT_GPT2);
    if (pattern == BD_PATTERN_DIGIT)
        return digit_starts(p);
    if (pattern == BD_PATTERN_O200K)
        return o200k_starts(c, p, ends);
    return cl100k_starts(c, p, pattern, ends);
}

// Cuts the current block, or only sets `scalar_until` if the scalar code has to cut it.
ALWAYS_INLINE uint32_t *cut_block(bd_block_cutter *c, bd_pattern pattern, uint32_t *ends)
{
    bd_block_masks next;
    classify_at(c, &next, &c->spill, c->at + BLOCK, pattern);
    if (pattern == BD_PATTERN_O200K) {
        const uint64_t trouble = o200k_trouble(&c->current, &c->before);
        if (trouble | o200k_trouble(&next, &c->current)) {
            // Trouble in the next block may reach back into this one, so both are cut that way.
            const size_t until = c->at + (trouble ? BLOCK : 2 * BLOCK);
            c->scalar_until = until < c->end ? until : c->end;
            return ends;
        }
    }
    const place p = {&c->before, &c->current, &next};
    const uint32_t *first = ends;
    uint64_t starts = starts_of(c, p, pattern, &ends);
    starts &= c->current.valid;
    if (c->at == c->begin)
        starts &= ~(uint64_t)1;  // where the first word begins none ends
    ends = put_places(ends, c->at, starts);
    if (ends > first)
        c->last_start = ends[-1];
    c->before = c->current;
    c->current = next;
    c->at += BLOCK;
    return ends;
}

ALWAYS_INLINE size_t cut_blocks(bd_block_cutter *cutter, bd_pattern pattern, uint32_t *ends,
                                size_t capacity)
{
    bd_block_cutter c = *cutter;  // a copy that need not be in memory
    const uint32_t *first = ends, *last = ends + capacity;
    if (!c.started)
        begin_blocks(&c, c.begin, pattern);
    while (c.at < c.end && last - ends >= BD_BLOCK_ROOM) {
        if (c.scalar_until > c.last_start)
            ends = cut_one(&c, pattern, ends);
        else
            ends = cut_block(&c, pattern, ends);
    }
    if (c.at >= c.end && !c.finished) {
        if (c.end > cutter->begin)
            *ends++ = (uint32_t)c.end;
        c.finished = true;
    }
    *cutter = c;
    return (size_t)(ends - first);
}

size_t FOR_ISA(bd_split_blocks_, BD_SPLIT_ISA)(bd_block_cutter *cutter, bd_pattern pattern,
                                               uint32_t *ends, size_t capacity)
{
    if (pattern == BD_PATTERN_DIGIT_GPT2)
        return cut_blocks(cutter, BD_PATTERN_DIGIT_GPT2, ends, capacity);
    switch (pattern) {  // one loop for each
    case BD_PATTERN_GPT2:
        return cut_blocks(cutter, BD_PATTERN_GPT2, ends, capacity);
    case BD_PATTERN_CL100K:
        return cut_blocks(cutter, BD_PATTERN_CL100K, ends, capacity);
    case BD_PATTERN_LLAMA3:
        return cut_blocks(cutter, BD_PATTERN_LLAMA3, ends, capacity);
    case BD_PATTERN_QWEN2:
        return cut_blocks(cutter, BD_PATTERN_QWEN2, ends, capacity);
    case BD_PATTERN_O200K:
        return cut_blocks(cutter, BD_PATTERN_O200K, ends, capacity);
    default:
        return cut_blocks(cutter, BD_PATTERN_DIGIT, ends, capacity);
    }
}
