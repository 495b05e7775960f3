// json_reader.h - JSON read front to back, for documents that are too big for a tree: a caller
// that knows their shape asks for one part after the other.
//
//   enter '{'; while more '}': key; then string, integer, value, or enter again
//
// The text is from outside: strings must be UTF-8, and every error is BD_ERR_FORMAT and says at
// which byte of the text.
#ifndef BINDERY_COMMON_BASE_JSON_READER_H
#define BINDERY_COMMON_BASE_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"

typedef struct bd_json_reader {
    const char *text;  // borrowed
    size_t size_bytes;
    size_t at;
    bool first;       // no element was read yet of the object or array that was entered last
    char *unescaped;  // owned: the last string that had escapes
    size_t capacity;
} bd_json_reader;

// `text` must stay until the reader is released.
void bd_json_reader_init(bd_json_reader *reader, const char *text, size_t size_bytes);
void bd_json_reader_release(bd_json_reader *reader);  // safe twice

// The first byte of the next value: '{', '[', '"', a digit, …; 0 at the end of the text.
char bd_json_reader_peek(bd_json_reader *reader);

// Steps into an object or array; `bracket` is '{' or '['.
bd_status bd_json_reader_enter(bd_json_reader *reader, char bracket, bd_error *err);
// Whether another element follows; steps out behind `bracket`, '}' or ']', if none does.
bd_status bd_json_reader_more(bd_json_reader *reader, char bracket, bool *more, bd_error *err);

// The string stays valid until the next string or key is read, and may contain NULs.
bd_status bd_json_reader_string(bd_json_reader *reader, const char **string, size_t *size_bytes,
                                bd_error *err);
bd_status bd_json_reader_key(bd_json_reader *reader, const char **key, size_t *size_bytes,
                             bd_error *err);
bd_status bd_json_reader_integer(bd_json_reader *reader, int64_t *value, bd_error *err);

// Any value of at most `max_bytes` of text as a tree, the caller's to free.
bd_status bd_json_reader_value(bd_json_reader *reader, size_t max_bytes, bd_json **value,
                               bd_error *err);

// Passes over any value without checking that it is valid.
bd_status bd_json_reader_skip(bd_json_reader *reader, bd_error *err);

// Fails if anything but white space follows.
bd_status bd_json_reader_end(bd_json_reader *reader, bd_error *err);

#endif
