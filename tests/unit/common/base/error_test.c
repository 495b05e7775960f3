#include "common/base/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MESSAGE_SIZE = sizeof((bd_error *)0)->message };

static void failure_keeps_its_status_and_message(void **state)
{
    (void)state;
    bd_error err;
    assert_int_equal(bd_fail(&err, BD_ERR_FORMAT, "'%s' has %d rows", "a.arrow", 7),
                     BD_ERR_FORMAT);
    assert_int_equal(err.status, BD_ERR_FORMAT);
    assert_string_equal(err.message, "'a.arrow' has 7 rows");
}

static void errno_is_told_in_words_after_the_message(void **state)
{
    (void)state;
    bd_error err;
    errno = ENOENT;
    assert_int_equal(bd_fail_errno(&err, "cannot open '%s'", "x"), BD_ERR_IO);
    assert_int_equal(err.status, BD_ERR_IO);
    assert_string_equal(err.message, "cannot open 'x': No such file or directory");
    errno = 12345;
    bd_fail_errno(&err, "cannot do it");
    assert_string_equal(err.message, "cannot do it: Unknown error 12345");
}

static void errno_for_no_memory_is_a_memory_error(void **state)
{
    (void)state;
    bd_error err;
    errno = ENOMEM;
    assert_int_equal(bd_fail_errno(&err, "cannot map 'x'"), BD_ERR_MEMORY);
    assert_int_equal(err.status, BD_ERR_MEMORY);
    assert_string_equal(err.message, "cannot map 'x': Cannot allocate memory");
}

static void prefix_goes_in_front_and_keeps_the_status(void **state)
{
    (void)state;
    bd_error err;
    bd_fail(&err, BD_ERR_FORMAT, "R3: token %d", 17);
    assert_int_equal(bd_error_prefix(&err, BD_ERR_FORMAT, "'%s', row %d", "a.arrow", 4),
                     BD_ERR_FORMAT);
    assert_int_equal(err.status, BD_ERR_FORMAT);
    assert_string_equal(err.message, "'a.arrow', row 4: R3: token 17");
}

static void suffix_goes_behind_and_keeps_the_status(void **state)
{
    (void)state;
    bd_error err;
    bd_fail(&err, BD_ERR_ARGUMENT, "%d heads", 3);
    assert_int_equal(bd_error_suffix(&err, BD_ERR_ARGUMENT, "--heads %d", 4), BD_ERR_ARGUMENT);
    assert_int_equal(err.status, BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "3 heads; --heads 4");
}

static void caller_may_omit_the_error(void **state)
{
    (void)state;
    errno = ENOMEM;
    assert_int_equal(bd_fail_errno(NULL, "x"), BD_ERR_MEMORY);
    assert_int_equal(bd_fail(NULL, BD_ERR_DEVICE, "x"), BD_ERR_DEVICE);
    assert_int_equal(bd_error_prefix(NULL, BD_ERR_UNSUPPORTED, "x"), BD_ERR_UNSUPPORTED);
    assert_int_equal(bd_error_suffix(NULL, BD_ERR_UNSUPPORTED, "x"), BD_ERR_UNSUPPORTED);
}

// ---- Messages that do not fit -----------------------------------------------------

// An error with a guard band behind it.
typedef struct guarded {
    bd_error err;
    unsigned char guard[64];
} guarded;

static guarded new_guarded(void)
{
    guarded g;
    memset(&g, 0xA5, sizeof g);
    return g;
}

static void assert_guard_is_whole(const guarded *g)
{
    for (size_t i = 0; i < sizeof g->guard; i++)
        assert_int_equal(g->guard[i], 0xA5);
    assert_non_null(memchr(g->err.message, '\0', MESSAGE_SIZE));
}

// Returns `n` characters of a text in which neighbours differ, so that a shift is visible.
static void fill(char *text, size_t n, char first)
{
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(first + (char)(i % 23));
    text[n] = '\0';
}

static void message_of_any_length_is_cut_to_what_fits(void **state)
{
    (void)state;
    char text[3 * MESSAGE_SIZE];
    for (size_t n = 0; n < sizeof text; n++) {
        fill(text, n, 'a');
        guarded g = new_guarded();
        bd_fail(&g.err, BD_ERR_IO, "%s", text);
        assert_guard_is_whole(&g);
        const size_t kept = n < MESSAGE_SIZE ? n : MESSAGE_SIZE - 1;
        assert_int_equal(strlen(g.err.message), kept);
        assert_memory_equal(g.err.message, text, kept);
    }
}

static void long_message_leaves_room_for_what_errno_says(void **state)
{
    (void)state;
    static const char reason[] = ": Permission denied";
    char text[3 * MESSAGE_SIZE];
    for (size_t n = 0; n < sizeof text; n++) {
        fill(text, n, 'a');
        guarded g = new_guarded();
        errno = EACCES;
        bd_fail_errno(&g.err, "%s", text);
        assert_guard_is_whole(&g);
        const size_t length = strlen(g.err.message);
        assert_true(length >= strlen(reason));
        const size_t kept = length - strlen(reason);
        assert_string_equal(g.err.message + kept, reason);
        assert_memory_equal(g.err.message, text, kept);
        assert_true(kept == n || kept >= 256);
    }
}

// The message is cut, not the remedy after it.
static void a_suffix_stays_whole_behind_a_message_of_any_length(void **state)
{
    (void)state;
    char message[MESSAGE_SIZE];
    for (size_t n = 0; n < sizeof message; n++) {
        fill(message, n, 'A');
        guarded g = new_guarded();
        bd_fail(&g.err, BD_ERR_IO, "%s", message);
        bd_error_suffix(&g.err, BD_ERR_IO, "%s", "--remedy");
        assert_guard_is_whole(&g);
        const size_t length = strlen(g.err.message), kept = length - strlen("; --remedy");
        assert_int_equal(kept, n < MESSAGE_SIZE - 11 ? n : MESSAGE_SIZE - 11);
        assert_memory_equal(g.err.message, message, kept);
        assert_string_equal(g.err.message + kept, "; --remedy");
    }
}

static void prefix_and_message_of_any_length_are_cut_to_what_fits(void **state)
{
    (void)state;
    char prefix[2 * MESSAGE_SIZE], message[MESSAGE_SIZE], whole[4 * MESSAGE_SIZE];
    static const size_t message_lengths[] = {0, 1, 2, 255, 509, 510, 511};
    for (size_t m = 0; m < sizeof message_lengths / sizeof *message_lengths; m++) {
        fill(message, message_lengths[m], 'A');
        for (size_t n = 0; n < sizeof prefix; n++) {
            fill(prefix, n, 'a');
            guarded g = new_guarded();
            bd_fail(&g.err, BD_ERR_IO, "%s", message);
            bd_error_prefix(&g.err, BD_ERR_IO, "%s", prefix);
            assert_guard_is_whole(&g);
            snprintf(whole, sizeof whole, "%s: %s", prefix, message);
            whole[MESSAGE_SIZE - 1] = '\0';
            assert_string_equal(g.err.message, whole);
        }
    }
}

// ---- BD_TRY -----------------------------------------------------------------------

static int n_calls;

static bd_status give(bd_status status)
{
    n_calls++;
    return status;
}

static bd_status try_three(bd_status first, bd_status second, bd_status third)
{
    BD_TRY(give(first));
    BD_TRY(give(second));
    return give(third);
}

static void try_returns_the_first_failure_and_calls_nothing_after_it(void **state)
{
    (void)state;
    n_calls = 0;
    assert_int_equal(try_three(BD_OK, BD_ERR_DEVICE, BD_ERR_IO), BD_ERR_DEVICE);
    assert_int_equal(n_calls, 2);
    n_calls = 0;
    assert_int_equal(try_three(BD_OK, BD_OK, BD_OK), BD_OK);
    assert_int_equal(n_calls, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_keeps_its_status_and_message),
        cmocka_unit_test(errno_is_told_in_words_after_the_message),
        cmocka_unit_test(errno_for_no_memory_is_a_memory_error),
        cmocka_unit_test(prefix_goes_in_front_and_keeps_the_status),
        cmocka_unit_test(suffix_goes_behind_and_keeps_the_status),
        cmocka_unit_test(caller_may_omit_the_error),
        cmocka_unit_test(message_of_any_length_is_cut_to_what_fits),
        cmocka_unit_test(long_message_leaves_room_for_what_errno_says),
        cmocka_unit_test(a_suffix_stays_whole_behind_a_message_of_any_length),
        cmocka_unit_test(prefix_and_message_of_any_length_are_cut_to_what_fits),
        cmocka_unit_test(try_returns_the_first_failure_and_calls_nothing_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
