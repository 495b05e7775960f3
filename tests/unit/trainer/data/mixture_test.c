#include "trainer/data/mixture.h"

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"

enum { SEED = 77, N_DATASETS = 3 };

static const int LENGTHS[] = {30, 3, 9, 0, 14, 31, 1, 1, 60, 5, 22, 8, 17, 29, 2, 6, 12, 40};
static const packed_as SMALL = {
    .seq_len = 32, .batch_rows = 2, .unit_bytes = 200, .vocab_size = 257};
static const char *const FOLDERS[N_DATASETS] = {"a", "b", "c"};

static void pack(const char *folder, size_t n_documents, packed_as as)
{
    bd_rows rows;
    pack_documents(&rows, folder, LENGTHS, n_documents, as);
    bd_rows_close(&rows);
}

// The datasets have different sizes, the last a single row.
static void open_three(bd_rows *rows, const double *weights)
{
    bd_error err;
    pack("a", sizeof LENGTHS / sizeof *LENGTHS, SMALL);
    pack("b", 7, SMALL);
    pack("c", 1, SMALL);
    check(bd_rows_open_all(rows, FOLDERS, weights, N_DATASETS, &err), &err);
}

// ---- Shares --------------------------------------------------------------------------------

static void weights_become_shares_that_add_up(void **state)
{
    (void)state;
    static const struct {
        double weights[3];
        int64_t shares[3];
    } CASES[] = {
        {{0.7, 0.2, 0.1}, {717, 205, 102}},  // 716.8, 204.8, 102.4
        {{1, 1, 1}, {342, 341, 341}},        // 341.33 each: the first is rounded up
        {{1e9, 1e9, 2e9}, {256, 256, 512}},
        {{1022, 1, 1}, {1022, 1, 1}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int64_t shares[3];
        assert_int_equal(bd_mixture_shares(CASES[i].weights, 3, shares, NULL), BD_OK);
        assert_memory_equal(shares, CASES[i].shares, sizeof shares);
    }
}

static void a_weight_too_small_for_a_row_is_refused(void **state)
{
    (void)state;
    bd_error err;
    int64_t shares[2];
    const double weights[] = {1, 0.0001};
    assert_int_equal(bd_mixture_shares(weights, 2, shares, &err), BD_ERR_ARGUMENT);
    assert_string_equal(
        err.message,
        "dataset 2 has a weight of 0.0001 in 1.0001: less than one row in 1024; give "
        "its --data more");
}

// ---- Order ---------------------------------------------------------------------------------

static size_t dataset_of(const bd_rows *rows, int64_t number)
{
    size_t d = 0;
    assert_in_range(number, 0, bd_rows_count(rows) - 1);
    while (rows->first_rows[d + 1] <= number)
        d++;
    return d;
}

// Every block has the shares, and each dataset has the same order as alone.
static void blocks_hold_the_shares_and_datasets_keep_their_order(void **state)
{
    (void)state;
    bd_error err;
    bd_rows rows;
    bd_mixture mixture;
    bd_row_order orders[N_DATASETS];
    int64_t places[N_DATASETS] = {0};
    open_three(&rows, (double[]){0.5, 0.3, 0.2});
    check(bd_mixture_init(&mixture, &rows, SEED, &err), &err);
    for (size_t d = 0; d < N_DATASETS; d++)
        check(bd_row_order_init(&orders[d], &rows.manifests[d], SEED, &err), &err);
    for (int64_t g = 0; g < 3 * BD_MIXTURE_BLOCK; g++) {
        int64_t number, expected;
        check(bd_mixture_at(&mixture, g, &number, &err), &err);
        const size_t d = dataset_of(&rows, number);
        check(bd_row_order_at(&orders[d], places[d]++, &expected, &err), &err);
        assert_int_equal(number, rows.first_rows[d] + expected);
        if ((g + 1) % BD_MIXTURE_BLOCK == 0)
            for (size_t k = 0; k < N_DATASETS; k++)
                assert_int_equal(places[k], (g + 1) / BD_MIXTURE_BLOCK * rows.shares[k]);
    }
    for (size_t d = 0; d < N_DATASETS; d++)
        bd_row_order_release(&orders[d]);
    bd_mixture_release(&mixture);
    bd_mixture_release(&mixture);
    bd_rows_close(&rows);
}

static void any_slot_is_found_directly_and_depends_on_the_seed(void **state)
{
    (void)state;
    enum { N = 2 * BD_MIXTURE_BLOCK };
    static int64_t numbers[N];
    bd_error err;
    bd_rows rows;
    bd_mixture mixture, other;
    open_three(&rows, (double[]){1, 1, 1});
    check(bd_mixture_init(&mixture, &rows, SEED, &err), &err);
    check(bd_mixture_init(&other, &rows, SEED + 1, &err), &err);
    int64_t n_different = 0;
    for (int64_t g = 0; g < N; g++)
        check(bd_mixture_at(&mixture, g, &numbers[g], &err), &err);
    for (int64_t i = 0; i < N; i++) {
        const int64_t g = i * 997 % N;  // 997 is prime: all blocks, far from each other
        int64_t number, number_of_other;
        check(bd_mixture_at(&mixture, g, &number, &err), &err);
        check(bd_mixture_at(&other, g, &number_of_other, &err), &err);
        assert_int_equal(number, numbers[g]);
        n_different += dataset_of(&rows, number) != dataset_of(&rows, number_of_other);
    }
    assert_in_range(n_different, N / 2, N);  // two thirds of them by chance
    bd_mixture_release(&mixture);
    bd_mixture_release(&other);
    bd_rows_close(&rows);
}

// ---- Datasets that do not fit together -----------------------------------------------------

static void datasets_that_differ_are_refused_by_name(void **state)
{
    (void)state;
    bd_error err;
    bd_rows rows;
    packed_as longer = SMALL, other = SMALL;
    longer.seq_len = 33;
    other.vocab_size = 300;
    pack("a", 3, SMALL);
    pack("b", 3, longer);
    pack("c", 3, other);
    const double weights[] = {1, 1};
    assert_int_equal(bd_rows_open_all(&rows, (const char *[]){"a", "b"}, weights, 2, &err),
                     BD_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "'a' and 'b' cannot be mixed: rows of 32 and of 33 tokens; bindery "
                        "repack --seq-len makes one like the other");
    assert_int_equal(bd_rows_open_all(&rows, (const char *[]){"a", "c"}, weights, 2, &err),
                     BD_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'a' and 'c' cannot be mixed: "));
    assert_int_not_equal(
        bd_rows_open_all(&rows, (const char *[]){"a", "absent"}, weights, 2, &err), BD_OK);
    bd_rows_close(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_become_shares_that_add_up),
        cmocka_unit_test(a_weight_too_small_for_a_row_is_refused),
        test_inside_folder(blocks_hold_the_shares_and_datasets_keep_their_order),
        test_inside_folder(any_slot_is_found_directly_and_depends_on_the_seed),
        test_inside_folder(datasets_that_differ_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
