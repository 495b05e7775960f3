#include "common/tokenizer/merge/merge_short.h"

// products[i] is the product of symbols[i] and symbols[i + 1].
static size_t index_of_smallest(const uint32_t *products, size_t n)
{
    size_t at = 0;
    uint32_t smallest = products[0];
    for (size_t i = 1; i < n; i++) {
        at = products[i] < smallest ? i : at;
        smallest = products[i] < smallest ? products[i] : smallest;
    }
    return at;
}

static void remove_at(uint32_t *values, size_t at, size_t n)
{
    for (size_t i = at; i + 1 < n; i++)
        values[i] = values[i + 1];
}

size_t bd_merge_short(const bd_merge_table *table, const uint8_t *bytes, size_t n,
                      uint32_t *symbols)
{
    uint32_t products[BD_MOST_SHORT_BYTES];
    symbols[0] = bytes[0];
    for (size_t i = 1; i < n; i++) {
        symbols[i] = bytes[i];
        products[i - 1] = bd_merge_table_byte_pair(table, bytes[i - 1], bytes[i]);
    }
    while (n > 1) {
        const size_t at = index_of_smallest(products, n - 1);
        const uint32_t product = products[at];
        if (product == BD_NO_SYMBOL)
            break;
        remove_at(products, at, n - 1);
        remove_at(symbols, at + 1, n);
        n--;
        symbols[at] = product;
        if (at > 0)
            products[at - 1] = bd_merge_table_product(table, symbols[at - 1], product);
        if (at + 1 < n)
            products[at] = bd_merge_table_product(table, product, symbols[at + 1]);
    }
    return n;
}
