// loss_mask.h - which tokens of a batch are trained, in the bits of the shard.
//
//   row 0   a a a | b b | p          offsets = { 2, BD_ALL_TRAINED }
//   row 1   c | d d d d d            bits    = { 0b01011000, … }
//                                                  ^^^^^^ row 0, from right to left
//
// Token t is trained, that is, may be a target, if its bit is set: bit offsets[r] + t of row r,
// where bit 0 is the lowest of the first byte. A row may begin inside a byte, because a shard's
// rows follow each other without a gap. For neighbouring rows of a shard `bits` points into the
// mapped file; otherwise the whole bytes that hold a row were copied as they are. All tokens of a
// row whose offset is BD_ALL_TRAINED are trained. The host never makes a byte per token of it.
#ifndef BINDERY_KERNELS_LOSS_MASK_H
#define BINDERY_KERNELS_LOSS_MASK_H

#include <stdbool.h>
#include <stdint.h>

enum { BD_ALL_TRAINED = -1 };

typedef struct bd_loss_mask {
    const uint8_t *bits;     // borrowed; NULL: no row has a mask
    const int64_t *offsets;  // [n_rows], borrowed: the bit at which a row begins
} bd_loss_mask;

static inline bool bd_row_has_mask(const bd_loss_mask *mask, int64_t r)
{
    return mask->bits && mask->offsets[r] != BD_ALL_TRAINED;
}

static inline bool bd_token_is_trained(const bd_loss_mask *mask, int64_t r, int64_t t)
{
    if (!bd_row_has_mask(mask, r))
        return true;
    const int64_t bit = mask->offsets[r] + t;
    return mask->bits[bit / 8] >> bit % 8 & 1;
}

// The number of targets of a segment, tokens [begin, end) of row r: its trained tokens but for the
// first, which nothing precedes.
static inline int64_t bd_count_targets(const bd_loss_mask *mask, int64_t r, int64_t begin,
                                       int64_t end)
{
    if (!bd_row_has_mask(mask, r))
        return end - begin - 1;
    const int64_t first = mask->offsets[r] + begin + 1, last = mask->offsets[r] + end;
    int64_t n_targets = 0;
    for (int64_t i = first / 8; 8 * i < last; i++) {
        unsigned byte = mask->bits[i];
        if (8 * i < first)
            byte &= 0xffu << (first - 8 * i);
        if (last < 8 * i + 8)
            byte &= 0xffu >> (8 * i + 8 - last);
        n_targets += __builtin_popcount(byte);
    }
    return n_targets;
}

#endif
