#include "common/dataset/segment_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/random.h"

enum { MAX_SEGMENTS = 3000 };

static int compare(const void *left, const void *right)
{
    const bd_indexed_segment *a = left, *b = right;
    if (a->input != b->input)
        return a->input < b->input ? -1 : 1;
    if (a->position != b->position)
        return a->position < b->position ? -1 : 1;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

// Makes places that differ in the bits of `input_mask` and `position_mask`, and all in their
// offsets.
static void make_segments(bd_segment_index *segments, size_t n, uint32_t input_mask,
                          uint64_t position_mask, uint64_t *random)
{
    *segments = (bd_segment_index){calloc(n + 1, sizeof *segments->items), n};
    assert_non_null(segments->items);
    for (size_t i = 0; i < n; i++)
        segments->items[i] = (bd_indexed_segment){
            .position = ~position_mask ^ (next_random(random) & position_mask),
            .input = ~input_mask ^ ((uint32_t)next_random(random) & input_mask),
            .offset = (uint32_t)next_random(random),
            .row = (uint32_t)i,
        };
}

static void sorted_as_qsort_would(void **state)
{
    (void)state;
    static const size_t COUNTS[] = {0, 1, 2, 31, 33, 257, MAX_SEGMENTS};
    static const uint64_t POSITIONS[] = {
        0, 1, 0xFF, 0x1FF, 0x3FFFFFF, UINT64_MAX, 0xFF00000000000000};
    static const uint32_t INPUTS[] = {0, 3, 0xFFFF, UINT32_MAX, 0x80000000};
    uint64_t random = 20240613;
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++)
        for (size_t p = 0; p < sizeof POSITIONS / sizeof *POSITIONS; p++)
            for (size_t i = 0; i < sizeof INPUTS / sizeof *INPUTS; i++) {
                bd_segment_index segments;
                make_segments(&segments, COUNTS[c], INPUTS[i], POSITIONS[p], &random);
                const size_t n_bytes = segments.n * sizeof *segments.items;
                bd_indexed_segment *expected = malloc(n_bytes + 1);
                assert_non_null(expected);
                memcpy(expected, segments.items, n_bytes);
                qsort(expected, segments.n, sizeof *expected, compare);
                assert_int_equal(bd_segment_index_sort(&segments, NULL), BD_OK);
                assert_int_equal(segments.n, COUNTS[c]);
                for (size_t k = 0; k < segments.n; k++)
                    assert_int_equal(compare(&segments.items[k], &expected[k]), 0);
                free(expected);
                bd_segment_index_release(&segments);
                bd_segment_index_release(&segments);
            }
}

// The pieces of one document are found together, wherever they were.
static void pieces_come_together_in_order(void **state)
{
    (void)state;
    bd_indexed_segment items[] = {
        {.position = 7, .offset = 0, .row = 0}, {.position = 9, .offset = 15, .row = 0},
        {.position = 8, .offset = 0, .row = 1}, {.position = 9, .offset = 0, .row = 2},
        {.position = 9, .offset = 7, .row = 3}, {.position = 7, .input = 1, .row = 4},
    };
    static const uint32_t ROWS[] = {0, 1, 2, 3, 0, 4};
    bd_segment_index segments = {malloc(sizeof items), sizeof items / sizeof *items};
    assert_non_null(segments.items);
    memcpy(segments.items, items, sizeof items);
    assert_int_equal(bd_segment_index_sort(&segments, NULL), BD_OK);
    for (size_t i = 0; i < segments.n; i++)
        assert_int_equal(segments.items[i].row, ROWS[i]);
    assert_int_equal(bd_segment_index_document_end(&segments, 0), 1);
    assert_int_equal(bd_segment_index_document_end(&segments, 2), 5);
    assert_int_equal(bd_segment_index_document_end(&segments, 5), 6);
    bd_segment_index_release(&segments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorted_as_qsort_would),
        cmocka_unit_test(pieces_come_together_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
