// locate.h - what one token of a dataset is: of which document, at which place of it, and what
// lies around it.
//
//   row         a a a a a | b b | c c c c c | p p          token 9 of the row
//                                   ^                       position 2 of segment 2
//   document c  c c c c c c c c c |  (offset 4)             token 6 of the document
#ifndef BINDERY_PACKER_LOCATE_LOCATE_H
#define BINDERY_PACKER_LOCATE_LOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "common/dataset/shard.h"
#include "common/tokenizer/tokenizer.h"
#include "packer/locate/locate_address.h"

#define BD_TOKEN_KINDS(X)                                        \
    X(BD_TOKEN_TEXT, "text")                                     \
    X(BD_TOKEN_BOS, "bos")             /* begins its document */ \
    X(BD_TOKEN_SEPARATOR, "separator") /* ends its document */   \
    X(BD_TOKEN_PADDING, "padding")     /* belongs to none */
BD_ENUM(bd_token_kind, BD_TOKEN_KINDS);

// Bytes of text, not ended by NUL.
typedef struct bd_text_part {
    char *bytes;  // owned
    size_t n, capacity;
    uint8_t *trained;  // [n], owned: whether the byte is of a trained token; NULL if not known
    size_t trained_capacity;
} bd_text_part;

typedef struct bd_location {
    bd_token_address address;
    int64_t row;  // of the whole dataset
    uint32_t id;
    bd_token_kind kind;
    bool has_target;
    uint32_t target;  // the id that is to be predicted here
    bool is_masked;   // the dataset has loss masks
    bool trained;     // the token is a target itself: not masked, nor the first of its segment
    // The rest has no meaning for padding.
    int64_t segment, n_segments;  // of the row
    int64_t begin, end;           // of the segment in the row
    uint32_t input;               // below the manifest's n_inputs
    uint64_t position;            // of the document's record in its input
    int64_t offset;               // of the segment in its document, tokens
    int64_t length;               // of the document, tokens
    int64_t token;                // index in its document
    bool repeated;                // it was in the piece before and is here as context
    int64_t text_before;          // bytes of the document's text before it; BD_UNKNOWN if a
                                  // piece with some of it was not found
    // The document's text; tokens without text as <ID>. Only if is_masked it is known which of it
    // is trained.
    bd_text_part before, marked, after;
} bd_location;

// Frees the text. Safe on an empty struct and safe twice.
void bd_location_release(bd_location *location);

typedef struct bd_locator {
    const char *folder;             // borrowed
    const bd_manifest *manifest;    // borrowed
    const bd_tokenizer *tokenizer;  // borrowed
    int64_t context;                // bytes of text on either side
    bd_hasher *hasher;              // owned
    bd_shard shard;                 // owned; open if is_open
    size_t shard_index;
    bool is_open;
} bd_locator;

enum { BD_MAX_CONTEXT = 1 << 20 };

// 0 <= context <= BD_MAX_CONTEXT. Release it also after a failure.
bd_status bd_locator_init(bd_locator *locator, const char *folder, const bd_manifest *manifest,
                          const bd_tokenizer *tokenizer, int64_t context, bd_error *err);

// Fills *location, `marked` with the text of `n_marked` >= 1 tokens from the address on. The
// address is one of the dataset. A shard that breaks a rule is BD_ERR_FORMAT. The other pieces
// of a split document are looked for in all rows of its shard. Memory: 16 bytes for each token
// that is marked or may be shown around. Release what comes out, also after a failure.
bd_status bd_locate(bd_locator *locator, const bd_token_address *address, int64_t n_marked,
                    bd_location *location, bd_error *err);

void bd_locator_release(bd_locator *locator);  // safe on an empty struct and safe twice

#endif
