// tokenizer.h - text to ids and back, whatever the tokenizer.
//
// A tokenizer is immutable after it was opened and may be used by any number of threads.
// Each kind is one file that fills a bd_tokenizer_kind; `bytes` is built in.
#ifndef BINDERY_COMMON_TOKENIZER_TOKENIZER_H
#define BINDERY_COMMON_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/tokenizer/added_counts.h"

typedef struct bd_tokenizer bd_tokenizer;
typedef struct bd_encoder bd_encoder;

typedef struct bd_tokenizer_kind {
    // Most ids that a text of `size_bytes` can become.
    size_t (*max_ids)(const bd_tokenizer *tokenizer, size_t size_bytes);
    // Makes *state, which one thread needs to encode; both are NULL for kinds that need none.
    bd_status (*begin_encoding)(const bd_tokenizer *tokenizer, void **state, bd_error *err);
    void (*end_encoding)(void *state);
    // Writes the ids of `text` to `ids`, which has room for max_ids(size_bytes). Any bytes are
    // accepted; no separator or BOS is added.
    bd_status (*encode)(bd_encoder *encoder, const char *text, size_t size_bytes, uint32_t *ids,
                        size_t *n, bd_error *err);
    // The bytes of token `id`, borrowed; NULL and 0 for a token that stands for no text.
    const char *(*token_bytes)(const bd_tokenizer *tokenizer, uint32_t id, size_t *size_bytes);
    // The same, and for a token that stands for no text the way it is written. NULL for kinds
    // whose token_bytes() tells all.
    const char *(*token_name)(const bd_tokenizer *tokenizer, uint32_t id, size_t *size_bytes);
    // The token that is written `text`, also one that stands for no text; false if none is.
    bool (*find_token)(const bd_tokenizer *tokenizer, const char *text, size_t size_bytes,
                       uint32_t *id);
    // The text of the dataset's tokenizer.json, malloc'd, the caller's to free.
    bd_status (*to_file)(const bd_tokenizer *tokenizer, char **text, bd_error *err);
    // Frees the tokenizer; NULL for those that live as long as the program.
    void (*close)(bd_tokenizer *tokenizer);
} bd_tokenizer_kind;

enum { BD_NO_SEPARATOR = -1, BD_MAX_IDS_VOCABULARY = 1 << 22 };

struct bd_tokenizer {
    const bd_tokenizer_kind *kind;
    const char *name;
    int64_t vocab_size;
    int64_t separator;       // default separator, or BD_NO_SEPARATOR
    bool takes_text;         // documents can be tokenised with it
    double tokens_per_byte;  // of ordinary text, to estimate sizes
    bd_digest fingerprint;   // over the meaning of the ids, not over the bytes of a file
};

// The tokenizers that need no file: "bytes". Ended by NULL.
extern const char *const bd_built_in_tokenizers[];

// The tokenizer that `spec` names: "bytes", "ids:N", or a file (bd_tokenizer_open_bpe()). Close
// it with bd_tokenizer_close(). On failure *tokenizer is NULL.
bd_status bd_tokenizer_open(const bd_tokenizer **tokenizer, const char *spec, bd_error *err);
void bd_tokenizer_close(const bd_tokenizer *tokenizer);  // safe on NULL

// The way the token is written, borrowed, even if it stands for no text; NULL and 0 if nothing
// is known about it.
const char *bd_token_name(const bd_tokenizer *tokenizer, uint32_t id, size_t *size_bytes);

// A text may spell out a special token, such as <|endoftext|>. It then becomes text like any
// other, the token, or BD_ERR_FORMAT with a message that says which token and where. Added
// tokens that are not special become tokens in any case.
#define BD_SPECIAL_TOKENS(X)     \
    X(BD_SPECIAL_TEXT, "text")   \
    X(BD_SPECIAL_TOKEN, "token") \
    X(BD_SPECIAL_ERROR, "error")
BD_ENUM(bd_special_tokens, BD_SPECIAL_TOKENS);

// The encoder of one thread. The tokenizer must outlive it. The members after `state` may be
// set after init.
struct bd_encoder {
    const bd_tokenizer *tokenizer;     // borrowed
    void *state;                       // the kind's, owned
    bd_special_tokens special_tokens;  // BD_SPECIAL_TOKEN
    bool ordinary;                     // all added tokens are text like any other; false
    bd_added_counts *recognised;       // borrowed; added tokens that became ids; NULL
};

// On failure *encoder is empty. The memory depends on the kind: a BPE takes 70 MiB, and at most
// 33 more if it has expressions that are not built in.
bd_status bd_encoder_init(bd_encoder *encoder, const bd_tokenizer *tokenizer, bd_error *err);
void bd_encoder_release(bd_encoder *encoder);  // safe on an empty one and safe twice

// Writes the ids of `text` to `ids`, which has room for the kind's max_ids(size_bytes). Any
// bytes are accepted; no separator or BOS is added. A text on which a regular expression of the
// tokenizer would work for too long is BD_ERR_LIMIT.
bd_status bd_encode(bd_encoder *encoder, const char *text, size_t size_bytes, uint32_t *ids,
                    size_t *n, bd_error *err);

// The tokenizer that the dataset in `folder` was packed with: the one that `name` names, or,
// where that is BD_BPE_NAME, the one of the folder's own tokenizer.json.
bd_status bd_tokenizer_open_stored(const bd_tokenizer **tokenizer, const char *folder,
                                   const char *name, bd_error *err);

// A byte-level BPE from a file, see bd_bpe_model_load().
#define BD_BPE_NAME "bpe"
bd_status bd_tokenizer_open_bpe(const bd_tokenizer **tokenizer, const char *spec,
                                bd_error *err);

// 256 bytes and a separator, nothing to download: id = byte value, 256 = <|endoftext|>.
const bd_tokenizer *bd_tokenizer_bytes(void);

// Ids from 0 to vocab_size - 1 without a meaning, as tokenised data brings them.
bd_status bd_tokenizer_open_ids(const bd_tokenizer **out, int64_t vocab_size, bd_error *err);

#endif
