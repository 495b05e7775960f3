// tokenizer.h - text to ids and back, whatever the tokenizer.
//
// A tokenizer is immutable after it was opened and may be used by any number of threads.
// Each kind is one file that fills a bd_tokenizer_kind; `bytes` is built in.
#ifndef BINDERY_COMMON_TOKENIZER_TOKENIZER_H
#define BINDERY_COMMON_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/checksum.h"
#include "common/error.h"

typedef struct bd_tokenizer bd_tokenizer;

typedef struct bd_tokenizer_kind {
    // Most ids that a text of `size_bytes` can become.
    size_t (*max_ids)(const bd_tokenizer *tokenizer, size_t size_bytes);
    // Writes the ids of `text` to `ids`, which has room for max_ids(size_bytes), and returns
    // how many. Any bytes are accepted; no separator or BOS is added.
    size_t (*encode)(const bd_tokenizer *tokenizer, const char *text, size_t size_bytes,
                     uint32_t *ids);
    // The bytes of token `id`, borrowed; NULL and 0 for a token that stands for no text.
    const char *(*token_bytes)(const bd_tokenizer *tokenizer, uint32_t id, size_t *size_bytes);
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
    bd_digest fingerprint;   // over what the ids mean, not over a file's bytes
};

// The tokenizer that `spec` names: "bytes", "ids:N", or (not yet) a file. Close it with
// bd_tokenizer_close().
bd_status bd_tokenizer_open(const bd_tokenizer **tokenizer, const char *spec, bd_error *err);
void bd_tokenizer_close(const bd_tokenizer *tokenizer);  // safe on NULL

// 256 bytes and a separator, nothing to download: id = byte value, 256 = <|endoftext|>.
const bd_tokenizer *bd_tokenizer_bytes(void);

// Ids from 0 to vocab_size - 1 of which nothing is known, as tokenised data brings them.
bd_status bd_tokenizer_open_ids(const bd_tokenizer **tokenizer, int64_t vocab_size,
                                bd_error *err);

#endif
