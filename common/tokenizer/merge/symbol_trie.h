// symbol_trie.h - the longest symbol that some bytes begin with.
//
// A node stands for bytes that some symbol begins with. If those are a symbol themselves, its
// number is the node's number; all other nodes have higher numbers. So a single byte is its own
// node, and a step tells at once whether a symbol ends there.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_SYMBOL_TRIE_H
#define BINDERY_COMMON_TOKENIZER_MERGE_SYMBOL_TRIE_H

#include "common/tokenizer/merge/merge_table.h"

typedef struct bd_symbol_trie {
    uint32_t n_symbols, n_nodes;
    uint32_t *second;  // [256 * 256], owned: the node of two bytes, or BD_NO_SYMBOL
    // All further steps: node * 256 + byte, and the node that they lead to.
    uint64_t *steps;  // [1 << (64 - shift)], owned
    size_t n_steps;
    int shift;
    uint32_t *shorter;  // [n_symbols], owned: the longest symbol that a symbol begins with
} bd_symbol_trie;

// On failure *trie is empty. Memory: 32 bytes for each byte of the vocabulary at most, usually
// a quarter of that.
bd_status bd_symbol_trie_init(bd_symbol_trie *trie, const bd_merge_table *table,
                              const bd_bpe_model *model, bd_error *err);
void bd_symbol_trie_release(bd_symbol_trie *trie);  // safe on an empty one and safe twice

// The longest symbol at the beginning of `n` bytes; BD_NO_SYMBOL if n is 0.
uint32_t bd_symbol_trie_longest(const bd_symbol_trie *trie, const uint8_t *bytes, size_t n);

#endif
