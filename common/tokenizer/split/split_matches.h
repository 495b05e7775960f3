// split_matches.h - cuts a piece of text at the matches of a regular expression.
//
// A byte that is not part of a valid UTF-8 sequence counts as U+FFFD, one for each.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_MATCHES_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_MATCHES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/tokenizer/split/split_expression.h"

typedef struct bd_match_cutter {
    bd_finder *finder;    // owned
    char *replaced;       // the piece with U+FFFD in it, owned; at most 3 times as long
    size_t room_bytes;    // of `replaced`
    const char *subject;  // the text that is matched: the piece or `replaced`, borrowed
    size_t subject_bytes;
    size_t at;           // where in `subject` the next word begins
    size_t from;         // where the next match is looked for; past the end: no more
    size_t match_end;    // of a match whose gap before it was the last word; else at most `at`
    const char *text;    // the piece's place, borrowed
    size_t piece_begin;  // in the text
    size_t piece_bytes;
    size_t mapped_subject, mapped_text;  // one place in `subject` and in the piece
} bd_match_cutter;

// One of `n_cutters` that a thread has: see bd_finder_new(). On failure *cutter is empty. The
// expression must outlive it.
bd_status bd_match_cutter_init(bd_match_cutter *cutter, const bd_expression *expression,
                               size_t n_cutters, bd_error *err);
void bd_match_cutter_release(bd_match_cutter *cutter);  // safe on an empty one

// See bd_finder_allow().
void bd_match_cutter_allow(bd_match_cutter *cutter, size_t size_bytes);

// Starts on text[begin, end) alone: the text outside is not seen.
bd_status bd_match_cutter_begin(bd_match_cutter *cutter, const char *text, size_t begin,
                                size_t end, bd_error *err);

// The ends of the next words in the text, at most `capacity` (at least 1); *n is 0 after the
// last.
bd_status bd_match_cutter_next(bd_match_cutter *cutter, uint32_t *ends, size_t capacity,
                               size_t *n, bd_error *err);

#endif
