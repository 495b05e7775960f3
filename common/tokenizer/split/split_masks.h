// split_masks.h - the classes of 64 bytes of text as masks: bit i is about byte i.
//
// Every byte of a character has the character's class, so that a run of characters is a run of
// bits. Included once for each instruction set, by split_blocks.c.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_MASKS_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_MASKS_H

#include <immintrin.h>
#include <string.h>

#include "common/tokenizer/split/split_blocks.h"
#include "common/tokenizer/split/unicode_class.h"

enum { BLOCK = 64 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// ---- 64 bytes, compared ------------------------------------------------------------

#ifdef __AVX512BW__
typedef __m512i bytes64;

ALWAYS_INLINE bytes64 load(const uint8_t *s)
{
    return _mm512_loadu_si512(s);
}

ALWAYS_INLINE uint64_t at_least_0x80(bytes64 v)
{
    return _mm512_movepi8_mask(v);
}

ALWAYS_INLINE uint64_t equal(bytes64 v, uint8_t c)
{
    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)c));
}

ALWAYS_INLINE uint64_t between(bytes64 v, uint8_t low, uint8_t high)
{
    const __m512i from_low = _mm512_sub_epi8(v, _mm512_set1_epi8((char)low));
    return _mm512_cmple_epu8_mask(from_low, _mm512_set1_epi8((char)(high - low)));
}

ALWAYS_INLINE bytes64 lower_case(bytes64 v)
{
    return _mm512_or_si512(v, _mm512_set1_epi8(0x20));
}
#else
typedef struct bytes64 {
    __m256i low, high;
} bytes64;

ALWAYS_INLINE bytes64 load(const uint8_t *s)
{
    return (bytes64){_mm256_loadu_si256((const __m256i *)s),
                     _mm256_loadu_si256((const __m256i *)(s + 32))};
}

ALWAYS_INLINE uint64_t join(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
                                                     << 32;
}

ALWAYS_INLINE uint64_t at_least_0x80(bytes64 v)
{
    return join(v.low, v.high);
}

ALWAYS_INLINE uint64_t equal(bytes64 v, uint8_t c)
{
    const __m256i all = _mm256_set1_epi8((char)c);
    return join(_mm256_cmpeq_epi8(v.low, all), _mm256_cmpeq_epi8(v.high, all));
}

ALWAYS_INLINE __m256i between_half(__m256i v, uint8_t low, uint8_t high)
{
    const __m256i from_low = _mm256_sub_epi8(v, _mm256_set1_epi8((char)low));
    const __m256i limit = _mm256_set1_epi8((char)(high - low));
    return _mm256_cmpeq_epi8(_mm256_min_epu8(from_low, limit), from_low);
}

ALWAYS_INLINE uint64_t between(bytes64 v, uint8_t low, uint8_t high)
{
    return join(between_half(v.low, low, high), between_half(v.high, low, high));
}

ALWAYS_INLINE bytes64 lower_case(bytes64 v)
{
    const __m256i bit = _mm256_set1_epi8(0x20);
    return (bytes64){_mm256_or_si256(v.low, bit), _mm256_or_si256(v.high, bit)};
}
#endif

// ---- Characters of more than one byte ------------------------------------------------

// The `n` <= 64 lowest bits.
ALWAYS_INLINE uint64_t low_bits(size_t n)
{
    return n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0;
}

// A mask of ones if `classes` has all of `wanted` and nothing of `unwanted`.
ALWAYS_INLINE uint64_t if_class(uint32_t classes, uint32_t wanted, uint32_t unwanted)
{
    return -(uint64_t)((classes & (wanted | unwanted)) == wanted);
}

ALWAYS_INLINE void add_class(bd_block_masks *m, uint64_t bits, uint32_t classes, bool cased)
{
    m->letter |= bits & if_class(classes, BD_LETTER, 0);
    m->number |= bits & if_class(classes, BD_NUMBER, 0);
    m->white |= bits & if_class(classes, BD_WHITE, 0);
    if (cased) {
        m->upper |= bits & if_class(classes, BD_UPPER, BD_LOWER);
        m->lower |= bits & if_class(classes, BD_LOWER, BD_UPPER);
        m->mark |= bits & if_class(classes, BD_MARK, 0);
    }
}

// The classes of many frequent characters are found by comparing bytes; all others are looked
// up, and so are characters that reach into the next block.
//
// Letters with case: C3 but 97 and B7 (U+00C0-00FF), C4-C9 (U+0100-027F), D0-D1 (U+0400-047F).
ALWAYS_INLINE uint64_t cased_letters(bytes64 v, uint64_t inner)
{
    const uint64_t signs = equal(v, 0x97) | equal(v, 0xB7);
    const uint64_t latin = (equal(v, 0xC3) & ~(signs >> 1)) | between(v, 0xC4, 0xC9);
    return (latin | between(v, 0xD0, 0xD1)) & inner >> 1;
}

// Letters without case: E4 but B7 (U+4000-4DBF, U+4E00-4FFF), E5-E9 (U+5000-9FFF), EB-EC
// (U+B000-CFFF), and kana: E3 81 but 80, E3 82 but 97-9C and A0, E3 83 but BB.
ALWAYS_INLINE uint64_t caseless_letters(bytes64 v, uint64_t e3)
{
    const uint64_t e4 = equal(v, 0xE4) & ~(equal(v, 0xB7) >> 1);
    uint64_t letters = e4 | between(v, 0xE5, 0xE9) | between(v, 0xEB, 0xEC);
    if (e3) {
        const uint64_t signs = between(v, 0x97, 0x9C) | equal(v, 0xA0);
        letters |= e3 & equal(v, 0x81) >> 1 & ~(equal(v, 0x80) >> 2);
        letters |= e3 & equal(v, 0x82) >> 1 & ~(signs >> 2);
        letters |= e3 & equal(v, 0x83) >> 1 & ~(equal(v, 0xBB) >> 2);
    }
    return letters;
}

// Neither letter nor number nor white: E2 80 8B-A7 (U+200B-2027), E3 80 81-84 and 88-9F
// (U+3001-3004, U+3008-301F), EF BC 81-8F and 9A-A0 (U+FF01-FF0F, U+FF1A-FF20).
ALWAYS_INLINE uint64_t punctuation(bytes64 v, uint64_t e3)
{
    const uint64_t second_80 = equal(v, 0x80) >> 1;
    const uint64_t e2 = equal(v, 0xE2) & second_80 & between(v, 0x8B, 0xA7) >> 2;
    const uint64_t ef = equal(v, 0xEF) & equal(v, 0xBC) >> 1;
    if (!(e3 | ef))
        return e2;
    const uint64_t han = between(v, 0x81, 0x84) | between(v, 0x88, 0x9F);
    const uint64_t wide = between(v, 0x81, 0x8F) | between(v, 0x9A, 0xA0);
    return e2 | (e3 & second_80 & han >> 2) | (ef & wide >> 2);
}

// Adds all these to the masks. Returns the mask of their bytes.
ALWAYS_INLINE uint64_t add_frequent(bd_block_masks *m, bytes64 v, bool cased)
{
    const uint64_t inner = between(v, 0x80, 0xBF);
    const uint64_t three_long = inner >> 1 & inner >> 2;
    const uint64_t e3 = equal(v, 0xE3);
    // If case matters, these letters are looked up.
    const uint64_t two = cased ? 0 : cased_letters(v, inner);
    const uint64_t three = caseless_letters(v, e3) & three_long;
    const uint64_t signs = punctuation(v, e3) & three_long;
    const uint64_t rest = (two | three | signs) << 1 | (three | signs) << 2;
    m->letter |= two | two << 1 | three | three << 1 | three << 2;
    m->inner |= rest;
    return two | three | signs | rest;
}

// Adds the characters at `bytes` one by one from the table. `left` bytes of text begin at s.
ALWAYS_INLINE void add_characters(bd_block_masks *m, bd_block_spill *spill, const uint8_t *s,
                                  size_t left, uint64_t bytes, bool cased)
{
    while (bytes) {
        const size_t i = (size_t)__builtin_ctzll(bytes);
        const bd_character c = bd_long_character_at(s + i, left - i);
        const uint64_t bits = low_bits(c.length) << i;
        add_class(m, bits, c.classes, cased);
        m->inner |= bits & (bits - 1);
        bytes &= ~bits;
        if (i + c.length > BLOCK)
            *spill = (bd_block_spill){low_bits(i + c.length - BLOCK), c.classes};
    }
}

// ---- The masks of a block --------------------------------------------------------------

// Makes the masks of the block at s, where `left` bytes of the text are left, at least 1.
// `spill` holds the bytes of the last character before that lie in this block, and receives
// those that lie in the next. `cased`: with upper, lower and mark.
ALWAYS_INLINE void classify(bd_block_masks *m, bd_block_spill *spill, const uint8_t *s,
                            size_t left, bool cased)
{
    uint8_t last[BLOCK];
    const uint8_t *block = s;
    if (left < BLOCK) {  // the last block is copied, so that nothing behind the text is read
        memset(last, 0, sizeof last);
        memcpy(last, s, left);
        block = last;
    }
    const bytes64 v = load(block);
    m->valid = low_bits(left < BLOCK ? left : BLOCK);
    m->letter = between(lower_case(v), 'a', 'z');
    m->number = between(v, '0', '9');
    m->space = equal(v, ' ');
    m->white = m->space | between(v, '\t', '\r');
    m->line_break = equal(v, '\n') | equal(v, '\r');
    m->quote = equal(v, '\'');
    m->slash = cased ? equal(v, '/') : 0;
    m->upper = cased ? between(v, 'A', 'Z') : 0;
    m->lower = cased ? m->letter & ~m->upper : 0;
    m->inner = m->mark = 0;
    // Plain ASCII is done here; the rest is for characters of several bytes.
    uint64_t bytes = at_least_0x80(v);
    if (bytes || spill->bits) {
        add_class(m, spill->bits, spill->classes, cased);
        m->inner |= spill->bits;
        bytes &= ~spill->bits;
        spill->bits = 0;
        if (bytes)
            bytes &= ~add_frequent(m, v, cased);
        add_characters(m, spill, s, left, bytes, cased);
    }
    m->other = m->valid & ~(m->letter | m->number | m->white);
}

#endif
