// Finds the merges that can happen, by merging the bytes of every token as a word of its own;
// live_merges.h says why that tells everything.
//
// One word is merged as BPE defines it: among all neighbours that have a merge, the pair of the
// lowest rank is joined, the leftmost one among equals, until none has a merge. A word of n
// bytes takes O(n log n) time:
//
//   - A symbol is named after the offset of its first byte, which stays the same while the
//     symbol grows. `next` and `previous` chain the symbols that are left.
//   - A heap holds rank << 32 | offset of every pair. So its smallest entry is the pair of the
//     lowest rank, and among equals the leftmost.
//   - A join changes the pair that begins at the new symbol and the one before it. Their old
//     entries stay in the heap. An entry counts only if `ranks[offset]` still is its rank: a
//     pair that has changed consists of other symbols, so it never has its old rank again.
//
// It ends because every step takes an entry out of the heap and few are put in: a pair for each
// byte at first, and two for each of at most n - 1 joins, fewer than 3 n in all.
//
// bd_live_merges_keep() merges by given merges. If the bytes of a token become one symbol, the
// last join is the merge that makes the token wherever it occurs, so that merge is kept.
//
// bd_live_merges_of_ranks() knows ranks alone: any two neighbours whose bytes are a token
// merge. It visits the tokens by rising rank, and the table holds one pair for each token
// before. With these merges the bytes of the next token nearly always end as two symbols, and
// those are its pair, because only its own merge, which has a higher rank than all of them, is
// missing.
#include "common/tokenizer/model/live_merges.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t NONE = UINT32_MAX;

// ---- Merges by their two parts ----------------------------------------------------

typedef struct pair_slot {
    uint32_t check;         // bits of the hash that the number of the slot does not tell
    uint32_t merge_plus_1;  // 0: free
} pair_slot;

typedef struct pair_table {
    const bd_merge *merges;  // borrowed
    pair_slot *slots;        // [mask + 1], owned, open addressing
    size_t mask;
    uint64_t seed;
} pair_table;

static bd_status pair_table_init(pair_table *table, const bd_merge *merges, size_t n_merges,
                                 uint64_t seed, bd_error *err)
{
    size_t n_slots = 1024;
    while (n_slots < 2 * n_merges)
        n_slots *= 2;
    *table = (pair_table){merges, calloc(n_slots, sizeof *table->slots), n_slots - 1, seed};
    return table->slots ? BD_OK
                        : bd_fail(err, BD_ERR_MEMORY, "no memory for %zu merges", n_merges);
}

// The slot of the pair, or the free one where it belongs; *check is then the value for it.
// There are at least twice as many slots as merges, so the search meets a free one.
static pair_slot *pair_slot_of(const pair_table *table, uint32_t left, uint32_t right,
                               uint32_t *check)
{
    const uint64_t pair = (uint64_t)left << 32 | right;
    // The product of 128 bits is folded, so that every bit of the pair changes every bit of the
    // hash. The seed is random: no file can choose pairs that collide.
    const unsigned __int128 product =
        (unsigned __int128)(pair ^ table->seed) * UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t hash = (uint64_t)product ^ (uint64_t)(product >> 64);
    *check = (uint32_t)(hash >> 32);
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        pair_slot *slot = &table->slots[i];
        if (slot->merge_plus_1 == 0)
            return slot;
        const bd_merge *merge = &table->merges[slot->merge_plus_1 - 1];
        if (slot->check == *check && merge->left == left && merge->right == right)
            return slot;
    }
}

// The merge of a pair, NONE if it has none.
static uint32_t pair_table_find(const pair_table *table, uint32_t left, uint32_t right)
{
    uint32_t check;
    return pair_slot_of(table, left, right, &check)->merge_plus_1 - 1;
}

// Adds the pair of a merge, unless another merge has it; that one, or else NONE, is returned.
static uint32_t pair_table_add(pair_table *table, uint32_t merge)
{
    uint32_t check;
    pair_slot *slot =
        pair_slot_of(table, table->merges[merge].left, table->merges[merge].right, &check);
    const uint32_t there = slot->merge_plus_1 - 1;
    if (there == NONE)
        *slot = (pair_slot){check, merge + 1};
    return there;
}

// ---- A word on its own ------------------------------------------------------------

typedef struct merging {
    const bd_vocabulary *tokens;
    uint32_t byte_ids[256];
    pair_table table;

    const char *word;
    uint32_t size;              // in bytes
    uint32_t *ids;              // [longest], owned like the others
    uint32_t *next, *previous;  // [longest] `next` of the last symbol is `size`
    uint32_t *ranks;            // [longest] of the pair that begins here; NONE if it has none
    uint64_t *heap;             // [3 * longest] rank << 32 | offset, the lowest first
    size_t n_heap;
    uint32_t n_parts;            // symbols that are left
    uint32_t left, right, rank;  // of the last merge
    bool any_pair;               // the rank of a pair is the id of its bytes; no table is used
} merging;

static void merging_release(merging *m)
{
    free(m->table.slots);
    free(m->ids);
    free(m->next);
    free(m->previous);
    free(m->ranks);
    free(m->heap);
}

static bd_status merging_init(merging *m, const bd_vocabulary *tokens, const bd_merge *merges,
                              size_t n_merges, bd_error *err)
{
    *m = (merging){.tokens = tokens};
    size_t longest = 1;
    for (uint32_t id = 0; id < tokens->n_ids; id++) {
        const bd_token_span span = tokens->spans[id];
        if (span.size_bytes > longest)
            longest = span.size_bytes;
        if (span.size_bytes == 1)
            m->byte_ids[(unsigned char)tokens->bytes[span.begin]] = id;
    }
    BD_TRY(pair_table_init(&m->table, merges, n_merges, tokens->seed, err));
    m->ids = malloc(longest * sizeof *m->ids);
    m->next = malloc(longest * sizeof *m->next);
    m->previous = malloc(longest * sizeof *m->previous);
    m->ranks = malloc(longest * sizeof *m->ranks);
    m->heap = malloc(3 * longest * sizeof *m->heap);
    if (!m->ids || !m->next || !m->previous || !m->ranks || !m->heap)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for tokens of %zu bytes", longest);
    return BD_OK;
}

static void pair_heap_push(merging *m, uint64_t entry)
{
    size_t i = m->n_heap++;
    for (; i > 0 && m->heap[(i - 1) / 2] > entry; i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = entry;
}

static uint64_t pair_heap_pop(merging *m)
{
    const uint64_t top = m->heap[0], entry = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < m->n_heap; child = 2 * i + 1) {
        if (child + 1 < m->n_heap && m->heap[child + 1] < m->heap[child])
            child++;
        if (m->heap[child] >= entry)
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = entry;
    return top;
}

// Finds the rank of the pair that begins at `at`, and queues it.
static void rank_pair(merging *m, uint32_t at)
{
    const uint32_t right = m->next[at];
    m->ranks[at] = NONE;
    if (right == m->size)
        return;
    uint32_t rank = NONE;
    if (!m->any_pair)
        rank = pair_table_find(&m->table, m->ids[at], m->ids[right]);
    else if (!bd_vocabulary_find(m->tokens, m->word + at, m->next[right] - at, &rank))
        rank = NONE;
    if (rank == NONE)
        return;
    m->ranks[at] = rank;
    pair_heap_push(m, (uint64_t)rank << 32 | at);
}

static void join_pair(merging *m, uint32_t at)
{
    const uint32_t right = m->next[at], after = m->next[right];
    m->rank = m->ranks[at];
    m->left = m->ids[at];
    m->right = m->ids[right];
    m->ids[at] = m->any_pair ? m->rank : m->table.merges[m->rank].product;
    m->next[at] = after;
    m->ranks[right] = NONE;  // the entry of the pair that began at `right` is void
    if (after != m->size)
        m->previous[after] = at;
    m->n_parts--;
    rank_pair(m, at);
    if (at > 0)
        rank_pair(m, m->previous[at]);
}

// Merges the word until no two neighbours merge.
static void merge_word(merging *m, const char *word, uint32_t size, bool any_pair)
{
    m->word = word;
    m->size = m->n_parts = size;
    m->any_pair = any_pair;
    m->n_heap = 0;
    for (uint32_t i = 0; i < size; i++) {
        m->ids[i] = m->byte_ids[(unsigned char)word[i]];
        m->next[i] = i + 1;
        m->previous[i] = i - 1;
    }
    for (uint32_t i = 0; i < size; i++)
        rank_pair(m, i);
    while (m->n_heap > 0) {
        const uint64_t entry = pair_heap_pop(m);
        // Otherwise the entry is out of date: one of its symbols has been joined since.
        if (m->ranks[(uint32_t)entry] == entry >> 32)
            join_pair(m, (uint32_t)entry);
    }
}

static bd_status new_flags(const bd_vocabulary *tokens, bool **flags, bd_error *err)
{
    *flags = calloc((size_t)tokens->n_ids + 1, sizeof **flags);
    return *flags ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for %u ids", tokens->n_ids);
}

// ---- Given merges -----------------------------------------------------------------

bd_status bd_live_merges_keep(const bd_vocabulary *tokens, bd_merge *merges, size_t *n_merges,
                              bool **reached, bd_error *err)
{
    *reached = NULL;
    bool *happens = calloc(*n_merges + 1, sizeof *happens);
    merging m = {0};
    bd_status status = BD_ERR_MEMORY;
    if (!happens)
        bd_fail(err, status, "no memory for %zu merges", *n_merges);
    else
        status = merging_init(&m, tokens, merges, *n_merges, err);
    for (size_t i = 0; status == BD_OK && i < *n_merges; i++) {
        const uint32_t there = pair_table_add(&m.table, (uint32_t)i);
        if (there != NONE)
            status = bd_fail(err, BD_ERR_FORMAT, "merge %zu is merge %u again", i, there);
    }
    if (status == BD_OK)
        status = new_flags(tokens, reached, err);
    for (uint32_t id = 0; status == BD_OK && id < tokens->n_ids; id++) {
        const bd_token_span span = tokens->spans[id];
        if (span.size_bytes == 0)
            continue;
        merge_word(&m, tokens->bytes + span.begin, span.size_bytes, false);
        (*reached)[id] = m.n_parts == 1;
        if (m.n_parts == 1 && span.size_bytes > 1)
            happens[m.rank] = true;  // the last join made the token
    }
    // The merges that are kept stay in the order of their ranks.
    size_t n_kept = 0;
    for (size_t i = 0; status == BD_OK && i < *n_merges; i++)
        if (happens[i])
            merges[n_kept++] = merges[i];
    if (status == BD_OK)
        *n_merges = n_kept;
    free(happens);
    merging_release(&m);
    return status;
}

// ---- Given ranks ------------------------------------------------------------------

// Finds the two symbols whose join makes token `id`; false if merging never makes it.
static bool find_parts(merging *m, uint32_t id, bd_merge *merge)
{
    const bd_token_span span = m->tokens->spans[id];
    const char *word = m->tokens->bytes + span.begin;
    merge_word(m, word, span.size_bytes, false);
    if (m->n_parts == 2) {
        *merge = (bd_merge){m->ids[0], m->ids[m->next[0]], id};
        return true;
    }
    // A part may have a higher rank than the token itself, and then it is not in the table yet.
    // So the word is merged again by the definition: any two neighbours whose bytes are a
    // token.
    merge_word(m, word, span.size_bytes, true);
    *merge = (bd_merge){m->left, m->right, id};
    return m->n_parts == 1;
}

bd_status bd_live_merges_of_ranks(const bd_vocabulary *tokens, bd_merge **merges,
                                  size_t *n_merges, bool **reached, bd_error *err)
{
    *merges = calloc(tokens->n_tokens + 1, sizeof **merges);
    *n_merges = 0;
    *reached = NULL;
    merging m = {0};
    bd_status status = BD_ERR_MEMORY;
    if (!*merges)
        bd_fail(err, status, "no memory for %zu merges", tokens->n_tokens);
    else
        status = merging_init(&m, tokens, *merges, tokens->n_tokens, err);
    if (status == BD_OK)
        status = new_flags(tokens, reached, err);
    for (uint32_t id = 0; status == BD_OK && id < tokens->n_ids; id++) {
        const uint32_t size = tokens->spans[id].size_bytes;
        (*reached)[id] = size == 1 || (size > 1 && find_parts(&m, id, &(*merges)[*n_merges]));
        // The pair is not in the table yet, because the bytes of a pair have one id.
        if ((*reached)[id] && size > 1)
            pair_table_add(&m.table, (uint32_t)(*n_merges)++);
    }
    if (status != BD_OK) {
        free(*merges);
        *merges = NULL;
    }
    merging_release(&m);
    return status;
}
