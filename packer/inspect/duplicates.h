// duplicates.h - documents that occur more than once, found by a hash of their tokens.
#ifndef BINDERY_PACKER_INSPECT_DUPLICATES_H
#define BINDERY_PACKER_INSPECT_DUPLICATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/pair_sort.h"

enum { BD_MOST_REPEATED = 5 };

typedef struct bd_repeated_document {
    int64_t number;  // of the first of them in the dataset, from 0, as documents begin in rows
    int64_t count;   // how often it occurs, 2 or more
    int64_t n_tokens;
    size_t shard;  // where the first begins: filled by bd_inspection_count_duplicates()
    int64_t row;
    uint64_t position;
    uint32_t input;
} bd_repeated_document;

typedef struct bd_duplicates {
    // By 64 bits of hash and the length: two different documents among 16 million are taken for
    // the same with a probability below 1 in 100,000. Else by a sketch.
    bool exact;
    int64_t documents, distinct;
    double error;    // of `distinct`, as a share of it (three standard errors); 0 if exact
    int64_t tokens;  // of all documents
    int64_t repeated_tokens;                      // of all but the first of each; only if exact
    bd_repeated_document most[BD_MOST_REPEATED];  // the most repeated first; only if exact
    size_t n_most;
} bd_duplicates;

// A document as a pair to be sorted: its hash, then length and number, which are below 2^32.
bd_pair bd_duplicates_pair(uint64_t hash, int64_t n_tokens, int64_t number);

// Sorts the pairs of all documents and fills *duplicates, places left out.
void bd_duplicates_find(bd_duplicates *duplicates, bd_pair *pairs, size_t n);

#endif
