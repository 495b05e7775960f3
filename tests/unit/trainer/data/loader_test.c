// The loader's thread changes when a batch is made, never its contents.
#include "trainer/data/loader.h"

#include <sched.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/data/row_order.h"

enum { SEED = 77, HANG_SECONDS = 60 };

static const int LENGTHS[] = {30, 3, 9, 0, 14, 31, 1, 1, 60, 5, 22, 8, 17, 29, 2, 6, 12, 40};
static const packed_as SMALL = {
    .seq_len = 32, .batch_rows = 2, .unit_bytes = 200, .vocab_size = 257};

static void open_small(bd_rows *rows)
{
    pack_documents(rows, "dataset", LENGTHS, sizeof LENGTHS / sizeof LENGTHS[0], SMALL);
    assert_true(rows->manifests[0].totals.rows >= 10);
}

// Returns the rows at places g, g + 1, … of row_order.h.
static void places(const bd_rows *rows, int64_t g, int64_t *numbers, int64_t n)
{
    bd_error err;
    bd_row_order order;
    check(bd_row_order_init(&order, &rows->manifests[0], SEED, &err), &err);
    for (int64_t i = 0; i < n; i++)
        check(bd_row_order_at(&order, g + i, &numbers[i], &err), &err);
    bd_row_order_release(&order);
}

static void assert_same_batch(const bd_batch *left, const bd_batch *right)
{
    const int64_t n = left->boundaries.n_rows, seq_len = left->boundaries.seq_len;
    assert_int_equal(n, right->boundaries.n_rows);
    assert_int_equal(seq_len, right->boundaries.seq_len);
    assert_int_equal(left->targets.n_targets, right->targets.n_targets);
    assert_int_equal(left->id_bytes, right->id_bytes);
    assert_memory_equal(left->row_numbers, right->row_numbers,
                        (size_t)n * sizeof *left->row_numbers);
    assert_memory_equal(left->ids, right->ids, (size_t)(n * seq_len * left->id_bytes));
    for (int64_t r = 0; r < n; r++) {
        int64_t n_left, n_right;
        const int32_t *a = bd_row_bounds(&left->boundaries, r, &n_left);
        const int32_t *b = bd_row_bounds(&right->boundaries, r, &n_right);
        assert_int_equal(n_left, n_right);
        assert_memory_equal(a, b, (size_t)(n_left + 1) * sizeof *a);
    }
}

static bd_loader *open_loader(const bd_rows *rows, int64_t batch_rows, int64_t first_place)
{
    bd_error err;
    bd_loader *loader;
    const bd_loader_order order = {.seed = SEED,
                                   .batch_rows = batch_rows,
                                   .first_place = first_place,
                                   .n_ranks = 1,
                                   .n_micro_batches = 1};
    check(bd_loader_new(&loader, rows, &order, &err), &err);
    return loader;
}

// Three epochs from place `first` on; each batch is compared with one that is made here.
static void follow(const bd_rows *rows, int64_t batch_rows, int64_t first)
{
    bd_error err;
    int64_t numbers[64];
    assert_true(batch_rows <= 64);
    bd_loader *loader = open_loader(rows, batch_rows, first);
    for (int64_t g = first; g < first + 3 * rows->manifests[0].totals.rows; g += batch_rows) {
        const bd_balanced_batch *balanced, *ahead = bd_loader_peek(loader);
        check(bd_loader_next(loader, &balanced, &err), &err);
        assert_true(ahead == NULL || ahead == balanced);
        assert_int_equal(balanced->part_ends[0], batch_rows);
        places(rows, g, numbers, batch_rows);
        bd_batch expected = load_batch(rows, numbers, batch_rows);
        assert_same_batch(&balanced->batch, &expected);
        bd_batch_release(&expected);
    }
    bd_loader_free(loader);
}

// Both are valid until the second call of next: the batch in use and the one after it.
static void the_batch_ahead_stays_while_another_is_used(void **state)
{
    (void)state;
    bd_error err;
    bd_rows rows;
    const bd_balanced_batch *used, *ahead, *next;
    int64_t numbers[3];
    open_small(&rows);
    bd_loader *loader = open_loader(&rows, 3, 0);
    for (int64_t g = 0; g < 12; g += 3) {
        check(bd_loader_next(loader, &used, &err), &err);
        while (!(ahead = bd_loader_peek(loader)))
            sched_yield();
        places(&rows, g, numbers, 3);
        assert_memory_equal(used->batch.row_numbers, numbers, sizeof numbers);
        places(&rows, g + 3, numbers, 3);
        assert_memory_equal(ahead->batch.row_numbers, numbers, sizeof numbers);
    }
    check(bd_loader_next(loader, &next, &err), &err);
    assert_ptr_equal(next, ahead);
    bd_loader_free(loader);
    bd_rows_close(&rows);
}

static void batches_are_those_of_the_order(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    const int64_t n = rows.manifests[0].totals.rows;
    follow(&rows, 1, 0);
    follow(&rows, 3, 0);
    follow(&rows, n, 0);
    follow(&rows, n + 2, 0);
    bd_rows_close(&rows);
}

// For any number of ranks and micro-batches: the rows of the order, each once and unchanged;
// and in each part in the order of the run.
static void a_balanced_batch_has_the_rows_of_the_order(void **state)
{
    (void)state;
    bd_error err;
    bd_rows rows;
    open_small(&rows);
    for (int32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
        const bd_loader_order order = {
            .seed = SEED, .batch_rows = 7, .n_ranks = n_ranks, .n_micro_batches = 2};
        const int64_t n_parts = 2 * n_ranks;
        bd_loader *loader;
        const bd_balanced_batch *balanced;
        int64_t numbers[7];
        check(bd_loader_new(&loader, &rows, &order, &err), &err);
        for (int64_t g = 0; g < 5 * 7; g += 7) {
            check(bd_loader_next(loader, &balanced, &err), &err);
            bd_batch expected = load_batch(&rows, balanced->batch.row_numbers, 7);
            assert_same_batch(&balanced->batch, &expected);
            bd_batch_release(&expected);
            places(&rows, g, numbers, 7);
            bool seen[7] = {false};
            int64_t i = 0;
            for (int64_t p = 0; p < n_parts; p++)
                for (int64_t before = -1; i < balanced->part_ends[p]; i++) {
                    int64_t place = 0;
                    while (place < 7 &&
                           (seen[place] || numbers[place] != balanced->batch.row_numbers[i]))
                        place++;
                    assert_true(place < 7 && place > before);
                    seen[place] = true;
                    before = place;
                }
            assert_int_equal(i, 7);
        }
        bd_loader_free(loader);
    }
    bd_rows_close(&rows);
}

static void a_resumed_loader_goes_on_counting(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    follow(&rows, 3, 5 * 3);
    follow(&rows, 4, 1000 * 4);
    bd_rows_close(&rows);
}

// A batch belongs to the trainer until it asks for the next one, however long that takes.
static void a_batch_stays_as_it_is_while_it_is_used(void **state)
{
    (void)state;
    bd_error err;
    bd_rows rows;
    int64_t numbers[3];
    open_small(&rows);
    bd_loader *loader = open_loader(&rows, 3, 0);
    for (int64_t i = 0; i < 8; i++) {
        const bd_balanced_batch *balanced;
        check(bd_loader_next(loader, &balanced, &err), &err);
        usleep(3000);  // the thread has filled all batches that it may
        places(&rows, 3 * i, numbers, 3);
        bd_batch expected = load_batch(&rows, numbers, 3);
        assert_same_batch(&balanced->batch, &expected);
        bd_batch_release(&expected);
    }
    bd_loader_free(loader);
    bd_rows_close(&rows);
}

// Returns the place of a row in the first epoch.
static int64_t place_of(const bd_rows *rows, int64_t row)
{
    int64_t numbers[64];
    places(rows, 0, numbers, rows->manifests[0].totals.rows);
    for (int64_t i = 0; i < rows->manifests[0].totals.rows; i++)
        if (numbers[i] == row)
            return i;
    fail_msg("row %d has no place", (int)row);
    return -1;
}

static void a_bad_row_is_an_error_of_its_own_batch(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    damage_row(&rows, "dataset", 4);
    const int64_t place = place_of(&rows, 4);
    assert_true(place >= 2);
    alarm(HANG_SECONDS);
    for (int64_t batch_rows = 1; batch_rows <= 3; batch_rows++) {
        bd_error err = {0};
        const bd_balanced_batch *batch;
        bd_loader *loader = open_loader(&rows, batch_rows, 0);
        for (int64_t i = 0; i < place / batch_rows; i++)
            check(bd_loader_next(loader, &batch, &err), &err);
        for (int i = 0; i < 3; i++) {  // and stays: asking again must not wait for ever
            err = (bd_error){0};
            assert_int_equal(bd_loader_next(loader, &batch, &err), BD_ERR_FORMAT);
            assert_mentions(&err, ".arrow");
            assert_mentions(&err, "row ");
            assert_null(batch);
        }
        assert_int_equal(bd_loader_next(loader, &batch, NULL), BD_ERR_FORMAT);
        bd_loader_free(loader);
    }
    alarm(0);
    bd_rows_close(&rows);
}

static void freeing_never_hangs(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    bd_loader_free(NULL);
    alarm(HANG_SECONDS);
    for (int i = 0; i < 60; i++) {
        bd_error err;
        const bd_balanced_batch *batch;
        bd_loader *loader = open_loader(&rows, 1 + i % 5, 0);
        for (int k = 0; k < i % 4; k++)
            check(bd_loader_next(loader, &batch, &err), &err);
        usleep((useconds_t)(i % 3 * 200));
        bd_loader_free(loader);
    }
    alarm(0);
    bd_rows_close(&rows);
}

static void freeing_with_an_error_pending_never_hangs(void **state)
{
    (void)state;
    bd_rows rows;
    open_small(&rows);
    damage_row(&rows, "dataset", 0);
    alarm(HANG_SECONDS);
    for (int i = 0; i < 20; i++) {
        bd_loader *loader = open_loader(&rows, rows.manifests[0].totals.rows, 0);
        usleep((useconds_t)(i % 4 * 300));
        bd_loader_free(loader);
    }
    alarm(0);
    bd_rows_close(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(the_batch_ahead_stays_while_another_is_used),
        test_inside_folder(batches_are_those_of_the_order),
        test_inside_folder(a_balanced_batch_has_the_rows_of_the_order),
        test_inside_folder(a_resumed_loader_goes_on_counting),
        test_inside_folder(a_batch_stays_as_it_is_while_it_is_used),
        test_inside_folder(a_bad_row_is_an_error_of_its_own_batch),
        test_inside_folder(freeing_never_hangs),
        test_inside_folder(freeing_with_an_error_pending_never_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
