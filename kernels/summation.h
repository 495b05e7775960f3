// summation.h - a bound for the rounding error of every sum.
//
// The error of a sum of n floats, added in some order, is to first order at most d u S:
//   u = 2^-24, half a unit in the last place;
//   S = the sum of the absolute terms, which is much more than the result where terms cancel;
//   d = the largest number of roundings that any one term goes through: the rounding of its own
//       product, if it is one, and those of the additions that it takes part in.
// If the terms are added one after the other, d is n. That is not only a worst case: every
// addition loses whatever is smaller than half a unit of the sum so far, always in the same
// direction, so that the gradients of thousands of tokens share the error (`prove` sees it on a
// trained model). Therefore long sums are added in short runs, the sums of runs on a second
// level, and those on a third; or the second level is in double.
//
// The CPU backend keeps the bounds below on every instruction set, wherever a sum runs over
// tokens, over the outputs or inputs of a layer, or over channels
// (tests/unit/kernels/summation_test.c counts the roundings). Attention keeps running sums of
// blocks of 64 keys or queries: there d is 64, plus 2 for each block of a segment (128 over the
// channels of a head). On CUDA, cuBLAS chooses the order of the sums in matrix products.
#ifndef BINDERY_KERNELS_SUMMATION_H
#define BINDERY_KERNELS_SUMMATION_H

enum {
    // The bound of d for a sum of at most BD_LONGEST_SUM_TERMS terms in one call of an
    // operation.
    BD_LONGEST_SUM = 192,
    BD_LONGEST_SUM_TERMS = 131072,
    // If several calls add to the same gradient, d grows by one for each call, and by one for
    // each group of so many tokens (the last may be smaller) of a call.
    BD_LONGEST_SUM_GROUP = 4096,
};

#endif
