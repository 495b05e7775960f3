// input_options.h - how the inputs are to be read: what every input of a run has in common, and what
// one of them may have of its own.
#ifndef BINDERY_PACKER_INPUT_INPUT_OPTIONS_H
#define BINDERY_PACKER_INPUT_INPUT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/chat/chat_format.h"
#include "common/tokenizer/tokenizer.h"
#include "packer/input/record_form.h"

// What to do with text that is not UTF-8.
#define BD_UTF8_POLICIES(X)                                                          \
    X(BD_UTF8_ERROR, "error")                                                        \
    X(BD_UTF8_KEEP, "keep")       /* the bytes as they are; JSON cannot have this */ \
    X(BD_UTF8_REPLACE, "replace") /* by U+FFFD */
BD_ENUM(bd_utf8_policy, BD_UTF8_POLICIES);

// Whether documents that come as tokens end with a separator already. Text never does.
#define BD_SEPARATOR_MODES(X)        \
    X(BD_SEPARATOR_APPEND, "append") \
    X(BD_SEPARATOR_PRESENT, "present")
BD_ENUM(bd_separator_mode, BD_SEPARATOR_MODES);

// What to do with a record that cannot become a document (bad_records.h).
#define BD_BAD_POLICIES(X) X(BD_BAD_ERROR, "error") X(BD_BAD_SKIP, "skip")
BD_ENUM(bd_bad_policy, BD_BAD_POLICIES);

// A kind of input (kinds.h).
typedef struct bd_input_kind bd_input_kind;

// What --format may be: "auto" and the names of the kinds, ended by NULL.
extern const char *const bd_format_names[];

// The kind that name number `format` stands for; NULL for auto.
const bd_input_kind *bd_input_kind_chosen(int format);

// The kind of that name; NULL if there is none.
const bd_input_kind *bd_input_kind_named(const char *name);

// What positions in inputs of that kind count: "byte", "row", "document" or "token"; "byte" if
// there is no kind of that name.
const char *bd_position_unit(const char *name);

#define BD_MAX_UNIT_BYTES (INT64_C(1) << 40)

typedef struct bd_input_options {
    const bd_input_kind *format;             // of all inputs; NULL: as content and name tell
    bd_record_form form;                     // of JSON records and tables
    const char *text_field;                  // of those whose form is text; borrowed
    const char *fields[BD_MAX_FORM_FIELDS];  // of those of another form: prompt and completion,
                                             // or the list; borrowed
    const bd_chat_format *chat;              // of messages; borrowed
    bd_turn_ends turn_ends;                  // of messages
    const char *delimiter;  // line between documents in text; borrowed; NULL: a file is one
    bd_utf8_policy utf8_policy;
    bd_special_tokens special_tokens;
    bd_separator_mode separator;
    bd_bad_policy bad_records;
    int64_t max_bad;  // share of the records that may be bad, in millionths
    int64_t unit_bytes;
    int64_t max_document_bytes;
    int raw_id_bytes;     // of files of nothing but ids: 2 or 4
    int64_t end_of_text;  // the token before each document in files of llm.c
} bd_input_options;

// The field without which a record is no document.
const char *bd_input_options_field(const bd_input_options *options);

// The memory that the rows of a table's unit may take, however small they are in the file:
// the size of a unit, and 64 MiB at least.
int64_t bd_input_options_table_bytes(const bd_input_options *options);

// Options of one input, which replace those of all inputs.
typedef struct bd_own_options {
    bool has_format;
    const bd_input_kind *format;  // if it has one; NULL: as content and name tell
    char *text_field;             // owned; NULL: as the others
    char *delimiter;              // owned; NULL: as the others
} bd_own_options;

// On failure *copy is empty.
bd_status bd_own_options_copy(bd_own_options *copy, const bd_own_options *own, bd_error *err);

void bd_own_options_release(bd_own_options *own);  // safe on an empty struct and safe twice

// Whether two inputs are read alike.
bool bd_own_options_equal(const bd_own_options *a, const bd_own_options *b);

#endif
