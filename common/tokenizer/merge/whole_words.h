// whole_words.h - the tokens that merging never makes, but that a whole word of their bytes
// becomes.
//
// Some vocabularies that look the whole word up first (bd_bpe_model.whole_words) have such
// tokens.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_WHOLE_WORDS_H
#define BINDERY_COMMON_TOKENIZER_MERGE_WHOLE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/model/bpe_model.h"

typedef struct bd_whole_words {
    const bd_bpe_model *model;  // borrowed
    uint32_t *slots;            // [1 << bits] of ids, owned; NULL if there are no such tokens
    int bits;
    uint64_t seed;     // of the hash; random, so that no file can choose tokens that collide
    size_t max_bytes;  // of the longest; 0 if there are none
} bd_whole_words;

// On failure *words is empty.
bd_status bd_whole_words_init(bd_whole_words *words, const bd_bpe_model *model, bd_error *err);
void bd_whole_words_release(bd_whole_words *words);  // safe on an empty one and safe twice

// Whether the word is such a token, and which.
bool bd_whole_words_find(const bd_whole_words *words, const char *word, size_t n, uint32_t *id);

#endif
