// A depth-first search for the row of tokens in which every two neighbours stay apart;
// merge_long.h says why that row is the result of merging.
//
// At each place the longest token that goes together with the one before is tried first, then
// the shorter ones. If none of them goes on, the search takes the last token back and tries a
// shorter one in its place.
//
// The same argument that holds for the word holds for its first bytes: only one row of tokens
// up to a place has neighbours that all stay apart. So the search comes to each place by one
// row only, and a place from which it could not go on is a dead end for good. Dead ends are
// marked, so that each place is tried once, and the time is near the length of the word. Marks
// far behind are forgotten, which costs time alone: rows are tried in a fixed order and none
// twice, so the search ends in any case, and merging gives a row for every word.
#include "common/tokenizer/merge/merge_long.h"

#include <assert.h>

#include "common/base/interrupt.h"
#include "common/tokenizer/merge/merge_short.h"

static size_t put_symbol_bytes(const bd_merge_table *table, uint32_t symbol, uint8_t *bytes)
{
    if (symbol < BD_FIRST_PRODUCT) {
        bytes[0] = (uint8_t)symbol;
        return 1;
    }
    const size_t n = put_symbol_bytes(table, table->parts[symbol].left, bytes);
    return n + put_symbol_bytes(table, table->parts[symbol].right, bytes + n);
}

// Applies the definition: merges the bytes of both.
static bool stay_apart_merged(const bd_merge_table *table, uint32_t left, uint32_t right)
{
    uint8_t bytes[BD_MOST_SHORT_BYTES];
    uint32_t symbols[BD_MOST_SHORT_BYTES];
    assert(table->sizes[left] + table->sizes[right] <= BD_MOST_SHORT_BYTES);
    size_t n = put_symbol_bytes(table, left, bytes);
    n += put_symbol_bytes(table, right, bytes + n);
    return bd_merge_short(table, bytes, n, symbols) == 2 && symbols[0] == left &&
           symbols[1] == right;
}

static uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

// Goes back in time from both whole symbols: each step undoes the merge that came last, until
// two single bytes are left. If at any moment the two symbols that meet at the border merge
// before one of them is used up by a merge on its own side, they do not stay apart.
//
//   left  = (w x)   right = (y z)      w x|y z: first (w x)|(y z), then x|(y z) or (w x)|y, …
//
// The time of a merge is its product, because merging makes symbols in rising order unless one
// is late. It ends because each step replaces a symbol by a shorter part.
bool bd_symbols_stay_apart(const bd_merge_table *table, uint32_t left, uint32_t right)
{
    if (table->late[left] || table->late[right])
        return stay_apart_merged(table, left, right);
    // The times at which merges on either side used up `left` and `right`; the whole symbols
    // last for ever. At equal times the leftmost pair merges first: the one on the left side
    // before the one across the border, and that before the one on the right side.
    uint32_t left_ends = BD_NO_SYMBOL, right_ends = BD_NO_SYMBOL;
    for (;;) {
        const uint32_t product = bd_merge_table_product(table, left, right);
        if (product != BD_NO_SYMBOL) {
            // They merge when their turn has come and both exist.
            const uint32_t time = later(product, later(left, right));
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

// ---- Dead ends: a ring of bits, for the places up to BD_DEAD_END_WORDS words back -----------

static bool is_remembered(size_t place, size_t furthest)
{
    return furthest / 64 - place / 64 < BD_DEAD_END_WORDS;
}

// Clears the marks of the places after `*furthest`, up to `place`.
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
        if (next == BD_NO_SYMBOL) {  // no token goes on from here: one step back
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
