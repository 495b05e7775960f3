#include "packer/pack/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/random.h"

enum { MAX_DOCUMENTS = 400 };

static const bd_strategy STRATEGIES[] = {BD_STRATEGY_BEST_FIT, BD_STRATEGY_FIRST_FIT,
                                         BD_STRATEGY_CONCAT};
enum { N_STRATEGIES = sizeof STRATEGIES / sizeof *STRATEGIES };
static const bd_long_policy POLICIES[] = {BD_LONG_SPLIT, BD_LONG_TRUNCATE, BD_LONG_DROP};

static bd_dataset_config config_of(int64_t seq_len, bd_strategy strategy, bd_long_policy policy)
{
    return (bd_dataset_config){.seq_len = seq_len, .strategy = strategy, .long_policy = policy};
}

// How many tokens of a document are to be in rows.
static int64_t kept(int64_t length, const bd_dataset_config *config)
{
    if (length <= config->seq_len || config->long_policy == BD_LONG_SPLIT)
        return length;
    return config->long_policy == BD_LONG_TRUNCATE ? config->seq_len : 0;
}

static bool earlier(const bd_piece *a, const bd_piece *b)
{
    return a->document < b->document || (a->document == b->document && a->offset < b->offset);
}

// Rows: none is empty, too long or of too many pieces; pieces are in input order, at most one
// of each document; rows are ordered by their earliest piece. Returns the tokens used.
static int64_t check_rows(const bd_layout *layout, const uint32_t *lengths,
                          const bd_dataset_config *config)
{
    int64_t total = 0;
    assert_int_equal(layout->row_begins[0], 0);
    assert_int_equal(layout->row_begins[layout->n_rows], layout->n_pieces);
    for (int64_t row = 0; row < layout->n_rows; row++) {
        const int64_t begin = layout->row_begins[row], end = layout->row_begins[row + 1];
        int64_t used = 0;
        assert_true(begin < end);
        for (int64_t p = begin; p < end; p++) {
            const bd_piece *piece = &layout->pieces[p];
            const bool whole = piece->length == 1 && lengths[piece->document] == 1;
            assert_true(piece->length >= 2 || whole);
            assert_true(p == begin || layout->pieces[p - 1].document < piece->document);
            used += piece->length;
        }
        assert_true(used <= config->seq_len);
        assert_true(config->max_documents == 0 || end - begin <= config->max_documents);
        total += used;
        if (row > 0)
            assert_true(
                earlier(&layout->pieces[layout->row_begins[row - 1]], &layout->pieces[begin]));
    }
    return total;
}

static int in_input_order(const void *left, const void *right)
{
    return earlier(left, right) ? -1 : earlier(right, left);
}

// How much of each document its pieces cover, and their number.
typedef struct cover {
    int64_t covered, n_pieces;
} cover;

// Documents: each piece but the first begins with the last token of the one before it.
static void check_pieces(const bd_layout *layout, cover *documents)
{
    bd_piece *pieces = malloc((size_t)(layout->n_pieces + 1) * sizeof *pieces);
    assert_non_null(pieces);
    for (int64_t p = 0; p < layout->n_pieces; p++)
        pieces[p] = layout->pieces[p];
    qsort(pieces, (size_t)layout->n_pieces, sizeof *pieces, in_input_order);
    for (int64_t p = 0; p < layout->n_pieces; p++) {
        cover *document = &documents[pieces[p].document];
        assert_int_equal(pieces[p].offset, document->n_pieces == 0 ? 0 : document->covered - 1);
        document->covered = pieces[p].offset + (int64_t)pieces[p].length;
        document->n_pieces++;
    }
    free(pieces);
}

static int64_t used_in(const bd_layout *layout, int64_t row)
{
    int64_t used = 0;
    for (int64_t p = layout->row_begins[row]; p < layout->row_begins[row + 1]; p++)
        used += layout->pieces[p].length;
    return used;
}

// Of the rows that could take another piece, concat leaves a token free only where a piece of
// one token would have lain, and the others no two that would have fitted into one.
static void check_fullness(const bd_layout *layout, const bd_dataset_config *config)
{
    int64_t least = config->seq_len;
    for (int64_t row = 0; row < layout->n_rows; row++) {
        const int64_t used = used_in(layout, row), padding = config->seq_len - used;
        const int64_t n_pieces = layout->row_begins[row + 1] - layout->row_begins[row];
        if (n_pieces == config->max_documents)
            continue;
        if (config->strategy != BD_STRATEGY_CONCAT) {
            assert_true(used + least > config->seq_len);
            least = used < least ? used : least;
        } else if (row < layout->n_rows - 1 && padding > 0) {
            const bd_piece *next = &layout->pieces[layout->row_begins[row + 1]];
            assert_int_equal(padding, 1);
            assert_true(next->offset == 0 && next->length > 1);
        }
    }
}

// Lays out and checks every promise of the header.
static void check_layout(const uint32_t *lengths, size_t n, const bd_dataset_config *config)
{
    bd_layout layout;
    cover documents[MAX_DOCUMENTS] = {0};
    assert_int_equal(bd_layout_make(&layout, lengths, n, config, NULL), BD_OK);
    const int64_t total = check_rows(&layout, lengths, config);
    check_pieces(&layout, documents);
    check_fullness(&layout, config);

    bd_layout sums = {0};
    int64_t n_in = 0, n_repeated = 0;
    for (size_t d = 0; d < n; d++) {
        const int64_t expected = kept(lengths[d], config), missing = lengths[d] - expected;
        assert_int_equal(documents[d].covered, expected);
        assert_int_equal(documents[d].n_pieces > 0, expected > 0);
        n_in += lengths[d];
        n_repeated += documents[d].n_pieces > 0 ? documents[d].n_pieces - 1 : 0;
        sums.split_documents += documents[d].n_pieces > 1;
        if (expected == 0) {
            sums.dropped += missing;
            sums.dropped_documents++;
        } else if (missing > 0) {
            sums.truncated += missing;
            sums.truncated_documents++;
        }
    }
    assert_int_equal(layout.truncated, sums.truncated);
    assert_int_equal(layout.truncated_documents, sums.truncated_documents);
    assert_int_equal(layout.dropped, sums.dropped);
    assert_int_equal(layout.dropped_documents, sums.dropped_documents);
    assert_int_equal(layout.split_documents, sums.split_documents);
    assert_int_equal(n_in + n_repeated, total + layout.truncated + layout.dropped);
    bd_layout_release(&layout);
    bd_layout_release(&layout);
}

static void check_every_way(const uint32_t *lengths, size_t n, int64_t seq_len)
{
    static const int64_t LIMITS[] = {0, 1, 2, BD_MAX_SEQ_LEN};
    for (size_t s = 0; s < N_STRATEGIES; s++) {
        for (size_t p = 0; p < 3; p++) {
            for (size_t k = 0; k < sizeof LIMITS / sizeof *LIMITS; k++) {
                bd_dataset_config config = config_of(seq_len, STRATEGIES[s], POLICIES[p]);
                config.max_documents = LIMITS[k];
                check_layout(lengths, n, &config);
            }
        }
    }
}

static void assert_row(const bd_layout *layout, int64_t row, const bd_piece *pieces, int64_t n)
{
    const int64_t begin = layout->row_begins[row];
    assert_int_equal(layout->row_begins[row + 1] - begin, n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(layout->pieces[begin + i].document, pieces[i].document);
        assert_int_equal(layout->pieces[begin + i].offset, pieces[i].offset);
        assert_int_equal(layout->pieces[begin + i].length, pieces[i].length);
    }
}

static void example_of_the_header(void **state)
{
    (void)state;
    const uint32_t lengths[] = {5, 12, 2};
    bd_dataset_config config = config_of(8, BD_STRATEGY_BEST_FIT, BD_LONG_SPLIT);
    bd_layout layout;
    assert_int_equal(bd_layout_make(&layout, lengths, 3, &config, NULL), BD_OK);
    assert_int_equal(layout.n_rows, 3);
    assert_row(&layout, 0, (bd_piece[]){{0, 0, 5}, {2, 0, 2}}, 2);
    assert_row(&layout, 1, (bd_piece[]){{1, 0, 8}}, 1);
    assert_row(&layout, 2, (bd_piece[]){{1, 7, 5}}, 1);
    bd_layout_release(&layout);

    config.strategy = BD_STRATEGY_CONCAT;
    assert_int_equal(bd_layout_make(&layout, lengths, 3, &config, NULL), BD_OK);
    assert_int_equal(layout.n_rows, 3);
    assert_row(&layout, 0, (bd_piece[]){{0, 0, 5}, {1, 0, 3}}, 2);
    assert_row(&layout, 1, (bd_piece[]){{1, 2, 8}}, 1);
    assert_row(&layout, 2, (bd_piece[]){{1, 9, 3}, {2, 0, 2}}, 2);
    bd_layout_release(&layout);
}

static void first_fit_and_best_fit_choose_as_their_names_say(void **state)
{
    (void)state;
    const uint32_t lengths[] = {5, 4, 1, 7};
    bd_dataset_config config = config_of(10, BD_STRATEGY_BEST_FIT, BD_LONG_SPLIT);
    bd_layout layout;
    assert_int_equal(bd_layout_make(&layout, lengths, 4, &config, NULL), BD_OK);
    assert_int_equal(layout.n_rows, 2);
    assert_row(&layout, 0, (bd_piece[]){{0, 0, 5}, {1, 0, 4}, {2, 0, 1}}, 3);
    assert_row(&layout, 1, (bd_piece[]){{3, 0, 7}}, 1);
    bd_layout_release(&layout);

    config.strategy = BD_STRATEGY_FIRST_FIT;
    assert_int_equal(bd_layout_make(&layout, lengths, 4, &config, NULL), BD_OK);
    assert_int_equal(layout.n_rows, 2);
    assert_row(&layout, 0, (bd_piece[]){{0, 0, 5}, {1, 0, 4}}, 2);
    assert_row(&layout, 1, (bd_piece[]){{2, 0, 1}, {3, 0, 7}}, 2);
    bd_layout_release(&layout);
}

static void a_row_with_the_most_documents_is_closed(void **state)
{
    (void)state;
    bd_dataset_config config = config_of(8, BD_STRATEGY_CONCAT, BD_LONG_SPLIT);
    config.max_documents = 2;
    bd_layout layout;
    assert_int_equal(bd_layout_make(&layout, (uint32_t[]){1, 2, 5, 5, 9}, 5, &config, NULL),
                     BD_OK);
    assert_int_equal(layout.n_rows, 4);
    assert_row(&layout, 0, (bd_piece[]){{0, 0, 1}, {1, 0, 2}}, 2);
    assert_row(&layout, 1, (bd_piece[]){{2, 0, 5}, {3, 0, 3}}, 2);
    assert_row(&layout, 2, (bd_piece[]){{3, 2, 3}, {4, 0, 5}}, 2);
    assert_row(&layout, 3, (bd_piece[]){{4, 4, 5}}, 1);
    bd_layout_release(&layout);

    for (size_t s = 0; s < N_STRATEGIES; s++) {  // a limit of 1: a row for every piece
        config.strategy = STRATEGIES[s];
        config.max_documents = 1;
        assert_int_equal(bd_layout_make(&layout, (uint32_t[]){1, 9, 2}, 3, &config, NULL),
                         BD_OK);
        assert_int_equal(layout.n_rows, 4);
        assert_row(&layout, 0, (bd_piece[]){{0, 0, 1}}, 1);
        assert_row(&layout, 1, (bd_piece[]){{1, 0, 8}}, 1);
        assert_row(&layout, 2, (bd_piece[]){{1, 7, 2}}, 1);
        assert_row(&layout, 3, (bd_piece[]){{2, 0, 2}}, 1);
        bd_layout_release(&layout);
    }
}

static void a_lone_token_at_a_rows_end_is_padding_in_concat(void **state)
{
    (void)state;
    const bd_dataset_config config = config_of(4, BD_STRATEGY_CONCAT, BD_LONG_SPLIT);
    bd_layout layout;
    assert_int_equal(bd_layout_make(&layout, (uint32_t[]){3, 2, 3, 1}, 4, &config, NULL),
                     BD_OK);
    assert_int_equal(layout.n_rows, 3);
    assert_row(&layout, 0, (bd_piece[]){{0, 0, 3}}, 1);
    assert_row(&layout, 1, (bd_piece[]){{1, 0, 2}, {2, 0, 2}}, 2);
    assert_row(&layout, 2, (bd_piece[]){{2, 1, 2}, {3, 0, 1}}, 2);
    bd_layout_release(&layout);
    // A document of one token has no room to lose.
    assert_int_equal(bd_layout_make(&layout, (uint32_t[]){3, 1}, 2, &config, NULL), BD_OK);
    assert_int_equal(layout.n_rows, 1);
    bd_layout_release(&layout);
}

// All lists of up to 4 documents of 1 to 7 tokens.
static void every_small_layout_keeps_every_promise(void **state)
{
    (void)state;
    int n_lists = 1;
    for (size_t n = 0; n <= 4; n++, n_lists *= 7) {
        for (int number = 0; number < n_lists; number++) {
            uint32_t lengths[4];
            int left = number;
            for (size_t d = 0; d < n; d++, left /= 7)
                lengths[d] = (uint32_t)(left % 7 + 1);
            for (int64_t seq_len = 2; seq_len <= 5; seq_len++)
                check_every_way(lengths, n, seq_len);
        }
    }
}

static void large_layouts_keep_every_promise(void **state)
{
    (void)state;
    static const int64_t SEQ_LENS[] = {2, 3, 17, 64, 1000, 2048};
    uint64_t random = 20240611;
    print_message("seed %llu\n", (unsigned long long)random);
    for (size_t s = 0; s < sizeof SEQ_LENS / sizeof *SEQ_LENS; s++) {
        for (int trial = 0; trial < 40; trial++) {
            uint32_t lengths[MAX_DOCUMENTS];
            const size_t n = (size_t)random_between(&random, 0, MAX_DOCUMENTS);
            const int32_t high = (int32_t)SEQ_LENS[s] * random_between(&random, 1, 5);
            for (size_t d = 0; d < n; d++)
                lengths[d] = (uint32_t)random_between(
                    &random, 1, random_between(&random, 0, 3) ? (int32_t)SEQ_LENS[s] : high);
            check_every_way(lengths, n, SEQ_LENS[s]);
        }
    }
}

static void the_longest_document_and_the_longest_row_fit(void **state)
{
    (void)state;
    check_every_way((uint32_t[]){UINT32_MAX, 1, UINT32_MAX}, 3, BD_MAX_SEQ_LEN);
    check_every_way((uint32_t[]){BD_MAX_SEQ_LEN, BD_MAX_SEQ_LEN + 1u, 2}, 3, BD_MAX_SEQ_LEN);
    check_every_way((uint32_t[]){100000, 1, 7}, 3, 2);  // the most pieces that it can have
}

static void assert_refused(const uint32_t *lengths, size_t n, const bd_dataset_config *config,
                           bd_status status, const char *message)
{
    bd_layout layout;
    bd_error err = {0};
    assert_int_equal(bd_layout_make(&layout, lengths, n, config, &err), status);
    assert_string_equal(err.message, message);
    assert_null(layout.pieces);
    assert_null(layout.row_begins);
}

static void a_long_document_is_an_error_if_asked_for(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_STRATEGIES; s++) {
        const bd_dataset_config config = config_of(8, STRATEGIES[s], BD_LONG_ERROR);
        check_layout((uint32_t[]){8, 1, 8, 7}, 4, &config);
        assert_refused((uint32_t[]){8, 1, 9, 7}, 4, &config, BD_ERR_ARGUMENT,
                       "a document of 9 tokens is longer than a row");
    }
}

// A piece's document has 32 bits: more documents must not be mistaken for others.
static void too_many_documents_are_refused(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_STRATEGIES; s++) {
        const bd_dataset_config config = config_of(8, STRATEGIES[s], BD_LONG_SPLIT);
        assert_refused((uint32_t[]){1}, (size_t)INT32_MAX + 1, &config, BD_ERR_UNSUPPORTED,
                       "2147483648 documents are too many for one unit");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_of_the_header),
        cmocka_unit_test(first_fit_and_best_fit_choose_as_their_names_say),
        cmocka_unit_test(a_row_with_the_most_documents_is_closed),
        cmocka_unit_test(a_lone_token_at_a_rows_end_is_padding_in_concat),
        cmocka_unit_test(every_small_layout_keeps_every_promise),
        cmocka_unit_test(large_layouts_keep_every_promise),
        cmocka_unit_test(the_longest_document_and_the_longest_row_fit),
        cmocka_unit_test(a_long_document_is_an_error_if_asked_for),
        cmocka_unit_test(too_many_documents_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
