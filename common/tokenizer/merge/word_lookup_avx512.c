// Looking up words in AVX-512: 8 keys at a time.
#include "common/tokenizer/merge/word_lookup.h"

#ifdef __x86_64__

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512dq")))

enum { LANES = 8 };

typedef struct eight_keys {
    __m512i low, high;
} eight_keys;

// The keys of 8 words, of which 16 bytes each can be read.
AVX512 static inline eight_keys keys_of(const char *text, __m512i begins, __m512i ends)
{
    const __m512i all = _mm512_set1_epi64(-1);
    const __m512i sizes = _mm512_sub_epi64(ends, begins);
    const __mmask8 fits = _mm512_cmple_epu64_mask(sizes, _mm512_set1_epi64(BD_KEY_BYTES));
    // A shift of 64 bits or more leaves nothing of a mask, as it should be.
    const __m512i n_bits = _mm512_slli_epi64(sizes, 3);
    const __m512i low_unused = _mm512_max_epi64(_mm512_sub_epi64(_mm512_set1_epi64(64), n_bits),
                                                _mm512_setzero_si512());
    const __m512i high_unused = _mm512_sub_epi64(_mm512_set1_epi64(128), n_bits);
    const __m512i low = _mm512_and_epi64(_mm512_i64gather_epi64(begins, text, 1),
                                         _mm512_srlv_epi64(all, low_unused));
    const __m512i high = _mm512_and_epi64(_mm512_i64gather_epi64(begins, text + 8, 1),
                                          _mm512_srlv_epi64(all, high_unused));
    return (eight_keys){
        _mm512_mask_mov_epi64(all, fits, low),
        _mm512_mask_or_epi64(all, fits, high, _mm512_slli_epi64(sizes, 56)),
    };
}

// bd_word_key_hash() of each.
AVX512 static inline __m512i hashes_of(eight_keys keys)
{
    const __m512i first = _mm512_mullo_epi64(
        _mm512_xor_epi64(keys.low, _mm512_rol_epi64(keys.high, BD_HASH_ROTATION)),
        _mm512_set1_epi64((long long)BD_HASH_FIRST));
    const __m512i mixed =
        _mm512_xor_epi64(_mm512_xor_epi64(first, _mm512_srli_epi64(first, 32)), keys.high);
    return _mm512_mullo_epi64(mixed, _mm512_set1_epi64((long long)BD_HASH_SECOND));
}

AVX512 static inline void store_keys(bd_word_key *to, eight_keys keys)
{
    const __m512i first_four = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i last_four = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(keys.low, first_four, keys.high));
    _mm512_storeu_si512(to + 4, _mm512_permutex2var_epi64(keys.low, last_four, keys.high));
}

AVX512 static void prepare_avx512(bd_word_lookup *lookup, const bd_word_cache *cache,
                                  const bd_word_batch *batch)
{
    const __m512i lines = _mm512_set1_epi64((long long)(uintptr_t)cache->lines);
    const __m128i to_index = _mm_cvtsi32_si128(64 - cache->bits);
    size_t begin = batch->begin, i = 0;
    // Eight as long as 16 bytes can be read where the last of them begins.
    for (; i + LANES <= batch->n && batch->size_bytes - batch->ends[i + LANES - 2] >= 16;
         i += LANES) {
        const __m512i ends =
            _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(batch->ends + i)));
        const __m512i begins =
            _mm512_alignr_epi64(ends, _mm512_set1_epi64((long long)begin), LANES - 1);
        const eight_keys keys = keys_of(batch->text, begins, ends);
        const __m512i indices = _mm512_srl_epi64(hashes_of(keys), to_index);
        store_keys(lookup->keys + i, keys);
        _mm512_storeu_si512(lookup->lines + i,
                            _mm512_add_epi64(lines, _mm512_slli_epi64(indices, 6)));
        for (size_t k = 0; k < LANES; k++)
            __builtin_prefetch(lookup->lines[i + k]);
        begin = batch->ends[i + LANES - 1];
    }
    for (; i < batch->n; i++)
        bd_word_lookup_prepare_one(lookup, cache, batch, i);
}

const bd_word_lookup_kind bd_word_lookup_avx512 = {prepare_avx512, bd_word_lookup_write_avx2};

#endif
