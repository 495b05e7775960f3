// A radix sort from the most significant byte down, in place ("American flag sort"): count how
// many pairs have each value of the byte, which gives every value its range; swap each pair
// into its range; then sort each range by the next byte. Ranges of few pairs are sorted by
// insertion. It ends after 16 bytes.
#include "common/dataset/pair_sort.h"

#include <stdbool.h>

enum { N_BYTES = 16, FEW = 24 };

static unsigned byte_of(const bd_pair *pair, int byte)
{
    const uint64_t word = byte < 8 ? pair->high : pair->low;
    return (word >> (56 - 8 * (byte % 8))) & 0xFF;
}

static bool is_less(const bd_pair *a, const bd_pair *b)
{
    return a->high != b->high ? a->high < b->high : a->low < b->low;
}

static void sort_few(bd_pair *pairs, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const bd_pair pair = pairs[i];
        size_t at = i;
        for (; at > 0 && is_less(&pair, &pairs[at - 1]); at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = pair;
    }
}

// Brings the pairs into the order of one byte; those of value v end at ends[v].
static void partition(bd_pair *pairs, size_t n, int byte, size_t ends[256])
{
    size_t next[256], count[256] = {0}, begin = 0;
    for (size_t i = 0; i < n; i++)
        count[byte_of(&pairs[i], byte)]++;
    for (int v = 0; v < 256; v++) {
        next[v] = begin;
        begin += count[v];
        ends[v] = begin;
    }
    for (int v = 0; v < 256; v++)
        while (next[v] < ends[v]) {
            const unsigned home = byte_of(&pairs[next[v]], byte);
            const bd_pair other = pairs[next[home]];
            pairs[next[home]++] = pairs[next[v]];
            if (home != (unsigned)v)
                pairs[next[v]] = other;
        }
}

static void sort_from(bd_pair *pairs, size_t n, int byte)
{
    if (n <= FEW) {
        sort_few(pairs, n);
        return;
    }
    size_t ends[256], begin = 0;
    partition(pairs, n, byte, ends);
    for (int v = 0; byte + 1 < N_BYTES && v < 256; v++) {
        sort_from(pairs + begin, ends[v] - begin, byte + 1);
        begin = ends[v];
    }
}

void bd_pairs_sort(bd_pair *pairs, size_t n)
{
    sort_from(pairs, n, 0);
}
