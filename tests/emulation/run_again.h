// run_again.h - runs the test's own program as a child, for tests of faults that end a process.
#ifndef BINDERY_TESTS_RUN_AGAIN_H
#define BINDERY_TESTS_RUN_AGAIN_H

#include <stddef.h>

// Runs this program with these arguments, at most 8 numbers, and returns its wait status.
// `text` receives the beginning of its standard error. A new process is needed instead of a
// fork, because ThreadSanitizer does not watch the child of a fork.
int run_again(const int *arguments, int n_arguments, char *text, size_t text_bytes);

#endif
