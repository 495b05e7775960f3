#include "trainer/data/row_order.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"

// A manifest with the fields that the order reads; free `shards`.
static bd_manifest manifest_of(const int64_t *shard_rows, size_t n, int64_t batch_rows)
{
    bd_manifest manifest = {.config.batch_rows = batch_rows, .n_shards = n};
    manifest.shards = calloc(n, sizeof *manifest.shards);
    assert_non_null(manifest.shards);
    for (size_t s = 0; s < n; s++) {
        manifest.shards[s].figures.rows = shard_rows[s];
        manifest.totals.rows += shard_rows[s];
    }
    return manifest;
}

static bd_row_order order_of(const int64_t *shard_rows, size_t n, int64_t batch_rows,
                             uint64_t seed)
{
    bd_error err;
    bd_row_order order;
    bd_manifest manifest = manifest_of(shard_rows, n, batch_rows);
    check(bd_row_order_init(&order, &manifest, seed, &err), &err);
    free(manifest.shards);
    return order;
}

static int64_t row_at(bd_row_order *order, int64_t g)
{
    bd_error err;
    int64_t row;
    check(bd_row_order_at(order, g, &row, &err), &err);
    return row;
}

// Shards of two sizes, more than two windows of blocks, a block of one row at the end of many
// shards, and a shard without rows.
static const int64_t UNEVEN[] = {13, 1, 0, 40, 7, 4, 21, 5, 9, 30, 17, 3, 2, 60};
enum { N_UNEVEN = sizeof UNEVEN / sizeof UNEVEN[0], UNEVEN_ROWS = 212, UNEVEN_BATCH_ROWS = 4 };

static bd_row_order uneven_order(uint64_t seed)
{
    bd_row_order order = order_of(UNEVEN, N_UNEVEN, UNEVEN_BATCH_ROWS, seed);
    assert_int_equal(order.n_rows, UNEVEN_ROWS);
    assert_true(order.n_windows > 3);
    return order;
}

// ---- Compared with another implementation -------------------------------------------------

static int64_t integer_at(const bd_json *array, size_t i)
{
    bd_error err;
    int64_t value;
    check(bd_json_as_integer(bd_json_at(array, i), 0, INT64_MAX, &value, &err), &err);
    return value;
}

// Finds shards and batch_rows that give these blocks: a smaller block ends its shard.
static bd_row_order order_of_blocks(const bd_json *blocks, uint64_t seed)
{
    int64_t shard_rows[64] = {0}, batch_rows = 0;
    size_t n_shards = 0;
    const size_t n = bd_json_length(blocks);
    for (size_t i = 0; i < n; i++)
        if (integer_at(blocks, i) > batch_rows)
            batch_rows = integer_at(blocks, i);
    for (size_t i = 0; i < n; i++) {
        assert_true(n_shards < 64);
        shard_rows[n_shards] += integer_at(blocks, i);
        n_shards += integer_at(blocks, i) < batch_rows || i + 1 == n;
    }
    bd_row_order order = order_of(shard_rows, n_shards, batch_rows, seed);
    assert_int_equal(order.n_blocks, n);
    return order;
}

static void orders_are_those_of_the_oracle(void **state)
{
    (void)state;
    bd_error err;
    bd_json *cases = read_golden("orders.json");
    assert_int_equal(bd_json_length(cases), 4);
    for (size_t c = 0; c < bd_json_length(cases); c++) {
        const bd_json *item = bd_json_at(cases, c), *blocks, *expected;
        int64_t seed, epoch;
        check(bd_json_get_integer(item, "seed", 0, INT64_MAX, &seed, &err), &err);
        check(bd_json_get_integer(item, "epoch", 0, INT64_MAX, &epoch, &err), &err);
        check(bd_json_get_array(item, "blocks", &blocks, &err), &err);
        check(bd_json_get_array(item, "order", &expected, &err), &err);
        bd_row_order order = order_of_blocks(blocks, (uint64_t)seed);
        assert_int_equal(bd_json_length(expected), order.n_rows);
        for (int64_t i = 0; i < order.n_rows; i++)
            assert_int_equal(row_at(&order, epoch * order.n_rows + i),
                             integer_at(expected, (size_t)i));
        bd_row_order_release(&order);
    }
    bd_json_free(cases);
}

// ---- Promises -----------------------------------------------------------------------------

static void every_epoch_has_each_row_exactly_once(void **state)
{
    (void)state;
    bd_row_order order = uneven_order(99);
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        bool seen[UNEVEN_ROWS] = {false};
        for (int64_t i = 0; i < UNEVEN_ROWS; i++) {
            const int64_t row = row_at(&order, epoch * UNEVEN_ROWS + i);
            assert_in_range(row, 0, UNEVEN_ROWS - 1);
            assert_false(seen[row]);
            seen[row] = true;
        }
    }
    bd_row_order_release(&order);
}

static void another_seed_or_epoch_is_another_order(void **state)
{
    (void)state;
    bd_row_order order = uneven_order(1), other = uneven_order(2);
    int64_t same_seed = 0, same_epoch = 0;
    for (int64_t i = 0; i < UNEVEN_ROWS; i++) {
        same_epoch += row_at(&order, i) == row_at(&other, i);
        same_seed += row_at(&order, i) == row_at(&order, i + UNEVEN_ROWS);
    }
    // Two random orders have one fixed point on average; blocks and windows add a few.
    assert_in_range(same_epoch, 0, 20);
    assert_in_range(same_seed, 0, 20);
    bd_row_order_release(&order);
    bd_row_order_release(&other);
}

static void any_place_can_be_asked_for_at_any_time(void **state)
{
    (void)state;
    enum { N = 3 * UNEVEN_ROWS };
    int64_t expected[N];
    bd_row_order order = uneven_order(5);
    for (int64_t g = 0; g < N; g++)
        expected[g] = row_at(&order, g);
    for (int64_t i = 0; i < N; i++)
        assert_int_equal(row_at(&order, i * 401 % N), expected[i * 401 % N]);  // all places
    bd_row_order_release(&order);
    for (int64_t g = 7; g < N; g += 97) {  // as in a resumed run: the first question
        order = uneven_order(5);
        assert_int_equal(row_at(&order, g), expected[g]);
        bd_row_order_release(&order);
    }
    order = uneven_order(5);
    row_at(&order, INT64_MAX);  // a far place is just in another epoch
    assert_int_equal(row_at(&order, 0), expected[0]);
    bd_row_order_release(&order);
}

// Few files are read at a time: the rows of a window come from at most 16 blocks.
static void a_window_reads_few_blocks(void **state)
{
    (void)state;
    bd_row_order order = uneven_order(11);
    for (int64_t w = 0; w < order.n_windows; w++) {
        row_at(&order, 0);
        bool touched[128] = {false};
        int n_touched = 0;
        const int64_t begin = order.window_begins[w], end = order.window_begins[w + 1];
        for (int64_t place = begin; place < end; place++) {
            const int64_t row = row_at(&order, place);
            int64_t block = 0;
            while (order.block_begins[block + 1] <= row)
                block++;
            n_touched += !touched[block];
            touched[block] = true;
        }
        assert_in_range(n_touched, 1, 16);
    }
    bd_row_order_release(&order);
}

static void blocks_do_not_span_shards(void **state)
{
    (void)state;
    bd_row_order order = uneven_order(3);
    int64_t row = 0;
    for (size_t s = 0; s < N_UNEVEN; s++) {
        bool begins = false;
        for (int64_t b = 0; b <= order.n_blocks; b++)
            begins = begins || order.block_begins[b] == row;
        assert_true(begins);
        row += UNEVEN[s];
    }
    for (int64_t b = 0; b < order.n_blocks; b++)
        assert_in_range(order.block_begins[b + 1] - order.block_begins[b], 1,
                        UNEVEN_BATCH_ROWS);
    bd_row_order_release(&order);
}

static void one_row_is_an_order_too(void **state)
{
    (void)state;
    const int64_t one = 1;
    bd_row_order order = order_of(&one, 1, 1000, 4);
    for (int64_t g = 0; g < 5; g++)
        assert_int_equal(row_at(&order, g), 0);
    bd_row_order_release(&order);
    bd_row_order_release(&order);
}

static void a_dataset_without_rows_is_refused(void **state)
{
    (void)state;
    const int64_t none[] = {0, 0};
    bd_error err;
    bd_row_order order;
    bd_manifest manifest = manifest_of(none, 2, 4);
    assert_int_equal(bd_row_order_init(&order, &manifest, 1, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "a dataset of 0 rows cannot be trained on");
    bd_row_order_release(&order);
    free(manifest.shards);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_those_of_the_oracle),
        cmocka_unit_test(every_epoch_has_each_row_exactly_once),
        cmocka_unit_test(another_seed_or_epoch_is_another_order),
        cmocka_unit_test(any_place_can_be_asked_for_at_any_time),
        cmocka_unit_test(a_window_reads_few_blocks),
        cmocka_unit_test(blocks_do_not_span_shards),
        cmocka_unit_test(one_row_is_an_order_too),
        cmocka_unit_test(a_dataset_without_rows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
