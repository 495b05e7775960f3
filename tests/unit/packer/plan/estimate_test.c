#include "packer/plan/estimate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/threads.h"

static const bd_dataset_config PACKING = {.vocab_size = 257, .long_policy = BD_LONG_SPLIT};

static void add_all(bd_estimates *estimates, const uint32_t *items, size_t n)
{
    const bd_lengths lengths = {.items = (uint32_t *)items, .n = n};
    for (size_t i = 0; i < estimates->n; i++)
        assert_int_equal(bd_estimates_add(estimates, i, &lengths, NULL), BD_OK);
}

static void every_length_meets_every_strategy(void **state)
{
    static const int64_t seq_lens[] = {31, 33};
    bd_estimates estimates;
    (void)state;
    bd_estimates_init(&estimates, &PACKING, seq_lens, 2);
    assert_int_equal(estimates.n, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(estimates.items[i].config.seq_len, seq_lens[i / 3]);
        assert_int_equal(estimates.items[i].config.strategy, i % 3);
        assert_true(estimates.items[i].config.batch_rows >= 1);
    }
}

//   best fit   A A A A A A D D .    seq_len 8: B is split into 8 and 5 tokens, of which one is
//   concat     A A A A A A B B      repeated
static void figures_are_those_of_the_rows(void **state)
{
    static const int64_t seq_len = 8;
    static const uint32_t lengths[] = {6, 12, 2};
    bd_estimates estimates;
    (void)state;
    bd_estimates_init(&estimates, &PACKING, &seq_len, 1);
    add_all(&estimates, lengths, 3);
    const bd_estimate *best = &estimates.items[BD_STRATEGY_BEST_FIT];
    assert_int_equal(best->figures.rows, 3);
    assert_int_equal(best->figures.segments, 4);
    assert_int_equal(best->figures.documents, 3);
    assert_int_equal(best->figures.packed, 21);
    assert_int_equal(best->figures.padding, 3);
    assert_int_equal(best->figures.split_documents, 1);
    assert_int_equal(best->figures.attention_pairs, 21 + 36 + 15 + 3);
    assert_int_equal(best->n_cut, 1);
    assert_true(bd_estimate_causal_pairs(best) == 3 * 36.0);
    const bd_estimate *concat = &estimates.items[BD_STRATEGY_CONCAT];
    assert_int_equal(concat->figures.rows, 3);
    assert_int_equal(concat->figures.padding, 24 - 20 - concat->figures.repeated);
}

static void a_document_that_is_truncated_and_split_is_cut_once(void **state)
{
    static const int64_t seq_len = 8;
    static const uint32_t lengths[] = {4, 9};
    bd_estimates estimates;
    bd_dataset_config config = PACKING;
    (void)state;
    config.long_policy = BD_LONG_TRUNCATE;
    bd_estimates_init(&estimates, &config, &seq_len, 1);
    add_all(&estimates, lengths, 2);
    const bd_estimate *concat = &estimates.items[BD_STRATEGY_CONCAT];
    assert_int_equal(concat->figures.truncated_documents, 1);
    assert_int_equal(concat->figures.split_documents, 1);
    assert_int_equal(concat->n_cut, 1);
    config.long_policy = BD_LONG_DROP;
    bd_estimates_init(&estimates, &config, &seq_len, 1);
    add_all(&estimates, lengths, 2);
    assert_int_equal(estimates.items[0].n_cut, 1);
    assert_true(bd_estimate_cut_share(&estimates.items[0]) == 0.5);
}

static void units_do_not_share_rows(void **state)
{
    static const int64_t seq_len = 33;
    static const uint32_t lengths[] = {1, 31, 33};
    bd_estimates estimates;
    (void)state;
    bd_estimates_init(&estimates, &PACKING, &seq_len, 1);
    for (int i = 0; i < 3; i++)
        add_all(&estimates, &lengths[i], 1);
    add_all(&estimates, NULL, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(estimates.items[i].figures.rows, 3);
        assert_int_equal(estimates.items[i].figures.padding, 32 + 2);
    }
}

static bd_status add_one(void *context, int64_t index, bd_error *err)
{
    bd_estimates *estimates = context;
    uint32_t items[] = {1 + (uint32_t)(index % 40), 7};
    const bd_lengths lengths = {.items = items, .n = 2};
    return bd_estimates_add(estimates, (size_t)index % estimates->n, &lengths, err);
}

static void threads_add_up_to_the_same(void **state)
{
    static const int64_t seq_lens[] = {2, 16};
    bd_estimates alone, together;
    bd_threads *threads;
    (void)state;
    bd_estimates_init(&alone, &PACKING, seq_lens, 2);
    bd_estimates_init(&together, &PACKING, seq_lens, 2);
    for (int64_t i = 0; i < 600; i++)
        assert_int_equal(add_one(&alone, i, NULL), BD_OK);
    assert_int_equal(bd_threads_new(&threads, 4, NULL), BD_OK);
    assert_int_equal(bd_threads_run(threads, add_one, &together, 600, NULL), BD_OK);
    bd_threads_free(threads);
    for (size_t i = 0; i < alone.n; i++) {
        assert_memory_equal(&alone.items[i].figures, &together.items[i].figures,
                            sizeof alone.items[i].figures);
        assert_int_equal(alone.items[i].n_cut, together.items[i].n_cut);
    }
}

static void long_error_counts_as_split(void **state)
{
    static const int64_t seq_len = 4;
    static const uint32_t length = 9;
    bd_estimates estimates;
    bd_dataset_config config = PACKING;
    (void)state;
    config.long_policy = BD_LONG_ERROR;
    bd_estimates_init(&estimates, &config, &seq_len, 1);
    add_all(&estimates, &length, 1);
    assert_int_equal(estimates.items[0].figures.split_documents, 1);
}

static void check_seq_lens(const int64_t *histogram, int64_t first)
{
    int64_t seq_lens[BD_DEFAULT_SEQ_LENS];
    bd_default_seq_lens(histogram, seq_lens);
    for (int i = 0; i < BD_DEFAULT_SEQ_LENS; i++)
        assert_int_equal(seq_lens[i], first << i);
}

static void default_lengths_lie_around_nine_of_ten_documents(void **state)
{
    int64_t histogram[BD_HISTOGRAM_BINS] = {0};
    (void)state;
    check_seq_lens(histogram, 64);  // the length is unknown
    histogram[10] = 90;             // 1024 to 2047 tokens
    histogram[20] = 10;
    check_seq_lens(histogram, 512);
    histogram[20] = 11;
    check_seq_lens(histogram, 1 << 18);
    histogram[0] = 10000;
    check_seq_lens(histogram, 64);
    histogram[BD_HISTOGRAM_BINS - 1] = 1 << 30;
    check_seq_lens(histogram, 1 << 18);
}

static void disk_is_rows_segments_and_little_else(void **state)
{
    const bd_dataset_config config = {.seq_len = 2048, .vocab_size = 257, .batch_rows = 1024};
    const bd_figures figures = {.rows = 10000, .segments = 30000};
    (void)state;
    const int64_t columns = 10000 * (2048 * 2 + 8 + 4 + 4 + 4) + 30000 * 24;
    const int64_t n = bd_estimate_disk_bytes(&config, &figures, 3);
    assert_true(n > columns && n < columns + columns / 1000);
    const bd_figures endless = {.rows = INT64_MAX, .segments = INT64_MAX};
    assert_int_equal(bd_estimate_disk_bytes(&config, &endless, 1), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_meets_every_strategy),
        cmocka_unit_test(figures_are_those_of_the_rows),
        cmocka_unit_test(a_document_that_is_truncated_and_split_is_cut_once),
        cmocka_unit_test(units_do_not_share_rows),
        cmocka_unit_test(threads_add_up_to_the_same),
        cmocka_unit_test(long_error_counts_as_split),
        cmocka_unit_test(default_lengths_lie_around_nine_of_ten_documents),
        cmocka_unit_test(disk_is_rows_segments_and_little_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
