#include "trainer/group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/trainer/thread_group.h"

enum { N_RANKS = 3 };

// ---- Alone ----------------------------------------------------------------------------------

static int no_launcher(void **state)
{
    (void)state;
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return 0;
}

static void without_a_launcher_nobody_is_asked(void **state)
{
    (void)state;
    bd_group *group;
    bd_error err = {0};
    double values[] = {1.5, -2};
    int64_t value = 7;
    assert_int_equal(bd_group_join(&group, &err), BD_OK);
    assert_int_equal(group->n_ranks, 1);
    assert_int_equal(bd_group_sum(group, values, 2, &err), BD_OK);
    assert_true(values[0] == 1.5 && values[1] == -2);
    assert_int_equal(bd_group_follow(group, &value, sizeof value, &err), BD_OK);
    assert_int_equal(value, 7);
    assert_int_equal(bd_group_agree(group, BD_OK, &err), BD_OK);
    assert_int_equal(bd_group_agree(group, BD_ERR_FORMAT, &err), BD_ERR_FORMAT);
    bd_group_leave(group, false, 0);
}

// There is no module beside the test's program: the processes must not train independently.
static void one_of_several_processes_without_mpi_is_refused(void **state)
{
    (void)state;
    bd_group *group;
    bd_error err = {0};
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_int_equal(bd_group_join(&group, &err), BD_ERR_UNSUPPORTED);
    assert_null(group);
    assert_non_null(strstr(err.message, "this is process 1 of 4"));
    assert_non_null(strstr(err.message, "libbindery_mpi.so"));
    no_launcher(NULL);
}

// ---- Several --------------------------------------------------------------------------------

typedef struct answers {
    double sums[N_RANKS][2];
    int64_t followed[N_RANKS];
    bd_status statuses[N_RANKS];
    bool reports[N_RANKS], agreed[N_RANKS];
    bd_status given[N_RANKS];
} answers;

static void ask(bd_group *group, void *context)
{
    answers *a = context;
    const int32_t r = group->rank;
    // In another order the first sum is 0 or 1.
    const double parts[] = {1.0, 1e300, -1e300};
    a->sums[r][0] = parts[r];
    a->sums[r][1] = r + 1;
    a->followed[r] = 10 * (r + 1);
    if (bd_group_sum(group, a->sums[r], 2, NULL) != BD_OK ||
        bd_group_follow(group, &a->followed[r], sizeof a->followed[r], NULL) != BD_OK)
        abort();
}

static void all_ranks_hear_the_same(void **state)
{
    (void)state;
    answers a;
    run_ranks(N_RANKS, ask, &a);
    for (int r = 0; r < N_RANKS; r++) {
        assert_true(a.sums[r][0] == (1.0 + 1e300) - 1e300);
        assert_true(a.sums[r][1] == 6);
        assert_int_equal(a.followed[r], 10);
    }
}

static void agree(bd_group *group, void *context)
{
    answers *a = context;
    const int32_t r = group->rank;
    a->statuses[r] = bd_group_agree(group, a->given[r], NULL);
    a->agreed[r] = group->agreed_to_fail;
    a->reports[r] = group->reports;
    // A rank that has agreed to fail waits for no other, and stays failed.
    if (group->agreed_to_fail && (bd_group_agree(group, BD_ERR_MEMORY, NULL) != BD_ERR_MEMORY ||
                                  bd_group_agree(group, BD_OK, NULL) == BD_OK))
        abort();
}

static void a_failure_of_one_is_a_failure_of_all_and_one_reports(void **state)
{
    (void)state;
    answers a = {.given = {BD_OK, BD_ERR_FORMAT, BD_ERR_ARGUMENT}};
    run_ranks(N_RANKS, agree, &a);
    assert_int_equal(a.statuses[0], BD_ERR_IO);
    assert_int_equal(a.statuses[1], BD_ERR_FORMAT);
    assert_int_equal(a.statuses[2], BD_ERR_ARGUMENT);
    for (int r = 0; r < N_RANKS; r++) {
        assert_true(a.agreed[r]);
        assert_int_equal(a.reports[r], r == 1);
    }
}

static void nobody_fails_where_all_are_well(void **state)
{
    (void)state;
    answers a = {0};
    run_ranks(N_RANKS, agree, &a);
    for (int r = 0; r < N_RANKS; r++) {
        assert_int_equal(a.statuses[r], BD_OK);
        assert_false(a.agreed[r]);
    }
}

// ---- Slices ---------------------------------------------------------------------------------

static void slices_cover_all_numbers_and_begin_at_cache_lines(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 63, 64, 65, 127, 128, 129, 1000, INT64_C(1) << 40};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int32_t n_ranks = 1; n_ranks <= 7; n_ranks++) {
            int64_t at = 0, bounds[8];
            bd_divide_equally(sizes[i], n_ranks, bounds);
            for (int32_t r = 0; r < n_ranks; r++) {
                const bd_rank_slice slice = bd_rank_slice_of(bounds, r);
                assert_int_equal(slice.begin, at);
                assert_int_equal(slice.begin % BD_SLICE_MULTIPLE, 0);
                assert_true(slice.end >= slice.begin);
                at = slice.end;
            }
            assert_int_equal(at, sizes[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_launcher_nobody_is_asked, no_launcher),
        cmocka_unit_test_setup(one_of_several_processes_without_mpi_is_refused, no_launcher),
        cmocka_unit_test(all_ranks_hear_the_same),
        cmocka_unit_test(a_failure_of_one_is_a_failure_of_all_and_one_reports),
        cmocka_unit_test(nobody_fails_where_all_are_well),
        cmocka_unit_test(slices_cover_all_numbers_and_begin_at_cache_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
