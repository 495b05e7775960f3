#include "common/base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// The well-formed sequences of the Unicode standard's table 3-7. Returns the length of the
// sequence at s, or 0 and in *broken the length of the maximal broken part there.
static size_t sequence_length(const uint8_t *s, size_t n, size_t *broken)
{
    const uint8_t lead = s[0];
    *broken = 1;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // The second byte's range excludes overlong forms, surrogates and code points that are too large.
    const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < length; i++) {
        const bool good =
            i < n && (i == 1 ? low <= s[1] && s[1] <= high : (s[i] & 0xC0) == 0x80);
        if (!good)
            return 0;
        *broken = i + 1;
    }
    return length;
}

size_t bd_utf8_valid_prefix(const char *text, size_t size_bytes)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t at = 0;
    while (at < size_bytes) {
        uint64_t eight;
        if (size_bytes - at >= sizeof eight) {  // plain ASCII, eight bytes at a time
            memcpy(&eight, s + at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        size_t broken;
        const size_t length = sequence_length(s + at, size_bytes - at, &broken);
        if (length == 0)
            return at;
        at += length;
    }
    return at;
}

bool bd_is_utf8(const char *text)
{
    const size_t n = strlen(text);
    return bd_utf8_valid_prefix(text, n) == n;
}

int32_t bd_utf8_character(const char *text, size_t size_bytes, size_t *length)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t broken;
    const size_t n = sequence_length(s, size_bytes, &broken);
    *length = n > 0 ? n : 1;
    if (n <= 1)
        return n == 1 ? s[0] : -1;
    int32_t code = s[0] & (0x7F >> n);
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3F);
    return code;
}

size_t bd_utf8_put(char *out, int32_t code)
{
    size_t n = 0;
    if (code < 0x80) {
        out[n++] = (char)code;
    } else if (code < 0x800) {
        out[n++] = (char)(0xC0 | code >> 6);
    } else if (code < 0x10000) {
        out[n++] = (char)(0xE0 | code >> 12);
        out[n++] = (char)(0x80 | (code >> 6 & 0x3F));
    } else {
        out[n++] = (char)(0xF0 | code >> 18);
        out[n++] = (char)(0x80 | (code >> 12 & 0x3F));
        out[n++] = (char)(0x80 | (code >> 6 & 0x3F));
    }
    if (code >= 0x80)
        out[n++] = (char)(0x80 | (code & 0x3F));
    return n;
}

size_t bd_utf8_replaced_bound(size_t size_bytes)
{
    return 3 * size_bytes + 1;  // U+FFFD is three bytes; a broken part has at least one
}

size_t bd_utf8_replace(const char *text, size_t size_bytes, char *out)
{
    const char *start = out;
    size_t at = 0;
    while (at < size_bytes) {
        const size_t good = bd_utf8_valid_prefix(text + at, size_bytes - at);
        memcpy(out, text + at, good);
        out += good;
        at += good;
        if (at < size_bytes) {
            size_t broken;
            sequence_length((const uint8_t *)text + at, size_bytes - at, &broken);
            memcpy(out, "\xEF\xBF\xBD", 3);
            out += 3;
            at += broken;
        }
    }
    return (size_t)(out - start);
}
