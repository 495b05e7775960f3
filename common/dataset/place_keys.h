// place_keys.h - sorts documents by place: input and position become one number with the same
// order, which a radix sort then sorts.
//
//   key         input - least input        | position - least position
//   bits        of the greatest difference | of the greatest difference
#ifndef BINDERY_COMMON_DATASET_PLACE_KEYS_H
#define BINDERY_COMMON_DATASET_PLACE_KEYS_H

#include <stddef.h>
#include <stdint.h>

// The range of inputs and positions that occur. Begin with BD_NO_PLACES.
typedef struct bd_place_range {
    uint64_t least_position, most_position;
    uint32_t least_input, most_input;
} bd_place_range;
#define BD_NO_PLACES ((bd_place_range){.least_position = UINT64_MAX, .least_input = UINT32_MAX})

static inline void bd_place_range_add(bd_place_range *range, uint32_t input, uint64_t position)
{
    range->least_input = input < range->least_input ? input : range->least_input;
    range->most_input = input > range->most_input ? input : range->most_input;
    range->least_position = position < range->least_position ? position : range->least_position;
    range->most_position = position > range->most_position ? position : range->most_position;
}

// The layout of the keys of a range of places.
typedef struct bd_place_keys {
    uint64_t least_position;
    uint32_t least_input;
    int position_bits;  // 0 to 63, or 64 if all have one input
    int n_bits;         // of a key; if more than 64, no key can be made
} bd_place_keys;

bd_place_keys bd_place_keys_of(const bd_place_range *range);

static inline uint64_t bd_place_key(const bd_place_keys *keys, uint32_t input,
                                    uint64_t position)
{
    const uint64_t from_least = position - keys->least_position;
    return input == keys->least_input
               ? from_least
               : (uint64_t)(input - keys->least_input) << keys->position_bits | from_least;
}

// Sorts by the `n_bits` bits from `first_bit` on; numbers that are equal in these bits keep
// their order. Takes linear time. `spare` has room for n numbers. Returns `items` or `spare`,
// whichever holds the result.
uint64_t *bd_sort_by_bits(uint64_t *items, uint64_t *spare, size_t n, int first_bit,
                          int n_bits);

#endif
