#include "trainer/metrics/metrics.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/unit/temporary_folder.h"
#include "trainer/metrics/smoothed.h"

#define FIGURES \
    "\"loss\":5.5,\"gradient_norm\":1,\"learning_rate\":0.1,\"targets\":9,\"tokens\":10,"
#define LINE(step) "{\"step\":" #step "," FIGURES "\"seconds\":0.5}\n"
#define EVAL(step) "{\"event\":\"eval\",\"step\":" #step ",\"values\":[]}\n"

static const bd_model_config config = {.family = &bd_family_opt,
                                       .n_layers = 1,
                                       .n_channels = 2,
                                       .n_heads = 1,
                                       .n_kv_heads = 1,
                                       .head_size = 2,
                                       .n_feed_forward = 3,
                                       .n_positions = 64,
                                       .n_vocabulary = 5};

static bd_metrics *open_metrics(int64_t step, double peak_flops)
{
    bd_error err;
    bd_metrics *metrics;
    if (bd_metrics_open(&metrics, ".", step, &config, peak_flops, &err) != BD_OK)
        fail_msg("%s", err.message);
    return metrics;
}

// Checks what remains of `text` when a run continues after `step`.
static void assert_cut(const char *text, int64_t step, const char *expected)
{
    write_text(BD_METRICS_NAME, text);
    bd_metrics_close(open_metrics(step, 0));
    assert_file_holds(BD_METRICS_NAME, expected);
}

static void lines_of_later_steps_are_removed(void **state)
{
    (void)state;
    assert_cut(LINE(1) LINE(2) LINE(3), 2, LINE(1) LINE(2));
    assert_cut(LINE(1) LINE(2) LINE(3), 3, LINE(1) LINE(2) LINE(3));
    assert_cut(LINE(1) LINE(2) LINE(3), 9, LINE(1) LINE(2) LINE(3));
    assert_cut("", 5, "");
    assert_cut(LINE(9) LINE(10) LINE(11), 10, LINE(9) LINE(10));  // numbers, not text
    assert_cut(LINE(1) EVAL(1) LINE(2) EVAL(2) EVAL(3), 2, LINE(1) EVAL(1) LINE(2) EVAL(2));
    assert_cut(LINE(1) "{\"event\":\"new\",\"step\":1}\n" LINE(2), 1,
               LINE(1) "{\"event\":\"new\",\"step\":1}\n");
}

static void a_run_that_begins_keeps_nothing(void **state)
{
    (void)state;
    assert_cut(LINE(1) LINE(2) LINE(3), 0, "");
    assert_cut(EVAL(0) LINE(1), 0, "");
    assert_cut("garbage", 0, "");
}

// Killed while writing: the step is lost anyway, wherever the line was cut.
static void half_a_line_is_removed(void **state)
{
    (void)state;
    const char *last = LINE(3);
    for (size_t n = 0; n < strlen(last); n += 7) {
        char text[1000];
        snprintf(text, sizeof text, "%s%.*s", LINE(1) LINE(2), (int)n, last);
        assert_cut(text, 2, LINE(1) LINE(2));
    }
    // Only the newline is missing: the next line must not be appended to this one.
    assert_cut(LINE(1) "{\"step\":2," FIGURES "\"seconds\":1}", 2, LINE(1));
}

static void a_damaged_line_is_named_and_stays(void **state)
{
    (void)state;
    static const char *const damaged[] = {"garbage\n", "\n", "{\"loss\":1}\n",
                                          "{\"step\":2,\"lo" LINE(3), LINE(0)};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        char text[2000], kept[1000];
        bd_error err;
        bd_metrics *metrics;
        // A damaged line after the last line that is kept may belong to a later step: nobody
        // knows.
        snprintf(kept, sizeof kept, "%s%s%s", LINE(1), damaged[i], LINE(4));
        snprintf(text, sizeof text, "%s%s%s", kept, damaged[i], LINE(7));
        write_text(BD_METRICS_NAME, text);
        assert_int_equal(bd_metrics_open(&metrics, ".", 5, &config, 0, &err), BD_OK);
        assert_file_holds(BD_METRICS_NAME, kept);
        const bd_metrics_damage *damage = bd_metrics_damaged(metrics);
        assert_int_equal(damage->n_lines, 1);
        assert_non_null(strstr(damage->why.message, BD_METRICS_NAME "', line 2: "));
        bd_metrics_close(metrics);
    }
}

static void a_step_is_one_line_of_the_schema(void **state)
{
    (void)state;
    bd_error err;
    const bd_step_result result = {.step = 7,
                                   .loss = 2.5,
                                   .gradient_norm = 0.75,
                                   .learning_rate = 0.125,
                                   .n_targets = 11,
                                   .n_tokens = 64,
                                   .work = {.n_used = 10, .n_pairs = 30}};
    bd_metrics *metrics = open_metrics(0, 4096);
    assert_int_equal(bd_metrics_write(metrics, &result, 1500000000, &err), BD_OK);
    // The lines are with the system already, so a killed run would leave them. The matrices
    // have 4 * 2 * 2 + 2 * 2 * 3 + 2 * 5 = 38 weights.
    assert_file_holds(BD_METRICS_NAME,
                      "{\"step\":7,\"loss\":2.5,\"gradient_norm\":0.75,\"learning_rate\":0.125,"
                      "\"targets\":11,\"tokens\":64,\"used\":10,\"pairs\":30,\"flop\":3000.0,"
                      "\"seconds\":1.5,\"mfu\":0.48828125}\n");
    bd_metrics_close(metrics);
}

static void evaluations_and_samples_are_lines_of_the_schema(void **state)
{
    (void)state;
    bd_error err;
    const bd_eval_value losses[] = {{"a", 1.5, 7}, {"b\xff", NAN, 0}};
    const bd_sample_value samples[] = {{"p", "\"</script>\n"}};
    bd_metrics *metrics = open_metrics(0, 0);
    assert_int_equal(bd_metrics_write_eval(metrics, 3, losses, 2, &err), BD_OK);
    assert_int_equal(bd_metrics_write_samples(metrics, 4, samples, 1, &err), BD_OK);
    assert_file_holds(BD_METRICS_NAME,
                      "{\"event\":\"eval\",\"step\":3,\"values\":["
                      "{\"dataset\":\"a\",\"loss\":1.5,\"targets\":7},"
                      "{\"dataset\":\"b\xef\xbf\xbd\",\"loss\":null,\"targets\":0}]}\n"
                      "{\"event\":\"sample\",\"step\":4,\"values\":["
                      "{\"prompt\":\"p\",\"text\":\"\\\"</script>\\n\"}]}\n");
    bd_metrics_close(metrics);
}

static void write_step(bd_metrics *metrics, int64_t step, double loss, int64_t n_targets)
{
    bd_error err;
    const bd_step_result result = {
        .step = step, .loss = loss, .n_targets = n_targets, .n_tokens = 10, .work.n_used = 10};
    assert_int_equal(bd_metrics_write(metrics, &result, 1, &err), BD_OK);
}

static void a_resumed_run_appends(void **state)
{
    (void)state;
    for (int64_t begin = 0; begin <= 2; begin++) {  // each run loses all steps except one
        bd_metrics *metrics = open_metrics(begin, 0);
        for (int64_t step = begin + 1; step <= begin + 3; step++)
            write_step(metrics, step, 1.5, 1);
        bd_metrics_close(metrics);
    }
    size_t n;
    int64_t expected = 1;
    char *text = read_file(BD_METRICS_NAME, &n);
    for (char *line = text; *line; line = strchr(line, '\n') + 1)
        assert_int_equal(strtol(line + strlen("{\"step\":"), NULL, 10), expected++);
    assert_int_equal(expected, 6);
    free(text);
}

static void the_smoothed_loss_has_no_bias_and_leaves_out_steps_without_targets(void **state)
{
    (void)state;
    bd_metrics *metrics = open_metrics(0, 0);
    assert_true(isnan(bd_metrics_smoothed_loss(metrics)));
    write_step(metrics, 1, 4.0, 1);
    assert_true(bd_metrics_smoothed_loss(metrics) == 4.0);
    write_step(metrics, 2, 0.0, 0);
    assert_true(bd_metrics_smoothed_loss(metrics) == 4.0);
    write_step(metrics, 3, 1.0, 1);
    const double expected = (BD_SMOOTHING * 4.0 + 1.0) / (BD_SMOOTHING + 1.0);
    assert_true(fabs(bd_metrics_smoothed_loss(metrics) - expected) < 1e-15);
    bd_metrics_close(metrics);
}

static void the_smoothed_loss_goes_on_after_a_resume(void **state)
{
    (void)state;
    bd_metrics *metrics = open_metrics(0, 0);
    double at_3 = 0;
    for (int64_t step = 1; step <= 5; step++) {
        write_step(metrics, step, 1.0 / (double)step, step != 2);
        if (step == 3)
            at_3 = bd_metrics_smoothed_loss(metrics);
    }
    bd_metrics_close(metrics);
    metrics = open_metrics(3, 0);
    assert_true(bd_metrics_smoothed_loss(metrics) == at_3);
    bd_metrics_close(metrics);
}

// A run may be resumed several times in a second.
static void every_resume_begins_an_event_file_that_is_the_last_by_name(void **state)
{
    (void)state;
    char last[64] = "";
    for (int i = 1; i <= 3; i++) {
        bd_metrics_close(open_metrics(i, 0));
        assert_int_equal(count_entries("."), i + 1);
        DIR *folder = opendir(".");
        char newest[64] = "";
        for (struct dirent *entry; (entry = readdir(folder));)
            if (strncmp(entry->d_name, "events.", 7) == 0 && strcmp(entry->d_name, newest) > 0)
                snprintf(newest, sizeof newest, "%.63s", entry->d_name);
        closedir(folder);
        assert_true(strcmp(newest, last) > 0);
        memcpy(last, newest, sizeof last);
    }
}

static void a_full_disk_is_noticed(void **state)
{
    (void)state;
    bd_error err = {0};
    const bd_step_result result = {.step = 1, .n_tokens = 1};
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 10;
    signal(SIGXFSZ, SIG_IGN);  // as the program sets it
    bd_metrics *metrics = open_metrics(0, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const bd_status status = bd_metrics_write(metrics, &result, 1, &err);
    bd_metrics_close(metrics);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, BD_ERR_IO);
    assert_non_null(strstr(err.message, BD_METRICS_NAME));
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    bd_error err = {0};
    bd_metrics *metrics;
    assert_int_equal(bd_metrics_open(&metrics, "absent", 0, &config, 0, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "absent/" BD_METRICS_NAME));
    assert_null(metrics);
}

// ---- Reading --------------------------------------------------------------------------------

// Why the first bad line was left out; empty if none was. A second bad line is only counted.
static const char *refusal(const char *text)
{
    static bd_error why;
    bd_error err = {0};
    bd_metrics_reader reader;
    bd_metrics_line line;
    bool more = true;
    write_text("m", text);
    assert_int_equal(bd_metrics_reader_open(&reader, "m", &err), BD_OK);
    while (more)
        assert_int_equal(bd_metrics_reader_next(&reader, &line, &more, &err), BD_OK);
    why = reader.damage.why;
    assert_int_equal(reader.damage.n_lines, why.message[0] != '\0');
    assert_int_equal(reader.damage.first_line, why.message[0] ? 2 : 0);
    bd_metrics_reader_close(&reader);
    return why.message;
}

static void assert_refused(const char *text, const char *why)
{
    const char *message = refusal(text);
    if (!strstr(message, why) || !strstr(message, "'m', line 2: "))
        fail_msg("'%s' instead of '%s'", message, why);
}

static void lines_of_other_versions_are_read(void **state)
{
    (void)state;
    assert_string_equal(refusal(""), "");
    assert_string_equal(refusal(LINE(1) EVAL(1) LINE(2)), "");
    assert_string_equal(refusal("{\"step\":1," FIGURES "\"seconds\":1,\"new\":[{}]}\n"), "");
    assert_string_equal(refusal(LINE(4) "{\"event\":\"new\",\"step\":4,\"values\":7}\n"), "");
    assert_string_equal(refusal(LINE(1) "{\"step\":2,\"lo"), "");  // being written
}

static void a_line_that_is_wrong_is_named_with_what_is_wrong(void **state)
{
    (void)state;
    assert_refused(LINE(1) "garbage\n", "not valid JSON: column 7");
    assert_refused(LINE(1) "\n", "not valid JSON");
    assert_refused(LINE(1) "garbage\n" LINE(2) EVAL(2), "not valid JSON");  // they are read
    assert_refused(LINE(1) "[]\n", "'step'");
    assert_refused(LINE(1) "{\"step\":2,\"loss\":\"x\"}\n", "'loss' is not a number");
    assert_refused(LINE(1) "{\"step\":2,\"loss\":1e999}\n", "not valid JSON");
    assert_refused(LINE(1) "{\"step\":2,\"loss\":NaN}\n", "not valid JSON");
    assert_refused(LINE(2) LINE(2), "step 2 comes after step 2");
    assert_refused(LINE(2) LINE(1), "step 1 comes after step 2");
    assert_refused(LINE(2) EVAL(1), "step 1 comes after step 2");
    assert_refused(LINE(1) "{\"step\":2," FIGURES "\"seconds\":-1}\n", "'seconds'");
    assert_refused(LINE(1) "{\"step\":2," FIGURES "\"seconds\":1,\"mfu\":true}\n", "'mfu'");
    assert_refused(LINE(1) "{\"event\":7,\"step\":2}\n", "'event'");
    assert_refused(LINE(1) "{\"event\":\"eval\",\"step\":2}\n", "'values' is not an array");
    assert_refused(LINE(1) "{\"event\":\"eval\",\"step\":2,\"values\":[1]}\n", "'dataset'");
    assert_refused(LINE(1) "{\"event\":\"sample\",\"step\":2,\"values\":[{\"prompt\":\"\"}]}\n",
                   "'text' is not a string");
}

static void a_line_that_is_too_long_is_left_out(void **state)
{
    (void)state;
    const size_t n = strlen(LINE(1)) + BD_METRICS_LINE_BYTES + 1;
    char *text = malloc(n + strlen(LINE(3)) + 2);
    assert_non_null(text);
    memset(text, ' ', n);
    memcpy(text, LINE(1), strlen(LINE(1)));
    text[n] = '\0';
    assert_string_equal(refusal(text), "");  // being written
    strcpy(text + n, "\n" LINE(3));
    assert_refused(text, "longer than");
    free(text);
}

static void only_a_regular_file_is_read(void **state)
{
    (void)state;
    bd_error err = {0};
    bd_metrics_reader reader;
    add_folder("folder");
    assert_int_equal(bd_metrics_reader_open(&reader, "folder", &err), BD_ERR_IO);
    assert_int_equal(bd_metrics_reader_open(&reader, "absent", &err), BD_ERR_IO);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(bd_metrics_reader_open(&reader, "pipe", &err), BD_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(lines_of_later_steps_are_removed),
        test_inside_folder(a_run_that_begins_keeps_nothing),
        test_inside_folder(half_a_line_is_removed),
        test_inside_folder(a_damaged_line_is_named_and_stays),
        test_inside_folder(a_step_is_one_line_of_the_schema),
        test_inside_folder(evaluations_and_samples_are_lines_of_the_schema),
        test_inside_folder(a_resumed_run_appends),
        test_inside_folder(the_smoothed_loss_has_no_bias_and_leaves_out_steps_without_targets),
        test_inside_folder(the_smoothed_loss_goes_on_after_a_resume),
        test_inside_folder(every_resume_begins_an_event_file_that_is_the_last_by_name),
        test_inside_folder(a_full_disk_is_noticed),
        test_inside_folder(a_folder_that_is_not_there_is_named),
        test_inside_folder(lines_of_other_versions_are_read),
        test_inside_folder(a_line_that_is_wrong_is_named_with_what_is_wrong),
        test_inside_folder(a_line_that_is_too_long_is_left_out),
        test_inside_folder(only_a_regular_file_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
