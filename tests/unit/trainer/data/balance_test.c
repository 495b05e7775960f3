#include "trainer/data/balance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/random.h"
#include "trainer/data/step_work.h"

enum { MOST_ROWS = 40, MOST_SEGMENTS = 8, SEQ_LEN = 1000 };

typedef struct rows {
    bd_boundaries boundaries;
    int32_t offsets[MOST_ROWS + 1], values[MOST_ROWS * (MOST_SEGMENTS + 1)];
} rows;

// Rows of one segment each.
static void make_rows(rows *r, const int32_t *lengths, int64_t n)
{
    r->boundaries = (bd_boundaries){n, SEQ_LEN, r->offsets, r->values};
    for (int64_t i = 0; i < n; i++) {
        r->offsets[i] = (int32_t)(2 * i);
        r->values[2 * i] = 0;
        r->values[2 * i + 1] = lengths[i];
    }
    r->offsets[n] = (int32_t)(2 * n);
}

static void make_random_rows(rows *r, int64_t n, uint64_t *seed)
{
    int32_t at = 0;
    r->boundaries = (bd_boundaries){n, SEQ_LEN, r->offsets, r->values};
    for (int64_t i = 0; i < n; i++) {
        int32_t bound = 0;
        r->offsets[i] = at;
        r->values[at++] = 0;
        for (uint64_t k = 1 + next_random(seed) % MOST_SEGMENTS; k > 0; k--)
            r->values[at++] = bound +=
                1 + (int32_t)(next_random(seed) % (SEQ_LEN / MOST_SEGMENTS));
    }
    r->offsets[n] = at;
}

static void assert_deal(const int32_t *lengths, int64_t n, int32_t n_ranks,
                        int64_t n_micro_batches, const int64_t *order, const int64_t *ends)
{
    rows r;
    int64_t balanced[MOST_ROWS], balanced_ends[MOST_ROWS];
    bd_error err;
    make_rows(&r, lengths, n);
    assert_int_equal(
        bd_balance_rows(&r.boundaries, n_ranks, n_micro_batches, balanced, balanced_ends, &err),
        BD_OK);
    assert_memory_equal(balanced, order, (size_t)n * sizeof *order);
    assert_memory_equal(balanced_ends, ends,
                        (size_t)(n_ranks * n_micro_batches) * sizeof *ends);
}

static void the_longest_rows_go_to_different_ranks(void **state)
{
    (void)state;
    assert_deal((int32_t[]){10, 900, 20, 910}, 4, 2, 1, (int64_t[]){0, 3, 1, 2},
                (int64_t[]){2, 4});
}

static void remaining_rows_go_to_every_ranks_first_micro_batch(void **state)
{
    (void)state;
    // 5 rows for 2 ranks of 2 micro-batches: rank 0 has one of two rows and one of one.
    assert_deal((int32_t[]){5, 5, 5, 5, 5}, 5, 2, 2, (int64_t[]){0, 4, 1, 2, 3},
                (int64_t[]){2, 3, 4, 5});
}

static void a_micro_batch_may_be_without_a_row(void **state)
{
    (void)state;
    assert_deal((int32_t[]){5, 5, 5}, 3, 2, 2, (int64_t[]){0, 1, 2}, (int64_t[]){1, 2, 3, 3});
}

static void micro_batches_are_as_few_as_fit(void **state)
{
    (void)state;
    assert_int_equal(bd_balance_micro_batches(8, 8, 1), 1);
    assert_int_equal(bd_balance_micro_batches(8, 3, 1), 3);
    assert_int_equal(bd_balance_micro_batches(8, 3, 2), 2);
    assert_int_equal(bd_balance_micro_batches(8, 8, 3), 1);
    assert_int_equal(bd_balance_micro_batches(1, 1, 1), 1);
}

// Each row occurs once; its part keeps the order of rows; sizes differ by at most one row.
static void every_balance_is_complete_and_even(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        rows r;
        int64_t order[MOST_ROWS], ends[MOST_ROWS];
        bool seen[MOST_ROWS] = {false};
        bd_error err;
        const int32_t n_ranks = 1 + (int32_t)(next_random(&seed) % 4);
        const int64_t n = n_ranks + (int64_t)(next_random(&seed) % (MOST_ROWS - 4));
        const int64_t most = 1 + (int64_t)(next_random(&seed) % (uint64_t)n);
        const int64_t n_micro_batches = bd_balance_micro_batches(n, most, n_ranks);
        const int64_t n_parts = n_ranks * n_micro_batches;
        make_random_rows(&r, n, &seed);
        assert_int_equal(
            bd_balance_rows(&r.boundaries, n_ranks, n_micro_batches, order, ends, &err), BD_OK);
        for (int64_t p = 0; p < n_parts; p++) {
            const int64_t first = p > 0 ? ends[p - 1] : 0, n_rows = ends[p] - first;
            assert_true(n_rows <= most);
            assert_true(n_rows <= bd_balance_most_rows(n, n_ranks, n_micro_batches));
            assert_true(n_rows == n / n_parts || n_rows == n / n_parts + 1);
            for (int64_t i = first; i < ends[p]; i++) {
                assert_true(i == first || order[i] > order[i - 1]);
                assert_false(seen[order[i]]);
                seen[order[i]] = true;
            }
        }
        assert_int_equal(ends[n_parts - 1], n);
    }
}

// Compared with the order of the rows, the largest part, for which all others wait, is smaller
// in almost every batch, and much smaller in sum.
static void ranks_wait_less_for_each_other(void **state)
{
    (void)state;
    uint64_t seed = 7;
    int64_t sum_balanced = 0, sum_in_order = 0, sum_even = 0;
    for (int round = 0; round < 200; round++) {
        rows r;
        int64_t order[MOST_ROWS], ends[4], balanced = 0, in_order = 0;
        bd_error err;
        make_random_rows(&r, 32, &seed);
        assert_int_equal(bd_balance_rows(&r.boundaries, 4, 1, order, ends, &err), BD_OK);
        for (int64_t p = 0; p < 4; p++) {
            int64_t n_balanced = 0, n_in_order = 0;
            for (int64_t i = 8 * p; i < 8 * p + 8; i++) {
                n_balanced += bd_count_row_pairs(&r.boundaries, order[i]);
                n_in_order += bd_count_row_pairs(&r.boundaries, i);
            }
            balanced = n_balanced > balanced ? n_balanced : balanced;
            in_order = n_in_order > in_order ? n_in_order : in_order;
            sum_even += n_in_order / 4;
        }
        sum_balanced += balanced;
        sum_in_order += in_order;
    }
    assert_true(sum_balanced - sum_even < (sum_in_order - sum_even) / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_rows_go_to_different_ranks),
        cmocka_unit_test(remaining_rows_go_to_every_ranks_first_micro_batch),
        cmocka_unit_test(a_micro_batch_may_be_without_a_row),
        cmocka_unit_test(micro_batches_are_as_few_as_fit),
        cmocka_unit_test(every_balance_is_complete_and_even),
        cmocka_unit_test(ranks_wait_less_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
