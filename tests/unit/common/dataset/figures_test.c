#include "common/dataset/figures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int64_t *field(bd_figures *figures, size_t i)
{
    return (int64_t *)((char *)figures + bd_figure_fields[i].offset);
}

// ---- Counting ---------------------------------------------------------------------

// Two rows of 8, counted by hand: |aaa|bb|... and |aa (piece at 2 of a document of 4)|c|......
static void rows_segments_and_documents_are_counted(void **state)
{
    (void)state;
    bd_figures figures = {0};
    bd_figures_count_row(&figures, 8, 5, 2);
    bd_figures_count_segment(&figures, 0, 3, 2);
    bd_figures_count_segment(&figures, 0, 2, 1);
    bd_figures_count_row(&figures, 8, 3, 2);
    bd_figures_count_segment(&figures, 2, 2, 1);
    bd_figures_count_segment(&figures, 0, 1, 0);
    bd_figures_count_document(&figures, 4);
    bd_figures_count_document(&figures, 2);
    bd_figures_count_document(&figures, 1);
    bd_figures expected = {
        .rows = 2,
        .segments = 4,
        .documents = 3,
        .repeated = 1,
        .packed = 8,
        .padding = 8,
        .targets = 4,
        .longest_segment = 3,
        .attention_pairs = 6 + 3 + 3 + 1,
        .document_lengths = {1, 1, 1},
        .segments_per_row = {0, 2},
    };
    assert_memory_equal(&figures, &expected, sizeof figures);
}

static void bin_holds_from_a_power_of_two_to_the_next(void **state)
{
    (void)state;
    for (int bin = 0; bin < 32; bin++) {
        const int64_t first = INT64_C(1) << bin, last = 2 * first - 1;
        bd_figures figures = {0};
        bd_figures_count_document(&figures, first);
        bd_figures_count_document(&figures, last);
        bd_figures_count_row(&figures, last, last, first);
        for (int i = 0; i < BD_HISTOGRAM_BINS; i++) {
            assert_int_equal(figures.document_lengths[i], i == bin ? 2 : 0);
            assert_int_equal(figures.segments_per_row[i], i == bin ? 1 : 0);
        }
    }
}

static void pairs_of_the_longest_segment_fit(void **state)
{
    (void)state;
    bd_figures figures = {0};
    bd_figures_count_segment(&figures, 0, INT64_C(1) << 30, 0);
    assert_true(figures.attention_pairs == (INT64_C(1) << 59) + (INT64_C(1) << 29));
}

// ---- The ledger -------------------------------------------------------------------

static const bd_figures sound = {
    .rows = 10,
    .segments = 33,
    .text = 100,
    .bos = 20,
    .separators = 30,
    .repeated = 4,
    .packed = 90,
    .padding = 70,
    .truncated = 40,
    .dropped = 14,
    .too_short = 7,
    .held_out = 2,
    .untrained = 1,
    .masked = 11,
    .targets = 46,
};
enum { SEQ_LEN = 16 };

static void sound_ledger_adds_up(void **state)
{
    (void)state;
    assert_int_equal(bd_figures_check_ledger(&sound, SEQ_LEN, NULL), BD_OK);
    assert_int_equal(bd_figures_check_ledger(&(bd_figures){0}, SEQ_LEN, NULL), BD_OK);
}

static void each_equation_is_broken_by_each_of_its_terms(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *equation;  // the first of the equations that it breaks
    } cases[] = {
        {"text",
         "text 101 + bos 20 + separators 30 + repeated 4 != "
         "packed 90 + truncated 40 + dropped 14 + too short 7 + held out 2 + untrained 1"},
        {"bos", "text 100 + bos 21"},
        {"separators", "text 100 + bos 20 + separators 31"},
        {"repeated", "text 100 + bos 20 + separators 30 + repeated 5"},
        {"truncated", "text 100"},
        {"dropped", "text 100"},
        {"too_short", "text 100"},
        {"held_out", "text 100"},
        {"untrained", "text 100"},
        {"packed", "text 100"},
        {"padding", "packed 90 + padding 71 != rows 10 x 16"},
        {"rows", "packed 90 + padding 70 != rows 11 x 16"},
        {"segments", "packed 90 - segments 34 - masked 11 != targets 46"},
        {"masked", "packed 90 - segments 33 - masked 12 != targets 46"},
        {"targets", "packed 90 - segments 33 - masked 11 != targets 47"},
    };
    size_t n_broken = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (size_t i = 0; i < bd_n_figure_fields; i++) {
            if (strcmp(bd_figure_fields[i].name, cases[c].name) != 0)
                continue;
            bd_figures figures = sound;
            ++*field(&figures, i);
            bd_error err;
            char expected[512];
            snprintf(expected, sizeof expected, "S6: the ledger does not add up: %s",
                     cases[c].equation);
            assert_int_equal(bd_figures_check_ledger(&figures, SEQ_LEN, &err), BD_ERR_FORMAT);
            assert_memory_equal(err.message, expected, strlen(expected));
            n_broken++;
        }
    }
    assert_int_equal(n_broken, sizeof cases / sizeof *cases);
    assert_int_equal(bd_figures_check_ledger(&sound, SEQ_LEN + 1, NULL), BD_ERR_FORMAT);
}

static void packed_is_tied_to_the_rows_too(void **state)
{
    (void)state;
    bd_figures figures = sound;
    figures.packed++;
    figures.text++;
    bd_error err;
    assert_int_equal(bd_figures_check_ledger(&figures, SEQ_LEN, &err), BD_ERR_FORMAT);
    assert_string_equal(
        err.message, "S6: the ledger does not add up: packed 91 + padding 70 != rows 10 x 16");
    figures.padding--;
    assert_int_equal(bd_figures_check_ledger(&figures, SEQ_LEN, &err), BD_ERR_FORMAT);
    assert_string_equal(err.message, "S6: the ledger does not add up: packed 91 - segments 33 "
                                     "- masked 11 != targets 46");
}

// In 64 bits these would wrap around and agree.
static void sums_beyond_64_bits_do_not_agree_by_accident(void **state)
{
    (void)state;
    const bd_figures tokens = {.text = INT64_MAX, .bos = INT64_MAX, .separators = 2};
    assert_int_equal(bd_figures_check_ledger(&tokens, SEQ_LEN, NULL), BD_ERR_FORMAT);
    const bd_figures left_out = {.too_short = INT64_MAX, .held_out = INT64_MAX, .dropped = 2};
    assert_int_equal(bd_figures_check_ledger(&left_out, SEQ_LEN, NULL), BD_ERR_FORMAT);
    const bd_figures rows = {.rows = INT64_C(1) << 60};  // times 16 is 0 in 64 bits
    assert_int_equal(bd_figures_check_ledger(&rows, SEQ_LEN, NULL), BD_ERR_FORMAT);
}

// ---- Adding -----------------------------------------------------------------------

static void sum_is_taken_field_by_field_and_the_longest_of_the_longest(void **state)
{
    (void)state;
    bd_figures total = {0}, part = {0};
    for (size_t i = 0; i < bd_n_figure_fields; i++) {
        *field(&total, i) = (int64_t)(1000 + i);
        *field(&part, i) = (int64_t)(i * i + 1);
    }
    for (int bin = 0; bin < BD_HISTOGRAM_BINS; bin++) {
        total.document_lengths[bin] = bin;
        total.segments_per_row[bin] = 100 * bin;
        part.document_lengths[bin] = 1;
        part.segments_per_row[bin] = 7;
    }
    assert_int_equal(bd_figures_add(&total, &part, NULL), BD_OK);
    for (size_t i = 0; i < bd_n_figure_fields; i++)
        assert_int_equal(*field(&total, i), field(&total, i) == &total.longest_segment
                                                ? 1000 + i
                                                : 1000 + i + i * i + 1);
    for (int bin = 0; bin < BD_HISTOGRAM_BINS; bin++) {
        assert_int_equal(total.document_lengths[bin], bin + 1);
        assert_int_equal(total.segments_per_row[bin], 100 * bin + 7);
    }
    assert_int_equal(bd_figures_add(&total, &(bd_figures){.longest_segment = 2000}, NULL),
                     BD_OK);
    assert_int_equal(total.longest_segment, 2000);
}

static void sum_that_does_not_fit_names_its_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < bd_n_figure_fields; i++) {
        bd_figures total = {0}, part = {0};
        if (bd_figure_fields[i].offset == offsetof(bd_figures, longest_segment))
            continue;  // not a sum
        *field(&total, i) = INT64_MAX;
        assert_int_equal(bd_figures_add(&total, &part, NULL), BD_OK);
        *field(&part, i) = 1;
        char expected[100];
        bd_error err;
        snprintf(expected, sizeof expected, "the sum of '%s' is too large",
                 bd_figure_fields[i].name);
        assert_int_equal(bd_figures_add(&total, &part, &err), BD_ERR_FORMAT);
        assert_string_equal(err.message, expected);
    }
    for (int bin = 0; bin < BD_HISTOGRAM_BINS; bin++) {
        bd_figures total = {0}, part = {0};
        bd_error err;
        total.document_lengths[bin] = INT64_MAX;
        part.document_lengths[bin] = 1;
        assert_int_equal(bd_figures_add(&total, &part, &err), BD_ERR_FORMAT);
        assert_string_equal(err.message, "the sum of 'document_length_histogram' is too large");
        total = part = (bd_figures){0};
        total.segments_per_row[bin] = INT64_MAX;
        part.segments_per_row[bin] = 1;
        assert_int_equal(bd_figures_add(&total, &part, &err), BD_ERR_FORMAT);
        assert_string_equal(err.message,
                            "the sum of 'segments_per_row_histogram' is too large");
    }
}

static bd_figures all_different(void)
{
    bd_figures figures = {0};
    for (size_t i = 0; i < bd_n_figure_fields; i++)
        *field(&figures, i) = (int64_t)(100 + i);
    for (int bin = 0; bin < BD_HISTOGRAM_BINS; bin++) {
        figures.document_lengths[bin] = 1000 + bin;
        figures.segments_per_row[bin] = bin < 5 ? 2000 + bin : 0;
    }
    static const uint32_t recognised[] = {7, 50256, 7};
    for (size_t i = 0; i < 3; i++)
        bd_added_counts_count(&figures.added, recognised[i]);
    return figures;
}

// ---- Added tokens -----------------------------------------------------------------

// The definition: how often each of N_IDS ids was met.
enum { N_IDS = 100 };

static void assert_counts(const bd_added_counts *counts, const int64_t *met)
{
    int32_t n = 0;
    int64_t other = 0;
    for (uint32_t id = 0; id < N_IDS; id++) {
        if (met[id] > 0 && n < BD_COUNTED_IDS) {
            assert_int_equal(counts->ids[n], id);
            assert_int_equal(counts->counts[n++], met[id]);
        } else {
            other += met[id];
        }
    }
    assert_int_equal(counts->n, n);
    assert_int_equal(counts->other, other);
}

static void added_tokens_are_counted_alike_however_they_are_cut_into_parts(void **state)
{
    (void)state;
    uint64_t random = 20;
    for (int round = 0; round < 200; round++) {
        bd_figures parts[4] = {0}, left = {0}, right = {0};
        int64_t met[N_IDS] = {0};
        const int n = 1 + round * 2, n_ids = 1 + round % N_IDS;
        for (int i = 0; i < n; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const uint32_t id = (uint32_t)(random >> 33) % (uint32_t)n_ids;
            bd_added_counts_count(&parts[random >> 60 & 3].added, id);
            met[id]++;
        }
        for (int i = 0; i < 4; i++) {
            assert_int_equal(bd_figures_add(&left, &parts[i], NULL), BD_OK);
            assert_int_equal(bd_figures_add(&right, &parts[3 - i], NULL), BD_OK);
        }
        assert_counts(&left.added, met);
        assert_counts(&right.added, met);
    }
}

static void added_tokens_that_one_part_did_not_count_are_unknown(void **state)
{
    (void)state;
    bd_figures total = all_different(), again;
    const bd_figures old = {.added = {.unknown = true}};
    char where[100];
    assert_int_equal(bd_figures_add(&total, &old, NULL), BD_OK);
    bd_json *json = bd_figures_to_json(&total, true);
    assert_true(bd_json_is_null(json, "added_tokens"));
    assert_true(bd_json_is_null(json, "added_tokens_other"));
    assert_int_equal(bd_figures_from_json(&again, json, true, NULL), BD_OK);
    assert_true(again.added.unknown);
    bd_json_free(json);
    total.added.unknown = false;
    assert_false(bd_figures_difference(&total, &again, where, sizeof where));
    assert_true(bd_figures_difference(&again, &total, where, sizeof where));
}

static void bad_added_tokens_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *list, *other, *message;
    } cases[] = {

        {"[[7,1],[7,1]]", "0", "'added_tokens[1]'"},
        {"[[7,1]]", "1", "'added_tokens_other' counts ids that 'added_tokens' has room for"},
        {"[[7,1]]", "null", "'added_tokens_other'"},
        {"null", "0", "'added_tokens'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_json *json = bd_figures_to_json(&sound, false), *part;
        bd_figures figures;
        bd_error err;
        char text[100];
        snprintf(text, sizeof text, "{\"list\":%s,\"other\":%s}", cases[i].list,
                 cases[i].other);
        assert_int_equal(bd_json_parse(text, strlen(text), &part, NULL), BD_OK);
        const bd_json *list;
        int64_t other;
        bd_json_set_null(json, "added_tokens");
        if (bd_json_get_array(part, "list", &list, NULL) == BD_OK)
            bd_json_set(json, "added_tokens", bd_json_share(list));
        bd_json_set_null(json, "added_tokens_other");
        if (bd_json_get_integer(part, "other", -1, 9, &other, NULL) == BD_OK)
            bd_json_set_integer(json, "added_tokens_other", other);
        assert_int_equal(bd_figures_from_json(&figures, json, false, &err), BD_ERR_FORMAT);
        if (strncmp(err.message, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s: %s", text, err.message);
        bd_json_free(json);
        bd_json_free(part);
    }
}

// ---- JSON -------------------------------------------------------------------------

static void figures_have_one_text(void **state)
{
    (void)state;
    bd_figures figures = all_different();
    figures.document_lengths[1] = 0;  // not a trailing one
    for (int bin = 3; bin < BD_HISTOGRAM_BINS; bin++)
        figures.document_lengths[bin] = 0;
    char *text;
    bd_json *json = bd_figures_to_json(&figures, true);
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
    assert_string_equal(
        text,
        "{\"rows\":100,\"segments\":101,\"documents\":102,\"text\":103,\"bos\":104,"
        "\"separators\":105,\"repeated\":106,\"packed\":107,\"padding\":108,"
        "\"truncated\":109,\"dropped\":110,\"too_short\":111,\"held_out\":112,"
        "\"untrained\":113,\"masked\":114,\"targets\":115,"
        "\"empty_documents\":116,\"split_documents\":117,\"truncated_documents\":118,"
        "\"dropped_documents\":119,\"too_short_documents\":120,"
        "\"held_out_documents\":121,\"untrained_documents\":122,\"headless_documents\":123,"
        "\"separator_collisions\":124,\"invalid_utf8_documents\":125,"
        "\"bad_missing_text\":126,\"bad_json\":127,\"bad_utf8\":128,"
        "\"bad_too_large\":129,\"bad_pattern\":130,"
        "\"longest_segment\":131,\"attention_pairs\":132,"
        "\"added_tokens\":[[7,2],[50256,1]],\"added_tokens_other\":0,"
        "\"document_length_histogram\":[1000,0,1002],"
        "\"segments_per_row_histogram\":[2000,2001,2002,2003,2004]}");
    free(text);
    bd_json_free(json);
}

static void figures_come_back_from_json(void **state)
{
    (void)state;
    const bd_figures cases[] = {all_different(), sound, {0}, {.document_lengths = {0, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bd_figures again;
        memset(&again, 0xFF, sizeof again);
        bd_json *json = bd_figures_to_json(&cases[i], true);
        assert_int_equal(bd_figures_from_json(&again, json, true, NULL), BD_OK);
        assert_memory_equal(&again, &cases[i], sizeof again);
        bd_json_free(json);
    }
}

// A dataset without loss masks states the figures that it always had.
static void figures_of_masks_are_stated_by_masked_datasets_alone(void **state)
{
    (void)state;
    static const char *const names[] = {"untrained", "masked", "untrained_documents"};
    const bd_figures figures = all_different();
    bd_figures again;
    bd_error err;
    bd_json *masked = bd_figures_to_json(&figures, true);
    bd_json *plain = bd_figures_to_json(&figures, false);
    for (size_t i = 0; i < 3; i++) {
        int64_t value;
        assert_int_equal(bd_json_get_integer(masked, names[i], 100, 200, &value, NULL), BD_OK);
        assert_true(bd_json_is_null(plain, names[i]));
    }
    assert_int_equal(bd_figures_from_json(&again, masked, false, NULL), BD_OK);
    assert_int_equal(again.targets, figures.targets);
    assert_int_equal(again.untrained + again.masked + again.untrained_documents, 0);
    assert_int_equal(bd_figures_from_json(&again, plain, true, &err), BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'untrained'"));
    bd_json_free(masked);
    bd_json_free(plain);
}

// What is no target is masked, unless it begins a segment.
static void tokens_that_are_no_targets_are_masked(void **state)
{
    (void)state;
    bd_figures figures = {0};
    bd_figures_count_segment(&figures, 0, 10, 4);
    bd_figures_count_segment(&figures, 9, 3, 2);
    bd_figures_count_segment(&figures, 0, 1, 0);
    assert_int_equal(figures.targets, 6);
    assert_int_equal(figures.masked, 5);
}

// In the form that released versions wrote.
static void figures_of_format_1_0_left_nothing_out(void **state)
{
    (void)state;
    static const char text[] =
        "{\"rows\":100,\"segments\":101,\"documents\":102,\"text\":103,\"bos\":104,"
        "\"separators\":105,\"repeated\":106,\"packed\":107,\"padding\":108,"
        "\"truncated\":109,\"dropped\":110,\"targets\":111,\"empty_documents\":112,"
        "\"split_documents\":113,\"truncated_documents\":114,\"dropped_documents\":115,"
        "\"separator_collisions\":116,\"invalid_utf8_documents\":117,"
        "\"longest_segment\":118,\"attention_pairs\":119,"
        "\"document_length_histogram\":[1000,0,1002],\"segments_per_row_histogram\":[]}";
    const bd_figures expected = {
        .rows = 100,
        .segments = 101,
        .documents = 102,
        .text = 103,
        .bos = 104,
        .separators = 105,
        .repeated = 106,
        .packed = 107,
        .padding = 108,
        .truncated = 109,
        .dropped = 110,
        .targets = 111,
        .empty_documents = 112,
        .split_documents = 113,
        .truncated_documents = 114,
        .dropped_documents = 115,
        .separator_collisions = 116,
        .invalid_utf8_documents = 117,
        .longest_segment = 118,
        .attention_pairs = 119,
        .added = {.unknown = true},
        .document_lengths = {1000, 0, 1002},
    };
    bd_figures figures;
    bd_json *json;
    memset(&figures, 0xFF, sizeof figures);
    assert_int_equal(bd_json_parse(text, strlen(text), &json, NULL), BD_OK);
    assert_int_equal(bd_figures_from_json(&figures, json, false, NULL), BD_OK);
    assert_memory_equal(&figures, &expected, sizeof figures);
    bd_json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_segments_and_documents_are_counted),
        cmocka_unit_test(bin_holds_from_a_power_of_two_to_the_next),
        cmocka_unit_test(pairs_of_the_longest_segment_fit),
        cmocka_unit_test(sound_ledger_adds_up),
        cmocka_unit_test(figures_of_masks_are_stated_by_masked_datasets_alone),
        cmocka_unit_test(tokens_that_are_no_targets_are_masked),
        cmocka_unit_test(each_equation_is_broken_by_each_of_its_terms),
        cmocka_unit_test(packed_is_tied_to_the_rows_too),
        cmocka_unit_test(sums_beyond_64_bits_do_not_agree_by_accident),
        cmocka_unit_test(sum_is_taken_field_by_field_and_the_longest_of_the_longest),
        cmocka_unit_test(sum_that_does_not_fit_names_its_field),
        cmocka_unit_test(added_tokens_are_counted_alike_however_they_are_cut_into_parts),
        cmocka_unit_test(added_tokens_that_one_part_did_not_count_are_unknown),
        cmocka_unit_test(bad_added_tokens_are_refused),
        cmocka_unit_test(figures_have_one_text),
        cmocka_unit_test(figures_come_back_from_json),
        cmocka_unit_test(figures_of_format_1_0_left_nothing_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
