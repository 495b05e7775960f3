// last_words.h - the message of a program that a library ends because memory or threads have
// run out.
//
// Our own code reports a failing allocation like every other failure. GLib and parts of Arrow
// do not: g_malloc() aborts, and so does an exception that nobody catches.
#ifndef BINDERY_COMMON_BASE_LAST_WORDS_H
#define BINDERY_COMMON_BASE_LAST_WORDS_H

#ifdef __cplusplus
extern "C" {
#endif

// For main(): from now on such an end prints "bindery: <library>: <reason>; ..." to stderr and
// exits with 2. Temporary files stay, as after a kill, until the next run of the same command.
// Any other abort, which is a fault of the program, keeps its default action.
void bd_last_words_prepare(void);

#ifdef __cplusplus
}
#endif

#endif
