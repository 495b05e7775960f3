// added_counts.h - how often each added token was recognised in text, in a fixed amount of
// memory.
//
// The 32 lowest ids are counted one by one, all others together. The result depends only on the
// ids that were counted, not on their order or on the parts they were counted in: an id that
// was evicted by lower ones can never come back.
#ifndef BINDERY_COMMON_TOKENIZER_ADDED_COUNTS_H
#define BINDERY_COMMON_TOKENIZER_ADDED_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"

enum { BD_COUNTED_IDS = 32 };

typedef struct bd_added_counts {
    int32_t n;
    bool unknown;                    // a part was not counted, as before format 1.2
    uint32_t ids[BD_COUNTED_IDS];    // [n], rising
    int64_t counts[BD_COUNTED_IDS];  // [n], each at least 1
    int64_t other;                   // the count of all other ids
} bd_added_counts;                   // all zero is an empty one

// Counts `id` once.
void bd_added_counts_count(bd_added_counts *counts, uint32_t id);

// total += part. A sum that does not fit is BD_ERR_FORMAT.
bd_status bd_added_counts_add(bd_added_counts *total, const bd_added_counts *part,
                              bd_error *err);

// Sets the keys `added_tokens` and `added_tokens_other` of `object`, neither if it is unknown;
// and the way back. `most` is the largest count.
void bd_added_counts_to_json(const bd_added_counts *counts, bd_json *object);
bd_status bd_added_counts_from_json(bd_added_counts *counts, const bd_json *object,
                                    int64_t most, bd_error *err);

#endif
