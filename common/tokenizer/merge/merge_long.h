// merge_long.h - merging a long word in time near its length.
//
// A row of tokens is what merging makes of its bytes exactly if every two neighbours are what
// merging makes of theirs: a first merge that is not in the row's own trees would have to join
// symbols of two neighbours. So the row is found from the left: the longest token that goes
// with the one before it, and a step back where nothing goes on. A place that leads nowhere is
// remembered, so that it is not tried again.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_MERGE_LONG_H
#define BINDERY_COMMON_TOKENIZER_MERGE_MERGE_LONG_H

#include "common/tokenizer/merge/merge_table.h"
#include "common/tokenizer/merge/symbol_trie.h"

enum { BD_DEAD_END_WORDS = 1 << 14, BD_REMEMBERED_PAIRS = 1 << 14 };

// Whether merging the bytes of `left` and `right`, end to end, gives those two again.
bool bd_symbols_stay_apart(const bd_merge_table *table, uint32_t left, uint32_t right);

// What one thread remembers while it merges.
typedef struct bd_merge_memory {
    // Places of the word that lead nowhere: a bit each for the last ones before the furthest
    // place that was reached. Older ones are forgotten, which costs time, never a token.
    uint64_t dead_ends[BD_DEAD_END_WORDS];
    // Pairs that were asked about, each where its hash says: left, right, and the answer.
    uint64_t pairs[BD_REMEMBERED_PAIRS];
} bd_merge_memory;

// The same, remembered.
bool bd_symbols_go_together(const bd_merge_table *table, bd_merge_memory *memory, uint32_t left,
                            uint32_t right);

// Merges `n` bytes, at least 1, into symbols[n] and returns how many there are. `memory` is all
// 0 at first and used with one table only. After a signal was noted (interrupt.h) it ends
// early, with symbols that are worth nothing.
size_t bd_merge_long(const bd_merge_table *table, const bd_symbol_trie *trie,
                     bd_merge_memory *memory, const uint8_t *bytes, size_t n,
                     uint32_t *symbols);

#endif
