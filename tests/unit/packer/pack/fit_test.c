#include "packer/pack/fit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/random.h"

// The source itself instead of the library, so that its allocations can be made to fail.
static int allocations_allowed = INT32_MAX;

#define malloc(size)       (allocations_allowed-- > 0 ? malloc(size) : NULL)
#define calloc(n, size)    (allocations_allowed-- > 0 ? calloc(n, size) : NULL)
#define realloc(old, size) (allocations_allowed-- > 0 ? realloc(old, size) : NULL)
#include "packer/pack/fit.c"  // NOLINT(bugprone-suspicious-include)
#undef malloc
#undef calloc
#undef realloc

enum { MAX_SEGMENTS = 600, GUARD = 16, GUARD_VALUE = -77 };

typedef bd_status fit_function(const int32_t *lengths, int64_t n, int32_t seq_len,
                               int32_t max_segments, int32_t *row_of, int32_t *n_rows,
                               bd_error *err);
static fit_function *const FITS[] = {bd_fit_best, bd_fit_first};
enum { N_FITS = sizeof FITS / sizeof *FITS };

// The textbook algorithm, obviously right: looks at every row for every segment. `row_of`
// receives the rows in the order of their opening.
static int32_t textbook(const int32_t *lengths, int32_t n, int32_t seq_len,
                        int32_t max_segments, bool best_fit, int32_t *row_of)
{
    int32_t room[MAX_SEGMENTS];
    int32_t n_segments[MAX_SEGMENTS] = {0};
    bool placed[MAX_SEGMENTS] = {false};
    int32_t n_rows = 0;
    for (int32_t step = 0; step < n; step++) {
        int32_t longest = -1;  // the first of the longest that are left
        for (int32_t i = 0; i < n; i++) {
            if (!placed[i] && (longest < 0 || lengths[i] > lengths[longest]))
                longest = i;
        }
        int32_t chosen = -1;  // the first of the rows with the least room, or the first of all
        for (int32_t r = 0; r < n_rows; r++) {
            const bool full = max_segments > 0 && n_segments[r] == max_segments;
            if (full || room[r] < lengths[longest])
                continue;
            if (chosen < 0 || (best_fit && room[r] < room[chosen]))
                chosen = r;
        }
        if (chosen < 0) {
            chosen = n_rows++;
            room[chosen] = seq_len;
        }
        room[chosen] -= lengths[longest];
        n_segments[chosen]++;
        row_of[longest] = chosen;
        placed[longest] = true;
    }
    return n_rows;
}

// Fits, and compares every promise of the header with the textbook. Returns the number of rows.
static int32_t check_fit(fit_function *fit_rows, const int32_t *lengths, int32_t n,
                         int32_t seq_len, int32_t max_segments)
{
    int32_t guarded[GUARD + MAX_SEGMENTS + GUARD];
    for (int32_t i = 0; i < GUARD + MAX_SEGMENTS + GUARD; i++)
        guarded[i] = GUARD_VALUE;
    int32_t *row_of = guarded + GUARD;
    int32_t n_rows = -1;
    assert_int_equal(fit_rows(lengths, n, seq_len, max_segments, row_of, &n_rows, NULL), BD_OK);

    for (int32_t i = 0; i < GUARD; i++) {
        assert_int_equal(guarded[i], GUARD_VALUE);
        assert_int_equal(row_of[n + i], GUARD_VALUE);
    }

    int32_t expected[MAX_SEGMENTS];
    int32_t renumbered[MAX_SEGMENTS];
    const bool best_fit = fit_rows == bd_fit_best;
    assert_int_equal(n_rows, textbook(lengths, n, seq_len, max_segments, best_fit, expected));
    memset(renumbered, -1, sizeof renumbered);

    int64_t used[MAX_SEGMENTS] = {0}, n_segments[MAX_SEGMENTS] = {0};
    int32_t n_seen = 0;
    for (int32_t i = 0; i < n; i++) {
        assert_in_range(row_of[i], 0, n_seen);  // a row's first segment has the next row number
        n_seen += row_of[i] == n_seen;
        used[row_of[i]] += lengths[i];
        assert_true(used[row_of[i]] <= seq_len);
        n_segments[row_of[i]]++;
        assert_true(max_segments == 0 || n_segments[row_of[i]] <= max_segments);

        if (renumbered[expected[i]] < 0)
            renumbered[expected[i]] = row_of[i];
        assert_int_equal(row_of[i], renumbered[expected[i]]);
    }
    assert_int_equal(n_seen,
                     n_rows);  // so that different textbook rows are different rows here
    return n_rows;
}

// Both strategies, without a limit and with every kind of limit.
static void check_every_fit(const int32_t *lengths, int32_t n, int32_t seq_len)
{
    static const int32_t LIMITS[] = {0, 1, 2, 3, INT32_MAX};
    for (size_t f = 0; f < N_FITS; f++) {
        for (size_t k = 0; k < sizeof LIMITS / sizeof *LIMITS; k++)
            check_fit(FITS[f], lengths, n, seq_len, LIMITS[k]);
    }
}

static void example_of_the_header(void **state)
{
    (void)state;
    const int32_t lengths[] = {5, 4, 1, 7};
    const int32_t best[] = {0, 0, 0, 1}, first[] = {0, 0, 1, 1};
    int32_t row_of[4], n_rows;
    assert_int_equal(bd_fit_best(lengths, 4, 10, 0, row_of, &n_rows, NULL), BD_OK);
    assert_int_equal(n_rows, 2);
    assert_memory_equal(row_of, best, sizeof best);
    assert_int_equal(bd_fit_first(lengths, 4, 10, 0, row_of, &n_rows, NULL), BD_OK);
    assert_int_equal(n_rows, 2);
    assert_memory_equal(row_of, first, sizeof first);
    // With two segments per row, the last room for the shortest is beside the longest.
    assert_int_equal(bd_fit_best(lengths, 4, 10, 2, row_of, &n_rows, NULL), BD_OK);
    assert_int_equal(n_rows, 2);
    assert_memory_equal(row_of, first, sizeof first);
}

static void equal_lengths_fill_rows_in_input_order(void **state)
{
    (void)state;
    static const int32_t SEQ_LENS[] = {1, 2, 3, 31, 32, 33, 2048};
    int32_t lengths[MAX_SEGMENTS];
    for (size_t s = 0; s < sizeof SEQ_LENS / sizeof *SEQ_LENS; s++) {
        const int32_t seq_len = SEQ_LENS[s];
        const int32_t some[] = {1, seq_len / 3, seq_len / 2, seq_len / 2 + 1, seq_len};
        for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
            const int32_t length = some[k] > 0 ? some[k] : 1;
            for (int32_t i = 0; i < MAX_SEGMENTS; i++)
                lengths[i] = length;
            check_every_fit(lengths, 0, seq_len);
            check_every_fit(lengths, 1, seq_len);
            check_every_fit(lengths, MAX_SEGMENTS, seq_len);
            for (size_t f = 0; f < N_FITS; f++) {
                const int32_t per_row = seq_len / length;
                assert_int_equal(check_fit(FITS[f], lengths, 0, seq_len, 0), 0);
                assert_int_equal(check_fit(FITS[f], lengths, 1, seq_len, 1), 1);
                assert_int_equal(check_fit(FITS[f], lengths, MAX_SEGMENTS, seq_len, 0),
                                 (MAX_SEGMENTS + per_row - 1) / per_row);
                assert_int_equal(check_fit(FITS[f], lengths, MAX_SEGMENTS, seq_len, 1),
                                 MAX_SEGMENTS);
            }
        }
    }
}

static void different_lengths_are_served_longest_first(void **state)
{
    (void)state;
    static const int32_t SIZES[] = {1, 2, 31, 32, 33, MAX_SEGMENTS};
    int32_t lengths[MAX_SEGMENTS];
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        const int32_t n = SIZES[s];
        for (int32_t i = 0; i < n; i++)
            lengths[i] = 1 + i;
        check_every_fit(lengths, n, n);
        check_every_fit(lengths, n, 3 * n + 1);
        for (int32_t i = 0; i < n; i++)
            lengths[i] = n - i;
        check_every_fit(lengths, n, n);
        check_every_fit(lengths, n, 3 * n + 1);
    }
}

// Few different lengths make long blocks of rows, many make short ones, and short lengths after
// long ones cut blocks: each draw uses a range of its own.
static void rows_are_those_of_the_textbook(void **state)
{
    (void)state;
    static const int32_t SEQ_LENS[] = {2, 3, 31, 32, 33, 64, 65, 127, 1023, 1024, 1025, 2048};
    uint64_t random = 20240611;
    print_message("seed %llu\n", (unsigned long long)random);
    int32_t lengths[MAX_SEGMENTS];
    for (size_t s = 0; s < sizeof SEQ_LENS / sizeof *SEQ_LENS; s++) {
        const int32_t seq_len = SEQ_LENS[s];
        for (int trial = 0; trial < 100; trial++) {
            const int32_t n = random_between(&random, 1, trial % 10 == 0 ? MAX_SEGMENTS : 60);
            const int32_t low = random_between(&random, 1, seq_len);
            const int32_t high = random_between(&random, low, seq_len);
            const int32_t any = random_between(&random, 0, 3);  // quarters from the whole range
            const int32_t step = random_between(&random, 1, 1 + (high - low) / 2);
            for (int32_t i = 0; i < n; i++) {
                const int32_t length = random_between(&random, low, high);
                lengths[i] = random_between(&random, 0, 3) < any
                                 ? random_between(&random, 1, seq_len)
                                 : length - (length - low) % step;
            }
            check_every_fit(lengths, n, seq_len);
        }
    }
}

static void long_rows_need_no_long_tables(void **state)
{
    (void)state;
    static const int32_t SEQ_LENS[] = {1 << 20, (1 << 20) + 1, 1 << 30, INT32_MAX};
    uint64_t random = 7;
    print_message("seed %llu\n", (unsigned long long)random);
    int32_t lengths[MAX_SEGMENTS];
    for (size_t s = 0; s < sizeof SEQ_LENS / sizeof *SEQ_LENS; s++) {
        const int32_t seq_len = SEQ_LENS[s];
        lengths[0] = seq_len;
        check_every_fit(lengths, 1, seq_len);
        for (int32_t i = 1; i < 50; i++)
            lengths[i] = random_between(&random, 1, seq_len >> (i % 8));
        check_every_fit(lengths, 50, seq_len);
    }
}

static void check_limit_refused(const int32_t *lengths, int64_t n, int32_t seq_len,
                                int32_t max_segments, const char *why)
{
    for (size_t f = 0; f < N_FITS; f++) {
        int32_t row_of[4] = {GUARD_VALUE, GUARD_VALUE, GUARD_VALUE, GUARD_VALUE};
        int32_t n_rows = GUARD_VALUE;
        bd_error err = {0};
        assert_int_equal(FITS[f](lengths, n, seq_len, max_segments, row_of, &n_rows, &err),
                         BD_ERR_ARGUMENT);
        assert_int_equal(err.status, BD_ERR_ARGUMENT);
        assert_string_equal(err.message, why);
        assert_int_equal(n_rows, GUARD_VALUE);
        for (int i = 0; i < 4; i++)
            assert_int_equal(row_of[i], GUARD_VALUE);
    }
}

static void check_refused(const int32_t *lengths, int64_t n, int32_t seq_len, const char *why)
{
    check_limit_refused(lengths, n, seq_len, 0, why);
}

static void impossible_arguments_are_refused(void **state)
{
    (void)state;
    check_refused((int32_t[]){4, 8, 0}, 3, 8, "segment 2 has length 0, not 1 to 8");
    check_refused((int32_t[]){4, -1, 2}, 3, 8, "segment 1 has length -1, not 1 to 8");
    check_refused((int32_t[]){9, 1, 2}, 3, 8, "segment 0 has length 9, not 1 to 8");
    check_refused((int32_t[]){INT32_MIN}, 1, 8, "segment 0 has length -2147483648, not 1 to 8");
    check_refused((int32_t[]){INT32_MAX}, 1, 8, "segment 0 has length 2147483647, not 1 to 8");
    check_refused((int32_t[]){1}, 1, 0, "rows of 0 tokens");
    check_refused((int32_t[]){1}, 1, -5, "rows of -5 tokens");
    check_limit_refused((int32_t[]){1}, 1, 8, -1, "rows of -1 segments");
    check_refused((int32_t[]){1}, -1, 8, "cannot fit -1 segments at once, at most 2147483647");
    check_refused((int32_t[]){1}, (int64_t)INT32_MAX + 1, 8,
                  "cannot fit 2147483648 segments at once, at most 2147483647");
}

static void check_failed_allocations(fit_function *fit_rows)
{
    int32_t lengths[MAX_SEGMENTS];
    for (int32_t i = 0; i < MAX_SEGMENTS; i++)
        lengths[i] = 1 + 7 * i;  // all different: pages and deals are allocated more than once

    int n_failures = 0;
    bd_status status = BD_ERR_MEMORY;
    while (status != BD_OK) {
        int32_t row_of[MAX_SEGMENTS] = {GUARD_VALUE};
        int32_t n_rows = GUARD_VALUE;
        bd_error err = {0};
        allocations_allowed = n_failures;
        status = fit_rows(lengths, MAX_SEGMENTS, 7 * MAX_SEGMENTS, 0, row_of, &n_rows, &err);
        allocations_allowed = INT32_MAX;
        if (status != BD_OK) {
            n_failures++;
            assert_int_equal(status, BD_ERR_MEMORY);
            assert_int_equal(strncmp(err.message, "no memory", 9), 0);
            assert_int_equal(n_rows, GUARD_VALUE);
            assert_int_equal(row_of[0], GUARD_VALUE);
        }
    }
    assert_true(n_failures > 8);  // a directory, 5 pages, 2 arrays of blocks, deals, numbers
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FITS; f++)
        check_failed_allocations(FITS[f]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_of_the_header),
        cmocka_unit_test(equal_lengths_fill_rows_in_input_order),
        cmocka_unit_test(different_lengths_are_served_longest_first),
        cmocka_unit_test(rows_are_those_of_the_textbook),
        cmocka_unit_test(long_rows_need_no_long_tables),
        cmocka_unit_test(impossible_arguments_are_refused),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
