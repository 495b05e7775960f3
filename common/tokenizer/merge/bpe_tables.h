// bpe_tables.h - all tables that encoding uses, made from a model once and shared by all
// threads.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_BPE_TABLES_H
#define BINDERY_COMMON_TOKENIZER_MERGE_BPE_TABLES_H

#include "common/tokenizer/merge/cuts.h"
#include "common/tokenizer/merge/merge_table.h"
#include "common/tokenizer/merge/symbol_trie.h"
#include "common/tokenizer/merge/whole_words.h"

typedef struct bd_bpe_tables {
    bd_merge_table merges;
    bd_symbol_trie trie;
    bd_cuts cuts;
    bd_whole_words whole_words;
} bd_bpe_tables;

// The model must outlive them. On failure *tables is empty.
bd_status bd_bpe_tables_init(bd_bpe_tables *tables, const bd_bpe_model *model, bd_error *err);
void bd_bpe_tables_release(bd_bpe_tables *tables);  // safe on empty ones and safe twice

#endif
