#include "common/tokenizer/merge/merge_word.h"

#include "common/tokenizer/merge/merge_short.h"

size_t bd_merge_word_plain(const bd_merge_table *table, const bd_symbol_trie *trie,
                           bd_merge_memory *memory, const uint8_t *bytes, size_t n,
                           uint32_t *symbols)
{
    return n <= BD_SHORT_BYTES ? bd_merge_short(table, bytes, n, symbols)
                               : bd_merge_long(table, trie, memory, bytes, n, symbols);
}

bd_merge_function *bd_merge_word_best(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        return bd_merge_word_avx512;
#endif
    return bd_merge_word_plain;
}
