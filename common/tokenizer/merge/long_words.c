#include "common/tokenizer/merge/long_words.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/checksum.h"

enum { SET_BITS = 14, SET_WORDS = 4, STORE_WORDS = 1 << 20 };  // 1 MiB and 4 MiB

typedef struct long_word {
    uint64_t hash;
    uint32_t begin;              // in the store
    uint16_t size_bytes, n_ids;  // 0 and 0: there is none
} long_word;

// The words of one cache line, the newest first.
typedef struct bd_long_word_set {
    long_word words[SET_WORDS];
} bd_long_word_set;

bd_status bd_long_words_init(bd_long_words *words, bd_error *err)
{
    *words = (bd_long_words){
        .sets = aligned_alloc(sizeof *words->sets, sizeof *words->sets << SET_BITS),
        .store = malloc(STORE_WORDS * sizeof *words->store),
    };
    if (!words->sets || !words->store) {
        bd_long_words_release(words);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for long words");
    }
    memset(words->sets, 0, sizeof *words->sets << SET_BITS);
    return BD_OK;
}

void bd_long_words_release(bd_long_words *words)
{
    free(words->sets);
    free(words->store);
    *words = (bd_long_words){0};
}

uint64_t bd_long_words_hash(const char *word, size_t n)
{
    return bd_hash64(word, n, 0);
}

static size_t words_of(size_t n_bytes)
{
    return (n_bytes + 3) / 4;
}

uint32_t *bd_long_words_find(const bd_long_words *words, uint64_t hash, const char *word,
                             size_t n, uint32_t *ids)
{
    const bd_long_word_set *set = &words->sets[hash >> (64 - SET_BITS)];
    for (int i = 0; i < SET_WORDS; i++) {
        const long_word *found = &set->words[i];
        const uint32_t *stored = words->store + found->begin;
        if (found->hash != hash || found->size_bytes != n || memcmp(stored, word, n) != 0)
            continue;
        memcpy(ids, stored + words_of(n), found->n_ids * sizeof *ids);
        return ids + found->n_ids;
    }
    return NULL;
}

void bd_long_words_put(bd_long_words *words, uint64_t hash, const char *word, size_t n,
                       const uint32_t *ids, size_t n_ids)
{
    const size_t needed = words_of(n) + n_ids;
    if (words->n_stored + needed > STORE_WORDS) {
        memset(words->sets, 0, sizeof *words->sets << SET_BITS);
        words->n_stored = 0;
    }
    uint32_t *stored = words->store + words->n_stored;
    memcpy(stored, word, n);
    memcpy(stored + words_of(n), ids, n_ids * sizeof *ids);
    long_word *set = words->sets[hash >> (64 - SET_BITS)].words;
    memmove(set + 1, set, (SET_WORDS - 1) * sizeof *set);
    set[0] = (long_word){
        .hash = hash,
        .begin = (uint32_t)words->n_stored,
        .size_bytes = (uint16_t)n,
        .n_ids = (uint16_t)n_ids,
    };
    words->n_stored += needed;
}
