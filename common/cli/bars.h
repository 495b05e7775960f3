// bars.h - bars drawn with characters: eighths of blocks where the locale has them, else '#'.
#ifndef BINDERY_COMMON_CLI_BARS_H
#define BINDERY_COMMON_CLI_BARS_H

#include <stdbool.h>
#include <stdio.h>

// How a stream is to be written to.
typedef struct bd_look {
    bool color;   // escape sequences may be used
    bool blocks;  // and block characters
} bd_look;

// Whether the environment's locale (LC_ALL, LC_CTYPE, LANG: the first that is set) is UTF-8.
bool bd_locale_is_utf8(void);

// A bar of `share` (0 to 1) of `width` columns, then spaces to fill the width if `filled`. A
// share above 0 is never invisible.
void bd_print_bar(FILE *out, bd_look look, double share, int width, bool filled);

// `text` in bold if there is colour.
void bd_print_title(FILE *out, bd_look look, const char *text);

#endif
