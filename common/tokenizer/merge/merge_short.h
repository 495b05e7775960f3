// merge_short.h - merging a short word by looking for its lowest pair again and again.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_MERGE_SHORT_H
#define BINDERY_COMMON_TOKENIZER_MERGE_MERGE_SHORT_H

#include "common/tokenizer/merge/merge_table.h"

enum {
    BD_SHORT_BYTES = 24,  // above that bd_merge_long() is quicker
    BD_MOST_SHORT_BYTES = 2 * BD_MAX_BESIDE_LATE_BYTES,  // above that this cannot do it
};

// Merges `n` bytes, 1 to BD_MOST_SHORT_BYTES, into symbols[n] and returns how many there are.
size_t bd_merge_short(const bd_merge_table *table, const uint8_t *bytes, size_t n,
                      uint32_t *symbols);

#endif
