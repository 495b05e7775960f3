// chat_format.h - how the messages of a chat become one text: what stands before and after each
// role's turn, and which of it is trained. A format is data (schemas/chat-format-v1.schema.json).
//
//   begin | before start content end after | before start content end after | …
//            ---------- a turn ----------
//
//   before  never trained
//   start   trained with the content: a space that belongs to its first token
//   content trained if its role is, or if the message says so itself
//   end     trained with the content, as --train-turn-end says: the model learns to stop
//   after   never trained
//
// Special tokens come from the format alone: whatever a content spells out is text.
#ifndef BINDERY_COMMON_CHAT_CHAT_FORMAT_H
#define BINDERY_COMMON_CHAT_CHAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/chat/turns.h"
#include "common/tokenizer/spans.h"
#include "common/tokenizer/tokenizer.h"

// Which trained turns have a trained end.
#define BD_TURN_ENDS(X)          \
    X(BD_TURN_ENDS_ALL, "all")   \
    X(BD_TURN_ENDS_LAST, "last") \
    X(BD_TURN_ENDS_NONE, "none")
BD_ENUM(bd_turn_ends, BD_TURN_ENDS);

typedef struct bd_chat_format bd_chat_format;

// The names of the formats that are built in, ended by NULL.
extern const char *const bd_built_in_chat_formats[];

// The format that is built in under that name, or that of a file. Free it with
// bd_chat_format_free(). On failure *format is NULL.
bd_status bd_chat_format_open(bd_chat_format **format, const char *name_or_file, bd_error *err);

// The format that `json` describes.
bd_status bd_chat_format_from_json(bd_chat_format **format, const bd_json *json, bd_error *err);

// The same description, for a plan. Borrowed.
const bd_json *bd_chat_format_json(const bd_chat_format *format);

void bd_chat_format_free(bd_chat_format *format);  // safe on NULL

// From now on these roles are trained, and no others: "assistant,tool". A role that the format
// does not have is BD_ERR_ARGUMENT.
bd_status bd_chat_format_train_roles(bd_chat_format *format, const char *roles, bd_error *err);

// The roles that are trained, as an array of names. Free it with bd_json_free().
bd_json *bd_chat_format_trained_roles(const bd_chat_format *format);

// Finds the ids of the format's special tokens. A token that the tokenizer, which messages call
// `tokenizer_name`, does not have is BD_ERR_ARGUMENT. Must precede rendering.
bd_status bd_chat_format_find_tokens(bd_chat_format *format, const bd_tokenizer *tokenizer,
                                     const char *tokenizer_name, bd_error *err);

// Renders the messages into *spans, which point into the turns and the format. *separator_trained
// says whether the separator that ends the document is trained. Messages that the format cannot
// say (a role that it does not have, tool calls where it has none, a system message in the wrong
// place) are BD_ERR_FORMAT.
bd_status bd_chat_render(const bd_chat_format *format, const bd_turns *turns,
                         bd_turn_ends turn_ends, bd_spans *spans, bool *separator_trained,
                         bd_error *err);

// Renders what a model is to answer: a system message, unless it is NULL, a user's message, and
// what stands before an assistant's turn. The turn's `start` is not there: it is trained, in one
// text with the content, so that the model writes it. A format without these roles is
// BD_ERR_FORMAT.
bd_status bd_chat_render_prompt(const bd_chat_format *format, const char *system,
                                const char *user, bd_spans *spans, bd_error *err);

// What ends an assistant's turn. Neither: only the separator that ends the document does.
typedef struct bd_turn_end {
    int64_t token;  // the id of a special token, or BD_SPAN_IS_TEXT
    char *text;     // owned; NULL if there is a token
} bd_turn_end;

// Needs the tokens' ids. Free end->text.
bd_status bd_chat_format_turn_end(const bd_chat_format *format, bd_turn_end *end,
                                  bd_error *err);

#endif
