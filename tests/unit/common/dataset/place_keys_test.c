#include "common/dataset/place_keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/random.h"

static void keys_have_the_order_of_the_places(void **state)
{
    (void)state;
    static const uint32_t INPUTS[] = {7, 8, 1000};
    static const uint64_t POSITIONS[] = {UINT64_MAX - 33, UINT64_MAX - 32, UINT64_MAX};
    bd_place_range range = BD_NO_PLACES;
    for (int i = 0; i < 3; i++)
        bd_place_range_add(&range, INPUTS[i], POSITIONS[2 - i]);
    const bd_place_keys keys = bd_place_keys_of(&range);
    assert_int_equal(keys.position_bits, 6);  // for 33
    assert_int_equal(keys.n_bits, 6 + 10);    // for 993
    uint64_t before = 0;
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < 3; p++) {
            const uint64_t key = bd_place_key(&keys, INPUTS[i], POSITIONS[p]);
            assert_true(i + p == 0 ? key == 0 : key > before);
            assert_true(key >> keys.n_bits == 0);
            before = key;
        }
}

static void the_widest_ranges_have_their_bits_told(void **state)
{
    (void)state;
    bd_place_range range = BD_NO_PLACES;
    assert_int_equal(bd_place_keys_of(&range).n_bits, 0);
    bd_place_range_add(&range, 5, 3);
    assert_int_equal(bd_place_keys_of(&range).n_bits, 0);
    bd_place_range_add(&range, 5, 0);
    bd_place_range_add(&range, 5, UINT64_MAX);
    bd_place_keys keys = bd_place_keys_of(&range);
    assert_int_equal(keys.n_bits, 64);
    assert_true(bd_place_key(&keys, 5, UINT64_MAX) == UINT64_MAX);
    bd_place_range_add(&range, 6, 0);
    keys = bd_place_keys_of(&range);
    assert_int_equal(keys.n_bits, 65);
}

static int compare(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

// Numbers that are equal in the sorted bits keep their order: the bits below them count up.
static void numbers_are_sorted_by_their_bits(void **state)
{
    (void)state;
    static const size_t COUNTS[] = {0, 1, 2, 31, 33, 3000};
    static const int BITS[] = {0, 1, 11, 12, 33, 52};
    uint64_t items[3000], spare[3000], expected[3000], random = 20240615;
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++)
        for (size_t b = 0; b < sizeof BITS / sizeof *BITS; b++) {
            const size_t n = COUNTS[c];
            const uint64_t mask = (UINT64_C(1) << BITS[b]) - 1;
            for (size_t i = 0; i < n; i++)
                items[i] = (next_random(&random) & mask) << 12 | i;
            memcpy(expected, items, sizeof items);
            qsort(expected, n, sizeof *expected, compare);
            const uint64_t *sorted = bd_sort_by_bits(items, spare, n, 12, BITS[b]);
            assert_true(sorted == items || sorted == spare);
            assert_memory_equal(sorted, expected, n * sizeof *sorted);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_the_order_of_the_places),
        cmocka_unit_test(the_widest_ranges_have_their_bits_told),
        cmocka_unit_test(numbers_are_sorted_by_their_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
