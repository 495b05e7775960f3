// split_dialect.h - a regular expression of Hugging Face's files in PCRE2's words.
//
// Those files mean Oniguruma's Ruby dialect and Unicode 16. Most is the same in both; what is
// not is written differently (\v, \u, {,n}, {n,m}+) or refused by name, so that no text is
// silently cut in another way. Whatever version of Unicode PCRE2 knows, \s, \d and \p{...}
// mean those of Unicode 16 (split_properties.h). The properties are L, Lu, Ll, Lt, M, N, Nd,
// Z, and Lm and Lo where both are in one set; all other properties and the scripts are refused.
// Where (?i holds, so is what Oniguruma would compare with several characters: what is not
// ASCII, \p and the negated classes in brackets, and ss, st, ff, fi, fl.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_DIALECT_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_DIALECT_H

#include "common/base/error.h"

enum { BD_MAX_EXPRESSION_BYTES = 1 << 14 };

// *translated is malloc'd, the caller's to free, for PCRE2's options UTF, UCP and MULTILINE
// with LF as the only line end; at most 1 MiB. BD_ERR_UNSUPPORTED names what is not done.
bd_status bd_dialect_translate(const char *expression, char **translated, bd_error *err);

#endif
