// split_dialect.h - translates a regular expression of Hugging Face's files for PCRE2.
//
// Those files mean Oniguruma's Ruby dialect and Unicode 16. Most syntax is the same in both.
// Syntax that differs is translated (\v, \u, {,n}, {n,m}+) or refused by name, so that no text
// is silently cut in another way. Whatever version of Unicode PCRE2 knows, \s, \d and \p{...}
// mean those of Unicode 16 (split_properties.h). The properties are L, Lu, Ll, Lt, M, N, Nd, Z,
// and Lm and Lo if both are in one set; all other properties and the scripts are refused. With
// (?i, syntax that Oniguruma would compare with several characters is refused as well:
// characters that are not ASCII, \p and the negated classes in brackets, and ss, st, ff, fi,
// fl.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_DIALECT_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_DIALECT_H

#include "common/base/error.h"

enum { BD_MAX_EXPRESSION_BYTES = 1 << 14 };

// *translated is malloc'd, the caller's to free, for PCRE2's options UTF, UCP and MULTILINE
// with LF as the only line end; at most 1 MiB. BD_ERR_UNSUPPORTED names the syntax that is
// refused.
bd_status bd_dialect_translate(const char *expression, char **translated, bd_error *err);

#endif
