// model_parts.h - the parts of a tokenizer that a loader has read, and the checked model made
// of them.
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_MODEL_PARTS_H
#define BINDERY_COMMON_TOKENIZER_MODEL_MODEL_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/error.h"
#include "common/tokenizer/model/bpe_model.h"
#include "common/tokenizer/model/vocabulary.h"

typedef struct bd_model_parts {
    bd_vocabulary tokens;   // entries of the vocabulary, by their bytes
    bd_vocabulary foreign;  // those that are not written in the byte alphabet, by their text
    bd_vocabulary added_texts;
    bd_added_token *added;  // [n_added], owned, in the order of the file; `text` is not set
    size_t n_added, added_capacity;
    bd_merge *merges;  // [n_merges], owned
    size_t n_merges, merge_capacity;
    bool ids_are_ranks;    // no merges are given: any two parts of a token merge
    bool whole_words;      // asked for, whether it makes a difference or not
    bd_split_step *steps;  // [n_steps], owned
    size_t n_steps, step_capacity;
    bool nfc, prefix_space;
} bd_model_parts;  // all zero is an empty one

// An entry of the vocabulary as its file writes it.
bd_status bd_model_parts_add_entry(bd_model_parts *parts, const char *text, size_t size_bytes,
                                   int64_t id, bd_error *err);

// The id of the entry that its file writes like this, -1 if there is none.
int64_t bd_model_parts_find_entry(const bd_model_parts *parts, const char *text,
                                  size_t size_bytes);

// A merge of two such entries, which must be there already, as must the one they make.
bd_status bd_model_parts_add_merge(bd_model_parts *parts, const char *left, size_t left_bytes,
                                   const char *right, size_t right_bytes, bd_error *err);

// `token` has its flags; its id is `id`, which is not checked yet.
bd_status bd_model_parts_add_token(bd_model_parts *parts, bd_added_token token, int64_t id,
                                   const char *text, size_t size_bytes, bd_error *err);

// `expression` is copied; it is for BD_PATTERN_OTHER only.
bd_status bd_model_parts_add_step(bd_model_parts *parts, bd_pattern pattern,
                                  const char *expression, bd_error *err);

// The id that Hugging Face's `tokenizers` gives to an added token that its vocabulary does not
// have: it goes by the order of the file and not by the ids that are written there. `highest`
// is the highest id of the added tokens before it, -1 if there is none.
int64_t bd_next_added_id(size_t n_entries, int64_t highest);

// Checks everything and makes the model, which takes over memory of the parts. On failure
// *model is empty. Afterwards the parts can only be released.
bd_status bd_model_parts_assemble(bd_model_parts *parts, bd_bpe_model *model, bd_error *err);

void bd_model_parts_release(bd_model_parts *parts);  // safe twice

#endif
