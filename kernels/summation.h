// summation.h - how far rounding may carry a sum away.
//
// A sum of n floats taken in some order errs, to first order, by at most d u S:
//   u = 2^-24, half a unit in the last place;
//   S = the sum of the absolute terms, which is much more than the result where terms cancel;
//   d = the most roundings that any one term meets: that of its own product, if it is one, and
//       those of the additions that it takes part in.
// One term after the other, d is n. That is not only a worst case: what is smaller than half a
// unit of the sum so far is lost at every addition, always in the same direction, so that the
// gradients of thousands of tokens share the error (`prove` on a trained model sees it). So long
// sums are taken in short stretches, whose results are joined on a second level, and those on a
// third; or the second level is in double.
//
// The CPU backend keeps to it on every instruction set, wherever a sum runs over tokens, over the
// outputs or inputs of a layer, or over channels (tests/unit/kernels/summation_test.c counts). Attention
// keeps running sums of blocks of 64 keys or queries: there d is 64 and 2 for each block of a segment
// (128 over the channels of a head). CUDA's products are summed in cuBLAS's order.
#ifndef BINDERY_KERNELS_SUMMATION_H
#define BINDERY_KERNELS_SUMMATION_H

enum {
    // d of any sum of at most BD_LONGEST_SUM_TERMS terms that one call of an operation takes ...
    BD_LONGEST_SUM = 192,
    BD_LONGEST_SUM_TERMS = 131072,
    // ... and where calls add to the same gradient, one more for each of them, and for each so
    // many tokens (or fewer) of a call.
    BD_LONGEST_SUM_GROUP = 4096,
};

#endif
