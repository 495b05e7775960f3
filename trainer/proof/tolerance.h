// tolerance.h - how far a gradient in float or bf16 may be from the exact one.
//
//   |G_i - D_i|  <=  4 max(N_i, (h u + 2 v) S_i)
//
// N_i and S_i are those of uncertainty.h. u is 2^-24: gradients of parameters are summed in
// float whatever the kernels store. h is the largest number of roundings between a term and the
// result of its sum. v is the unit of the type that the kernels store: a term is a product of
// two such numbers, and where these are alike, as the gradients at the targets of an untrained
// model are, so are their errors. The second argument of max() bounds, to first order, the
// error of the sum and of storing its terms; the first is statistical and covers the error that
// the terms have from the layers before. An element without a term, which no rounding moves
// (S_i = N_i = 0), must be exactly 0. No number here depends on a processor. docs/proof.md has
// the derivation, and says which choices were made after looking at results.
#ifndef BINDERY_TRAINER_PROOF_TOLERANCE_H
#define BINDERY_TRAINER_PROOF_TOLERANCE_H

#include <math.h>
#include <stdint.h>

#include "kernels/summation.h"
#include "kernels/type.h"

// N_i, the largest of four errors or the typical one of a row, is about 1.5 standard
// deviations. The worst of a model's millions of elements is at 5 to 6.
#define BD_TOLERANCE_FACTOR 4.0

// The largest relative error of one rounding to the nearest.
static inline double bd_rounding_unit(bd_type type)
{
    return type == BD_BF16 ? 0x1p-8 : 0x1p-24;
}

// An input of ReLU is 0 up to rounding if it is below this share of the token's largest: the
// error of its sum or of storing it, whichever is larger, times the same factor.
static inline double bd_nearly_zero(bd_type type)
{
    const double own_sum = (double)BD_LONGEST_SUM * bd_rounding_unit(BD_FLOAT);
    return BD_TOLERANCE_FACTOR * fmax(own_sum, bd_rounding_unit(type));
}

// The error of a sum of terms of such a type whose absolute values add up to 1.
static inline double bd_sum_rounding(int64_t longest_sum, bd_type type)
{
    return (double)longest_sum * bd_rounding_unit(BD_FLOAT) + 2 * bd_rounding_unit(type);
}

static inline double bd_tolerance(double noise, double magnitude, double sum_rounding)
{
    const double own_sum = sum_rounding * magnitude;
    // Unlike fmax(), this does not ignore NaN.
    return BD_TOLERANCE_FACTOR * (noise <= own_sum ? own_sum : noise);
}

#endif
