#include "common/tokenizer/merge/symbol_trie.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 24, FIRST_BITS = 12, SLOTS_PER_STEP = 2 };
#define EMPTY_STEP UINT64_MAX

// ---- Steps ---------------------------------------------------------------------------------

// The slot of the step `key`, or the empty one where it belongs.
static inline uint64_t *find_trie_step(const bd_symbol_trie *trie, uint32_t key)
{
    const size_t mask = ((size_t)1 << (64 - trie->shift)) - 1;
    size_t at = (size_t)((uint64_t)key * 0x9E3779B97F4A7C15u >> trie->shift);
    while (trie->steps[at] != EMPTY_STEP && (uint32_t)(trie->steps[at] >> 32) != key)
        at = (at + 1) & mask;
    return &trie->steps[at];
}

static bd_status resize_steps(bd_symbol_trie *trie, int bits, bd_error *err)
{
    uint64_t *old = trie->steps;
    const size_t n_old = old ? (size_t)1 << (64 - trie->shift) : 0;
    trie->steps = malloc(sizeof *trie->steps << bits);
    if (!trie->steps) {
        trie->steps = old;
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    }
    trie->shift = 64 - bits;
    memset(trie->steps, 0xFF, sizeof *trie->steps << bits);
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != EMPTY_STEP)
            *find_trie_step(trie, (uint32_t)(old[i] >> 32)) = old[i];
    free(old);
    return BD_OK;
}

// The node that `byte` leads to from `node`, which is the first byte if `depth` is 1;
// BD_NO_SYMBOL if there is none.
static inline uint32_t trie_step(const bd_symbol_trie *trie, uint32_t node, size_t depth,
                                 uint8_t byte)
{
    return depth == 1 ? trie->second[node << 8 | byte]
                      : (uint32_t)*find_trie_step(trie, node << 8 | byte);
}

static bd_status add_trie_step(bd_symbol_trie *trie, uint32_t node, size_t depth, uint8_t byte,
                               uint32_t to, bd_error *err)
{
    if (depth == 1) {
        trie->second[node << 8 | byte] = to;
        return BD_OK;
    }
    if ((trie->n_steps + 1) * SLOTS_PER_STEP > (size_t)1 << (64 - trie->shift))
        BD_TRY(resize_steps(trie, 64 - trie->shift + 1, err));
    *find_trie_step(trie, node << 8 | byte) = (uint64_t)(node << 8 | byte) << 32 | to;
    trie->n_steps++;
    return BD_OK;
}

// ---- Building ------------------------------------------------------------------------------

// No longer symbol is in the trie yet, so its own node is not there either.
static bd_status add_symbol(bd_symbol_trie *trie, const uint8_t *bytes, size_t n,
                            uint32_t symbol, bd_error *err)
{
    uint32_t node = bytes[0];
    for (size_t depth = 1; depth < n; depth++) {
        uint32_t next = trie_step(trie, node, depth, bytes[depth]);
        if (next == BD_NO_SYMBOL) {
            next = depth + 1 == n ? symbol : trie->n_nodes++;
            if (trie->n_nodes >= MAX_NODES)
                return bd_fail(err, BD_ERR_UNSUPPORTED, "the vocabulary is too large");
            BD_TRY(add_trie_step(trie, node, depth, bytes[depth], next, err));
        }
        node = next;
    }
    return BD_OK;
}

static bd_status build_trie(bd_symbol_trie *trie, const bd_merge_table *table,
                            const uint32_t *order, const bd_bpe_model *model, bd_error *err)
{
    const uint8_t *bytes = (const uint8_t *)model->bytes;
    trie->n_symbols = trie->n_nodes = table->n_symbols;
    trie->second = malloc(256 * 256 * sizeof *trie->second);
    trie->shorter = malloc(table->n_symbols * sizeof *trie->shorter);
    if (!trie->second || !trie->shorter)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    memset(trie->second, 0xFF, 256 * 256 * sizeof *trie->second);
    BD_TRY(resize_steps(trie, FIRST_BITS, err));
    for (uint32_t i = 0; i < table->n_symbols; i++) {
        const uint32_t s = order[i];
        const uint8_t *symbol = bytes + model->begins[table->ids[s]];
        trie->shorter[s] = bd_symbol_trie_longest(trie, symbol, table->sizes[s] - 1);
        BD_TRY(add_symbol(trie, symbol, table->sizes[s], s, err));
    }
    return BD_OK;
}

bd_status bd_symbol_trie_init(bd_symbol_trie *trie, const bd_merge_table *table,
                              const bd_bpe_model *model, bd_error *err)
{
    *trie = (bd_symbol_trie){0};
    uint32_t *order = bd_merge_table_by_size(table);
    const bd_status status = order
                                 ? build_trie(trie, table, order, model, err)
                                 : bd_fail(err, BD_ERR_MEMORY, "no memory for the vocabulary");
    free(order);
    if (status != BD_OK)
        bd_symbol_trie_release(trie);
    return status;
}

void bd_symbol_trie_release(bd_symbol_trie *trie)
{
    free(trie->second);
    free(trie->steps);
    free(trie->shorter);
    *trie = (bd_symbol_trie){0};
}

uint32_t bd_symbol_trie_longest(const bd_symbol_trie *trie, const uint8_t *bytes, size_t n)
{
    if (n == 0)
        return BD_NO_SYMBOL;
    uint32_t node = bytes[0], longest = node;
    for (size_t depth = 1; depth < n; depth++) {
        node = trie_step(trie, node, depth, bytes[depth]);
        if (node == BD_NO_SYMBOL)
            break;
        if (node < trie->n_symbols)
            longest = node;
    }
    return longest;
}
