// utf8.h - checking, reading, writing and repairing UTF-8.
#ifndef BINDERY_COMMON_BASE_UTF8_H
#define BINDERY_COMMON_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How many bytes of `text` are valid UTF-8 from its start: `size_bytes` if all are. Overlong
// forms, surrogates and code points above U+10FFFF are not valid.
size_t bd_utf8_valid_prefix(const char *text, size_t size_bytes);

// Whether a text that ends with a NUL is UTF-8.
bool bd_is_utf8(const char *text);

// The code point that begins at `text`, which has at least one byte, and the bytes that it
// takes; -1 and 1 if there is none.
int32_t bd_utf8_character(const char *text, size_t size_bytes, size_t *length);

// Writes the code point, at most 4 bytes, and returns how many.
size_t bd_utf8_put(char *out, int32_t code);

// Room that bd_utf8_replace() may need for a text of `size_bytes`.
size_t bd_utf8_replaced_bound(size_t size_bytes);

// Copies `text` to `out` with each maximal part of a broken sequence replaced by U+FFFD, as
// Python's errors="replace" and the WHATWG decoder do. Returns the bytes written.
size_t bd_utf8_replace(const char *text, size_t size_bytes, char *out);

#endif
