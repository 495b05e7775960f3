// merge_table.h - the merges of a model, in the form in which merging looks them up.
//
// Merging works on symbols, not on ids: 0 to 255 are the bytes, 256 + k is the product of merge
// k. So the product of a pair is also its rank: the smallest symbol is made first.
//
// Merging the bytes of a symbol gives that symbol again; all merging code relies on that.
// Nearly always a symbol is made of smaller ones, so that merging makes symbols in rising
// order. In vocabularies that were put together from several, some are not: these, and the
// symbols made of them, are `late`.
#ifndef BINDERY_COMMON_TOKENIZER_MERGE_MERGE_TABLE_H
#define BINDERY_COMMON_TOKENIZER_MERGE_MERGE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/model/bpe_model.h"

enum { BD_FIRST_PRODUCT = 256, BD_SYMBOL_BITS = 21, BD_PROBED_SLOTS = 8, BD_FILTER_BITS = 2 };
enum { BD_MAX_BESIDE_LATE_BYTES = 128 };
#define BD_NO_SYMBOL UINT32_MAX

typedef struct bd_symbol_parts {
    uint32_t left, right;
} bd_symbol_parts;

typedef struct bd_merge_table {
    uint32_t n_symbols;
    uint32_t *ids;           // [n_symbols], owned: a symbol's id
    uint32_t *sizes;         // [n_symbols], owned: bytes of a symbol
    bd_symbol_parts *parts;  // [n_symbols], owned; BD_NO_SYMBOL twice for a byte
    bool *late;              // [n_symbols], owned
    uint32_t *byte_pairs;    // [256 * 256], owned: product of left * 256 + right
    // A bit at the hash of each pair that merges. Most pairs that are asked for do not, and the
    // bits are few enough to stay in the processor's cache.
    uint32_t *filter;  // [1 << (bits + BD_FILTER_BITS - 5)], owned
    uint64_t *slots;   // [(1 << bits) + BD_PROBED_SLOTS], owned: a pair, and its product
    int bits;
} bd_merge_table;

// Copies what it needs from `model`. If there are late symbols, one of more than
// BD_MAX_BESIDE_LATE_BYTES is BD_ERR_UNSUPPORTED. On failure *table is empty.
bd_status bd_merge_table_init(bd_merge_table *table, const bd_bpe_model *model, bd_error *err);
void bd_merge_table_release(bd_merge_table *table);  // safe on an empty table and safe twice

// The symbols in the order of their sizes, malloc'd, the caller's to free; NULL when out of
// memory.
uint32_t *bd_merge_table_by_size(const bd_merge_table *table);

static inline uint64_t bd_symbol_pair(uint32_t left, uint32_t right)
{
    return (uint64_t)left << BD_SYMBOL_BITS | right;
}

// Its upper bits are the good ones.
static inline uint64_t bd_symbol_pair_hash(uint64_t pair)
{
    return pair * 0x9E3779B97F4A7C15u;
}

// The place of a pair: this slot or one of the next ones, BD_PROBED_SLOTS in all.
typedef struct bd_pair_place {
    size_t slot;
    size_t bit;  // of the filter
} bd_pair_place;

static inline bd_pair_place bd_merge_table_place(const bd_merge_table *table, uint64_t pair)
{
    const uint64_t hash = bd_symbol_pair_hash(pair);
    return (bd_pair_place){.slot = (size_t)(hash >> (64 - table->bits)),
                           .bit = (size_t)(hash >> (64 - table->bits - BD_FILTER_BITS))};
}

#define BD_EMPTY_SLOT UINT64_MAX  // no pair is as large

// The product of `left` and `right`, BD_NO_SYMBOL if they do not merge.
static inline uint32_t bd_merge_table_product(const bd_merge_table *table, uint32_t left,
                                              uint32_t right)
{
    const uint64_t pair = bd_symbol_pair(left, right);
    const bd_pair_place place = bd_merge_table_place(table, pair);
    if (!(table->filter[place.bit >> 5] >> (place.bit & 31) & 1))
        return BD_NO_SYMBOL;
    const uint64_t *slots = table->slots + place.slot;
    for (int i = 0; i < BD_PROBED_SLOTS && slots[i] != BD_EMPTY_SLOT; i++)
        if (slots[i] >> BD_SYMBOL_BITS == pair)
            return (uint32_t)slots[i] & ((1u << BD_SYMBOL_BITS) - 1);
    return BD_NO_SYMBOL;
}

static inline uint32_t bd_merge_table_byte_pair(const bd_merge_table *table, uint8_t left,
                                                uint8_t right)
{
    return table->byte_pairs[(size_t)left << 8 | right];
}

#endif
