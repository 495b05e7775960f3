// boundaries.h - where the documents lie in a batch of rows. The loader hands this to every
// kernel.
//
//   row 0   a a a | b b | p          offsets = { 7, 10, 13 }
//   row 1   c | d d d d |            values  = { …, 0 3 5, 0 1 5, … }
//                                                   ^ values[7]
//
// These are the two arrays of the shard's Arrow list: for neighbouring rows of a shard both
// pointers lie in the mapped file. Token t of row r is element r * seq_len + t of every
// per-token array. The host never derives a per-token array from them, and no mask exists
// anywhere.
//
// Invariants (bd_row_check() has checked them before a kernel sees a row):
//   row r has n = offsets[r + 1] - offsets[r] - 1 segments. With b = values + offsets[r],
//   0 = b[0] < b[1] < … < b[n] <= seq_len. Tokens from b[n] on are padding.
#ifndef BINDERY_KERNELS_BOUNDARIES_H
#define BINDERY_KERNELS_BOUNDARIES_H

#include <stdint.h>

typedef struct bd_boundaries {
    int64_t n_rows;
    int64_t seq_len;
    const int32_t *offsets;  // [n_rows + 1], borrowed
    const int32_t *values;   // borrowed
} bd_boundaries;

// The boundaries of row r, and the number of its segments.
static inline const int32_t *bd_row_bounds(const bd_boundaries *boundaries, int64_t r,
                                           int64_t *n_segments)
{
    *n_segments = boundaries->offsets[r + 1] - boundaries->offsets[r] - 1;
    return boundaries->values + boundaries->offsets[r];
}

// The number of segments in all rows.
static inline int64_t bd_count_segments(const bd_boundaries *boundaries)
{
    return (int64_t)boundaries->offsets[boundaries->n_rows] - boundaries->offsets[0] -
           boundaries->n_rows;
}

// The number of tokens of row r before its padding.
static inline int64_t bd_row_used(const bd_boundaries *boundaries, int64_t r)
{
    return boundaries->values[boundaries->offsets[r + 1] - 1];
}

#endif
