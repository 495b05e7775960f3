#include "common/dataset/pair_sort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/random.h"

enum { MOST = 5000 };

static int compare(const void *left, const void *right)
{
    const bd_pair *a = left, *b = right;
    if (a->high != b->high)
        return a->high < b->high ? -1 : 1;
    return a->low < b->low ? -1 : a->low > b->low;
}

// The masks leave few or many different values, in high and low bytes.
static void pairs_are_sorted_as_qsort_sorts_them(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 24, 25, 31, 33, 257, MOST};
    static const uint64_t masks[] = {0, 1, 0xFF, UINT64_MAX, UINT64_C(0x8000000000000001)};
    static bd_pair pairs[MOST], expected[MOST];
    uint64_t random = 20240614;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t high = 0; high < 5; high++)
            for (size_t low = 0; low < 5; low++) {
                const size_t n = sizes[s];
                for (size_t i = 0; i < n; i++)
                    pairs[i] = (bd_pair){next_random(&random) & masks[high],
                                         next_random(&random) & masks[low]};
                memcpy(expected, pairs, n * sizeof *pairs);
                qsort(expected, n, sizeof *expected, compare);
                bd_pairs_sort(pairs, n);
                assert_memory_equal(pairs, expected, n * sizeof *pairs);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_sorted_as_qsort_sorts_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
