// The progress line and the amounts and times in it.
#include "common/cli/progress.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/cli/human.h"
#include "common/cli/terminal.h"

static const int64_t s = 1000000000;  // in nanoseconds

// ---- Formats -----------------------------------------------------------------------

static void counts_have_three_digits_and_decimal_steps(void **state)
{
    (void)state;
    assert_string_equal(bd_format_count(0).text, "0");
    assert_string_equal(bd_format_count(999).text, "999");
    assert_string_equal(bd_format_count(1000).text, "1.00 k");
    assert_string_equal(bd_format_count(9994).text, "9.99 k");
    assert_string_equal(bd_format_count(9996).text, "10.0 k");
    assert_string_equal(bd_format_count(99960).text, "100 k");
    assert_string_equal(bd_format_count(999499).text, "999 k");
    assert_string_equal(bd_format_count(999500).text, "1.00 M");  // never "1000 k"
    assert_string_equal(bd_format_count(1234567).text, "1.23 M");
    assert_string_equal(bd_format_count(UINT64_MAX).text, "18.4 E");
}

static void bytes_have_binary_steps(void **state)
{
    (void)state;
    assert_string_equal(bd_format_bytes(0).text, "0 B");
    assert_string_equal(bd_format_bytes(1023).text, "1023 B");
    assert_string_equal(bd_format_bytes(1024).text, "1.00 KiB");
    assert_string_equal(bd_format_bytes(1 << 20).text, "1.00 MiB");
    assert_string_equal(bd_format_bytes((1 << 20) - 1).text, "1.00 MiB");
    assert_string_equal(bd_format_bytes(64 << 20).text, "64.0 MiB");
    assert_string_equal(bd_format_bytes(UINT64_MAX).text, "16.0 EiB");
}

static void durations_have_two_units(void **state)
{
    (void)state;
    assert_string_equal(bd_format_duration(-1).text, "0 ms");
    assert_string_equal(bd_format_duration(350 * (s / 1000)).text, "350 ms");
    assert_string_equal(bd_format_duration(1 * s).text, "1 s");
    assert_string_equal(bd_format_duration(60 * s - 1).text, "59 s");
    assert_string_equal(bd_format_duration(184 * s).text, "3 min 04 s");
    assert_string_equal(bd_format_duration(3720 * s).text, "1 h 02 min");
    assert_string_equal(bd_format_duration((2 * 24 + 3) * 3600 * s).text, "2 d 03 h");
    assert_string_equal(bd_format_duration(INT64_MAX).text, "106751 d 23 h");
}

// ---- The line ----------------------------------------------------------------------

static void line_gives(const bd_progress_config *config, uint64_t done, int64_t elapsed_ns,
                       size_t size, const char *expected)
{
    char line[128];
    assert_true(size <= sizeof line);
    bd_progress_line(config, done, elapsed_ns, line, size);
    assert_string_equal(line, expected);
}

static void line_tells_share_amount_rate_and_time_left(void **state)
{
    (void)state;
    const bd_progress_config documents = {
        .label = "packing", .unit = "documents", .total = 2000000};
    line_gives(&documents, 500000, 10 * s, 80,
               "packing  25%  500 k of 2.00 M documents  50.0 k/s  30 s left");
    const bd_progress_config bytes = {.label = "packing", .unit = "bytes", .total = 64 << 20};
    line_gives(&bytes, 16 << 20, 4 * s, 80,
               "packing  25%  16.0 MiB of 64.0 MiB  4.00 MiB/s  12 s left");
    const bd_progress_config steps = {.label = "training", .unit = "steps", .total = 100};
    line_gives(&steps, 1, 4 * s, 80, "training  1%  1 of 100 steps  0.25/s  6 min 36 s left");
}

static void unknown_total_has_no_share_and_no_time_left(void **state)
{
    (void)state;
    const bd_progress_config config = {.label = "reading", .unit = "rows"};
    line_gives(&config, 1500, 10 * s, 80, "reading  1.50 k rows  150/s");
}

static void nothing_is_foretold_before_anything_is_done(void **state)
{
    (void)state;
    const bd_progress_config config = {.label = "packing", .unit = "rows", .total = 10};
    line_gives(&config, 0, 10 * s, 80, "packing  0%  0 of 10 rows");
    line_gives(&config, 5, 0, 80, "packing  50%  5 of 10 rows");
}

static void earlier_work_counts_in_the_share_but_not_in_the_rate(void **state)
{
    (void)state;
    const bd_progress_config config = {
        .label = "packing", .unit = "rows", .total = 1000, .already = 500};
    line_gives(&config, 500, 10 * s, 80, "packing  50%  500 of 1.00 k rows");
    line_gives(&config, 600, 10 * s, 80, "packing  60%  600 of 1.00 k rows  10/s  40 s left");
}

static void time_left_is_at_least_a_second(void **state)
{
    (void)state;
    const bd_progress_config config = {.label = "packing", .unit = "rows", .total = 1000};
    line_gives(&config, 990, 1 * s, 80, "packing  99%  990 of 1.00 k rows  990/s  1 s left");
}

static void more_than_the_total_is_all_of_it(void **state)
{
    (void)state;
    const bd_progress_config config = {.label = "packing", .unit = "rows", .total = 10};
    line_gives(&config, 11, 1 * s, 80, "packing  100%  11 of 10 rows  11/s");
}

static void narrow_terminal_loses_whole_parts_from_the_right(void **state)
{
    (void)state;
    const bd_progress_config config = {.label = "packing", .unit = "rows", .total = 1000};
    line_gives(&config, 250, 10 * s, 42, "packing  25%  250 of 1.00 k rows  25/s");
    line_gives(&config, 250, 10 * s, 38, "packing  25%  250 of 1.00 k rows");
    line_gives(&config, 250, 10 * s, 13, "packing  25%");
    line_gives(&config, 250, 10 * s, 8, "packing");
    line_gives(&config, 250, 10 * s, 1, "");
}

// ---- Drawing -----------------------------------------------------------------------

enum { N_THREADS = 4, N_ADDITIONS = 100000 };

static void *add_many(void *progress)
{
    for (int i = 0; i < N_ADDITIONS; i++)
        bd_progress_add(progress, 1);
    return NULL;
}

// Adds from several threads, waits for a line that counts everything, and reads to the end.
static void line_is_drawn_from_all_threads_and_erased(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    FILE *out = fdopen(ends[1], "w");
    bd_progress *progress = bd_progress_new(&(bd_progress_config){
        .label = "adding", .unit = "rows", .total = N_THREADS * N_ADDITIONS, .out = out});
    assert_non_null(progress);

    pthread_t threads[N_THREADS];
    for (int t = 0; t < N_THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, add_many, progress), 0);
    for (int t = 0; t < N_THREADS; t++)
        pthread_join(threads[t], NULL);

    char text[4096] = "";
    size_t n = 0;
    while (!strstr(text, "100%  400 k of 400 k rows")) {
        const ssize_t got = read(ends[0], text + n, sizeof text - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    bd_progress_free(progress);
    fclose(out);
    ssize_t got;
    while ((got = read(ends[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    close(ends[0]);

    assert_memory_equal(text, "\radding  ", 9);
    static const char erased[] = "\033[K\r\033[K";
    assert_string_equal(text + n - strlen(erased), erased);
}

static void nothing_is_drawn_where_it_is_not_wanted(void **state)
{
    (void)state;
    FILE *const real_stderr = stderr;
    stderr = tmpfile();  // not a terminal
    assert_null(bd_progress_new(&(bd_progress_config){.label = "x", .unit = "rows"}));
    fclose(stderr);
    stderr = real_stderr;
    assert_null(bd_progress_new(
        &(bd_progress_config){.label = "x", .unit = "rows", .quiet = true, .out = stdout}));
    bd_progress_add(NULL, 1);
    bd_progress_free(NULL);
}

static void short_run_draws_nothing(void **state)
{
    (void)state;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    bd_progress_free(
        bd_progress_new(&(bd_progress_config){.label = "x", .unit = "rows", .out = out}));
    fclose(out);
    assert_int_equal(size, 0);
    free(text);
}

// ---- The terminal ------------------------------------------------------------------

// Opens a new pseudo-terminal; the caller closes both ends.
static FILE *open_terminal(int *controller)
{
    *controller = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*controller >= 0);
    assert_int_equal(grantpt(*controller), 0);
    assert_int_equal(unlockpt(*controller), 0);
    FILE *terminal = fopen(ptsname(*controller), "w");
    assert_non_null(terminal);
    return terminal;
}

static void colour_needs_a_terminal_that_wants_it(void **state)
{
    (void)state;
    int controller;
    FILE *terminal = open_terminal(&controller);
    FILE *file = tmpfile();

    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    assert_true(bd_terminal_color(terminal, BD_COLOR_AUTO));
    assert_false(bd_terminal_color(terminal, BD_COLOR_NEVER));
    assert_false(bd_terminal_color(file, BD_COLOR_AUTO));
    assert_true(bd_terminal_color(file, BD_COLOR_ALWAYS));

    setenv("NO_COLOR", "", 1);  // an empty variable means nothing
    assert_true(bd_terminal_color(terminal, BD_COLOR_AUTO));
    setenv("NO_COLOR", "1", 1);
    assert_false(bd_terminal_color(terminal, BD_COLOR_AUTO));
    assert_true(bd_terminal_color(terminal, BD_COLOR_ALWAYS));

    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    assert_false(bd_terminal_color(terminal, BD_COLOR_AUTO));
    assert_false(bd_terminal_has_escapes(terminal));

    fclose(file);
    fclose(terminal);
    close(controller);
}

static void width_is_the_terminals_or_80(void **state)
{
    (void)state;
    int controller;
    FILE *terminal = open_terminal(&controller);
    assert_int_equal(bd_terminal_width(terminal), 80);  // a new one does not know its width
    const struct winsize size = {.ws_row = 10, .ws_col = 33};
    assert_int_equal(ioctl(controller, TIOCSWINSZ, &size), 0);
    assert_int_equal(bd_terminal_width(terminal), 33);
    fclose(terminal);
    close(controller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_three_digits_and_decimal_steps),
        cmocka_unit_test(bytes_have_binary_steps),
        cmocka_unit_test(durations_have_two_units),
        cmocka_unit_test(line_tells_share_amount_rate_and_time_left),
        cmocka_unit_test(unknown_total_has_no_share_and_no_time_left),
        cmocka_unit_test(nothing_is_foretold_before_anything_is_done),
        cmocka_unit_test(earlier_work_counts_in_the_share_but_not_in_the_rate),
        cmocka_unit_test(time_left_is_at_least_a_second),
        cmocka_unit_test(more_than_the_total_is_all_of_it),
        cmocka_unit_test(narrow_terminal_loses_whole_parts_from_the_right),
        cmocka_unit_test(line_is_drawn_from_all_threads_and_erased),
        cmocka_unit_test(nothing_is_drawn_where_it_is_not_wanted),
        cmocka_unit_test(short_run_draws_nothing),
        cmocka_unit_test(colour_needs_a_terminal_that_wants_it),
        cmocka_unit_test(width_is_the_terminals_or_80),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
