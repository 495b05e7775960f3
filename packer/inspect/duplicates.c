#include "packer/inspect/duplicates.h"

#include <string.h>

bd_pair bd_duplicates_pair(uint64_t hash, int64_t n_tokens, int64_t number)
{
    return (bd_pair){.high = hash, .low = (uint64_t)n_tokens << 32 | (uint64_t)number};
}

static bool is_same_document(const bd_pair *a, const bd_pair *b)
{
    return a->high == b->high && a->low >> 32 == b->low >> 32;
}

static bool is_ahead(const bd_repeated_document *a, const bd_repeated_document *b)
{
    return a->count != b->count ? a->count > b->count : a->number < b->number;
}

static void offer(bd_duplicates *d, const bd_repeated_document *document)
{
    size_t at = d->n_most;
    while (at > 0 && is_ahead(document, &d->most[at - 1]))
        at--;
    if (at == BD_MOST_REPEATED)
        return;
    d->n_most += d->n_most < BD_MOST_REPEATED;
    memmove(&d->most[at + 1], &d->most[at], (d->n_most - at - 1) * sizeof d->most[0]);
    d->most[at] = *document;
}

void bd_duplicates_find(bd_duplicates *duplicates, bd_pair *pairs, size_t n)
{
    bd_duplicates *d = duplicates;
    *d = (bd_duplicates){.exact = true, .documents = (int64_t)n};
    bd_pairs_sort(pairs, n);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && is_same_document(&pairs[i], &pairs[end]);)
            end++;
        const bd_repeated_document document = {
            .number = (int64_t)(pairs[i].low & UINT32_MAX),
            .count = (int64_t)(end - i),
            .n_tokens = (int64_t)(pairs[i].low >> 32),
        };
        d->distinct++;
        d->tokens += document.count * document.n_tokens;
        d->repeated_tokens += (document.count - 1) * document.n_tokens;
        if (document.count > 1)
            offer(d, &document);
    }
}
