// word_lookup.h - looking up many words at once: the cache lines of the next words are fetched
// from memory while the ids of the first are written.
//
// There are three implementations with the same results, and the processor decides which one
// runs: in plain C, in AVX2, and in AVX-512, which makes the keys of 8 words at a time.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_WORD_LOOKUP_H
#define BINDERY_COMMON_TOKENIZER_MERGE_WORD_LOOKUP_H

#include "common/tokenizer/merge/word_cache.h"

enum { BD_WORD_BATCH = 256 };

// Words that follow each other in a text.
typedef struct bd_word_batch {
    const char *text;
    size_t size_bytes;     // of the text
    size_t begin;          // of the first word
    const uint32_t *ends;  // [n] of each word
    size_t n;              // at most BD_WORD_BATCH
} bd_word_batch;

// The keys of a batch's words, and the lines where they are searched. A word that is too long
// for a key has BD_NO_KEY, and a line that does not contain it.
typedef struct bd_word_lookup {
    bd_word_key keys[BD_WORD_BATCH];
    bd_cache_line *lines[BD_WORD_BATCH];
} bd_word_lookup;

typedef struct bd_word_lookup_kind {
    // Makes the keys of all words of the batch and prefetches their lines.
    void (*prepare)(bd_word_lookup *lookup, const bd_word_cache *cache,
                    const bd_word_batch *batch);
    // Writes the ids of words `first` to n - 1 to *ids, which moves on, up to the first that is
    // not in its line. Returns its index; n if all were written.
    size_t (*write)(const bd_word_lookup *lookup, size_t first, size_t n, uint32_t **ids);
} bd_word_lookup_kind;

extern const bd_word_lookup_kind bd_word_lookup_plain;
extern const bd_word_lookup_kind bd_word_lookup_avx2;
extern const bd_word_lookup_kind bd_word_lookup_avx512;

// `write` of AVX2 and AVX-512: handling more than one word at a time was not quicker.
size_t bd_word_lookup_write_avx2(const bd_word_lookup *lookup, size_t first, size_t n,
                                 uint32_t **ids);

// The quickest that this processor has.
const bd_word_lookup_kind *bd_word_lookup_best(void);

// Makes the key of one word and prefetches its line; `prepare` calls it for the last words of a
// batch.
static inline void bd_word_lookup_prepare_one(bd_word_lookup *lookup,
                                              const bd_word_cache *cache,
                                              const bd_word_batch *batch, size_t i)
{
    const size_t begin = i > 0 ? batch->ends[i - 1] : batch->begin;
    const bd_word_key key =
        bd_word_key_in(batch->text + begin, batch->ends[i] - begin, batch->size_bytes - begin);
    bd_cache_line *line = bd_word_cache_line(cache, key);
    __builtin_prefetch(line);
    lookup->keys[i] = key;
    lookup->lines[i] = line;
}

#endif
