// split_dialect.h - a regular expression of Hugging Face's files in PCRE2's words.
//
// Those files mean Oniguruma's Ruby dialect. Most is the same in both; what is not is written
// differently (\s, \v, \u, {,n}, {n,m}+, names of scripts) or refused by name, so that no text
// is silently cut in another way.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_DIALECT_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_DIALECT_H

#include "common/error.h"

enum { BD_MAX_EXPRESSION_BYTES = 1 << 14 };

// *translated is malloc'd, the caller's to free, for PCRE2's options UTF, UCP and MULTILINE
// with LF as the only line end. BD_ERR_UNSUPPORTED names what is not done.
bd_status bd_dialect_translate(const char *expression, char **translated, bd_error *err);

#endif
