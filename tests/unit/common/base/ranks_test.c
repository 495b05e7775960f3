#include "common/base/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const VARIABLES[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
    "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS"};

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++)
        unsetenv(VARIABLES[i]);
    return 0;
}

static void assert_ranks(int64_t rank, int64_t n_ranks)
{
    bd_ranks ranks;
    bd_error err = {0};
    if (bd_ranks_from_environment(&ranks, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_int_equal(ranks.rank, rank);
    assert_int_equal(ranks.n_ranks, n_ranks);
}

static void without_a_launcher_a_process_is_alone(void **state)
{
    (void)state;
    assert_ranks(0, 1);
}

static void every_launcher_is_understood(void **state)
{
    for (size_t i = 0; i < 6; i += 2) {
        clear(state);
        setenv(VARIABLES[i], "3", 1);
        assert_ranks(0, 1);  // one variable without the other means nothing
        setenv(VARIABLES[i + 1], "4", 1);
        assert_ranks(3, 4);
        setenv(VARIABLES[i], "0", 1);
        setenv(VARIABLES[i + 1], "1", 1);
        assert_ranks(0, 1);
        setenv(VARIABLES[i], "9223372036854775806", 1);
        setenv(VARIABLES[i + 1], "9223372036854775807", 1);
        assert_ranks(INT64_MAX - 1, INT64_MAX);
        unsetenv(VARIABLES[i]);
        assert_ranks(0, 1);
    }
}

// mpirun inside a batch job: the job's own variables do not describe mpirun's processes.
static void mpirun_is_believed_before_the_batch_system(void **state)
{
    (void)state;
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("PMI_RANK", "5", 1);
    setenv("PMI_SIZE", "8", 1);
    assert_ranks(5, 8);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    assert_ranks(1, 2);
}

// A batch script itself is one process, however many tasks its job has.
static void a_batch_script_is_alone(void **state)
{
    (void)state;
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    assert_ranks(0, 1);
    unsetenv("SLURM_NTASKS");
}

static void nonsense_is_refused_and_named(void **state)
{
    static const struct {
        const char *rank, *n_ranks;
    } CASES[] = {{"4", "4"},   {"5", "4"},  {"-1", "4"}, {"0", "0"}, {"0", "-4"},
                 {"", "4"},    {"0", ""},   {"x", "4"},  {"0", "x"}, {"1x", "4"},
                 {"1", "4.5"}, {"1 ", "4"}, {"0x1", "4"}};
    for (size_t i = 0; i < 6; i += 2) {
        for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
            bd_ranks ranks;
            bd_error err = {0};
            clear(state);
            setenv(VARIABLES[i], CASES[c].rank, 1);
            setenv(VARIABLES[i + 1], CASES[c].n_ranks, 1);
            assert_int_equal(bd_ranks_from_environment(&ranks, &err), BD_ERR_ARGUMENT);
            assert_non_null(strstr(err.message, VARIABLES[i]));
            assert_non_null(strstr(err.message, VARIABLES[i + 1]));
        }
    }
}

static void numbers_too_large_are_refused_and_long_ones_cut(void **state)
{
    (void)state;
    bd_ranks ranks;
    bd_error err = {0};
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "9223372036854775808", 1);
    assert_int_equal(bd_ranks_from_environment(&ranks, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "PMI_RANK is '0' and PMI_SIZE '9223372036854775808'");
    char endless[2000];
    memset(endless, '7', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    setenv("PMI_SIZE", endless, 1);
    assert_int_equal(bd_ranks_from_environment(&ranks, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "PMI_RANK is '0' and PMI_SIZE '77777777777777777777'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_launcher_a_process_is_alone, clear),
        cmocka_unit_test_setup(every_launcher_is_understood, clear),
        cmocka_unit_test_setup(mpirun_is_believed_before_the_batch_system, clear),
        cmocka_unit_test_setup(a_batch_script_is_alone, clear),
        cmocka_unit_test_setup(nonsense_is_refused_and_named, clear),
        cmocka_unit_test_setup(numbers_too_large_are_refused_and_long_ones_cut, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
