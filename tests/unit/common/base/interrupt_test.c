#include "common/base/interrupt.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// Each of these runs in a process of its own, with the signal handling of a command. It returns
// the process's exit status.
typedef int (*scene)(int first, int second);

static int wait_status_of(scene play, int first, int second)
{
    int result;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        _exit(play(first, second));
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    return result;
}

static void assert_returns_0(scene play, int first, int second)
{
    const int result = wait_status_of(play, first, second);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void assert_ends_by(scene play, int first, int second, int expected)
{
    const int result = wait_status_of(play, first, second);
    assert_true(WIFSIGNALED(result));
    assert_int_equal(WTERMSIG(result), expected);
}

static const int numbers[] = {SIGINT, SIGTERM};

static int is_interrupted(void)
{
    bd_error err = {0};
    return bd_interrupt_check(&err) == BD_ERR_INTERRUPTED &&
           bd_interrupt_check(NULL) == BD_ERR_INTERRUPTED && err.status == BD_ERR_INTERRUPTED &&
           strcmp(err.message, "interrupted") == 0;
}

static int be_interrupted_once(int first, int second)
{
    (void)second;
    bd_interrupt_catch();
    if (bd_interrupt_check(NULL) != BD_OK)
        return 1;
    raise(first);
    return is_interrupted() ? 0 : 2;
}

static void first_signal_is_only_noted(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_returns_0(be_interrupted_once, numbers[i], 0);
}

static int be_interrupted_twice(int first, int second)
{
    bd_interrupt_catch();
    raise(first);
    if (!is_interrupted())
        return 1;
    raise(second);
    return 2;
}

static void second_signal_ends_the_program_whichever_it_is(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++)
        for (int second = 0; second < 2; second++)
            assert_ends_by(be_interrupted_twice, numbers[first], numbers[second],
                           numbers[second]);
}

static int end_by_what_was_noted(int first, int second)
{
    (void)second;
    bd_interrupt_catch();
    raise(first);
    if (!is_interrupted())
        return 1;
    bd_interrupt_raise();
    return 2;
}

static void raising_ends_the_program_by_the_signal_that_was_noted(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_ends_by(end_by_what_was_noted, numbers[i], 0, numbers[i]);
}

static int raise_nothing(int first, int second)
{
    (void)first;
    (void)second;
    bd_interrupt_raise();
    bd_interrupt_catch();
    bd_interrupt_raise();
    return bd_interrupt_check(NULL) == BD_OK ? 0 : 1;
}

static void raising_without_a_signal_does_nothing(void **state)
{
    (void)state;
    assert_returns_0(raise_nothing, 0, 0);
}

static int be_interrupted_from_outside(int first, int second)
{
    (void)second;
    bd_interrupt_catch();
    const pid_t self = getpid(), other = fork();
    if (other == 0) {
        kill(self, first);
        _exit(0);
    }
    while (bd_interrupt_check(NULL) == BD_OK)
        usleep(1000);
    while (waitpid(other, NULL, 0) != other)
        ;
    return is_interrupted() ? 0 : 1;
}

static void signal_of_another_process_is_noted(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_returns_0(be_interrupted_from_outside, numbers[i], 0);
}

// The second signal prints nothing more and ends the program.
static int be_answered(int first, int second)
{
    (void)second;
    static const char text[] = "heard\n";
    char said[2 * sizeof text];
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0)
        return 1;
    bd_interrupt_answer(text);
    bd_interrupt_catch();
    raise(first);
    close(ends[1]);
    close(STDERR_FILENO);
    const ssize_t n = read(ends[0], said, sizeof said);
    return n == (ssize_t)strlen(text) && memcmp(said, text, (size_t)n) == 0 && is_interrupted()
               ? 0
               : 2;
}

static void first_signal_is_answered_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_returns_0(be_answered, numbers[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_signal_is_only_noted),
        cmocka_unit_test(second_signal_ends_the_program_whichever_it_is),
        cmocka_unit_test(raising_ends_the_program_by_the_signal_that_was_noted),
        cmocka_unit_test(raising_without_a_signal_does_nothing),
        cmocka_unit_test(signal_of_another_process_is_noted),
        cmocka_unit_test(first_signal_is_answered_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
