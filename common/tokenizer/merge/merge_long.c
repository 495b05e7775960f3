#include "common/tokenizer/merge/merge_long.h"

#include <assert.h>

#include "common/base/interrupt.h"
#include "common/tokenizer/merge/merge_short.h"

static size_t put_bytes(const bd_merge_table *table, uint32_t symbol, uint8_t *bytes)
{
    if (symbol < BD_FIRST_PRODUCT) {
        bytes[0] = (uint8_t)symbol;
        return 1;
    }
    const size_t n = put_bytes(table, table->parts[symbol].left, bytes);
    return n + put_bytes(table, table->parts[symbol].right, bytes + n);
}

// By the definition: both are merged.
static bool stay_apart_merged(const bd_merge_table *table, uint32_t left, uint32_t right)
{
    uint8_t bytes[BD_MOST_SHORT_BYTES];
    uint32_t symbols[BD_MOST_SHORT_BYTES];
    assert(table->sizes[left] + table->sizes[right] <= BD_MOST_SHORT_BYTES);
    size_t n = put_bytes(table, left, bytes);
    n += put_bytes(table, right, bytes + n);
    return bd_merge_short(table, bytes, n, symbols) == 2 && symbols[0] == left &&
           symbols[1] == right;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

// Goes back in time from both symbols whole: each step undoes the merge that came last, until
// two single bytes are left. If the two that meet merge in between, they do not stay apart.
//
//   left  = (w x)   right = (y z)      w x|y z: first (w x)|(y z), then x|(y z) or (w x)|y, …
bool bd_symbols_stay_apart(const bd_merge_table *table, uint32_t left, uint32_t right)
{
    if (table->late[left] || table->late[right])
        return stay_apart_merged(table, left, right);
    // The merges that ended what is looked at now: later ones come too late to part them. The
    // left one comes first among equals, the right one last.
    uint32_t left_ends = BD_NO_SYMBOL, right_ends = BD_NO_SYMBOL;
    for (;;) {
        const uint32_t product = bd_merge_table_product(table, left, right);
        if (product != BD_NO_SYMBOL) {
            // When they merge: not before both are there.
            const uint32_t time = larger(product, larger(left, right));
            if (time < left_ends && time <= right_ends)
                return false;
        }
        if (left < BD_FIRST_PRODUCT && right < BD_FIRST_PRODUCT)
            return true;
        if (left > right) {
            left_ends = left;
            left = table->parts[left].right;
        } else {
            right_ends = right;
            right = table->parts[right].left;
        }
    }
}

bool bd_symbols_go_together(const bd_merge_table *table, bd_merge_memory *memory, uint32_t left,
                            uint32_t right)
{
    const uint64_t pair = bd_symbol_pair(left, right);
    uint64_t *remembered =
        &memory->pairs[(bd_symbol_pair_hash(pair) >> 32) % BD_REMEMBERED_PAIRS];
    if (*remembered >> 1 != pair || pair == 0)  // 0 is also what was never written
        *remembered = pair << 1 | bd_symbols_stay_apart(table, left, right);
    return *remembered & 1;
}

// ---- Dead ends: a ring of bits -------------------------------------------------------------

static bool is_remembered(size_t place, size_t furthest)
{
    return furthest / 64 - place / 64 < BD_DEAD_END_WORDS;
}

// Makes places after `*furthest`, up to `place`, known and not dead.
static void reach(bd_merge_memory *memory, size_t place, size_t *furthest)
{
    if (place <= *furthest)
        return;
    for (size_t word = *furthest / 64 + 1; word <= place / 64; word++)
        memory->dead_ends[word % BD_DEAD_END_WORDS] = 0;
    *furthest = place;
}

static bool is_dead(const bd_merge_memory *memory, size_t place, size_t furthest)
{
    return is_remembered(place, furthest) &&
           memory->dead_ends[place / 64 % BD_DEAD_END_WORDS] >> place % 64 & 1;
}

static void set_dead(bd_merge_memory *memory, size_t place, size_t furthest)
{
    if (is_remembered(place, furthest))
        memory->dead_ends[place / 64 % BD_DEAD_END_WORDS] |= (uint64_t)1 << place % 64;
}

size_t bd_merge_long(const bd_merge_table *table, const bd_symbol_trie *trie,
                     bd_merge_memory *memory, const uint8_t *bytes, size_t n, uint32_t *symbols)
{
    size_t at = 0, count = 0, furthest = 0;
    uint32_t next = bd_symbol_trie_longest(trie, bytes, n);
    memory->dead_ends[0] = 0;
    while (at < n && !bd_interrupt_is_noted()) {
        if (next == BD_NO_SYMBOL) {  // nothing goes on from here: back by one token
            set_dead(memory, at, furthest);
            next = symbols[--count];
            at -= table->sizes[next];
            next = trie->shorter[next];
            continue;
        }
        const size_t end = at + table->sizes[next];
        reach(memory, end, &furthest);
        if (!is_dead(memory, end, furthest) &&
            (count == 0 || bd_symbols_go_together(table, memory, symbols[count - 1], next))) {
            symbols[count++] = next;
            at = end;
            next = bd_symbol_trie_longest(trie, bytes + at, n - at);
        } else {
            next = trie->shorter[next];
        }
    }
    return count;
}
