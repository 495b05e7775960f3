#include "common/cli/bars.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};

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

void bd_print_bar(FILE *out, bd_look look, double share, int width, bool filled)
{
    const int steps = look.blocks ? 8 : 1;
    int n = (int)(share * width * steps + 0.5);
    if (n == 0 && share > 0)
        n = 1;
    const bool colored = look.color && n > 0;
    fputs(colored ? "\x1b[36m" : "", out);
    for (int i = 0; i < n / steps; i++)
        fputs(look.blocks ? "█" : "#", out);
    if (look.blocks)
        fputs(eighths[n % steps], out);
    fputs(colored ? "\x1b[0m" : "", out);
    if (filled)
        fprintf(out, "%*s", width - (n + steps - 1) / steps, "");
}

void bd_print_title(FILE *out, bd_look look, const char *text)
{
    fprintf(out, "%s%s%s", look.color ? "\x1b[1m" : "", text, look.color ? "\x1b[0m" : "");
}
