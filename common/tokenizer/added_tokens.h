// added_tokens.h - finds the texts that are one token wherever they stand.
#ifndef BINDERY_COMMON_TOKENIZER_ADDED_TOKENS_H
#define BINDERY_COMMON_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/model/bpe_model.h"

typedef struct bd_added_tokens bd_added_tokens;  // immutable, for any number of threads

typedef struct bd_added_match {
    size_t begin, end;            // with the white space that it takes
    size_t at;                    // where its own text begins
    size_t resume;                // where that ends, and the next one is looked for
    const bd_added_token *token;  // the model's
} bd_added_match;

// Searches for those of the model's added tokens whose `normalized` is this value. If the model
// has `nfc`, normalised tokens are looked for in their normal form. The model must outlive
// *tokens.
bd_status bd_added_tokens_new(const bd_bpe_model *model, bool normalized,
                              bd_added_tokens **tokens, bd_error *err);
void bd_added_tokens_free(bd_added_tokens *tokens);  // safe on NULL

// Finds the first match at or after `from`: the longest of those that begin leftmost, as
// Hugging Face's `tokenizers` finds it. False if there is none. It nears the speed of memchr()
// on text without candidates. Without `with_special`, special tokens are text, but still hide
// tokens that overlap them, as in `tokenizers` with encode_special_tokens.
//
//   for (size_t done = 0, from = 0; bd_added_tokens_find(…, from, &match);
//        done = match.end, from = match.resume)
//       text from `done` to match.begin, if that is more; then match.token
//
// `from` is 0, or `resume` of the match before, which is still in *match. `resume` is less than
// `end` where a match takes white space after it: another one may begin in that white space,
// and then both are found.
bool bd_added_tokens_find(const bd_added_tokens *tokens, const char *text, size_t size_bytes,
                          size_t from, bool with_special, bd_added_match *match);

#endif
