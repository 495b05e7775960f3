#include "trainer/metrics.h"

#include "tests/unit/temporary_folder.h"

#define LINE(step) "{\"step\":" #step ",\"loss\":5.5}\n"

// What is left of `text` when a run goes on after `step`.
static void assert_cut(const char *text, int64_t step, const char *expected)
{
    bd_error err;
    FILE *metrics;
    write_text(BD_METRICS_NAME, text);
    if (bd_metrics_open(&metrics, ".", step, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_int_equal(fclose(metrics), 0);
    assert_file_holds(BD_METRICS_NAME, expected);
    assert_int_equal(count_entries("."), 1);
}

static void lines_of_later_steps_are_removed(void **state)
{
    (void)state;
    assert_cut(LINE(1) LINE(2) LINE(3), 2, LINE(1) LINE(2));
    assert_cut(LINE(1) LINE(2) LINE(3), 3, LINE(1) LINE(2) LINE(3));
    assert_cut(LINE(1) LINE(2) LINE(3), 9, LINE(1) LINE(2) LINE(3));
    assert_cut(LINE(1) LINE(2) LINE(3), 0, "");
    assert_cut("", 5, "");
    assert_cut(LINE(9) LINE(10) LINE(11), 10, LINE(9) LINE(10));  // numbers, not text
}

// Killed in the middle of writing: a step that is lost anyway, wherever it was cut.
static void half_a_line_is_removed(void **state)
{
    (void)state;
    const char *last = LINE(3);
    for (size_t n = 0; n < strlen(last); n++) {
        char text[100];
        snprintf(text, sizeof text, "%s%.*s", LINE(1) LINE(2), (int)n, last);
        assert_cut(text, 2, LINE(1) LINE(2));
    }
    // All but the newline: what is appended next must not stand in the same line.
    assert_cut(LINE(1) "{\"step\":2,\"loss\":5.5}", 2, LINE(1));
}

static void nothing_after_what_is_no_line_is_kept(void **state)
{
    (void)state;
    assert_cut(LINE(1) "garbage\n" LINE(2), 5, LINE(1));
    assert_cut(LINE(1) "\n" LINE(2), 5, LINE(1));
    assert_cut(LINE(1) "{\"loss\":1}\n" LINE(2), 5, LINE(1));
    assert_cut(LINE(1) "[1]\n", 5, LINE(1));
    assert_cut(LINE(1) LINE(0), 5, LINE(1));
}

static void a_step_is_one_line_of_the_schema(void **state)
{
    (void)state;
    bd_error err;
    FILE *metrics;
    const bd_step_result result = {.step = 7,
                                   .loss = 2.5,
                                   .gradient_norm = 0.75,
                                   .learning_rate = 0.125,
                                   .n_targets = 11,
                                   .n_tokens = 64};
    assert_int_equal(bd_metrics_open(&metrics, ".", 0, &err), BD_OK);
    assert_int_equal(bd_metrics_write(metrics, &result, 1500000000, &err), BD_OK);
    // With the system already, as a killed run would leave it.
    assert_file_holds(BD_METRICS_NAME,
                      "{\"step\":7,\"loss\":2.5,\"gradient_norm\":0.75,\"learning_rate\":0.125,"
                      "\"targets\":11,\"tokens\":64,\"seconds\":1.5}\n");
    assert_int_equal(fclose(metrics), 0);
}

static void a_resumed_run_appends(void **state)
{
    (void)state;
    bd_error err;
    FILE *metrics;
    bd_step_result result = {.loss = 1.5};
    for (int64_t begin = 0; begin <= 2; begin++) {  // each run loses all but one step
        assert_int_equal(bd_metrics_open(&metrics, ".", begin, &err), BD_OK);
        for (result.step = begin + 1; result.step <= begin + 3; result.step++)
            assert_int_equal(bd_metrics_write(metrics, &result, 1, &err), BD_OK);
        assert_int_equal(fclose(metrics), 0);
    }
    size_t n;
    int64_t expected = 1;
    char *text = read_file(BD_METRICS_NAME, &n);
    for (char *line = text; *line; line = strchr(line, '\n') + 1)
        assert_int_equal(strtol(line + strlen("{\"step\":"), NULL, 10), expected++);
    assert_int_equal(expected, 6);
    free(text);
}

static void a_full_disk_is_noticed(void **state)
{
    (void)state;
    bd_error err = {0};
    const bd_step_result result = {.step = 1};
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(bd_metrics_write(full, &result, 1, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, BD_METRICS_NAME));
    fclose(full);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    bd_error err = {0};
    FILE *metrics;
    assert_int_equal(bd_metrics_open(&metrics, "absent", 0, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "absent/" BD_METRICS_NAME));
    assert_null(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(lines_of_later_steps_are_removed),
        test_inside_folder(half_a_line_is_removed),
        test_inside_folder(nothing_after_what_is_no_line_is_kept),
        test_inside_folder(a_step_is_one_line_of_the_schema),
        test_inside_folder(a_resumed_run_appends),
        test_inside_folder(a_full_disk_is_noticed),
        test_inside_folder(a_folder_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
