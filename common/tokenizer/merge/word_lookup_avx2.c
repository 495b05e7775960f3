// Looking up words in AVX2: a key is one register, and no step has a branch that cannot be
// predicted.
#include "common/tokenizer/merge/word_lookup.h"

#ifdef __x86_64__

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,bmi2")))

// Makes a key of the 16 bytes from a word on: a mask of the bytes to keep, and the bits to add.
// One for each size of a word; the last is for all that are too long.
typedef struct key_shape {
    uint64_t kept[2], added[2];
} key_shape;

#define ONES(n) ((n) >= 8 ? UINT64_MAX : ((uint64_t)1 << ((n) + 8) % 8 * 8) - 1)
#define SHAPE(n)                              \
    {                                         \
        {ONES(n), (n) > 8 ? ONES((n)-8) : 0}, \
        {                                     \
            0, (uint64_t)(n) << 56            \
        }                                     \
    }

static const _Alignas(32) key_shape shapes[BD_KEY_BYTES + 2] = {
    SHAPE(0),
    SHAPE(1),
    SHAPE(2),
    SHAPE(3),
    SHAPE(4),
    SHAPE(5),
    SHAPE(6),
    SHAPE(7),
    SHAPE(8),
    SHAPE(9),
    SHAPE(10),
    SHAPE(11),
    SHAPE(12),
    SHAPE(13),
    SHAPE(14),
    SHAPE(15),
    {{0, 0}, {UINT64_MAX, UINT64_MAX}},
};

AVX2 static inline __m128i key_of(const char *word, size_t n)
{
    const key_shape *shape = &shapes[n <= BD_KEY_BYTES ? n : BD_KEY_BYTES + 1];
    const __m128i bytes = _mm_loadu_si128((const __m128i *)word);
    const __m128i kept = _mm_and_si128(bytes, _mm_load_si128((const __m128i *)shape->kept));
    return _mm_or_si128(kept, _mm_load_si128((const __m128i *)shape->added));
}

AVX2 static void prepare_avx2(bd_word_lookup *lookup, const bd_word_cache *cache,
                              const bd_word_batch *batch)
{
    const bd_word_batch b = *batch;  // copies that the stores below do not change
    const bd_word_cache lines = *cache;
    // One after the other as long as 16 bytes can be read.
    size_t begin = b.begin, i = 0;
    for (; i < b.n && b.size_bytes - begin >= 16; i++) {
        const size_t end = b.ends[i];
        const __m128i key = key_of(b.text + begin, end - begin);
        bd_cache_line *line =
            bd_word_cache_line(&lines, (bd_word_key){(uint64_t)_mm_cvtsi128_si64(key),
                                                     (uint64_t)_mm_extract_epi64(key, 1)});
        __builtin_prefetch(line);
        _mm_storeu_si128((__m128i *)&lookup->keys[i], key);
        lookup->lines[i] = line;
        begin = end;
    }
    for (; i < b.n; i++)
        bd_word_lookup_prepare_one(lookup, cache, batch, i);
}

// 1 or 0, without a comparison that the compiler would turn into a branch: which of two words
// it is cannot be predicted.
AVX2 static inline unsigned is_key(const bd_word_key *stored, __m128i key)
{
    const __m128i same = _mm_cmpeq_epi8(_mm_load_si128((const __m128i *)stored), key);
    return ((unsigned)_mm_movemask_epi8(same) + 1) >> 16;
}

AVX2 size_t bd_word_lookup_write_avx2(const bd_word_lookup *lookup, size_t first, size_t n,
                                      uint32_t **ids)
{
    const __m128i id_bits = _mm_set1_epi32((1 << BD_ID_BITS) - 1);
    uint32_t *to = *ids;
    size_t i = first;
    for (; i < n; i++) {
        const bd_cache_line *line = lookup->lines[i];
        const __m128i key = _mm_loadu_si128((const __m128i *)&lookup->keys[i]);
        const unsigned is_first = is_key(&line->words[0].key, key);
        const unsigned is_second = is_key(&line->words[1].key, key);
        if (__builtin_expect((is_first | is_second) == 0, 0))
            break;
        const bd_cached_word *word = &line->words[is_first ^ 1];
        const __m128i four = _mm_loadu_si128((const __m128i *)word->ids);
        const uint32_t n_ids = word->ids[0] >> BD_ID_BITS;
        _mm_storeu_si128((__m128i *)to, _mm_and_si128(four, id_bits));
        if (__builtin_expect(n_ids > BD_NARROW_IDS, 0))
            memcpy(to + BD_NARROW_IDS, line->wide.ids + BD_NARROW_IDS,
                   (BD_WIDE_IDS - BD_NARROW_IDS) * sizeof *to);
        to += n_ids;
    }
    *ids = to;
    return i;
}

const bd_word_lookup_kind bd_word_lookup_avx2 = {prepare_avx2, bd_word_lookup_write_avx2};

#endif
