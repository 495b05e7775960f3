#include "common/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
