// merge_word.h - merging a word of any length by the quickest code that the processor can run.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_MERGE_WORD_H
#define BINDERY_COMMON_TOKENIZER_MERGE_MERGE_WORD_H

#include "common/tokenizer/merge/merge_long.h"
#include "common/tokenizer/merge/merge_table.h"
#include "common/tokenizer/merge/symbol_trie.h"

// Merges `n` bytes, at least 1, into symbols[n] and returns how many there are. `memory` is all
// 0 at first and used with one table only.
typedef size_t bd_merge_function(const bd_merge_table *table, const bd_symbol_trie *trie,
                                 bd_merge_memory *memory, const uint8_t *bytes, size_t n,
                                 uint32_t *symbols);

bd_merge_function bd_merge_word_plain;
bd_merge_function bd_merge_word_avx512;

bd_merge_function *bd_merge_word_best(void);

#endif
