#include "tests/emulation/run_again.h"

#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_ARGUMENTS = 8 };

// Output beyond `text_bytes` is read, too, so that the child does not wait for us.
static void read_all(int descriptor, char *text, size_t text_bytes)
{
    char piece[4096];
    size_t n = 0;
    ssize_t got;
    while ((got = read(descriptor, piece, sizeof piece)) > 0) {
        const size_t room = text_bytes - 1 - n;
        const size_t kept = (size_t)got < room ? (size_t)got : room;
        memcpy(text + n, piece, kept);
        n += kept;
    }
    text[n] = '\0';
}

int run_again(const int *arguments, int n_arguments, char *text, size_t text_bytes)
{
    char name[] = "again", numbers[MOST_ARGUMENTS][16];
    char *words[MOST_ARGUMENTS + 2] = {name};
    assert_true(n_arguments <= MOST_ARGUMENTS);
    for (int i = 0; i < n_arguments; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%d", arguments[i]);
        words[i + 1] = numbers[i];
    }

    int ends[2], status;
    pid_t child;
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO), 0);
    assert_int_equal(posix_spawn_file_actions_addclose(&actions, ends[0]), 0);
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", &actions, NULL, words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    read_all(ends[0], text, text_bytes);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}
