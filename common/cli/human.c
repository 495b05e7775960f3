#include "common/cli/human.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Three significant digits and the largest step that leaves at least 1.
static bd_formatted format_steps(uint64_t n, unsigned step, const char *const *suffixes)
{
    bd_formatted formatted;
    if (n < step) {
        snprintf(formatted.text, sizeof formatted.text, "%u%s", (unsigned)n, suffixes[0]);
        return formatted;
    }
    double value = (double)n;
    size_t i = 0;
    while (value >= step - 0.5) {  // what rounds to a whole step belongs to the next suffix
        value /= step;
        i++;
    }
    const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(formatted.text, sizeof formatted.text, "%.*f%s", decimals, value, suffixes[i]);
    return formatted;
}

bd_formatted bd_format_count(uint64_t n)
{
    static const char *const suffixes[] = {"", " k", " M", " G", " T", " P", " E"};
    return format_steps(n, 1000, suffixes);
}

bd_formatted bd_format_exact(int64_t n)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    bd_formatted formatted;
    char *to = formatted.text;
    for (int i = 0; i < length; i++) {
        const bool after_digit = i > 0 && digits[i - 1] != '-';
        if (after_digit && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return formatted;
}

bd_formatted bd_format_bytes(uint64_t n_bytes)
{
    static const char *const suffixes[] = {" B",   " KiB", " MiB", " GiB",
                                           " TiB", " PiB", " EiB"};
    return format_steps(n_bytes, 1024, suffixes);
}

bd_formatted bd_format_duration(int64_t time_ns)
{
    bd_formatted formatted;
    char *text = formatted.text;
    const size_t size = sizeof formatted.text;
    const int64_t ms = time_ns > 0 ? time_ns / 1000000 : 0;
    const long long s = ms / 1000;
    if (ms < 1000)
        snprintf(text, size, "%lld ms", (long long)ms);
    else if (s < 60)
        snprintf(text, size, "%lld s", s);
    else if (s < 60 * 60)
        snprintf(text, size, "%lld min %02lld s", s / 60, s % 60);
    else if (s < 24 * 60 * 60)
        snprintf(text, size, "%lld h %02lld min", s / 3600, s / 60 % 60);
    else
        snprintf(text, size, "%lld d %02lld h", s / 86400, s / 3600 % 24);
    return formatted;
}
