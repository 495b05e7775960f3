// rotary.h - rotary positions: pairs of channels of queries and keys are turned by an angle that
// grows with the token's position in its document.
//
// Channels i and i + head_size / 2 of a head are the coordinates of pair i (the half-rotation of
// transformers). With p = past + t - b, the position of token t of a segment that begins at b,
// pair i is turned by p * turns[i]:
//
//   (x, y) -> scale * (x cos a - y sin a, y cos a + x sin a)        a = 2 pi p turns[i]
//
// Angles are kept as turns in 64-bit fixed point: turns[i] = frequency / (2 pi) * 2^64. Then
// p * turns[i] modulo 2^64 is the fraction of a turn, without rounding at any position; only
// what is left of a turn is converted to float. The position comes from the boundaries, inside
// the kernel: nothing per token is made on the host.
#ifndef BINDERY_KERNELS_ROTARY_H
#define BINDERY_KERNELS_ROTARY_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

// past   [segments of the batch]: how many tokens of its document precede a segment; NULL: none
// x      token t, head h: x[t * stride + h * head_size …], of `type`, turned in place; padding
//        is left alone. n_heads neighbouring heads; numbers between tokens are left alone
// head_size  even, at most BD_MOST_HEAD_SIZE (attention.h)
// turns  [head_size / 2], the backend's memory
// scale  of the result; 1, or YaRN's factor
// inverse  turns back: the transpose, which the backward pass needs. (The scale is the same:
//        the transpose of scale * rotation is scale * inverse rotation)
typedef struct bd_rotary_args {
    bd_boundaries boundaries;
    const int32_t *past;
    bd_type type;
    int64_t n_heads, head_size, stride;
    const uint64_t *turns;
    float scale;
    int32_t inverse;
    void *x;
} bd_rotary_args;

#endif
