#include "common/tokenizer/merge/bpe_tables.h"

bd_status bd_bpe_tables_init(bd_bpe_tables *tables, const bd_bpe_model *model, bd_error *err)
{
    *tables = (bd_bpe_tables){0};
    bd_status status = bd_merge_table_init(&tables->merges, model, err);
    if (status == BD_OK)
        status = bd_symbol_trie_init(&tables->trie, &tables->merges, model, err);
    if (status == BD_OK)
        status = bd_cuts_init(&tables->cuts, &tables->merges, model, err);
    if (status == BD_OK)
        status = bd_whole_words_init(&tables->whole_words, model, err);
    if (status != BD_OK)
        bd_bpe_tables_release(tables);
    return status;
}

void bd_bpe_tables_release(bd_bpe_tables *tables)
{
    bd_merge_table_release(&tables->merges);
    bd_symbol_trie_release(&tables->trie);
    bd_cuts_release(&tables->cuts);
    bd_whole_words_release(&tables->whole_words);
}
