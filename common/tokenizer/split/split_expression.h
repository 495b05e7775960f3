// split_expression.h - a regular expression and where it matches, by PCRE2.
//
// Letters and numbers are those of unicode_class.h, not of PCRE2's own version of Unicode
// (10.42: 14.0).
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_EXPRESSION_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct bd_expression bd_expression;  // immutable, for any number of threads

// Compiles an expression in Oniguruma's dialect, see split_dialect.h. A bad expression is
// BD_ERR_FORMAT with a message that says where; `source` is copied for messages.
bd_status bd_expression_new(const char *source, bd_expression **expression, bd_error *err);

// The same for an expression that is in PCRE2's dialect already.
bd_status bd_expression_new_translated(const char *source, const char *translated,
                                       bd_expression **expression, bd_error *err);
void bd_expression_free(bd_expression *expression);  // safe on NULL

typedef struct bd_finder bd_finder;  // one thread's

// One of `n_finders`, 1 to 64, that a thread has: memory of all together at most 33 MiB. The
// expression must outlive it.
bd_status bd_finder_new(const bd_expression *expression, size_t n_finders, bd_finder **finder,
                        bd_error *err);
void bd_finder_free(bd_finder *finder);  // safe on NULL

// The steps that it may take for a document: two seconds of work for a megabyte. The patterns
// of published tokenizers need less than a hundredth of it on any text.
enum { BD_FEWEST_MATCH_STEPS = 1 << 16, BD_MATCH_STEPS_PER_BYTE = 128 };

// Begins a document of `size_bytes`: all searches from now on, in however many texts, share the
// steps of one document. Without this call there is no limit.
void bd_finder_allow(bd_finder *finder, size_t size_bytes);
int64_t bd_finder_steps_left(const bd_finder *finder);

typedef struct bd_match {
    size_t begin, end;
} bd_match;

// The first match that begins at `from` or after it, *found false if there is none. `text` is
// valid UTF-8 and `from` the start of a character or the end. An expression that tries too many
// ways or needs too much memory is BD_ERR_LIMIT and is named; which text is too much does not
// depend on time. A signal that was noted is BD_ERR_INTERRUPTED.
bd_status bd_finder_find(bd_finder *finder, const char *text, size_t size_bytes, size_t from,
                         bd_match *match, bool *found, bd_error *err);

#endif
