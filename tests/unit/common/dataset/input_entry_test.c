#include "common/dataset/input_entry.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/common/dataset/input_entry_fixture.h"
#include "tests/unit/random.h"

// ---- Slices -----------------------------------------------------------------------

static void assert_slice(const bd_input_entry *entry, int64_t slice, int64_t begin, int64_t end)
{
    const bd_slice found = bd_input_entry_slice(entry, slice);
    assert_true(found.begin == begin);
    assert_true(found.end == end);
}

static bd_input_entry by_stride(int64_t stride, int64_t extent)
{
    return (bd_input_entry){.stride = stride, .extent = extent};
}

static void slices_begin_at_multiples_of_the_stride(void **state)
{
    (void)state;
    const bd_input_entry entry = by_stride(4, 10);
    assert_int_equal(bd_input_entry_n_slices(&entry), 3);
    assert_slice(&entry, 0, 0, 4);
    assert_slice(&entry, 1, 4, 8);
    assert_slice(&entry, 2, 8, 10);
}

static void extent_that_is_a_multiple_has_no_empty_slice(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        // stride, extent, slices
        {4, 8, 2},
        {4, 9, 3},
        {4, 7, 2},
        {4, 4, 1},
        {4, 1, 1},
        {1, 33, 33},
        {INT64_MAX, INT64_MAX, 1},
        {INT64_MAX - 1, INT64_MAX, 2},
        {1, INT64_MAX, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bd_input_entry entry = by_stride(cases[i][0], cases[i][1]);
        const int64_t n = cases[i][2];
        assert_true(bd_input_entry_n_slices(&entry) == n);
        const bd_slice last = bd_input_entry_slice(&entry, n - 1);
        assert_true(last.begin < last.end);
        assert_true(last.end == entry.extent);
    }
}

static void empty_input_is_one_empty_slice(void **state)
{
    (void)state;
    const bd_input_entry by_stride_0 = by_stride(4, 0);
    assert_int_equal(bd_input_entry_n_slices(&by_stride_0), 1);
    assert_slice(&by_stride_0, 0, 0, 0);
    const bd_input_entry by_start = {.starts = (int64_t[]){0}, .n_starts = 1};
    assert_int_equal(bd_input_entry_n_slices(&by_start), 1);
    assert_slice(&by_start, 0, 0, 0);
}

static void slices_begin_at_the_starts(void **state)
{
    (void)state;
    const bd_input_entry entry = {.extent = 10, .starts = (int64_t[]){0, 5, 6}, .n_starts = 3};
    assert_int_equal(bd_input_entry_n_slices(&entry), 3);
    assert_slice(&entry, 0, 0, 5);
    assert_slice(&entry, 1, 5, 6);
    assert_slice(&entry, 2, 6, 10);
}

static void slices_follow_each_other_without_a_gap(void **state)
{
    (void)state;
    uint64_t random = 2024;
    print_message("seed %" PRIu64 "\n", random);
    for (int i = 0; i < 500; i++) {
        const bd_input_entry entry =
            by_stride(random_between(&random, 1, 40), random_between(&random, 0, 200));
        int64_t position = 0;
        for (int64_t s = 0; s < bd_input_entry_n_slices(&entry); s++) {
            const bd_slice slice = bd_input_entry_slice(&entry, s);
            assert_int_equal(slice.begin, position);
            assert_true(slice.end - slice.begin <= entry.stride);
            position = slice.end;
        }
        assert_int_equal(position, entry.extent);
    }
}

static void without_an_extent_every_slice_is_there(void **state)
{
    (void)state;
    bd_input_entry entry = by_stride(1000, BD_UNKNOWN);
    assert_int_equal(bd_input_entry_n_slices(&entry), BD_UNKNOWN);
    assert_slice(&entry, 0, 0, 1000);
    assert_slice(&entry, 7, 7000, 8000);
    assert_slice(&entry, INT32_MAX, INT32_MAX * INT64_C(1000), (INT32_MAX + INT64_C(1)) * 1000);
    entry.stride = INT64_MAX;
    assert_slice(&entry, 0, 0, INT64_MAX);
    const bd_input_entry whole = {
        .extent = BD_UNKNOWN, .starts = (int64_t[]){0}, .n_starts = 1};
    assert_int_equal(bd_input_entry_n_slices(&whole), 1);
    assert_slice(&whole, 0, 0, INT64_MAX);
}

// Numbers that a damaged file may contain; nothing may overflow.
static void slice_that_is_not_there_is_empty(void **state)
{
    (void)state;
    static const int64_t numbers[] = {3, 4, 1000, INT32_MAX, INT64_MAX};
    const bd_input_entry entries[] = {
        by_stride(4, 10),
        by_stride(4, 12),
        by_stride(4, 0),
        by_stride(INT64_MAX, 5),
        by_stride(INT64_MAX, INT64_MAX),
        by_stride(INT64_MAX / 2, INT64_MAX),
        by_stride(INT64_MAX, BD_UNKNOWN),
        {.extent = 10, .starts = (int64_t[]){0, 5, 6}, .n_starts = 3},
        {.extent = BD_UNKNOWN, .starts = (int64_t[]){0}, .n_starts = 1},
    };
    for (size_t e = 0; e < sizeof entries / sizeof *entries; e++)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            const int64_t n = bd_input_entry_n_slices(&entries[e]);
            assert_true(n <= numbers[i]);
            const bd_slice slice = bd_input_entry_slice(&entries[e], numbers[i]);
            assert_true(slice.begin == slice.end);
            assert_true(slice.begin ==
                        (entries[e].extent == BD_UNKNOWN ? INT64_MAX : entries[e].extent));
        }
}

// ---- JSON -------------------------------------------------------------------------

static bd_json *parsed(const char *text)
{
    bd_json *json;
    bd_error err = {0};
    bd_json_parse(text, strlen(text), &json, &err);
    assert_string_equal(err.message, "");
    return json;
}

static bd_status read_entry(bd_input_entry *entry, const char *text, bd_error *err)
{
    bd_json *json = parsed(text);
    memset(entry, 0xFF, sizeof *entry);
    const bd_status status = bd_input_entry_from_json(entry, json, err);
    bd_json_free(json);
    return status;
}

static void assert_empty(const bd_input_entry *entry)
{
    static const bd_input_entry empty;
    assert_memory_equal(entry, &empty, sizeof empty);
}

static const struct {
    bd_input_entry entry;
    const char *text;
} examples[] = {
    {{.name = "a/b.jsonl",
      .source = "web",
      .format = "jsonl",
      .compression = "none",
      .size_bytes = 100,
      .weight = 100,
      .extent = 100,
      .stride = 64},
     "{\"name\":\"a/b.jsonl\",\"source\":\"web\",\"format\":\"jsonl\",\"compression\":\"none\","
     "\"bytes\":100,\"weight\":100,\"extent\":100,\"stride\":64}"},
    {{.name = "-",
      .source = "caf\u00e9",
      .format = "text",
      .compression = "zstd",
      .size_bytes = BD_UNKNOWN,
      .weight = BD_UNKNOWN,
      .extent = BD_UNKNOWN,
      .stride = INT64_MAX},
     "{\"name\":\"-\",\"source\":\"caf\u00e9\",\"format\":\"text\",\"compression\":\"zstd\","
     "\"bytes\":null,\"weight\":null,\"extent\":null,\"stride\":9223372036854775807}"},
    {{.name = "c.parquet",
      .source = "",
      .format = "parquet",
      .compression = "none",
      .size_bytes = INT64_MAX,
      .weight = 0,
      .extent = 10,
      .starts = (int64_t[]){0, 1, 9},
      .n_starts = 3},
     "{\"name\":\"c.parquet\",\"source\":\"\",\"format\":\"parquet\",\"compression\":\"none\","
     "\"bytes\":9223372036854775807,\"weight\":0,\"extent\":10,\"starts\":[0,1,9]}"},
    {{.name = "d.txt",
      .source = "default",
      .format = "text",
      .compression = "gzip",
      .size_bytes = 0,
      .weight = BD_UNKNOWN,
      .extent = BD_UNKNOWN,
      .starts = (int64_t[]){0},
      .n_starts = 1},
     "{\"name\":\"d.txt\",\"source\":\"default\",\"format\":\"text\",\"compression\":\"gzip\","
     "\"bytes\":0,\"weight\":null,\"extent\":null,\"starts\":[0]}"},
};
enum { N_EXAMPLES = sizeof examples / sizeof *examples };

static void entry_has_one_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        char *text;
        bd_json *json = bd_json_object();
        bd_input_entry_to_json(&examples[i].entry, json);
        assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
        assert_string_equal(text, examples[i].text);
        bd_json_free(json);
        free(text);
    }
}

static void entry_comes_back_from_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        bd_input_entry entry;
        assert_int_equal(read_entry(&entry, examples[i].text, NULL), BD_OK);
        assert_same_input(&entry, &examples[i].entry);
        bd_input_entry_release(&entry);
        assert_empty(&entry);
        bd_input_entry_release(&entry);
    }
}

static void entry_of_format_1_0_is_cut_by_the_caller(void **state)
{
    (void)state;
    bd_input_entry entry;
    assert_int_equal(
        read_entry(&entry,
                   "{\"name\":\"a\",\"source\":\"s\",\"format\":\"jsonl\",\"bytes\":77}", NULL),
        BD_OK);
    assert_same_input(&entry, &(bd_input_entry){.name = (char *)"a",
                                                .source = (char *)"s",
                                                .format = (char *)"jsonl",
                                                .compression = (char *)"none",
                                                .size_bytes = 77,
                                                .weight = 77,
                                                .extent = 77});
    bd_input_entry_release(&entry);
}

// The first example, or the third with `starts`, with the first occurrence of `old` replaced.
static void edit(char *text, size_t size, const char *old, const char *new)
{
    const char *from = strstr(examples[0].text, old) ? examples[0].text : examples[2].text;
    const char *at = strstr(from, old);
    assert_non_null(at);
    snprintf(text, size, "%.*s%s%s", (int)(at - from), from, new, at + strlen(old));
}

static void contradictory_entries_are_refused(void **state)
{
    (void)state;
    // The text to replace, its replacement, and the message; NULL if it is accepted.
    static const char *const cases[][3] = {

        {"\"compression\":\"none\",", "", NULL},
        {"[0,1,9]", "[0]", NULL},
        {"[0,1,9]", "[1,2]", "'starts[0]': not an integer from 0 to 0"},
        {"[0,1,9]", "[0,0]", "'starts[1]': not an integer from 1 to "},
        {"[0,1,9]", "[0,5,4]", "'starts[2]': not an integer from 6 to "},
        {"[0,1,9]", "[0,10]", "'starts[1]': not an integer from 1 to 9"},
        {"[0,1,9]", "[0,11]", "'starts[1]': not an integer from 1 to "},
        {"[0,1,9]", "[0,9223372036854775807]", "'starts[1]': not an integer from 1 to "},
        {"\"extent\":10,\"starts\":[0,1,9]", "\"extent\":null,\"starts\":[0,1]",
         "'weight' and 'extent': only one of them is known"},
        {"\"extent\":10,\"starts\":[0,1,9]",
         "\"extent\":9223372036854775807,\"starts\":[0,9223372036854775806]", NULL},
        {"\"extent\":10,\"starts\":[0,1,9]",
         "\"extent\":9223372036854775807,"
         "\"starts\":[0,9223372036854775806,9223372036854775807,9223372036854775807]",
         "'starts["},
        {"\"bytes\":100,\"weight\":100,\"extent\":100,\"stride\":64", "\"bytes\":null",
         "'bytes' is missing"},
        {",\"bytes\":100,\"weight\":100,\"extent\":100,\"stride\":64", "",
         "'bytes' is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        bd_input_entry entry;
        bd_error err = {0};
        edit(text, sizeof text, cases[i][0], cases[i][1]);
        const bd_status status = read_entry(&entry, text, &err);
        const char *expected = cases[i][2] ? cases[i][2] : "";
        if (status != (cases[i][2] ? BD_ERR_FORMAT : BD_OK) ||
            strncmp(err.message, expected, strlen(expected)) != 0)
            fail_msg("case %zu: status %d, '%s'", i, (int)status, err.message);
        if (status != BD_OK)
            assert_empty(&entry);
        bd_input_entry_release(&entry);
    }
    bd_json *array = parsed("[1]");
    bd_input_entry entry;
    assert_int_equal(bd_input_entry_from_json(&entry, array, NULL), BD_ERR_FORMAT);
    assert_empty(&entry);
    bd_json_free(array);
}

// More slices than a manifest can list: they are not even counted.
static void starts_are_bounded(void **state)
{
    (void)state;
    enum { LIMIT = 1 << 20 };
    bd_json *json = parsed(examples[0].text), *starts = bd_json_array();
    bd_input_entry entry;
    bd_error err = {0};
    bd_json_set_integer(json, "extent", INT64_MAX);
    for (int i = 0; i < LIMIT; i++)
        bd_json_append(starts, bd_json_integer(i));
    bd_json_set(json, "starts", bd_json_share(starts));
    assert_int_equal(bd_input_entry_from_json(&entry, json, NULL), BD_OK);
    assert_int_equal(entry.n_starts, LIMIT);
    assert_int_equal(entry.starts[LIMIT - 1], LIMIT - 1);
    bd_input_entry_release(&entry);
    bd_json_append(starts, bd_json_integer(LIMIT));
    assert_int_equal(bd_input_entry_from_json(&entry, json, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, "'starts' has 1048577 entries");
    assert_empty(&entry);
    bd_json_free(starts);
    bd_json_free(json);
}

// ---- Ownership --------------------------------------------------------------------

static void copy_outlives_the_original(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_EXAMPLES; i++) {
        bd_input_entry original, copy;
        assert_int_equal(read_entry(&original, examples[i].text, NULL), BD_OK);
        assert_int_equal(bd_input_entry_copy(&copy, &original, NULL), BD_OK);
        bd_input_entry_release(&original);
        assert_same_input(&copy, &examples[i].entry);
        bd_input_entry_release(&copy);
        assert_empty(&copy);
    }
    bd_input_entry_release(&(bd_input_entry){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_begin_at_multiples_of_the_stride),
        cmocka_unit_test(extent_that_is_a_multiple_has_no_empty_slice),
        cmocka_unit_test(empty_input_is_one_empty_slice),
        cmocka_unit_test(slices_begin_at_the_starts),
        cmocka_unit_test(slices_follow_each_other_without_a_gap),
        cmocka_unit_test(without_an_extent_every_slice_is_there),
        cmocka_unit_test(slice_that_is_not_there_is_empty),
        cmocka_unit_test(entry_has_one_text),
        cmocka_unit_test(entry_comes_back_from_json),
        cmocka_unit_test(entry_of_format_1_0_is_cut_by_the_caller),
        cmocka_unit_test(contradictory_entries_are_refused),
        cmocka_unit_test(starts_are_bounded),
        cmocka_unit_test(copy_outlives_the_original),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
