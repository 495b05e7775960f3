// fit.h - which row each segment goes to: best fit or first fit, longest segments first.
//
//   lengths = { 5, 4, 1, 7 }, seq_len = 10
//
//            best fit                                first fit
//   row 0   5 5 5 5 5 4 4 4 4 1   segments 0 1 2     5 5 5 5 5 4 4 4 4 .   segments 0 1
//   row 1   7 7 7 7 7 7 7 . . .   segment 3          1 7 7 7 7 7 7 7 . .   segments 2 3
//
// The rows are those of the textbook, decreasing: segments are taken by decreasing length, in
// input order among equals. Best fit puts each into the row with the least room that still
// holds it, the row opened first among equals; first fit into the row opened first that still
// holds it; both open a new row if none holds it. A row that has max_segments segments holds
// nothing more. Only the numbers of the rows differ from the textbook's: they follow the input,
// so that row 0 holds segment 0. The result depends on the arguments alone.
#ifndef BINDERY_PACKER_PACK_FIT_H
#define BINDERY_PACKER_PACK_FIT_H

#include <stdint.h>

#include "common/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// lengths      [n], each 1 to seq_len; only read
// max_segments at least 1, or 0 for no limit
// row_of       [n], the caller's, out: the row of each segment. Rows are numbered from 0 in the
//              order of their earliest segment
// n_rows       out: how many rows that makes; 0 if n is 0
//
// 0 <= n <= INT32_MAX, seq_len >= 1, and row_of does not overlap lengths. A length that is out
// of range is BD_ERR_ARGUMENT and the message names the segment. On failure row_of and *n_rows
// are left as they were.
//
// Time: two passes over the segments, between them a step that grows with the number of
// different lengths rather than of segments. Memory besides the arguments: 4 bytes per row,
// about 120 bytes per different length, 4 KiB for every 1024 neighbouring lengths of which one
// occurs, and 8 bytes per 1024 tokens of seq_len. `bench_fit` measures both.
bd_status bd_fit_best(const int32_t *lengths, int64_t n, int32_t seq_len, int32_t max_segments,
                      int32_t *row_of, int32_t *n_rows, bd_error *err);
bd_status bd_fit_first(const int32_t *lengths, int64_t n, int32_t seq_len, int32_t max_segments,
                       int32_t *row_of, int32_t *n_rows, bd_error *err);

#ifdef __cplusplus
}
#endif

#endif
