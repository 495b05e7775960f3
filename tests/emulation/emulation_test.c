// The host emulation of CUDA: correct kernels give the same correct results under every
// schedule, and every planted fault is found.
#include "tests/emulation/emulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/emulation/run_again.h"
#include "tests/emulation/sample_kernels.h"
#include "tests/unit/random.h"

enum { N_VARIANTS = BD_N_SCHEDULES * BD_N_COPIES, SEED = 20260714 };

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif
#ifndef THREAD_SANITIZER
#define THREAD_SANITIZER 0
#endif

static void configure(int variant, int host_threads)
{
    const bd_emulation_settings settings = {
        .schedule = (bd_emulation_schedule)(variant % BD_N_SCHEDULES),
        .copies = (bd_emulation_copies)(variant / BD_N_SCHEDULES),
        .seed = SEED + (uint64_t)variant,
        .host_threads = host_threads,
    };
    bd_emulation_configure(&settings);
}

static uint16_t bf16_of(float f)  // exact for the values of the tests
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

// Whole numbers, so that float sums are exact in any order.
static float *whole_numbers(int64_t n, uint64_t seed)
{
    // Aligned to 16 bytes, which vectors and cp.async need.
    float *values = aligned_alloc(16, ((size_t)n * sizeof *values + 15) / 16 * 16 + 64);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)random_between(&seed, -50, 50);
    return values;
}

// ---- Correct kernels ------------------------------------------------------------------------

static void check_row_sums(int64_t n_rows, int64_t n_columns)
{
    float *in = whole_numbers(n_rows * n_columns, SEED);
    float *out = whole_numbers(n_rows + 1, 1);
    const float guard = out[n_rows];
    bd_error err;
    assert_int_equal(sample_row_sums(out, in, n_rows, n_columns, SAMPLE_RIGHT, NULL, &err),
                     BD_OK);
    for (int64_t r = 0; r < n_rows; r++) {
        double sum = 0.0;
        for (int64_t c = 0; c < n_columns; c++)
            sum += in[r * n_columns + c];
        assert_true((double)out[r] == sum);
    }
    assert_true(out[n_rows] == guard);
    free(in);
    free(out);
}

static void rows_are_summed_under_every_schedule(void **state)
{
    (void)state;
    for (int v = 0; v < BD_N_SCHEDULES; v++)
        for (int host_threads = 1; host_threads <= (THREAD_SANITIZER ? 1 : 3); host_threads++) {
            configure(v, host_threads);
            check_row_sums(1, 1);
            check_row_sums(7, 31);
            check_row_sums(3, 97);
        }
}

static void check_transpose(int64_t n_rows, int64_t n_columns)
{
    float *in = whole_numbers(n_rows * n_columns, SEED);
    float *out = whole_numbers(n_rows * n_columns + 1, 1);
    const float guard = out[n_rows * n_columns];
    bd_error err;
    assert_int_equal(sample_transpose(out, in, n_rows, n_columns, SAMPLE_RIGHT, NULL, &err),
                     BD_OK);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_columns; c++)
            assert_true(out[c * n_rows + r] == in[r * n_columns + c]);
    assert_true(out[n_rows * n_columns] == guard);
    free(in);
    free(out);
}

static void tiles_are_transposed_under_every_schedule(void **state)
{
    (void)state;
    for (int v = 0; v < BD_N_SCHEDULES; v++) {
        configure(v, 1 + v % 2);
        check_transpose(1, 1);
        check_transpose(31, 33);
        check_transpose(32, 64);
        check_transpose(70, 1);
    }
}

// Products of bf16 are exact in double, and so are these few sums of them.
static void mma_agrees_with_double(void **state)
{
    (void)state;
    uint64_t seed = SEED;
    float a[16][16], b[16][8], c[16][8], d[16][8];
    uint16_t a16[16 * 16] __attribute__((aligned(16))),
        b16[16 * 8] __attribute__((aligned(16)));
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 16; k++)
            a16[i * 16 + k] = bf16_of(a[i][k] = (float)random_between(&seed, -99, 99) / 64.0f);
        for (int j = 0; j < 8; j++) {
            b16[i * 8 + j] = bf16_of(b[i][j] = (float)random_between(&seed, -99, 99) / 64.0f);
            c[i][j] = (float)random_between(&seed, -99, 99) / 64.0f;
        }
    }
    for (int v = 0; v < 2 * BD_N_SCHEDULES; v++) {
        configure(v / 2, 1);
        bd_error err;
        memset(d, 0xff, sizeof d);
        assert_int_equal(sample_multiply(&d[0][0], a16, b16, &c[0][0], v % 2, NULL, &err),
                         BD_OK);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                double sum = c[i][j];
                for (int k = 0; k < 16; k++)
                    sum += (double)a[i][k] * b[k][j];
                assert_true((double)d[i][j] == sum);
            }
    }
}

// The figure of the PTX manual: which lane holds the elements 2p and 2p + 1 of a row.
static const int lane_of_pair[8][4] = {
    {0, 1, 2, 3},     {4, 5, 6, 7},     {8, 9, 10, 11},   {12, 13, 14, 15},
    {16, 17, 18, 19}, {20, 21, 22, 23}, {24, 25, 26, 27}, {28, 29, 30, 31},
};

static void ldmatrix_spreads_rows_as_the_manual_says(void **state)
{
    (void)state;
    uint16_t tile[4][8][8] __attribute__((aligned(16)));
    for (int i = 0; i < 256; i++)
        tile[i / 64][i / 8 % 8][i % 8] = (uint16_t)(1000 + i);
    for (int v = 0; v < BD_N_SCHEDULES; v++) {
        uint32_t plain[32][4], transposed[32][4];
        bd_error err;
        configure(v, 1);
        assert_int_equal(sample_load_matrices(&plain[0][0], &tile[0][0][0], 0, NULL, &err),
                         BD_OK);
        assert_int_equal(sample_load_matrices(&transposed[0][0], &tile[0][0][0], 1, NULL, &err),
                         BD_OK);
        for (int m = 0; m < 4; m++)
            for (int r = 0; r < 8; r++)
                for (int p = 0; p < 4; p++) {
                    const int lane = lane_of_pair[r][p];
                    assert_int_equal(plain[lane][m] & 0xffff, tile[m][r][2 * p]);
                    assert_int_equal(plain[lane][m] >> 16, tile[m][r][2 * p + 1]);
                    assert_int_equal(transposed[lane][m] & 0xffff, tile[m][2 * p][r]);
                    assert_int_equal(transposed[lane][m] >> 16, tile[m][2 * p + 1][r]);
                }
    }
}

enum { TILE = 256 };

static void check_sum_of_tiles(int64_t n_tiles)
{
    float *in = whole_numbers(n_tiles * TILE, SEED);
    float *out = whole_numbers(TILE, 1);
    bd_error err;
    assert_int_equal(sample_sum_of_tiles(out, in, n_tiles, SAMPLE_RIGHT, NULL, &err), BD_OK);
    for (int i = 0; i < TILE; i++) {
        float sum = 0.0f;
        for (int64_t t = 0; t < n_tiles; t++)
            sum += in[t * TILE + (i ^ 1)];
        assert_true(out[i] == sum);
    }
    free(in);
    free(out);
}

static void two_buffers_work_however_copies_land(void **state)
{
    (void)state;
    for (int v = 0; v < N_VARIANTS; v++) {
        configure(v, 1);
        check_sum_of_tiles(1);
        check_sum_of_tiles(2);
        check_sum_of_tiles(5);
    }
}

static void atomics_and_ballots_count_every_value_once(void **state)
{
    (void)state;
    enum { N = 1000, N_VALUES = 7 };
    int values[N], expected[N_VALUES] = {0};
    unsigned expected_ballots[1024 / 32] = {0};
    uint64_t seed = SEED;
    for (int i = 0; i < N; i++) {
        values[i] = (int)random_between(&seed, 0, N_VALUES - 1);
        expected[values[i]]++;
        expected_ballots[i / 32] |= (unsigned)(values[i] % 2) << (i % 32);
    }
    for (int v = 0; v < BD_N_SCHEDULES; v++) {
        int histogram[N_VALUES] = {0};
        unsigned ballots[1024 / 32];
        bd_error err;
        configure(v, 3);
        assert_int_equal(sample_count(histogram, ballots, values, N, NULL, &err), BD_OK);
        assert_memory_equal(histogram, expected, sizeof expected);
        assert_memory_equal(ballots, expected_ballots, sizeof ballots);
    }
}

static void counters_count_what_was_done(void **state)
{
    (void)state;
    configure(0, 2);
    bd_emulation_take_counters();
    check_row_sums(5, 100);
    bd_emulation_counters counted = bd_emulation_take_counters();
    assert_int_equal(counted.launches, 1);
    assert_int_equal(counted.blocks, 5);
    assert_int_equal(counted.barriers, 5);
    assert_int_equal(counted.warp_exchanges, 5 * 3 * 5);  // blocks, warps, halvings
    assert_int_equal(counted.mma, 0);

    check_sum_of_tiles(3);
    counted = bd_emulation_take_counters();
    assert_int_equal(counted.barriers, 2 * 3);
    assert_int_equal(counted.async_copies, 3 * 64);
    assert_int_equal(counted.async_global_bytes, 3 * TILE * (int)sizeof(float));

    mma_agrees_with_double(NULL);
    counted = bd_emulation_take_counters();
    assert_int_equal(counted.mma, 2 * BD_N_SCHEDULES);
    assert_int_equal(counted.ldmatrix, 2 * BD_N_SCHEDULES);
    // a: rows 32 bytes apart, two to a column of 128 bytes; b: rows side by side.
    assert_int_equal(counted.bank_conflicts, 4 * BD_N_SCHEDULES);
}

// ---- Faults ---------------------------------------------------------------------------------

typedef struct outcome {
    bool right;        // wrong result, but no report
    bool data_race;    // reported by ThreadSanitizer
    char text[16384];  // standard error
} outcome;

// Runs a kernel on a known problem; true if the result is right.
typedef bool (*fault_run)(sample_fault fault);

static bool row_sums_run(sample_fault fault)
{
    enum { ROWS = 4, COLUMNS = 400 };
    bd_error err;
    float *in = whole_numbers(ROWS * COLUMNS, SEED), *out = whole_numbers(ROWS, 1);
    bool right = sample_row_sums(out, in, ROWS, COLUMNS, fault, NULL, &err) == BD_OK;
    for (int r = 0; r < ROWS; r++) {
        float sum = 0.0f;
        for (int c = 0; c < COLUMNS; c++)
            sum += in[r * COLUMNS + c];
        right = right && out[r] == sum;
    }
    free(in);
    free(out);
    return right;
}

static bool transpose_run(sample_fault fault)
{
    enum { N = 40 };
    bd_error err;
    float *in = whole_numbers(N * N, SEED), *out = whole_numbers(N * N, 1);
    bool right = sample_transpose(out, in, N, N, fault, NULL, &err) == BD_OK;
    for (int i = 0; i < N * N; i++)
        right = right && out[i % N * N + i / N] == in[i];
    free(in);
    free(out);
    return right;
}

static bool sum_of_tiles_run(sample_fault fault)
{
    enum { N_TILES = 5 };
    bd_error err;
    float *in = whole_numbers(N_TILES * TILE, SEED), *out = whole_numbers(TILE, 1);
    bool right = sample_sum_of_tiles(out, in, N_TILES, fault, NULL, &err) == BD_OK;
    for (int i = 0; i < TILE; i++) {
        float sum = 0.0f;
        for (int t = 0; t < N_TILES; t++)
            sum += in[t * TILE + (i ^ 1)];
        right = right && out[i] == sum;
    }
    free(in);
    free(out);
    return right;
}

static const fault_run fault_runs[] = {row_sums_run, transpose_run, sum_of_tiles_run};

// Runs in another process, since a fault that is found ends it.
static void run_apart(fault_run run, sample_fault fault, int variant, outcome *result)
{
    int arguments[] = {0, (int)fault, variant};
    while (fault_runs[arguments[0]] != run)
        arguments[0]++;
    const int status = run_again(arguments, 3, result->text, sizeof result->text);
    result->right = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    result->data_race = strstr(result->text, "ThreadSanitizer: data race") != NULL;
}

static int run_in_child(char *const arguments[])
{
    configure(atoi(arguments[2]), 1);
    return fault_runs[atoi(arguments[0])]((sample_fault)atoi(arguments[1])) ? 0 : 1;
}

// Returns in how many variants the fault is found.
static int times_caught(fault_run run, sample_fault fault)
{
    int caught = 0;
    outcome result;
    for (int v = 0; v < N_VARIANTS; v++) {
        run_apart(run, fault, v, &result);
        caught += !result.right;
    }
    return caught;
}

// Fatal under every schedule, with the kernel, the block and the place.
static void check_fatal(fault_run run, sample_fault fault, const char *kernel, const char *file,
                        const char *says)
{
    outcome result;
    for (int v = 0; v < BD_N_SCHEDULES; v++) {
        run_apart(run, fault, v, &result);
        if (result.right || !strstr(result.text, kernel) || !strstr(result.text, says) ||
            !strstr(result.text, "block (") || !strstr(result.text, file))
            fail_msg("fault %d, schedule %d: '%s' expected of %s, got: %s", (int)fault, v, says,
                     kernel, result.text);
    }
}

static void right_kernels_pass_the_same_runs(void **state)
{
    (void)state;
    assert_int_equal(times_caught(row_sums_run, SAMPLE_RIGHT), 0);
    assert_int_equal(times_caught(transpose_run, SAMPLE_RIGHT), 0);
    assert_int_equal(times_caught(sum_of_tiles_run, SAMPLE_RIGHT), 0);
}

static void removed_barriers_are_caught(void **state)
{
    (void)state;
    assert_true(times_caught(row_sums_run, SAMPLE_REMOVED_BARRIER) > 0);
    assert_true(times_caught(transpose_run, SAMPLE_REMOVED_BARRIER) > 0);
    assert_true(times_caught(sum_of_tiles_run, SAMPLE_REMOVED_BARRIER) > 0);
}

static void a_buffer_refilled_while_it_is_read_is_caught(void **state)
{
    (void)state;
    assert_true(times_caught(sum_of_tiles_run, SAMPLE_EARLY_REFILL) > 0);
}

// If copies land at once, the fault is invisible; late copies show it.
static void waiting_for_the_wrong_group_is_caught(void **state)
{
    (void)state;
    outcome result;
    for (int schedule = 0; schedule < BD_N_SCHEDULES; schedule++) {
        const int variant = schedule + BD_N_SCHEDULES * BD_COPIES_LATE;
        run_apart(sum_of_tiles_run, SAMPLE_WRONG_GROUP_COUNT, variant, &result);
        assert_false(result.right);
    }
}

static void accesses_past_shared_memory_are_caught(void **state)
{
    (void)state;
    assert_int_equal(times_caught(transpose_run, SAMPLE_ONE_PAST_END), N_VARIANTS);
    assert_int_equal(times_caught(transpose_run, SAMPLE_READ_PAST_END), N_VARIANTS);
}

static void undefined_behaviour_of_cuda_is_fatal(void **state)
{
    (void)state;
    const char *file = "sample_kernels.cu:", *row_sums = "kernel row_sums_kernel, ";
    check_fatal(row_sums_run, SAMPLE_DIVERGENT_BARRIER, row_sums, file, "divergent barrier");
    check_fatal(row_sums_run, SAMPLE_UNREACHED_BARRIER, row_sums, file, "barrier");
    check_fatal(row_sums_run, SAMPLE_MISALIGNED_VECTOR, row_sums, file, "misaligned");
    check_fatal(sum_of_tiles_run, SAMPLE_MISALIGNED_COPY, "kernel sum_of_tiles_kernel, ", file,
                "misaligned");
    check_fatal(row_sums_run, SAMPLE_ABSENT_LANES, row_sums, "warp.cuh:", "wait");
    check_fatal(row_sums_run, SAMPLE_ENDED_LANES, row_sums, "warp.cuh:", "lane");
}

// ---- Races ----------------------------------------------------------------------------------

// Under every schedule. The moment when copies land does not matter for races.
static int schedules_with_race(fault_run run, sample_fault fault)
{
    int raced = 0;
    outcome result;
    for (int schedule = 0; schedule < BD_N_SCHEDULES; schedule++) {
        const int copies = schedule % BD_N_COPIES;
        run_apart(run, fault, schedule + copies * BD_N_SCHEDULES, &result);
        raced += result.data_race;
    }
    return raced;
}

static void right_kernels_have_no_race(void **state)
{
    (void)state;
    assert_int_equal(schedules_with_race(row_sums_run, SAMPLE_RIGHT), 0);
    assert_int_equal(schedules_with_race(transpose_run, SAMPLE_RIGHT), 0);
    assert_int_equal(schedules_with_race(sum_of_tiles_run, SAMPLE_RIGHT), 0);
}

static void removed_barriers_are_races(void **state)
{
    (void)state;
    assert_int_equal(schedules_with_race(row_sums_run, SAMPLE_REMOVED_BARRIER), BD_N_SCHEDULES);
    assert_int_equal(schedules_with_race(transpose_run, SAMPLE_REMOVED_BARRIER),
                     BD_N_SCHEDULES);
    assert_int_equal(schedules_with_race(sum_of_tiles_run, SAMPLE_EARLY_REFILL),
                     BD_N_SCHEDULES);
}

static void plain_stores_by_several_blocks_are_races(void **state)
{
    (void)state;
    assert_int_equal(schedules_with_race(row_sums_run, SAMPLE_PLAIN_STORE), BD_N_SCHEDULES);
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return run_in_child(argv + 1);
    printf("seed %d\n", SEED);
    const struct CMUnitTest kernels[] = {
        cmocka_unit_test(rows_are_summed_under_every_schedule),
        cmocka_unit_test(tiles_are_transposed_under_every_schedule),
        cmocka_unit_test(mma_agrees_with_double),
        cmocka_unit_test(ldmatrix_spreads_rows_as_the_manual_says),
        cmocka_unit_test(two_buffers_work_however_copies_land),
        cmocka_unit_test(atomics_and_ballots_count_every_value_once),
        cmocka_unit_test(counters_count_what_was_done),
    };
    const struct CMUnitTest races[] = {
        cmocka_unit_test(right_kernels_have_no_race),
        cmocka_unit_test(removed_barriers_are_races),
        cmocka_unit_test(plain_stores_by_several_blocks_are_races),
    };
    const struct CMUnitTest faults[] = {
        cmocka_unit_test(right_kernels_pass_the_same_runs),
        cmocka_unit_test(removed_barriers_are_caught),
        cmocka_unit_test(a_buffer_refilled_while_it_is_read_is_caught),
        cmocka_unit_test(waiting_for_the_wrong_group_is_caught),
        cmocka_unit_test(accesses_past_shared_memory_are_caught),
        cmocka_unit_test(undefined_behaviour_of_cuda_is_fatal),
    };
    const int failed = cmocka_run_group_tests(kernels, NULL, NULL);
    if (THREAD_SANITIZER)
        return failed + cmocka_run_group_tests(races, NULL, NULL);
    return failed + cmocka_run_group_tests(faults, NULL, NULL);
}
