// Merging in AVX-512: 16 symbols lie in one register, and the products of neighbours in
// another. The smallest product is the next merge; both registers are then compressed by one
// lane.
#include "common/tokenizer/merge/merge_word.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi")))

enum {
    LANES = 16,
    NOTHING = (1 << BD_SYMBOL_BITS) - 1,  // no symbol, and larger than all of them
};

// bd_merge_table_product(), with NOTHING for BD_NO_SYMBOL.
AVX512 static inline uint32_t product_of(const bd_merge_table *table, uint32_t left,
                                         uint32_t right)
{
    return bd_merge_table_product(table, left, right) & NOTHING;
}

// Lane `i`, of 16 in a ring.
AVX512 static inline uint32_t lane(__m512i lanes, unsigned i)
{
    const __m512i moved = _mm512_permutexvar_epi32(_mm512_set1_epi32((int)i), lanes);
    return (uint32_t)_mm_cvtsi128_si32(_mm512_castsi512_si128(moved));
}

// The products of the neighbours among `n` bytes.
AVX512 static inline __m512i products_of_bytes(const bd_merge_table *table, __m512i bytes,
                                               size_t n)
{
    const __m512i next = _mm512_alignr_epi32(bytes, bytes, 1);
    const __m512i pairs = _mm512_or_epi32(_mm512_slli_epi32(bytes, 8), next);
    const __m512i nothing = _mm512_set1_epi32(NOTHING);
    const __m512i products = _mm512_mask_i32gather_epi32(
        nothing, (__mmask16)((1u << (n - 1)) - 1), pairs, table->byte_pairs, 4);
    return _mm512_min_epu32(products, nothing);
}

// Merges `n` bytes, 1 to LANES.
AVX512 static size_t merge_lanes(const bd_merge_table *table, const uint8_t *bytes, size_t n,
                                 uint32_t *merged)
{
    const __m512i nothing = _mm512_set1_epi32(NOTHING);
    const __mmask16 used = (__mmask16)((1u << n) - 1);
    const __m512i first = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(used, bytes));
    __m512i products = products_of_bytes(table, first, n);
    __m512i symbols = _mm512_mask_mov_epi32(nothing, used, first);
    for (;;) {
        const uint32_t product = _mm512_reduce_min_epu32(products);
        if (product == NOTHING)
            break;
        const unsigned here = _blsi_u32(
            _cvtmask16_u32(_mm512_cmpeq_epi32_mask(products, _mm512_set1_epi32((int)product))));
        const unsigned at = (unsigned)__builtin_ctz(here);
        symbols = _mm512_mask_compress_epi32(nothing, (__mmask16) ~(here << 1), symbols);
        symbols = _mm512_mask_set1_epi32(symbols, (__mmask16)here, (int)product);
        // After a merge the last lane is empty, which is also what stands before the first.
        const uint32_t before = product_of(table, lane(symbols, at - 1), product);
        const uint32_t after = product_of(table, product, lane(symbols, at + 1));
        products = _mm512_mask_compress_epi32(nothing, (__mmask16)~here, products);
        products = _mm512_mask_set1_epi32(products, (__mmask16)(here >> 1), (int)before);
        products = _mm512_mask_set1_epi32(products, (__mmask16)here, (int)after);
        n--;
    }
    _mm512_mask_storeu_epi32(merged, (__mmask16)((1u << n) - 1), symbols);
    return n;
}

// Some bytes of a word, and what merging them alone makes.
typedef struct window {
    const uint8_t *bytes;
    size_t n;
    uint32_t symbols[LANES];
    size_t n_symbols;
} window;

AVX512 static void move_window(const bd_merge_table *table, window *w, const uint8_t *bytes,
                               size_t n)
{
    n = n < LANES ? n : LANES;
    const bool same = n == w->n && memcmp(bytes, w->bytes, n) == 0;  // as in aaaaaaaaaa…
    w->bytes = bytes;
    w->n = n;
    if (!same)
        w->n_symbols = merge_lanes(table, bytes, n, w->symbols);
}

// Merges window after window. The next window begins at the last symbol of the one before,
// because that symbol may go on behind its window. All symbols before it are right if the first
// symbol of the next window goes together with the last of them (merge_long.h says why); if it
// does not, one symbol more is taken back. Returns 0 if no symbol is left to take back, as
// happens with symbols longer than a window.
AVX512 static size_t merge_windows(const bd_merge_table *table, bd_merge_memory *memory,
                                   const uint8_t *bytes, size_t n, uint32_t *symbols)
{
    window w = {0};
    size_t at = 0, first = 0;  // byte and symbol of the window
    move_window(table, &w, bytes, n);
    for (;;) {
        memcpy(symbols + first, w.symbols, w.n_symbols * sizeof *symbols);
        size_t count = first + w.n_symbols;
        if (at + w.n == n)
            return count;
        at += w.n;
        do {
            if (count <= first + 1)
                return 0;
            at -= table->sizes[symbols[--count]];
            move_window(table, &w, bytes + at, n - at);
        } while (!bd_symbols_go_together(table, memory, symbols[count - 1], w.symbols[0]));
        first = count;
    }
}

AVX512 size_t bd_merge_word_avx512(const bd_merge_table *table, const bd_symbol_trie *trie,
                                   bd_merge_memory *memory, const uint8_t *bytes, size_t n,
                                   uint32_t *symbols)
{
    if (n <= LANES)
        return merge_lanes(table, bytes, n, symbols);
    const size_t count = merge_windows(table, memory, bytes, n, symbols);
    return count > 0 ? count : bd_merge_long(table, trie, memory, bytes, n, symbols);
}

#endif
