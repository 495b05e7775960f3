// bpe_model.h - the meaning of a byte-level BPE tokenizer, whatever file it came from.
//
// Loaders fill it and check it; splitter, merger and added tokens are built from it. Two files
// with the same meaning have the same fingerprint.
//
// Invariants, established by every loader:
//   every byte has a token of its own (byte_ids);
//   begins[i] <= begins[i + 1]; an id that is not used has no bytes and is no added token;
//   no two tokens of the merging vocabulary have the same bytes;
//   the bytes of a merge's product are those of its two parts, and all three are tokens;
//   a product has one merge: those that can never happen are left out (live_merges.h).
#ifndef BINDERY_COMMON_TOKENIZER_MODEL_BPE_MODEL_H
#define BINDERY_COMMON_TOKENIZER_MODEL_BPE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "common/tokenizer/model/tokenizer_file.h"
#include "common/tokenizer/split/split_step.h"

enum {
    BD_MAX_VOCABULARY = (1 << 21) - 1,  // ids
    BD_MAX_TOKEN_BYTES = 1 << 16,       // of one token
    BD_MAX_VOCABULARY_BYTES = 1 << 28,  // of all
};

// Two neighbours that become one token. The rank of a merge is its index: the lowest is done
// first, and among equals the leftmost.
typedef struct bd_merge {
    uint32_t left, right, product;  // ids
} bd_merge;

// A text that is one token wherever it stands, before anything is split.
typedef struct bd_added_token {
    uint32_t id;
    bool special;       // control: decoders leave it out
    bool left_strip;    // takes the white space before it
    bool right_strip;   // and after it
    bool single_word;   // only where no letter, digit or underscore touches it
    bool normalized;    // looked for after the others, in the normalised text
    bool merges;        // merging, or a whole word, gives the same id as well
    size_t size_bytes;  // of `text`, at least 1
    const char *text;   // owned by the model
} bd_added_token;

typedef struct bd_bpe_model {
    uint32_t n_ids;    // the highest id in use, plus 1
    uint32_t *begins;  // [n_ids + 1] of each token's bytes in `bytes`, owned
    char *bytes;       // owned; those of an added token are its text
    uint32_t byte_ids[256];
    bd_merge *merges;  // [n_merges], owned, in the order of their ranks
    size_t n_merges;
    // A word that is a token of the merging vocabulary becomes that token, even if merging
    // would give others ("ignore_merges", as in tiktoken). False if it makes no difference.
    bool whole_words;
    bd_added_token *added;  // [n_added], owned, in the order of their ids
    size_t n_added;
    bd_split_step *steps;  // [n_steps], owned: how text becomes words
    size_t n_steps;
    bool nfc;           // text between added tokens is normalised first
    bool prefix_space;  // a space is put before text that does not begin with one
} bd_bpe_model;

// The added token with this id, NULL if there is none.
const bd_added_token *bd_bpe_model_added(const bd_bpe_model *model, uint32_t id);

// Whether `id` belongs to the vocabulary that merging works on: it has bytes and is not an
// added token alone.
bool bd_bpe_model_merges_to(const bd_bpe_model *model, uint32_t id);

// Reads the model from a tokenizer.json, a folder with one, a vocab.json with its merges.txt
// beside it (or a folder with both), or "FILE:PATTERN", a .tiktoken file and the name of a
// pattern. A feature that is not supported is BD_ERR_UNSUPPORTED and named; damage is
// BD_ERR_FORMAT. On failure *model is empty. A file has at most BD_MAX_TOKENIZER_FILE bytes;
// loading takes the memory of the file and about 10 times the model.
bd_status bd_bpe_model_load(bd_bpe_model *model, const char *spec, bd_error *err);

// The same from memory. `name` is for messages.
bd_status bd_bpe_model_parse_json(bd_bpe_model *model, const char *text, size_t size_bytes,
                                  const char *name, bd_error *err);

// Prints a tokenizer.json that Hugging Face's `tokenizers` opens and that has the same meaning;
// malloc'd, the caller's to free. Models of one fingerprint give the same text. It has no
// post-processor, because tokens before and after a text are not part of the model.
bd_status bd_bpe_model_to_json(const bd_bpe_model *model, char **text, bd_error *err);

// The checksum of the meaning: bytes of every id, merges in their order, splitting, added
// tokens with their flags. Empty when out of memory.
bd_digest bd_bpe_model_fingerprint(const bd_bpe_model *model);

void bd_bpe_model_release(bd_bpe_model *model);  // safe on an empty model and safe twice

#endif
