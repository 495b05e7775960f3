// run_again.h - for tests of what ends the process: the test's own program as a child.
#ifndef BINDERY_TESTS_RUN_AGAIN_H
#define BINDERY_TESTS_RUN_AGAIN_H

#include <stddef.h>

// Runs this program with these arguments, at most 8 numbers, and returns its wait status.
// `text` gets the beginning of what it says on standard error. A fresh process, not a fork:
// ThreadSanitizer does not watch the child of a fork.
int run_again(const int *arguments, int n_arguments, char *text, size_t text_bytes);

#endif
