#include "common/tokenizer/merge/word_cache.h"

#include <sys/mman.h>

bd_status bd_word_cache_init(bd_word_cache *cache, int bits, bd_error *err)
{
    *cache = (bd_word_cache){.bits = bits};
    const size_t n_bytes = sizeof *cache->lines << bits;
    void *memory =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        *cache = (bd_word_cache){0};
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a word cache of %zu bytes", n_bytes);
    }
    // Lines are used in random order: with small pages each would take a page of its own and
    // miss the TLB. Without huge pages the cache is only slower.
    madvise(memory, n_bytes, MADV_HUGEPAGE);
    cache->lines = memory;
    return BD_OK;
}

void bd_word_cache_release(bd_word_cache *cache)
{
    if (cache->lines)
        munmap(cache->lines, sizeof *cache->lines << cache->bits);
    *cache = (bd_word_cache){0};
}

static bool has_room(const bd_cache_line *line, size_t n_ids)
{
    return n_ids <= BD_NARROW_IDS ? line->words[0].ids[0] >> BD_ID_BITS <= BD_NARROW_IDS &&
                                        line->words[1].key.high == 0
                                  : line->wide.key.high == 0;
}

void bd_word_cache_put(bd_word_cache *cache, bd_cache_line *line, bd_word_key key,
                       const uint32_t *ids, size_t n)
{
    bd_cache_line *beside = bd_word_cache_beside(cache, line);
    if (!has_room(line, n) && has_room(beside, n))
        line = beside;
    if (n <= BD_NARROW_IDS && line->words[0].ids[0] >> BD_ID_BITS <= BD_NARROW_IDS) {
        line->words[1] = line->words[0];
        line->words[0] = (bd_cached_word){.key = key};
    } else {
        *line = (bd_cache_line){.wide.key = key};
    }
    for (size_t i = 0; i < n; i++)
        line->wide.ids[i] = ids[i];
    line->wide.ids[0] |= (uint32_t)n << BD_ID_BITS;
}
