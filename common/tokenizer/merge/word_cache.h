// word_cache.h - the words that one thread has met, and their ids.
//
// A word of up to 15 bytes lies in the cache line that its hash names, which holds two words of
// up to 4 ids, the newer one first, or one word of up to 12. If that line is full, the word
// lies in the line beside it.
//
//   | key 16 | 4 ids 16 | key 16 | 4 ids 16 |        | key 16 | 12 ids 48 |
//
// Keys are compared whole, so a word never gets another's ids; and ids are never taken for a
// key, because a key's last byte is not 0. Longer words are kept by bd_long_words.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_WORD_CACHE_H
#define BINDERY_COMMON_TOKENIZER_MERGE_WORD_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/error.h"

enum { BD_KEY_BYTES = 15, BD_NARROW_IDS = 4, BD_WIDE_IDS = 12 };

// A word's bytes with zeros after them, and their number in the last byte. No word is all 0.
typedef struct bd_word_key {
    uint64_t low, high;
} bd_word_key;

// The number of ids is in the upper bits of the first, which an id never needs.
enum { BD_ID_BITS = 24 };

typedef struct bd_cached_word {
    bd_word_key key;
    uint32_t ids[BD_NARROW_IDS];
} bd_cached_word;

typedef union bd_cache_line {
    bd_cached_word words[2];
    struct {
        bd_word_key key;
        uint32_t ids[BD_WIDE_IDS];
    } wide;
} bd_cache_line;

typedef struct bd_word_cache {
    bd_cache_line *lines;  // [1 << bits], owned
    int bits;
} bd_word_cache;

// An empty cache of 64 << bits bytes, none of which is touched before it is used. On failure
// *cache is empty.
bd_status bd_word_cache_init(bd_word_cache *cache, int bits, bd_error *err);
void bd_word_cache_release(bd_word_cache *cache);  // safe on an empty one and safe twice

// The key of no word.
#define BD_NO_KEY ((bd_word_key){UINT64_MAX, UINT64_MAX})

// The key of a word of `n` bytes, BD_NO_KEY if they are too many; `readable` bytes, at least n,
// can be read.
static inline bd_word_key bd_word_key_in(const char *word, size_t n, size_t readable)
{
    if (__builtin_expect(n > BD_KEY_BYTES, 0))
        return BD_NO_KEY;
    uint64_t low = 0, high = 0;
    if (__builtin_expect(readable >= 16, 1)) {
        const int n_bits = (int)n * 8;
        memcpy(&low, word, 8);
        memcpy(&high, word + 8, 8);
        low &= n < 8 ? ((uint64_t)1 << n_bits) - 1 : UINT64_MAX;
        high &= n > 8 ? ((uint64_t)1 << (n_bits - 64)) - 1 : 0;
    } else {
        memcpy(&low, word, n < 8 ? n : 8);
        if (n > 8)
            memcpy(&high, word + 8, n - 8);
    }
    return (bd_word_key){low, high | (uint64_t)n << 56};
}

#define BD_HASH_FIRST  0x9E3779B97F4A7C15u
#define BD_HASH_SECOND 0xD6E8FEB86659FD93u
enum { BD_HASH_ROTATION = 29 };

// The upper bits are mixed best.
static inline uint64_t bd_word_key_hash(bd_word_key key)
{
    const uint64_t rotated = key.high << BD_HASH_ROTATION | key.high >> (64 - BD_HASH_ROTATION);
    const uint64_t first = (key.low ^ rotated) * BD_HASH_FIRST;
    return (first ^ first >> 32 ^ key.high) * BD_HASH_SECOND;
}

// The line that a word belongs to.
static inline bd_cache_line *bd_word_cache_line(const bd_word_cache *cache, bd_word_key key)
{
    return &cache->lines[bd_word_key_hash(key) >> (64 - cache->bits)];
}

static inline bool bd_word_key_equals(bd_word_key a, bd_word_key b)
{
    return ((a.low ^ b.low) | (a.high ^ b.high)) == 0;
}

// The word with this key in `line`, NULL if it is not there.
static inline const bd_cached_word *bd_cache_line_find(const bd_cache_line *line,
                                                       bd_word_key key)
{
    const bd_cached_word *words = line->words;
    const bd_cached_word *second = bd_word_key_equals(words[1].key, key) ? &words[1] : NULL;
    return bd_word_key_equals(words[0].key, key) ? &words[0] : second;
}

// Writes the ids of a word and returns where the next ones go. Room for BD_WIDE_IDS is needed.
static inline uint32_t *bd_cached_word_write(const bd_cached_word *word, uint32_t *ids)
{
    const uint32_t first = word->ids[0], n = first >> BD_ID_BITS;
    memcpy(ids, word->ids, sizeof word->ids);
    ids[0] = first & ((1u << BD_ID_BITS) - 1);
    if (__builtin_expect(n > BD_NARROW_IDS, 0))
        memcpy(ids + BD_NARROW_IDS, ((const bd_cache_line *)word)->wide.ids + BD_NARROW_IDS,
               (BD_WIDE_IDS - BD_NARROW_IDS) * sizeof *ids);
    return ids + n;
}

// Whether another word would evict one. Only then are words of this line in the one beside it.
static inline bool bd_cache_line_is_full(const bd_cache_line *line)
{
    return line->words[1].key.high != 0 || line->words[0].ids[0] >> BD_ID_BITS > BD_NARROW_IDS;
}

// The other line that a word may be in.
static inline bd_cache_line *bd_word_cache_beside(const bd_word_cache *cache,
                                                  const bd_cache_line *line)
{
    return &cache->lines[(size_t)(line - cache->lines) ^ 1];
}

// Puts a word with 1 to BD_WIDE_IDS ids into its line or the one beside it; evicts others if
// both are full.
void bd_word_cache_put(bd_word_cache *cache, bd_cache_line *line, bd_word_key key,
                       const uint32_t *ids, size_t n);

#endif
