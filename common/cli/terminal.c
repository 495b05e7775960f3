#include "common/cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/text_stream.h"
#include "common/base/utf8.h"

BD_ENUM_NAMES(bd_color, BD_COLORS);

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

// Characters that a reader does not see, or that change how others are shown: the controls, and
// those format characters of Unicode that reverse the order of text or hide in it. The joiners
// (U+200C, U+200D) and the soft hyphen (U+00AD) belong to ordinary words and are left alone.
static const struct {
    int32_t first, last;
} unseen[] = {
    {0x00, 0x1F},        // C0
    {0x7F, 0x9F},        // DEL, C1
    {0x061C, 0x061C},    // Arabic letter mark
    {0x180E, 0x180E},    // Mongolian vowel separator
    {0x200B, 0x200B},    // zero width space
    {0x200E, 0x200F},    // marks of direction
    {0x2028, 0x202E},    // separators of lines and paragraphs; embeddings, overrides
    {0x2060, 0x206F},    // word joiner, invisible operators, isolates, deprecated ones
    {0xFEFF, 0xFEFF},    // byte order mark
    {0xFFF9, 0xFFFB},    // interlinear annotations
    {0xE0000, 0xE007F},  // tags: a text of their own that nobody sees
};

static bool is_unseen(int32_t code, bool multiline)
{
    if (multiline && (code == '\n' || code == '\t'))
        return false;
    for (size_t i = 0; i < sizeof unseen / sizeof unseen[0] && unseen[i].first <= code; i++)
        if (code <= unseen[i].last)
            return true;
    return false;
}

void bd_print_safely(FILE *stream, const char *text, size_t size_bytes, bool multiline)
{
    for (size_t at = 0; at < size_bytes;) {
        size_t n;
        const int32_t code = bd_utf8_character(text + at, size_bytes - at, &n);
        if (code >= 0 && !is_unseen(code, multiline)) {
            fwrite(text + at, 1, n, stream);
            at += n;
            continue;
        }
        for (const size_t end = at + n; at < end; at++)
            fprintf(stream, "\\x%02x", (unsigned char)text[at]);
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
    bd_text_stream memory;
    if (bd_text_stream_open(&memory)) {
        bd_print_safely(memory.file, name, strlen(name), false);
        safe = bd_text_stream_close(&memory, NULL);
    }
    if (!safe) {  // no memory: a name that is too wide is better than none
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

bool bd_locale_is_utf8(void)
{
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value) {
            const char *dot = strchr(value, '.');
            return dot &&
                   (strncasecmp(dot, ".utf-8", 6) == 0 || strncasecmp(dot, ".utf8", 5) == 0);
        }
    }
    return false;
}

void bd_print_bar(FILE *out, bd_text_style style, double share, int width, bool filled)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int steps = style.blocks ? 8 : 1;
    int n = (int)(share * width * steps + 0.5);
    if (n == 0 && share > 0)
        n = 1;
    const bool colored = style.color && n > 0;
    fputs(colored ? "\x1b[36m" : "", out);
    for (int i = 0; i < n / steps; i++)
        fputs(style.blocks ? "█" : "#", out);
    if (style.blocks)
        fputs(eighths[n % steps], out);
    fputs(colored ? "\x1b[0m" : "", out);
    if (filled)
        fprintf(out, "%*s", width - (n + steps - 1) / steps, "");
}

void bd_print_title(FILE *out, bd_text_style style, const char *text)
{
    fprintf(out, "%s%s%s", style.color ? "\x1b[1m" : "", text, style.color ? "\x1b[0m" : "");
}
