// split_scalar.h - the known patterns, one character after the other.
//
// Written after the regular expressions, alternative by alternative. The vector code must give
// the same words; where there is none, this code runs.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_SCALAR_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_SCALAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/tokenizer/split/split_step.h"

// StarCoder's two steps, BD_PATTERN_DIGIT and then BD_PATTERN_GPT2, in one. No file names it:
// the splitter joins the two, because the pieces between digits are too short to begin anew for
// each.
#define BD_PATTERN_DIGIT_GPT2 ((bd_pattern)(BD_PATTERN_OTHER + 1))

// The length of the word of `pattern` (not BD_PATTERN_OTHER) at the start of s, which has
// n >= 1 bytes. The text before s does not matter.
size_t bd_scalar_word(bd_pattern pattern, const uint8_t *s, size_t n);

// The length of the contraction at s (n bytes, any number): 's, 't, 'm, 'd, 're, 've or 'll;
// 0 if there is none. `any_case`: capitals and U+017F, the long s, too.
size_t bd_contraction(const uint8_t *s, size_t n, bool any_case);

#endif
