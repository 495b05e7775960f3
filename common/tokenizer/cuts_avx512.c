// Cuts in AVX-512: 16 places at a time.
#include "common/tokenizer/cuts.h"

#ifdef __x86_64__

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

enum { LANES = 16 };

// 16 bytes as 16 numbers.
AVX512 static inline __m512i sixteen(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
}

// Of the places in `asked` those whose bytes `around` are recorded as of their `kinds`.
AVX512 static inline unsigned recorded(const bd_cuts *cuts, unsigned asked, __m512i around,
                                       __m512i kinds)
{
    const __m512i bits =
        _mm512_srl_epi32(_mm512_mullo_epi32(around, kinds), _mm_cvtsi32_si128(32 - cuts->bits));
    const __m512i words =
        _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), (__mmask16)asked,
                                    _mm512_srli_epi32(bits, 5), (const int *)cuts->filter, 4);
    // Bits are shifted out modulo 32 by a rotation.
    return asked & _mm512_test_epi32_mask(_mm512_rorv_epi32(words, bits), _mm512_set1_epi32(1));
}

// Which bytes begin a character.
AVX512 static inline unsigned character_begins(__m512i bytes)
{
    return _mm512_cmpneq_epi32_mask(_mm512_and_epi32(bytes, _mm512_set1_epi32(0xC0)),
                                    _mm512_set1_epi32(0x80));
}

// Bits from lane `from` on, up to lane `to`.
static inline unsigned lanes_between(size_t from, size_t to)
{
    return (to < LANES ? (1u << to) - 1 : (1u << LANES) - 1) & ~((1u << from) - 1);
}

// ---- Rough ---------------------------------------------------------------------------------

AVX512 static inline bd_cut_places cut_roughly(const bd_cuts *cuts, const bd_cut_word *word,
                                               size_t first)
{
    const uint8_t *place = word->text + first;
    const __m512i b = sixteen(place);
    const unsigned looked_at = character_begins(b) & lanes_between(0, word->end - first);
    const __m512i pairs = _mm512_or_epi32(_mm512_slli_epi32(sixteen(place - 1), 8), b);
    const __m512i words = _mm512_mask_i32gather_epi32(
        _mm512_setzero_si512(), (__mmask16)looked_at, _mm512_srli_epi32(pairs, 4),
        (const int *)cuts->rough_pairs, 4);
    const __m512i known = _mm512_rorv_epi32(words, _mm512_slli_epi32(pairs, 1));
    const unsigned any = _mm512_test_epi32_mask(known, _mm512_set1_epi32(BD_CUT_ANY));
    unsigned found = _mm512_test_epi32_mask(known, _mm512_set1_epi32(BD_CUT_MERGES));
    const unsigned asked = looked_at & any & ~found;
    if (asked) {
        const __m512i before =
            _mm512_or_epi32(_mm512_slli_epi32(sixteen(place - 2), 24), pairs);
        const __m512i after = _mm512_or_epi32(_mm512_slli_epi32(sixteen(place + 1), 16), pairs);
        found |= recorded(cuts, asked, before, _mm512_set1_epi32((int)BD_CUT_TWO_ONE)) |
                 recorded(cuts, asked, after, _mm512_set1_epi32((int)BD_CUT_ONE_TWO)) |
                 recorded(cuts, asked, _mm512_or_epi32(before, after),
                          _mm512_set1_epi32((int)BD_CUT_TWO_TWO));
    }
    return (bd_cut_places){LANES, looked_at & ~found};
}

// ---- Fine ----------------------------------------------------------------------------------

// The two first and the two last places are only there because their neighbours need to know
// what they become.
enum { BEFORE = 2, FINE_PLACES = LANES - 2 * BEFORE };

// What is known of 16 pairs, one field in a register each.
typedef struct sixteen_pairs {
    __m256i merges, takes_second, takes_first;
    __mmask16 any;
} sixteen_pairs;

// Field `index` of 16 bd_cut_pair.
AVX512 static inline __m256i field(__m512i low, __m512i high, int index)
{
    const __m128i shift = _mm_cvtsi32_si128(16 * index);
    return _mm256_set_m128i(_mm512_cvtepi64_epi16(_mm512_srl_epi64(high, shift)),
                            _mm512_cvtepi64_epi16(_mm512_srl_epi64(low, shift)));
}

AVX512 static inline sixteen_pairs look_up(const bd_cuts *cuts, __m512i indices)
{
    const __m512i low = _mm512_i32gather_epi64(_mm512_castsi512_si256(indices), cuts->pairs, 8);
    const __m512i high =
        _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(indices, 1), cuts->pairs, 8);
    const __m256i any = field(low, high, 3);
    return (sixteen_pairs){field(low, high, 0), field(low, high, 1), field(low, high, 2),
                           _mm256_test_epi16_mask(any, any)};
}

// Which pairs merge for certain, but for the first and the last.
AVX512 static inline unsigned sure_ones(const sixteen_pairs *pairs)
{
    const __m256i before =
        _mm256_setr_epi16(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
    const __m256i after =
        _mm256_setr_epi16(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15);
    const __m256i takes_first = _mm256_permutexvar_epi16(before, pairs->takes_second);
    const __m256i takes_second = _mm256_permutexvar_epi16(after, pairs->takes_first);
    return _mm256_cmple_epu16_mask(pairs->merges, takes_first) &
           _mm256_cmple_epu16_mask(pairs->merges, takes_second);
}

AVX512 static inline __m512i choose(unsigned where, uint32_t kind, __m512i others)
{
    return _mm512_mask_set1_epi32(others, (__mmask16)where, (int)kind);
}

// Of the places in `asked`, between which there is some merge, those that a token can lie
// across. `sure` are all pairs that are.
AVX512 static inline unsigned across(const bd_cuts *cuts, const uint8_t *place, __m512i pairs,
                                     unsigned asked, unsigned sure)
{
    const unsigned sure_before = asked & sure << 1, sure_after = asked & sure >> 1;
    const unsigned both = sure_before & sure_after;
    const unsigned only_before = sure_before & ~both, only_after = sure_after & ~both;
    const unsigned neither = asked & ~sure_before & ~sure_after;
    const __m512i before = _mm512_or_epi32(_mm512_slli_epi32(sixteen(place - 2), 24), pairs);
    const __m512i after = _mm512_or_epi32(_mm512_slli_epi32(sixteen(place + 1), 16), pairs);
    __m512i kinds = _mm512_set1_epi32((int)BD_CUT_TWO_TWO);
    kinds = choose(only_before, BD_CUT_SURE_TWO, kinds);
    kinds = choose(only_after, BD_CUT_TWO_SURE, kinds);
    kinds = choose(both, BD_CUT_SURE_SURE, kinds);
    unsigned found = recorded(cuts, asked, _mm512_or_epi32(before, after), kinds);
    kinds = _mm512_set1_epi32((int)BD_CUT_TWO_ONE);
    kinds = choose(only_before, BD_CUT_SURE_ONE, kinds);
    kinds = choose(only_after, BD_CUT_ONE_SURE, kinds);
    found |= recorded(cuts, asked & ~both,
                      _mm512_mask_mov_epi32(before, (__mmask16)only_after, after), kinds);
    kinds = _mm512_set1_epi32((int)BD_CUT_ONE_TWO);
    return found | recorded(cuts, neither, after, kinds);
}

AVX512 static inline bd_cut_places cut_finely(const bd_cuts *cuts, const bd_cut_word *word,
                                              size_t first)
{
    const uint8_t *place = word->text + first - BEFORE;  // of lane 0
    const size_t since_begin = first - word->begin;
    const __m512i b = sixteen(place);
    const __m512i indices = _mm512_or_epi32(_mm512_slli_epi32(sixteen(place - 1), 8), b);
    const sixteen_pairs pairs = look_up(cuts, indices);
    const unsigned in_word = lanes_between(since_begin > BEFORE ? 0 : BEFORE + 1 - since_begin,
                                           word->end - first + BEFORE);
    const unsigned sure = sure_ones(&pairs) & in_word;
    const unsigned looked_at =
        in_word & character_begins(b) & lanes_between(BEFORE, BEFORE + FINE_PLACES);
    const unsigned merging =
        _mm256_cmpneq_epu16_mask(pairs.merges, _mm256_set1_epi16((short)BD_CUT_NEVER));
    // Two bytes alone, of which nothing more is known.
    const unsigned alone = merging & ~(sure << 1) & ~(sure >> 1);
    const unsigned asked = looked_at & pairs.any & ~sure & ~alone;
    unsigned found = looked_at & (sure | alone);
    if (asked)
        found |= across(cuts, place, indices, asked, sure);
    return (bd_cut_places){FINE_PLACES, (looked_at & ~found) >> BEFORE};
}

// ---- Either --------------------------------------------------------------------------------

AVX512 bd_cut_places bd_cuts_avx512(const bd_cuts *cuts, const bd_cut_word *word, size_t first)
{
    if (first < BEFORE + 2 || word->size_bytes - first < LANES + 1)
        return bd_cuts_plain(cuts, word, first);
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(word->text + first - 1));
    return _mm_movemask_epi8(bytes) == 0 ? cut_finely(cuts, word, first)
                                         : cut_roughly(cuts, word, first);
}

#endif
