#include "packer/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_INPUTS = 8 };

// Inputs of which only size and format are known: planning needs no more.
typedef struct corpus {
    bd_input items[MAX_INPUTS];
    bd_inputs inputs;
} corpus;

static void add(corpus *c, bd_input_format format, int64_t size_bytes)
{
    c->items[c->inputs.n++] = (bd_input){.format = format, .size_bytes = size_bytes};
    c->inputs.items = c->items;
}

static void assert_unit(const bd_units *units, size_t i, bd_unit expected)
{
    assert_true(i < units->n);
    assert_int_equal(units->items[i].input, expected.input);
    assert_int_equal(units->items[i].slice, expected.slice);
    assert_int_equal(units->items[i].n_inputs, expected.n_inputs);
}

static bd_units plan(const corpus *c, int64_t unit_bytes, bool text_is_whole)
{
    bd_units units;
    assert_int_equal(bd_units_plan(&units, &c->inputs, unit_bytes, text_is_whole, NULL), BD_OK);
    return units;
}

static void example_of_the_header(void **state)
{
    (void)state;
    corpus c = {0};
    add(&c, BD_INPUT_JSONL, 250);
    add(&c, BD_INPUT_JSONL, 30);
    add(&c, BD_INPUT_JSONL, 20);
    add(&c, BD_INPUT_JSONL, 40);
    add(&c, BD_INPUT_JSONL, 10);
    add(&c, BD_INPUT_JSONL, 1);
    bd_units units = plan(&c, 100, false);
    assert_int_equal(units.n, 5);
    assert_unit(&units, 0, (bd_unit){0, 0, 1});
    assert_unit(&units, 1, (bd_unit){0, 1, 1});
    assert_unit(&units, 2, (bd_unit){0, 2, 1});
    assert_unit(&units, 3, (bd_unit){1, 0, 4});  // exactly 100 bytes
    assert_unit(&units, 4, (bd_unit){5, 0, 1});  // one more
    bd_units_release(&units);
    bd_units_release(&units);
}

static void cuts_lie_at_multiples_of_the_unit(void **state)
{
    (void)state;
    static const struct {
        int64_t size_bytes;
        size_t n_units;
        int64_t last_begin, last_end;
    } CASES[] = {
        {0, 1, 0, 0},       {1, 1, 0, 1},       {100, 1, 0, 100},    {101, 2, 100, 101},
        {200, 2, 100, 200}, {201, 3, 200, 201}, {999, 10, 900, 999}, {1000, 10, 900, 1000},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        corpus c = {0};
        add(&c, BD_INPUT_JSONL, CASES[i].size_bytes);
        bd_units units = plan(&c, 100, true);
        assert_int_equal(units.n, CASES[i].n_units);
        const bd_slice last = bd_unit_slice(&units.items[units.n - 1], &c.items[0], 100, true);
        assert_int_equal(last.begin, CASES[i].last_begin);
        assert_int_equal(last.end, CASES[i].last_end);
        bd_units_release(&units);
    }
}

static void whole_text_is_one_unit_of_any_size(void **state)
{
    (void)state;
    corpus c = {0};
    add(&c, BD_INPUT_TEXT, 3);
    add(&c, BD_INPUT_TEXT, 1000);
    add(&c, BD_INPUT_TEXT, 0);
    bd_units units = plan(&c, 100, true);
    assert_int_equal(units.n, 3);
    assert_unit(&units, 0, (bd_unit){0, 0, 1});
    assert_unit(&units, 1, (bd_unit){1, 0, 1});
    assert_unit(&units, 2, (bd_unit){2, 0, 1});  // nothing joins a unit that is too large
    const bd_slice slice = bd_unit_slice(&units.items[1], &c.items[1], 100, true);
    assert_int_equal(slice.begin, 0);
    assert_int_equal(slice.end, 1000);
    bd_units_release(&units);

    units = plan(&c, 100, false);  // delimited text can be cut
    assert_int_equal(units.n, 12);
    bd_units_release(&units);
}

// Every promise about one plan: units in order, every input in one, every byte of it in exactly
// one slice, and groups as full as they can be.
static void check_plan(const corpus *c, int64_t unit_bytes, bool text_is_whole)
{
    bd_units units = plan(c, unit_bytes, text_is_whole);
    int64_t input = 0, slice = 0, byte = 0;  // what has to come next
    int64_t group_bytes = -1;                // of the unit before; -1: nothing may join it
    for (size_t u = 0; u < units.n; u++) {
        const bd_unit *unit = &units.items[u];
        assert_int_equal(unit->input, input);
        assert_int_equal(unit->slice, slice);
        assert_in_range(unit->n_inputs, 1, (int64_t)c->inputs.n - input);
        int64_t unit_total = 0;
        for (int64_t i = input; i < unit->input + unit->n_inputs; i++) {
            const bd_slice s = bd_unit_slice(unit, &c->items[i], unit_bytes, text_is_whole);
            assert_int_equal(s.begin, byte);
            assert_true(s.begin <= s.end);
            unit_total += s.end - s.begin;
            byte = s.end == c->items[i].size_bytes ? 0 : s.end;
        }
        const bool sliced = slice > 0 || byte > 0;
        const bool oversized = unit_total > unit_bytes;
        if (sliced)
            assert_int_equal(unit->n_inputs, 1);
        if (oversized)
            assert_true(text_is_whole && c->items[input].format == BD_INPUT_TEXT &&
                        unit->n_inputs == 1);
        if (byte > 0)
            assert_int_equal(byte % unit_bytes, 0);
        // An input that begins a unit of its own had no room in the group before it.
        if (!sliced && !oversized && group_bytes >= 0)
            assert_true(group_bytes + c->items[input].size_bytes > unit_bytes);
        group_bytes = sliced || oversized ? -1 : unit_total;
        input += byte > 0 ? 0 : unit->n_inputs;
        slice = byte > 0 ? slice + 1 : 0;
    }
    assert_int_equal(input, c->inputs.n);
    assert_int_equal(byte, 0);
    bd_units_release(&units);
}

// All lists of up to 4 inputs of 0 to 7 bytes.
static void every_byte_lies_in_exactly_one_slice(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 4; n++) {
        for (int list = 0; list < 1 << (3 * n); list++) {
            for (int formats = 0; formats < 2; formats++) {
                corpus c = {0};
                for (size_t i = 0; i < n; i++)
                    add(&c, (i + (size_t)formats) % 2 ? BD_INPUT_TEXT : BD_INPUT_JSONL,
                        list >> (3 * i) & 7);
                for (int64_t unit_bytes = 1; unit_bytes <= 8; unit_bytes++) {
                    check_plan(&c, unit_bytes, false);
                    check_plan(&c, unit_bytes, true);
                }
            }
        }
    }
}

static void too_many_units_are_refused_before_they_are_made(void **state)
{
    (void)state;
    corpus c = {0};
    add(&c, BD_INPUT_JSONL, INT64_MAX);
    bd_units units;
    bd_error err = {0};
    assert_int_equal(bd_units_plan(&units, &c.inputs, 1, false, &err), BD_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "larger --unit-size"));
    assert_null(units.items);

    c.items[0].size_bytes = BD_MAX_UNITS;
    units = plan(&c, 1, false);
    assert_int_equal(units.n, BD_MAX_UNITS);
    bd_units_release(&units);
    add(&c, BD_INPUT_TEXT, 1);
    assert_int_equal(bd_units_plan(&units, &c.inputs, 1, false, &err), BD_ERR_UNSUPPORTED);
    bd_units_release(&units);
}

// Units and sizes may come from a file that lies.
static void a_slice_past_its_input_is_empty(void **state)
{
    (void)state;
    const bd_input input = {.format = BD_INPUT_JSONL, .size_bytes = INT64_MAX - 1};
    const int64_t unit_bytes = INT64_C(1) << 61;
    static const int64_t SLICES[] = {4, 5, INT32_MAX};
    for (size_t i = 0; i < sizeof SLICES / sizeof *SLICES; i++) {
        const bd_unit unit = {0, SLICES[i], 1};
        const bd_slice slice = bd_unit_slice(&unit, &input, unit_bytes, false);
        assert_true(slice.begin >= 0);
        assert_int_equal(slice.begin, slice.end);
    }
    const bd_unit last = {0, 3, 1};
    const bd_slice slice = bd_unit_slice(&last, &input, unit_bytes, false);
    assert_int_equal(slice.begin, 3 * unit_bytes);
    assert_int_equal(slice.end, INT64_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_of_the_header),
        cmocka_unit_test(cuts_lie_at_multiples_of_the_unit),
        cmocka_unit_test(whole_text_is_one_unit_of_any_size),
        cmocka_unit_test(every_byte_lies_in_exactly_one_slice),
        cmocka_unit_test(too_many_units_are_refused_before_they_are_made),
        cmocka_unit_test(a_slice_past_its_input_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
