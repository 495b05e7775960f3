// json_text.h - the text of a JSON record. The only file that knows simdjson is json_text.cpp.
#ifndef BINDERY_PACKER_INPUT_JSON_TEXT_H
#define BINDERY_PACKER_INPUT_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bd_json_text bd_json_text;  // a parser with its memory; one per thread

// `path` names the field: "text", or "a.b" for field b of the object in field a.
// NULL when out of memory. Free with bd_json_text_free().
bd_json_text *bd_json_text_new(const char *path);
void bd_json_text_free(bd_json_text *parser);  // safe on NULL

// From now on a record that is a string is its own text, or not, as at first.
void bd_json_text_take_strings(bd_json_text *parser, bool take);

// Why a record has no text.
typedef enum bd_json_problem {
    BD_JSON_FINE,
    BD_JSON_BAD_UTF8,       // bytes that are not UTF-8
    BD_JSON_BAD_SURROGATE,  // an escape for half a character
    BD_JSON_NO_TEXT,        // no such field, or no string in it
    BD_JSON_OTHER,
} bd_json_problem;

// Parses all of `record`, which must be readable for BD_RECORD_PADDING bytes past its end,
// and gives the string in the field; *text is borrowed until the next call. Numbers beside it
// may have any size. On failure (BD_ERR_FORMAT: not JSON, no such field, not a string, the
// field twice) *problem tells which kind it was.
bd_status bd_json_text_extract(bd_json_text *parser, const char *record, size_t size_bytes,
                               const char **text, size_t *text_bytes, bd_json_problem *problem,
                               bd_error *err);

// Replaces, in place, every escape of half a character ("\\ud800" without its other half) by
// "\\ufffd", which is as long.
void bd_json_replace_surrogates(char *record, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
