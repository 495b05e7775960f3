#include "common/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/utf8.h"

bool bd_terminal_has_escapes(FILE *stream)
{
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && term && *term && strcmp(term, "dumb") != 0;
}

bool bd_terminal_color(FILE *stream, bd_color when)
{
    if (when != BD_COLOR_AUTO)
        return when == BD_COLOR_ALWAYS;
    const char *no_color = getenv("NO_COLOR");
    return bd_terminal_has_escapes(stream) && !(no_color && *no_color);
}

int bd_terminal_width(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

// Whether the valid UTF-8 at s begins with a control character: C0, DEL, or C1 in two bytes.
static bool is_control(const unsigned char *s, bool multiline)
{
    if (multiline && (*s == '\n' || *s == '\t'))
        return false;
    return *s < 0x20 || *s == 0x7F || (*s == 0xC2 && s[1] < 0xA0);
}

void bd_print_safely(FILE *stream, const char *text, size_t size_bytes, bool multiline)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t valid_end = 0;
    for (size_t at = 0; at < size_bytes;) {
        if (at >= valid_end)
            valid_end = at + bd_utf8_valid_prefix(text + at, size_bytes - at);
        if (at < valid_end && !is_control(s + at, multiline)) {
            fputc(s[at++], stream);
            continue;
        }
        const size_t n = at < valid_end && s[at] == 0xC2 ? 2 : 1;
        for (const size_t end = at + n; at < end; at++)
            fprintf(stream, "\\x%02x", s[at]);
    }
}

int bd_text_columns(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

int bd_print_name(FILE *stream, const char *name, int columns)
{
    char *safe = NULL;
    size_t size;
    FILE *memory = open_memstream(&safe, &size);
    if (memory)
        bd_print_safely(memory, name, strlen(name), false);
    if (!memory || fclose(memory) != 0) {  // rather too wide than not at all
        free(safe);
        bd_print_safely(stream, name, strlen(name), false);
        return columns;
    }
    const char *shown = safe;
    int n = bd_text_columns(safe);
    if (n > columns) {
        for (int left = n; left > columns - 3;) {
            shown++;
            left -= ((unsigned char)*shown & 0xC0) != 0x80;
        }
        fputs("...", stream);
        n = columns;
    }
    fputs(shown, stream);
    free(safe);
    return n;
}
