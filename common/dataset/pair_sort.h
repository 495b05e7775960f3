// pair_sort.h - sorts pairs of 64-bit numbers where they lie, in no memory of its own.
#ifndef BINDERY_COMMON_DATASET_PAIR_SORT_H
#define BINDERY_COMMON_DATASET_PAIR_SORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct bd_pair {
    uint64_t high, low;
} bd_pair;

// Ascending by `high`, then by `low`. Time: at most 16 passes, whatever the values; 64 KiB of
// stack.
void bd_pairs_sort(bd_pair *pairs, size_t n);

#endif
