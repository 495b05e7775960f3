#include "packer/inspect/statistics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEQ_LEN = 300 };

// A row of documents with the given lengths, all of whose ids are `id`; the rest is padding.
static void add_row(bd_statistics *s, const int32_t *lengths, int64_t n, uint32_t id)
{
    uint16_t narrow[SEQ_LEN];
    uint32_t wide[SEQ_LEN], length[8], offset[8] = {0}, input[8] = {0};
    uint64_t position[8] = {0};
    int32_t bounds[9] = {0};
    for (int64_t t = 0; t < SEQ_LEN; t++) {
        wide[t] = id;
        narrow[t] = (uint16_t)id;
    }
    for (int64_t k = 0; k < n; k++) {
        bounds[k + 1] = bounds[k] + lengths[k];
        length[k] = (uint32_t)lengths[k];
    }
    const bool is_narrow = bd_dataset_id_bytes(&s->config) == 2;
    const bd_row row = {.ids = is_narrow ? (const void *)narrow : wide,
                        .n_bounds = n + 1,
                        .bounds = bounds,
                        .n_segments = n,
                        .segments = {input, position, offset, length}};
    bd_statistics_add_row(s, &row);
}

static void init(bd_statistics *s, int64_t vocab_size)
{
    const bd_dataset_config config = {.seq_len = SEQ_LEN, .vocab_size = vocab_size};
    assert_int_equal(bd_statistics_init(s, &config, NULL), BD_OK);
}

static void rows_are_counted_by_hand(void **state)
{
    (void)state;
    static const int64_t vocabularies[] = {257, 65536, 65537, BD_MAX_COUNTED_VOCABULARY};
    for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++) {
        bd_statistics s;
        init(&s, vocabularies[v]);
        add_row(&s, (int32_t[]){1, 64, 65, 129}, 4, 5);  // 41 of padding
        add_row(&s, (int32_t[]){300}, 1, 256);
        bd_statistics_settle(&s);
        assert_int_equal(s.figures.rows, 2);
        assert_int_equal(s.figures.documents, 5);
        assert_int_equal(s.most_segments, 4);
        assert_int_equal(s.padding[0], 1);
        assert_int_equal(s.padding[6], 1);  // from 32 to 63
        assert_int_equal(s.tiles[0], 1 + 1 + 3 + 6 + 15);
        assert_int_equal(s.tiles[1], 1 + 1 + 1 + 3 + 6);
        assert_int_equal(s.token_counts[5], 259);
        assert_int_equal(s.token_counts[256], 300);
        assert_int_equal(s.lengths[65], 1);
        assert_int_equal(s.longest_document, 300);
        bd_statistics_release(&s);
        bd_statistics_release(&s);
    }
}

static void merged_is_as_if_one_had_counted_all(void **state)
{
    (void)state;
    bd_statistics whole, parts[2];
    init(&whole, 257);
    init(&parts[0], 257);
    init(&parts[1], 257);
    for (int i = 0; i < 33; i++) {
        const int32_t lengths[] = {i + 1, 3};
        add_row(&whole, lengths, 2, (uint32_t)i);
        add_row(&parts[i % 2], lengths, 2, (uint32_t)i);
    }
    bd_statistics_merge(&parts[0], &parts[1]);
    bd_statistics_settle(&parts[0]);
    bd_statistics_settle(&whole);
    assert_memory_equal(&whole.figures, &parts[0].figures, sizeof whole.figures);
    assert_memory_equal(whole.tiles, parts[0].tiles, sizeof whole.tiles);
    assert_memory_equal(whole.padding, parts[0].padding, sizeof whole.padding);
    assert_memory_equal(whole.token_counts, parts[0].token_counts, 257 * sizeof(int64_t));
    assert_memory_equal(whole.lengths, parts[0].lengths,
                        (BD_EXACT_LENGTHS + 1) * sizeof(int64_t));
    assert_int_equal(whole.longest_document, parts[0].longest_document);
    bd_statistics_release(&whole);
    bd_statistics_release(&parts[0]);
    bd_statistics_release(&parts[1]);
}

// 100 documents of 1 … 100 tokens: each percent is itself.
static void quantiles_of_counts_are_exact(void **state)
{
    (void)state;
    bd_statistics s;
    init(&s, 257);
    for (int32_t n = 100; n >= 1; n--)
        add_row(&s, &n, 1, 0);
    const bd_quantiles q = bd_statistics_quantiles(&s);
    assert_true(q.exact && q.max_exact);
    for (int i = 0; i < BD_N_QUANTILES; i++)
        assert_int_equal(q.values[i], bd_quantile_percents[i]);
    bd_statistics_release(&s);
}

static void lengths_beyond_the_counted_are_estimated_and_say_so(void **state)
{
    (void)state;
    bd_statistics s;
    init(&s, 257);
    s.figures.documents = 2;
    s.lengths[7] = 1;
    s.longer[20] = 1;
    s.longest_document = 1500000;
    const bd_quantiles q = bd_statistics_quantiles(&s);
    assert_false(q.exact);
    assert_true(q.max_exact);
    assert_int_equal(q.values[2], 7);
    assert_in_range(q.values[3], 1 << 20, (1 << 21) - 1);
    assert_int_equal(q.values[5], 1500000);
    bd_statistics_release(&s);
}

// Estimates lie in the right power of two; the longest segment is the longest document if all
// documents are whole.
static void quantiles_of_a_histogram_lie_in_their_bins(void **state)
{
    (void)state;
    bd_figures f = {.longest_segment = 1000};
    f.document_lengths[0] = 10;
    f.document_lengths[5] = 80;
    f.document_lengths[9] = 10;
    bd_quantiles q = bd_figures_quantiles(&f);
    assert_false(q.exact);
    assert_true(q.max_exact);
    assert_int_equal(q.values[0], 1);
    assert_int_equal(q.values[1], 1);
    assert_in_range(q.values[2], 32, 63);
    assert_in_range(q.values[4], 512, 1023);
    assert_int_equal(q.values[5], 1000);
    f.longest_segment = 600;  // no document is longer, wherever it lies in its bin
    q = bd_figures_quantiles(&f);
    assert_int_equal(q.values[4], 600);
    f.split_documents = 1;
    q = bd_figures_quantiles(&f);
    assert_false(q.max_exact);
    assert_in_range(q.values[5], 512, 1023);
}

static void nothing_has_no_quantiles(void **state)
{
    (void)state;
    bd_statistics s;
    init(&s, 1);
    const bd_figures f = {0};
    const bd_quantiles counted = bd_statistics_quantiles(&s),
                       estimated = bd_figures_quantiles(&f);
    for (int i = 0; i < BD_N_QUANTILES; i++)
        assert_int_equal(counted.values[i] + estimated.values[i], 0);
    bd_statistics_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_counted_by_hand),
        cmocka_unit_test(merged_is_as_if_one_had_counted_all),
        cmocka_unit_test(quantiles_of_counts_are_exact),
        cmocka_unit_test(lengths_beyond_the_counted_are_estimated_and_say_so),
        cmocka_unit_test(quantiles_of_a_histogram_lie_in_their_bins),
        cmocka_unit_test(nothing_has_no_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
