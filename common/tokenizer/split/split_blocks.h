// split_blocks.h - the known patterns, 64 bytes at a time with masks.
//
// Compiled once for each instruction set. The words are those of split_scalar.h.
#ifndef BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_BLOCKS_H
#define BINDERY_COMMON_TOKENIZER_SPLIT_SPLIT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/tokenizer/split/split_step.h"

// Bit i is about byte i of a block; bits past the end of the text are 0.
typedef struct bd_block_masks {
    uint64_t valid;                            // inside the text
    uint64_t letter, number, white, other;     // one of them; all bytes of a character alike
    uint64_t upper, lower;                     // letters with case (Lu and Lt, Ll)
    uint64_t mark;                             // those of `other` that are \p{M}
    uint64_t inner;                            // not the first byte of a character
    uint64_t space, line_break, quote, slash;  // ' ', CR or LF, '\'', '/'
} bd_block_masks;

// The bytes of a block's last character that lie in the next block.
typedef struct bd_block_spill {
    uint64_t bits;
    uint32_t classes;
} bd_block_spill;

enum {
    // Most words that one block can end (each byte, and one that waited for it), and the
    // entries behind them that are overwritten.
    BD_BLOCK_ROOM = 65 + 16,
};

typedef struct bd_block_cutter {
    const uint8_t *text;  // borrowed
    size_t begin, end;    // of the rest of the piece when blocks were begun last
    size_t at;            // where `current` begins
    bool started, finished;
    bd_block_masks before, current;
    bd_block_spill spill;  // out of `current`
    // The blocks up to here leave this to the later ones, see split_starts.h.
    uint64_t carried_starts, carried_joins;  // that contractions set and clear in `current`
    uint64_t absorbed;  // line breaks of `before` that belong to the punctuation before them
    uint8_t lone_end;   // 1: `current` begins in or after a lone character
    uint32_t digits;    // of the group of numbers that `before` ends in
    bool waiting;       // `waiting_start` is a start if no line break follows
    size_t waiting_start;
    size_t contraction_end;  // of the last contraction
    // For o200k, whose words are sometimes cut one by one.
    size_t last_start;    // the last start that is known
    size_t scalar_until;  // words before it are cut one by one; none if at most `last_start`
} bd_block_cutter;

// Writes the ends of the next words of any pattern but BD_PATTERN_OTHER, as long as there is
// room for BD_BLOCK_ROOM more, which must be there at first. Returns 0 after the last. A cutter
// that begins has `text`, `begin` = `at` and `end`, all else is 0.
typedef size_t bd_split_blocks(bd_block_cutter *cutter, bd_pattern pattern, uint32_t *ends,
                               size_t capacity);
bd_split_blocks bd_split_blocks_avx2, bd_split_blocks_avx512;

#endif
