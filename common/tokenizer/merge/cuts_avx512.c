// Cuts in AVX-512: 16 places are one register.
#include "common/tokenizer/merge/cuts.h"

#ifdef __x86_64__

#include <immintrin.h>

#define LANES_ISA __attribute__((target("avx512f,avx512bw,avx512vl")))

typedef __m512i lanes;

#include "common/tokenizer/merge/cuts_lanes.h"

LANES_ISA static inline lanes sixteen(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
}

LANES_ISA static inline lanes all(uint32_t value)
{
    return _mm512_set1_epi32((int)value);
}

LANES_ISA static inline lanes either(lanes a, lanes b)
{
    return _mm512_or_epi32(a, b);
}

LANES_ISA static inline lanes shifted(lanes values, int n_bits)
{
    return _mm512_sll_epi32(values, _mm_cvtsi32_si128(n_bits));
}

LANES_ISA static inline lanes choose(unsigned where, lanes chosen, lanes others)
{
    return _mm512_mask_mov_epi32(others, (__mmask16)where, chosen);
}

LANES_ISA static inline unsigned character_begins(lanes bytes)
{
    return _mm512_cmpneq_epi32_mask(_mm512_and_epi32(bytes, all(0xC0)), all(0x80));
}

LANES_ISA static inline unsigned recorded(const bd_cuts *cuts, unsigned asked, lanes around,
                                          lanes kinds)
{
    const __m512i bits =
        _mm512_srl_epi32(_mm512_mullo_epi32(around, kinds), _mm_cvtsi32_si128(32 - cuts->bits));
    const __m512i words =
        _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), (__mmask16)asked,
                                    _mm512_srli_epi32(bits, 5), (const int *)cuts->filter, 4);
    // Bits are shifted out modulo 32 by a rotation.
    return asked & _mm512_test_epi32_mask(_mm512_rorv_epi32(words, bits), all(1));
}

LANES_ISA static inline known_pairs rough_pairs_of(const bd_cuts *cuts, unsigned asked,
                                                   lanes pairs)
{
    const __m512i words = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), (__mmask16)asked,
                                                      _mm512_srli_epi32(pairs, 4),
                                                      (const int *)cuts->rough_pairs, 4);
    const __m512i known = _mm512_rorv_epi32(words, _mm512_slli_epi32(pairs, 1));
    return (known_pairs){
        .any = _mm512_test_epi32_mask(known, all(BD_CUT_ANY)),
        .merging = _mm512_test_epi32_mask(known, all(BD_CUT_MERGES)),
    };
}

// Field `index` of 16 bd_cut_pair.
LANES_ISA static inline __m256i field(__m512i low, __m512i high, int index)
{
    const __m128i shift = _mm_cvtsi32_si128(16 * index);
    return _mm256_set_m128i(_mm512_cvtepi64_epi16(_mm512_srl_epi64(high, shift)),
                            _mm512_cvtepi64_epi16(_mm512_srl_epi64(low, shift)));
}

LANES_ISA static inline known_pairs pairs_of(const bd_cuts *cuts, lanes pairs)
{
    const __m512i low = _mm512_i32gather_epi64(_mm512_castsi512_si256(pairs), cuts->pairs, 8);
    const __m512i high =
        _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(pairs, 1), cuts->pairs, 8);
    const __m256i before =
        _mm256_setr_epi16(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
    const __m256i after =
        _mm256_setr_epi16(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15);
    const __m256i merges = field(low, high, 0), any = field(low, high, 3);
    const __m256i takes_first = _mm256_permutexvar_epi16(before, field(low, high, 1));
    const __m256i takes_second = _mm256_permutexvar_epi16(after, field(low, high, 2));
    return (known_pairs){
        .any = _mm256_test_epi16_mask(any, any),
        .merging = _mm256_cmpneq_epu16_mask(merges, _mm256_set1_epi16((short)BD_CUT_NEVER)),
        .sure = _mm256_cmple_epu16_mask(merges, takes_first) &
                _mm256_cmple_epu16_mask(merges, takes_second),
    };
}

LANES_ISA bd_cut_places bd_cuts_avx512(const bd_cuts *cuts, const bd_cut_word *word,
                                       size_t first)
{
    return cut_lanes(cuts, word, first);
}

#endif
