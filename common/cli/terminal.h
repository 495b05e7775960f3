// terminal.h - what a stream can show: escape sequences, colour, bars, how many columns.
#ifndef BINDERY_COMMON_CLI_TERMINAL_H
#define BINDERY_COMMON_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/base/enum_names.h"

#ifdef __cplusplus
extern "C" {
#endif

// The values of --color.
#define BD_COLORS(X)             \
    X(BD_COLOR_AUTO, "auto")     \
    X(BD_COLOR_ALWAYS, "always") \
    X(BD_COLOR_NEVER, "never")
BD_ENUM(bd_color, BD_COLORS);

// Whether `stream` is a terminal that understands escape sequences (TERM is set, not "dumb").
bool bd_terminal_has_escapes(FILE *stream);

// Whether to colour what goes to `stream`. BD_COLOR_AUTO does so on a terminal with escape
// sequences unless the environment has a NO_COLOR that is not empty.
bool bd_terminal_color(FILE *stream, bd_color when);

// Prints text that came from outside (file names, corpora) so that it cannot speak to the
// terminal, nor look like another text: control characters, those that turn the order of text
// around or hide in it (U+202E, U+200B and their like), and bytes that are not UTF-8, are shown
// as \xNN, byte by byte. Newlines and tabs are left alone if `multiline`.
void bd_print_safely(FILE *stream, const char *text, size_t size_bytes, bool multiline);

// Columns that UTF-8 text takes, if every character takes one.
int bd_text_columns(const char *text);

// Prints a name as bd_print_safely() does, in at most `columns` columns (more than 3) if every
// character takes one. A longer name is cut to "..." and its end, which tells more than its
// beginning. Returns the columns that it took.
int bd_print_name(FILE *stream, const char *name, int columns);

// Columns of the terminal behind `stream`; 80 if it is no terminal or does not tell.
int bd_terminal_width(FILE *stream);

// How a stream is to be written to.
typedef struct bd_text_style {
    bool color;   // escape sequences may be used
    bool blocks;  // and block characters
} bd_text_style;

// Whether the environment's locale (LC_ALL, LC_CTYPE, LANG: the first that is set) is UTF-8.
bool bd_locale_is_utf8(void);

// A bar drawn with characters, eighths of blocks where the style has them, else '#': `share`
// (0 to 1) of `width` columns, then spaces to fill the width if `filled`. A share above 0 is
// always visible.
void bd_print_bar(FILE *out, bd_text_style style, double share, int width, bool filled);

// `text` in bold if there is colour.
void bd_print_title(FILE *out, bd_text_style style, const char *text);

#ifdef __cplusplus
}
#endif

#endif
