// tokenizer_config.h - tokenizer_config.json, by which Hugging Face's transformers know how to
// open the tokenizer.json beside it and which of its tokens ends a document.
#ifndef BINDERY_COMMON_TOKENIZER_TOKENIZER_CONFIG_H
#define BINDERY_COMMON_TOKENIZER_TOKENIZER_CONFIG_H

#include <stdint.h>

#include "common/base/error.h"

#define BD_TOKENIZER_CONFIG_NAME "tokenizer_config.json"

enum { BD_NO_TOKEN = -1, BD_NO_MAX_LENGTH = 0 };

typedef struct bd_tokenizer_config {
    const char *tokenizer;  // the text of the tokenizer.json; borrowed
    int64_t eos, bos, pad;  // ids, or BD_NO_TOKEN
    int64_t max_length;     // most tokens that a model takes, or BD_NO_MAX_LENGTH
} bd_tokenizer_config;

// *text is malloc'd, ends with a newline, and is the caller's to free. An id that is not in the
// file's list of added tokens is left out: transformers would turn it into an added token, find
// it in texts, and so give those texts other ids than we do.
bd_status bd_tokenizer_config_print(const bd_tokenizer_config *config, char **text,
                                    bd_error *err);

#endif
