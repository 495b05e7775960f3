// long_words.h - the words that one thread has met and that are too long for the word cache:
// rulers of dashes, indentation, long names.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_LONG_WORDS_H
#define BINDERY_COMMON_TOKENIZER_MERGE_LONG_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { BD_LONG_WORD_BYTES = 256 };  // longer ones are not kept

typedef struct bd_long_words {
    struct bd_long_word_set *sets;  // owned
    uint32_t *store;                // owned: the bytes of each word, then its ids
    size_t n_stored;                // in words of 4 bytes
} bd_long_words;

// On failure *words is empty. Memory: 5 MiB, of which 1 is touched at once.
bd_status bd_long_words_init(bd_long_words *words, bd_error *err);
void bd_long_words_release(bd_long_words *words);  // safe on an empty one and safe twice

uint64_t bd_long_words_hash(const char *word, size_t n);

// Writes the ids of a word and returns where the next ones go; NULL if it is not there.
uint32_t *bd_long_words_find(const bd_long_words *words, uint64_t hash, const char *word,
                             size_t n, uint32_t *ids);

// Keeps a word of at most BD_LONG_WORD_BYTES; evicts another if need be. When the store is
// full, all words are forgotten.
void bd_long_words_put(bd_long_words *words, uint64_t hash, const char *word, size_t n,
                       const uint32_t *ids, size_t n_ids);

#endif
