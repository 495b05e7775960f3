// vocabulary.h - tokens while a tokenizer's file is read: bytes by id, and id by bytes.
//
// The file is from outside, so it is checked: ids and bytes are each used once, within the
// limits of bpe_model.h. A lookup takes the same time for every file. The memory is the tokens'
// bytes and about 40 for each id up to the highest, at most doubled.
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_VOCABULARY_H
#define BINDERY_COMMON_TOKENIZER_MODEL_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct bd_token_span {
    uint32_t begin, size_bytes;  // in `bytes`; a size of 0: the id is not used
} bd_token_span;

typedef struct bd_token_slot {
    uint32_t hash, id_plus_1;  // 0: free
} bd_token_slot;

typedef struct bd_vocabulary {
    bd_token_span *spans;  // [n_ids], owned
    uint32_t n_ids;        // the highest id in use, plus 1
    size_t n_tokens;       // that are in use
    char *bytes;           // [n_bytes], owned
    size_t n_bytes;
    bd_token_slot *slots;  // [slot_mask + 1], owned, open addressing
    size_t slot_mask;
    uint64_t seed;  // of the hash; random, so that no file can choose tokens that collide
    size_t span_capacity, byte_capacity;
} bd_vocabulary;  // all zero is an empty one

// BD_ERR_FORMAT, without the token's name, if the id is out of range or used already, or if the
// token is empty, too long or there already.
bd_status bd_vocabulary_add(bd_vocabulary *vocabulary, int64_t id, const char *bytes,
                            size_t size_bytes, bd_error *err);

bool bd_vocabulary_find(const bd_vocabulary *vocabulary, const char *bytes, size_t size_bytes,
                        uint32_t *id);

// Whether `id` is in use.
bool bd_vocabulary_has(const bd_vocabulary *vocabulary, uint32_t id);

// The bytes of a token in use, borrowed until the next one is added.
const char *bd_vocabulary_bytes(const bd_vocabulary *vocabulary, uint32_t id,
                                size_t *size_bytes);

void bd_vocabulary_release(bd_vocabulary *vocabulary);  // safe twice

#endif
