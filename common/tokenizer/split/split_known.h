// split_known.h - cuts a piece of text into the words of a known pattern, by the best code that
// the machine can run.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_KNOWN_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_KNOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/tokenizer/split/split_blocks.h"
#include "common/tokenizer/split/split_step.h"

typedef enum bd_split_isa {
    BD_SPLIT_SCALAR,  // split_scalar.h, the reference
    BD_SPLIT_AVX2,    // split_blocks.h
    BD_SPLIT_AVX512,
    BD_SPLIT_N_ISA,
} bd_split_isa;

bool bd_split_isa_serves(bd_split_isa isa);  // on this machine and in this build
bd_split_isa bd_split_isa_best(void);

typedef struct bd_known_cutter {
    bd_pattern pattern;
    bd_split_blocks *cut;    // NULL: the scalar code
    const char *text;        // borrowed
    size_t at, end;          // of the scalar code
    bd_block_cutter blocks;  // of `cut`
    // Words for which the caller had no room: a block is cut whole.
    size_t n_held, next_held;
    uint32_t held[BD_BLOCK_ROOM];
} bd_known_cutter;

// Starts on text[begin, end) alone: the text outside is not seen.
void bd_known_cutter_begin(bd_known_cutter *cutter, bd_split_isa isa, bd_pattern pattern,
                           const char *text, size_t begin, size_t end);

// The ends of the next words in the text, at most `capacity` (at least 1); 0 after the last.
size_t bd_known_cutter_next(bd_known_cutter *cutter, uint32_t *ends, size_t capacity);

#endif
