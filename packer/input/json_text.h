// json_text.h - the text of a JSON record, or its turns. The only file that knows simdjson is
// json_text.cpp.
#ifndef BINDERY_PACKER_INPUT_JSON_TEXT_H
#define BINDERY_PACKER_INPUT_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "common/chat/turns.h"
#include "packer/input/record_form.h"

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
    BD_JSON_NO_TEXT,        // no such field, or no string or list in it
    BD_JSON_BAD_TURN,       // something is wrong in that list
    BD_JSON_OTHER,
} bd_json_problem;

// Parses all of `record`, which must be readable for BD_RECORD_PADDING bytes past its end,
// and gives the string in the field; *text is borrowed until the next call. Numbers beside it
// may have any size. On failure (BD_ERR_FORMAT: not JSON, no such field, not a string, the
// field twice) *problem tells which kind it was.
bd_status bd_json_text_extract(bd_json_text *parser, const char *record, size_t size_bytes,
                               const char **text, size_t *text_bytes, bd_json_problem *problem,
                               bd_error *err);

// A parser for records of another form than text. `fields` names the prompt and the completion, or
// the one list of segments or messages, as above. Free with bd_json_text_free().
bd_json_text *bd_json_text_new_turns(bd_record_form form, const char *const *fields);

// The same for the turns of a record; *turns is borrowed until the next call. If `is_row`, the
// record is an array of the fields' values instead of an object that has them.
//
//   completion  two strings: one untrained turn, one trained
//   segments    each has `train`, true or false, and either `text` or `token`, a special token
//   messages    each has `role` and `content`, both strings; `content` may be null where there are
//               `tool_calls`. `train` (true or false) and `weight` (0 or 1) say whether the message
//               is trained, whatever its role
//
// A call is a function's name and arguments, perhaps within a member `function`. It becomes
// {"name": …, "arguments": …} as Python's json.dumps() writes it; arguments in a string are taken as
// they are. Members of messages that hold more of the conversation are BD_ERR_FORMAT, because they
// would be lost (see json_text.cpp); all others are ignored.
bd_status bd_json_text_extract_turns(bd_json_text *parser, const char *record,
                                     size_t size_bytes, bool is_row, bd_turns *turns,
                                     bd_json_problem *problem, bd_error *err);

// Replaces, in place, every escape of half a character ("\\ud800" without its other half) by
// "\\ufffd", which is as long.
void bd_json_replace_surrogates(char *record, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#endif
