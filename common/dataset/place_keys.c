#include "common/dataset/place_keys.h"

#include "common/base/memory.h"

// With more bits, one pass would write to more places than the caches and the TLB hold.
enum { MAX_DIGIT_BITS = 11 };

bd_place_keys bd_place_keys_of(const bd_place_range *range)
{
    if (range->least_input > range->most_input)
        return (bd_place_keys){0};  // no places
    const int input_bits = bd_bit_width(range->most_input - range->least_input);
    const int position_bits = bd_bit_width(range->most_position - range->least_position);
    return (bd_place_keys){
        .least_position = range->least_position,
        .least_input = range->least_input,
        .position_bits = position_bits,
        .n_bits = input_bits + position_bits,
    };
}

static void sort_by_digit(const uint64_t *from, uint64_t *to, size_t n, int shift, int n_bits)
{
    const uint64_t mask = (UINT64_C(1) << n_bits) - 1;
    size_t next[1 << MAX_DIGIT_BITS] = {0}, before = 0;
    for (size_t i = 0; i < n; i++)
        next[from[i] >> shift & mask]++;
    for (uint64_t d = 0; d <= mask; d++) {
        const size_t n_here = next[d];
        next[d] = before;
        before += n_here;
    }
    for (size_t i = 0; i < n; i++)
        to[next[from[i] >> shift & mask]++] = from[i];
}

// A radix sort from the least significant digit to the most: every pass is stable, so it keeps
// the order of the passes before it among equal digits. The bits are divided into as few digits
// as possible, of nearly equal size, because every pass costs the same.
uint64_t *bd_sort_by_bits(uint64_t *items, uint64_t *spare, size_t n, int first_bit, int n_bits)
{
    const int n_digits = (n_bits + MAX_DIGIT_BITS - 1) / MAX_DIGIT_BITS;
    for (int d = 0, bit = 0; d < n_digits; d++) {
        const int digit_bits = (n_bits - bit + n_digits - d - 1) / (n_digits - d);
        uint64_t *const from = items;
        sort_by_digit(from, spare, n, first_bit + bit, digit_bits);
        items = spare;
        spare = from;
        bit += digit_bits;
    }
    return items;
}
