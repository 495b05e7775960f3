// Cuts in AVX2: 16 places are two registers, and masks are made of their sign bits.
#include "common/tokenizer/merge/cuts.h"

#ifdef __x86_64__

#include <immintrin.h>

#define LANES_ISA __attribute__((target("avx2")))

typedef struct lanes {
    __m256i low, high;
} lanes;

#include "common/tokenizer/merge/cuts_lanes.h"

LANES_ISA static inline lanes sixteen(const uint8_t *bytes)
{
    return (lanes){_mm256_cvtepu8_epi32(_mm_loadu_si64(bytes)),
                   _mm256_cvtepu8_epi32(_mm_loadu_si64(bytes + 8))};
}

LANES_ISA static inline lanes all(uint32_t value)
{
    return (lanes){_mm256_set1_epi32((int)value), _mm256_set1_epi32((int)value)};
}

LANES_ISA static inline lanes either(lanes a, lanes b)
{
    return (lanes){_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

LANES_ISA static inline lanes shifted(lanes values, int n_bits)
{
    const __m128i count = _mm_cvtsi32_si128(n_bits);
    return (lanes){_mm256_sll_epi32(values.low, count), _mm256_sll_epi32(values.high, count)};
}

// The mask of the lanes whose bit `bit` is set.
LANES_ISA static inline unsigned lanes_with_bit(lanes values, int bit)
{
    const lanes signs = shifted(values, 31 - bit);
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(signs.low)) |
           (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(signs.high)) << 8;
}

// All ones in the lanes of a mask.
LANES_ISA static inline lanes lanes_of(unsigned mask)
{
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i low = _mm256_and_si256(_mm256_set1_epi32((int)mask), bits);
    const __m256i high = _mm256_and_si256(_mm256_set1_epi32((int)(mask >> 8)), bits);
    return (lanes){_mm256_cmpeq_epi32(low, bits), _mm256_cmpeq_epi32(high, bits)};
}

LANES_ISA static inline lanes choose(unsigned where, lanes chosen, lanes others)
{
    const lanes mask = lanes_of(where);
    return (lanes){_mm256_blendv_epi8(others.low, chosen.low, mask.low),
                   _mm256_blendv_epi8(others.high, chosen.high, mask.high)};
}

LANES_ISA static inline unsigned character_begins(lanes bytes)
{
    return ~lanes_with_bit(bytes, 7) | lanes_with_bit(bytes, 6);
}

// The 32-bit words at `indices` in the lanes of `asked`, 0 in the others, each shifted to the
// right by the last five bits of its lane of `bits`.
LANES_ISA static inline __m256i eight_words(const uint32_t *words, __m256i indices,
                                            __m256i bits, __m256i asked)
{
    const __m256i found = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(),
                                                      (const int *)words, indices, asked, 4);
    return _mm256_srlv_epi32(found, _mm256_and_si256(bits, _mm256_set1_epi32(31)));
}

LANES_ISA static inline unsigned recorded(const bd_cuts *cuts, unsigned asked, lanes around,
                                          lanes kinds)
{
    const __m128i count = _mm_cvtsi32_si128(32 - cuts->bits);
    const __m256i low = _mm256_srl_epi32(_mm256_mullo_epi32(around.low, kinds.low), count);
    const __m256i high = _mm256_srl_epi32(_mm256_mullo_epi32(around.high, kinds.high), count);
    const lanes mask = lanes_of(asked);
    const lanes found = {
        eight_words(cuts->filter, _mm256_srli_epi32(low, 5), low, mask.low),
        eight_words(cuts->filter, _mm256_srli_epi32(high, 5), high, mask.high),
    };
    return asked & lanes_with_bit(found, 0);
}

LANES_ISA static inline known_pairs rough_pairs_of(const bd_cuts *cuts, unsigned asked,
                                                   lanes pairs)
{
    const lanes mask = lanes_of(asked), bits = shifted(pairs, 1);
    const lanes found = {
        eight_words(cuts->rough_pairs, _mm256_srli_epi32(pairs.low, 4), bits.low, mask.low),
        eight_words(cuts->rough_pairs, _mm256_srli_epi32(pairs.high, 4), bits.high, mask.high),
    };
    return (known_pairs){.any = lanes_with_bit(found, 0), .merging = lanes_with_bit(found, 1)};
}

// The knowledge about four pairs from their bd_cut_pair, those one place before and those one
// after.
LANES_ISA static inline known_pairs four_pairs(__m256i here, __m256i before, __m256i after)
{
    const __m256i taken =
        _mm256_min_epu16(_mm256_srli_epi64(before, 16), _mm256_srli_epi64(after, 32));
    const __m256i sure = _mm256_cmpeq_epi16(_mm256_min_epu16(here, taken), here);
    // The first field of a pair that never merges, the last of one without any merge.
    const __m256i not = _mm256_cmpeq_epi16(here, _mm256_set1_epi64x(BD_CUT_NEVER));
    const __m256i not_merging = _mm256_slli_epi64(not, 48);
    return (known_pairs){
        .any = 15u ^ (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(not )),
        .merging = 15u ^ (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(not_merging)),
        .sure = (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_slli_epi64(sure, 48))),
    };
}

LANES_ISA static inline known_pairs pairs_of(const bd_cuts *cuts, lanes pairs)
{
    const long long *known = (const long long *)cuts->pairs;
    const __m256i fours[4] = {
        _mm256_i32gather_epi64(known, _mm256_castsi256_si128(pairs.low), 8),
        _mm256_i32gather_epi64(known, _mm256_extracti128_si256(pairs.low, 1), 8),
        _mm256_i32gather_epi64(known, _mm256_castsi256_si128(pairs.high), 8),
        _mm256_i32gather_epi64(known, _mm256_extracti128_si256(pairs.high, 1), 8),
    };
    known_pairs all_pairs = {0};
    __m256i before_middle = _mm256_permute2x128_si256(fours[0], fours[0], 0x01);
    for (int i = 0; i < 4; i++) {
        // The last two of these four and the first two of the next.
        const __m256i after_middle =
            _mm256_permute2x128_si256(fours[i], fours[i < 3 ? i + 1 : 3], 0x21);
        const known_pairs four =
            four_pairs(fours[i], _mm256_alignr_epi8(fours[i], before_middle, 8),
                       _mm256_alignr_epi8(after_middle, fours[i], 8));
        all_pairs.any |= four.any << 4 * i;
        all_pairs.merging |= four.merging << 4 * i;
        all_pairs.sure |= four.sure << 4 * i;
        before_middle = after_middle;
    }
    return all_pairs;
}

LANES_ISA bd_cut_places bd_cuts_avx2(const bd_cuts *cuts, const bd_cut_word *word, size_t first)
{
    return cut_lanes(cuts, word, first);
}

#endif
