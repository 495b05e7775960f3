#include "common/dataset/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_INPUTS = 8 };

// Makes inputs that have only what planning needs.
typedef struct corpus {
    bd_input_entry items[MAX_INPUTS];
    size_t n;
} corpus;

static bd_input_entry *add_entry(corpus *c, bd_input_entry entry)
{
    if (!entry.source)
        entry.source = "default";
    c->items[c->n] = entry;
    return &c->items[c->n++];
}

// An input that is cut at multiples of `stride`; its weight is its size.
static bd_input_entry *add(corpus *c, int64_t size, int64_t stride)
{
    return add_entry(c, (bd_input_entry){.weight = size, .extent = size, .stride = stride});
}

// An input that is one document and cannot be cut.
static bd_input_entry *add_whole(corpus *c, int64_t size)
{
    static int64_t starts[] = {0};
    return add_entry(
        c, (bd_input_entry){.weight = size, .extent = size, .starts = starts, .n_starts = 1});
}

static bd_input_entry *add_stream(corpus *c)
{
    return add_entry(
        c, (bd_input_entry){.weight = BD_UNKNOWN, .extent = BD_UNKNOWN, .stride = 100});
}

static void assert_unit(const bd_units *units, size_t i, bd_unit expected)
{
    assert_true(i < units->n);
    assert_int_equal(units->items[i].unit.input, expected.input);
    assert_int_equal(units->items[i].unit.slice, expected.slice);
    assert_int_equal(units->items[i].unit.n_inputs, expected.n_inputs);
    assert_int_equal(units->items[i].unit.last, expected.last);
    assert_false(units->items[i].is_stream);
}

static void assert_stream(const bd_units *units, size_t i, int64_t input)
{
    assert_true(i < units->n);
    assert_int_equal(units->items[i].unit.input, input);
    assert_int_equal(units->items[i].unit.slice, 0);
    assert_int_equal(units->items[i].unit.n_inputs, 1);
    assert_true(units->items[i].is_stream);
}

static bd_units plan(const corpus *c, int64_t unit_bytes)
{
    bd_units units = {0};
    for (size_t i = 0; i < c->n; i++)
        assert_int_equal(bd_units_add(&units, &c->items[i], unit_bytes, NULL), BD_OK);
    assert_int_equal(units.n_inputs, c->n);
    return units;
}

static void example_of_the_header(void **state)
{
    (void)state;
    corpus c = {0};
    add(&c, 250, 100);
    add(&c, 30, 100);
    add(&c, 20, 100);
    add(&c, 40, 100);
    add(&c, 10, 100);
    add_stream(&c);
    add(&c, 1, 100);
    bd_units units = plan(&c, 100);
    assert_int_equal(units.n, 6);
    assert_unit(&units, 0, (bd_unit){0, 0, 1, false});
    assert_unit(&units, 1, (bd_unit){0, 1, 1, false});
    assert_unit(&units, 2, (bd_unit){0, 2, 1, true});
    assert_unit(&units, 3, (bd_unit){1, 0, 4, true});  // exactly 100 bytes
    assert_stream(&units, 4, 5);
    assert_unit(&units, 5, (bd_unit){6, 0, 1, true});
    bd_units_release(&units);
    bd_units_release(&units);
}

static void a_group_is_full_when_one_byte_more_would_be_too_much(void **state)
{
    (void)state;
    corpus c = {0};
    add(&c, 60, 100);
    add(&c, 40, 100);
    add(&c, 0, 100);  // has no weight
    add(&c, 1, 100);
    add(&c, 100, 100);
    bd_units units = plan(&c, 100);
    assert_int_equal(units.n, 3);
    assert_unit(&units, 0, (bd_unit){0, 0, 3, true});
    assert_unit(&units, 1, (bd_unit){3, 0, 1, true});
    assert_unit(&units, 2, (bd_unit){4, 0, 1, true});
    bd_units_release(&units);
}

static void cuts_lie_at_multiples_of_the_stride(void **state)
{
    (void)state;
    static const struct {
        int64_t size;
        size_t n_units;
        int64_t last_begin, last_end;
    } CASES[] = {
        {0, 1, 0, 0},       {1, 1, 0, 1},       {100, 1, 0, 100},    {101, 2, 100, 101},
        {200, 2, 100, 200}, {201, 3, 200, 201}, {999, 10, 900, 999}, {1000, 10, 900, 1000},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        corpus c = {0};
        add(&c, CASES[i].size, 100);
        bd_units units = plan(&c, 100);
        assert_int_equal(units.n, CASES[i].n_units);
        const bd_unit *last = &units.items[units.n - 1].unit;
        assert_true(last->last);
        const bd_slice slice = bd_input_entry_slice(&c.items[0], last->slice);
        assert_int_equal(slice.begin, CASES[i].last_begin);
        assert_int_equal(slice.end, CASES[i].last_end);
        bd_units_release(&units);
    }
}

// A table: 10 rows that weigh 25 bytes each, cut where its row groups allow it.
static void cuts_lie_at_the_starts_that_an_input_has(void **state)
{
    (void)state;
    int64_t starts[] = {0, 4, 9};
    corpus c = {0};
    add(&c, 90, 100);
    add_entry(&c,
              (bd_input_entry){.weight = 250, .extent = 10, .starts = starts, .n_starts = 3});
    add(&c, 5, 100);
    bd_units units = plan(&c, 100);
    assert_int_equal(units.n, 5);
    assert_unit(&units, 0, (bd_unit){0, 0, 1, true});
    assert_unit(&units, 1, (bd_unit){1, 0, 1, false});
    assert_unit(&units, 2, (bd_unit){1, 1, 1, false});
    assert_unit(&units, 3, (bd_unit){1, 2, 1, true});
    assert_unit(&units, 4, (bd_unit){2, 0, 1, true});  // nothing shares a unit with a slice
    static const bd_slice SLICES[] = {{0, 4}, {4, 9}, {9, 10}};
    for (int64_t k = 0; k < 3; k++) {
        const bd_slice slice = bd_input_entry_slice(&c.items[1], k);
        assert_int_equal(slice.begin, SLICES[k].begin);
        assert_int_equal(slice.end, SLICES[k].end);
    }
    bd_units_release(&units);
}

// The weight of an input decides about groups, not its number of positions.
static void groups_go_by_weight(void **state)
{
    (void)state;
    int64_t starts[] = {0};
    corpus c = {0};
    for (int i = 0; i < 3; i++)
        add_entry(&c, (bd_input_entry){
                          .weight = 40, .extent = 100000, .starts = starts, .n_starts = 1});
    bd_units units = plan(&c, 100);
    assert_int_equal(units.n, 2);
    assert_unit(&units, 0, (bd_unit){0, 0, 2, true});
    assert_unit(&units, 1, (bd_unit){2, 0, 1, true});
    bd_units_release(&units);
}

static void a_whole_text_is_one_unit_of_any_size(void **state)
{
    (void)state;
    corpus c = {0};
    add_whole(&c, 3);
    add_whole(&c, 1000);
    add_whole(&c, 0);
    bd_units units = plan(&c, 100);
    assert_int_equal(units.n, 3);
    assert_unit(&units, 0, (bd_unit){0, 0, 1, true});
    assert_unit(&units, 1, (bd_unit){1, 0, 1, true});
    assert_unit(&units, 2, (bd_unit){2, 0, 1, true});  // nothing joins a unit that is too large
    const bd_slice slice = bd_input_entry_slice(&c.items[1], 0);
    assert_int_equal(slice.begin, 0);
    assert_int_equal(slice.end, 1000);
    bd_units_release(&units);
}

static void units_never_span_sources(void **state)
{
    (void)state;
    static char *const SOURCES[] = {"web", "web", "books", "web", "web"};
    corpus c = {0};
    for (size_t i = 0; i < 5; i++) {
        char source[8];  // equal texts, not equal pointers
        strcpy(source, SOURCES[i]);
        add(&c, 1, 100)->source = strdup(source);
    }
    bd_units units = plan(&c, 100);
    assert_int_equal(units.n, 3);
    assert_unit(&units, 0, (bd_unit){0, 0, 2, true});
    assert_unit(&units, 1, (bd_unit){2, 0, 1, true});
    assert_unit(&units, 2, (bd_unit){3, 0, 2, true});
    bd_units_release(&units);
    for (size_t i = 0; i < 5; i++)
        free(c.items[i].source);
}

static void nothing_joins_a_stream_and_a_stream_joins_nothing(void **state)
{
    (void)state;
    corpus c = {0};
    add(&c, 1, 100);
    add_stream(&c);
    add_stream(&c);
    add(&c, 1, 100);
    add(&c, 1, 100);
    bd_units units = plan(&c, 100);
    assert_int_equal(units.n, 4);
    assert_unit(&units, 0, (bd_unit){0, 0, 1, true});
    assert_stream(&units, 1, 1);
    assert_stream(&units, 2, 2);
    assert_unit(&units, 3, (bd_unit){3, 0, 2, true});
    bd_units_release(&units);
    // Its slices lie at multiples of the stride, without a last one.
    for (int64_t k = 0; k < 1000; k += 333) {
        const bd_slice slice = bd_input_entry_slice(&c.items[1], k);
        assert_int_equal(slice.begin, 100 * k);
        assert_int_equal(slice.end, 100 * (k + 1));
    }
}

// Checks every promise about one plan: units are in order, every input is in one, every byte of
// it in exactly one slice, and groups are as full as they can be.
static void check_plan(const corpus *c, int64_t unit_bytes)
{
    bd_units units = plan(c, unit_bytes);
    int64_t input = 0, slice = 0, byte = 0;  // the expected next place
    int64_t group_bytes = -1;                // the unit before; -1: nothing may join it
    for (size_t u = 0; u < units.n; u++) {
        const bd_unit *unit = &units.items[u].unit;
        assert_int_equal(unit->input, input);
        assert_int_equal(unit->slice, slice);
        assert_in_range(unit->n_inputs, 1, (int64_t)c->n - input);
        int64_t unit_total = 0;
        for (int64_t i = input; i < unit->input + unit->n_inputs; i++) {
            const bd_slice s = bd_input_entry_slice(&c->items[i], unit->slice);
            assert_int_equal(s.begin, byte);
            assert_true(s.begin <= s.end);
            unit_total += s.end - s.begin;
            byte = s.end == c->items[i].extent ? 0 : s.end;
        }
        const bool sliced = slice > 0 || byte > 0;
        const bool oversized = unit_total > unit_bytes;
        assert_int_equal(unit->last, byte == 0);
        if (sliced)
            assert_int_equal(unit->n_inputs, 1);
        if (oversized)
            assert_true(c->items[input].n_starts == 1 && unit->n_inputs == 1);
        if (byte > 0)
            assert_int_equal(byte % unit_bytes, 0);
        // An input that begins a unit of its own did not fit into the group before it.
        if (!sliced && !oversized && group_bytes >= 0)
            assert_true(group_bytes + c->items[input].weight > unit_bytes);
        group_bytes = sliced || oversized ? -1 : unit_total;
        input += byte > 0 ? 0 : unit->n_inputs;
        slice = byte > 0 ? slice + 1 : 0;
    }
    assert_int_equal(input, c->n);
    assert_int_equal(byte, 0);
    bd_units_release(&units);
}

// All lists of up to 4 inputs of 0 to 7 bytes, some of which cannot be cut.
static void every_byte_lies_in_exactly_one_slice(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 4; n++) {
        for (int list = 0; list < 1 << (3 * n); list++) {
            for (size_t wholes = 0; wholes < 3; wholes++) {
                for (int64_t unit_bytes = 1; unit_bytes <= 8; unit_bytes++) {
                    corpus c = {0};
                    for (size_t i = 0; i < n; i++) {
                        const int64_t size = list >> (3 * i) & 7;
                        if (wholes < 2 && i % 2 == wholes)
                            add_whole(&c, size);
                        else
                            add(&c, size, unit_bytes);
                    }
                    check_plan(&c, unit_bytes);
                }
            }
        }
    }
}

static void too_many_units_are_refused(void **state)
{
    (void)state;
    corpus c = {0};
    bd_units units = {0};
    bd_error err = {0};
    add(&c, INT64_MAX, 1);
    assert_int_equal(bd_units_add(&units, &c.items[0], 1, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "the inputs make more than 524288 units: give a larger --unit-size");
    assert_true(units.n <= BD_MAX_UNITS);
    bd_units_release(&units);

    c.items[0].weight = c.items[0].extent = BD_MAX_UNITS;
    units = plan(&c, 1);
    assert_int_equal(units.n, BD_MAX_UNITS);
    const bd_input_entry *one_more = add(&c, 1, 1);
    assert_int_equal(bd_units_add(&units, one_more, 1, &err), BD_ERR_UNSUPPORTED);
    bd_units_release(&units);
}

// Units and sizes may come from a damaged file.
static void a_slice_past_its_input_is_empty(void **state)
{
    (void)state;
    const int64_t stride = INT64_C(1) << 61;
    const bd_input_entry input = {.extent = INT64_MAX - 1, .stride = stride};
    static const int64_t SLICES[] = {4, 5, INT32_MAX};
    for (size_t i = 0; i < sizeof SLICES / sizeof *SLICES; i++) {
        const bd_slice slice = bd_input_entry_slice(&input, SLICES[i]);
        assert_true(slice.begin >= 0);
        assert_int_equal(slice.begin, slice.end);
    }
    const bd_slice slice = bd_input_entry_slice(&input, 3);
    assert_int_equal(slice.begin, 3 * stride);
    assert_int_equal(slice.end, INT64_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_of_the_header),
        cmocka_unit_test(a_group_is_full_when_one_byte_more_would_be_too_much),
        cmocka_unit_test(cuts_lie_at_multiples_of_the_stride),
        cmocka_unit_test(cuts_lie_at_the_starts_that_an_input_has),
        cmocka_unit_test(groups_go_by_weight),
        cmocka_unit_test(a_whole_text_is_one_unit_of_any_size),
        cmocka_unit_test(units_never_span_sources),
        cmocka_unit_test(nothing_joins_a_stream_and_a_stream_joins_nothing),
        cmocka_unit_test(every_byte_lies_in_exactly_one_slice),
        cmocka_unit_test(too_many_units_are_refused),
        cmocka_unit_test(a_slice_past_its_input_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
