#include "common/tokenizer/merge/word_lookup.h"

static void prepare_plain(bd_word_lookup *lookup, const bd_word_cache *cache,
                          const bd_word_batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        bd_word_lookup_prepare_one(lookup, cache, batch, i);
}

static size_t write_plain(const bd_word_lookup *lookup, size_t first, size_t n, uint32_t **ids)
{
    uint32_t *to = *ids;
    size_t i = first;
    for (; i < n; i++) {
        const bd_cached_word *word = bd_cache_line_find(lookup->lines[i], lookup->keys[i]);
        if (!word)
            break;
        to = bd_cached_word_write(word, to);
    }
    *ids = to;
    return i;
}

const bd_word_lookup_kind bd_word_lookup_plain = {prepare_plain, write_plain};

const bd_word_lookup_kind *bd_word_lookup_best(void)
{
#ifdef __x86_64__
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return &bd_word_lookup_avx512;
    if (avx2)
        return &bd_word_lookup_avx2;
#endif
    return &bd_word_lookup_plain;
}
