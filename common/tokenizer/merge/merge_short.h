// merge_short.h - merging a short word by finding its lowest pair again and again.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_MERGE_SHORT_H
#define BINDERY_COMMON_TOKENIZER_MERGE_MERGE_SHORT_H

#include "common/tokenizer/merge/merge_table.h"

enum {
    BD_SHORT_BYTES = 24,  // bd_merge_long() is quicker for longer words
    BD_MOST_SHORT_BYTES = 2 * BD_MAX_BESIDE_LATE_BYTES,  // the longest that it can merge
};

// Merges `n` bytes, 1 to BD_MOST_SHORT_BYTES, into symbols[n] and returns how many there are.
size_t bd_merge_short(const bd_merge_table *table, const uint8_t *bytes, size_t n,
                      uint32_t *symbols);

#endif
