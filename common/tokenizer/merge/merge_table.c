#include "common/tokenizer/merge/merge_table.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_PER_SYMBOL = 2, MOST_DOUBLINGS = 4, MAX_SYMBOLS = (1 << BD_SYMBOL_BITS) - 1 };

static bd_status allocate_merge_table(bd_merge_table *table, const bd_bpe_model *model,
                                      bd_error *err)
{
    if (model->n_merges > MAX_SYMBOLS - BD_FIRST_PRODUCT)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "%zu merges are too many", model->n_merges);
    table->n_symbols = (uint32_t)(BD_FIRST_PRODUCT + model->n_merges);
    table->ids = malloc(table->n_symbols * sizeof *table->ids);
    table->sizes = malloc(table->n_symbols * sizeof *table->sizes);
    table->parts = malloc(table->n_symbols * sizeof *table->parts);
    table->late = calloc(table->n_symbols, sizeof *table->late);
    table->byte_pairs = malloc(256 * 256 * sizeof *table->byte_pairs);
    if (!table->ids || !table->sizes || !table->parts || !table->late || !table->byte_pairs)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu merges", model->n_merges);
    memset(table->byte_pairs, 0xFF, 256 * 256 * sizeof *table->byte_pairs);
    return BD_OK;
}

// symbols[id] becomes the symbol of each token that merging makes.
static void name_symbols(bd_merge_table *table, const bd_bpe_model *model, uint32_t *symbols)
{
    memset(symbols, 0xFF, model->n_ids * sizeof *symbols);
    for (uint32_t s = 0; s < table->n_symbols; s++) {
        const uint32_t id = s < BD_FIRST_PRODUCT ? model->byte_ids[s]
                                                 : model->merges[s - BD_FIRST_PRODUCT].product;
        table->ids[s] = id;
        table->sizes[s] = model->begins[id + 1] - model->begins[id];
        symbols[id] = s;
    }
}

static void name_parts(bd_merge_table *table, const bd_bpe_model *model,
                       const uint32_t *symbols)
{
    for (uint32_t s = 0; s < BD_FIRST_PRODUCT; s++)
        table->parts[s] = (bd_symbol_parts){BD_NO_SYMBOL, BD_NO_SYMBOL};
    for (uint32_t s = BD_FIRST_PRODUCT; s < table->n_symbols; s++) {
        const bd_merge *merge = &model->merges[s - BD_FIRST_PRODUCT];
        const bd_symbol_parts parts = {symbols[merge->left], symbols[merge->right]};
        table->parts[s] = parts;
        if (parts.left < BD_FIRST_PRODUCT && parts.right < BD_FIRST_PRODUCT)
            table->byte_pairs[parts.left << 8 | parts.right] = s;
    }
}

// ---- Slots ---------------------------------------------------------------------------------

// False if the pair's slots are taken.
static bool add_merge_pair(bd_merge_table *table, bd_symbol_parts parts, uint32_t product)
{
    const uint64_t pair = bd_symbol_pair(parts.left, parts.right);
    const bd_pair_place place = bd_merge_table_place(table, pair);
    uint64_t *slots = table->slots + place.slot;
    table->filter[place.bit >> 5] |= 1u << (place.bit & 31);
    for (int i = 0; i < BD_PROBED_SLOTS; i++)
        if (slots[i] == BD_EMPTY_SLOT) {
            slots[i] = pair << BD_SYMBOL_BITS | product;
            return true;
        }
    return false;
}

static bool add_merge_pairs(bd_merge_table *table)
{
    for (uint32_t s = BD_FIRST_PRODUCT; s < table->n_symbols; s++)
        if (!add_merge_pair(table, table->parts[s], s))
            return false;
    return true;
}

// Doubles the slots until every pair finds one near its place.
static bd_status fill_slots(bd_merge_table *table, bd_error *err)
{
    int bits = 8;
    while (((size_t)1 << bits) < (size_t)table->n_symbols * SLOTS_PER_SYMBOL)
        bits++;
    for (const int most = bits + MOST_DOUBLINGS; bits <= most; bits++) {
        const size_t n = ((size_t)1 << bits) + BD_PROBED_SLOTS;
        free(table->filter);
        free(table->slots);
        table->filter = calloc((size_t)1 << (bits + BD_FILTER_BITS - 5), sizeof *table->filter);
        table->slots = malloc(n * sizeof *table->slots);
        if (!table->filter || !table->slots)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for %u merges", table->n_symbols);
        memset(table->slots, 0xFF, n * sizeof *table->slots);
        table->bits = bits;
        if (add_merge_pairs(table))
            return BD_OK;
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED, "the merges fit into no table");
}

// ---- Symbols whose merge comes late --------------------------------------------------------

uint32_t *bd_merge_table_by_size(const bd_merge_table *table)
{
    uint32_t longest = 1;
    for (uint32_t s = 0; s < table->n_symbols; s++)
        longest = table->sizes[s] > longest ? table->sizes[s] : longest;
    uint32_t *order = malloc(table->n_symbols * sizeof *order);
    uint32_t *begins = calloc(longest + (size_t)2, sizeof *begins);
    if (order && begins) {
        for (uint32_t s = 0; s < table->n_symbols; s++)
            begins[table->sizes[s] + 1]++;
        for (uint32_t size = 1; size <= longest; size++)
            begins[size + 1] += begins[size];
        for (uint32_t s = 0; s < table->n_symbols; s++)
            order[begins[table->sizes[s]]++] = s;
    } else {
        free(order);
        order = NULL;
    }
    free(begins);
    return order;
}

// A symbol is late if its last merge comes after merges of a higher rank. The parts of a symbol
// are shorter than it, so in the order of sizes its parts come first.
static bd_status find_late(bd_merge_table *table, bd_error *err)
{
    uint32_t *order = bd_merge_table_by_size(table);
    if (!order)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    uint32_t last = BD_NO_SYMBOL, longest = 0;
    for (uint32_t i = 0; i < table->n_symbols; i++) {
        const uint32_t s = order[i];
        const bd_symbol_parts parts = table->parts[s];
        longest = table->sizes[s];
        if (s < BD_FIRST_PRODUCT)
            continue;
        table->late[s] = parts.left > s || parts.right > s || table->late[parts.left] ||
                         table->late[parts.right];
        if (table->late[s])
            last = s;
    }
    free(order);
    if (last == BD_NO_SYMBOL || longest <= BD_MAX_BESIDE_LATE_BYTES)
        return BD_OK;
    return bd_fail(
        err, BD_ERR_UNSUPPORTED,
        "token %u has a merge before those of its parts; beside such tokens none may "
        "be longer than %d bytes, and one has %u",
        table->ids[last], BD_MAX_BESIDE_LATE_BYTES, longest);
}

bd_status bd_merge_table_init(bd_merge_table *table, const bd_bpe_model *model, bd_error *err)
{
    *table = (bd_merge_table){0};
    uint32_t *symbols = malloc((model->n_ids + (size_t)1) * sizeof *symbols);
    bd_status status = symbols ? allocate_merge_table(table, model, err)
                               : bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    if (status == BD_OK) {
        name_symbols(table, model, symbols);
        name_parts(table, model, symbols);
        status = fill_slots(table, err);
    }
    free(symbols);
    if (status == BD_OK)
        status = find_late(table, err);
    if (status != BD_OK)
        bd_merge_table_release(table);
    return status;
}

void bd_merge_table_release(bd_merge_table *table)
{
    free(table->ids);
    free(table->sizes);
    free(table->parts);
    free(table->late);
    free(table->byte_pairs);
    free(table->filter);
    free(table->slots);
    *table = (bd_merge_table){0};
}
