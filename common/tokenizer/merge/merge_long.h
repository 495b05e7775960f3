// merge_long.h - merging a long word in time near its length.
//
// Merging the bytes of a row of tokens gives that row exactly if merging the bytes of every two
// neighbours gives those two: the first merge that does not belong to one of the tokens would
// have to join symbols of two neighbours. So the row is found from the left: the longest token
// that goes together with the one before it, and a step back where none does. merge_long.c says
// why that is quick.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_MERGE_LONG_H
#define BINDERY_COMMON_TOKENIZER_MERGE_MERGE_LONG_H

#include "common/tokenizer/merge/merge_table.h"
#include "common/tokenizer/merge/symbol_trie.h"

enum { BD_DEAD_END_WORDS = 1 << 14, BD_REMEMBERED_PAIRS = 1 << 14 };

// Whether merging the bytes of `left` and `right`, end to end, gives those two again.
bool bd_symbols_stay_apart(const bd_merge_table *table, uint32_t left, uint32_t right);

// The memory of one thread while it merges.
typedef struct bd_merge_memory {
    // A bit for each place of the word from which the search could not go on, as far as it lies
    // near the furthest place that was reached. Forgetting the others costs time, never a
    // token.
    uint64_t dead_ends[BD_DEAD_END_WORDS];
    // Pairs that were asked about, at the index of their hash: left, right, and the answer.
    uint64_t pairs[BD_REMEMBERED_PAIRS];
} bd_merge_memory;

// The same, with a memory of the answers.
bool bd_symbols_go_together(const bd_merge_table *table, bd_merge_memory *memory, uint32_t left,
                            uint32_t right);

// Merges `n` bytes, at least 1, into symbols[n] and returns how many there are. `memory` is all
// 0 at first and used with one table only. After a signal was noted (interrupt.h) it ends
// early, and the symbols are not valid.
size_t bd_merge_long(const bd_merge_table *table, const bd_symbol_trie *trie,
                     bd_merge_memory *memory, const uint8_t *bytes, size_t n,
                     uint32_t *symbols);

#endif
