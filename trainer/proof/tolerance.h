// tolerance.h - how far a gradient that was computed in float or bf16 may be from the exact one.
//
//   |G_i - D_i|  <=  4 max(N_i, (h u + 2 v) S_i)
//
// u is 2^-24: gradients of parameters are summed in float whatever the kernels store. h is the most
// roundings that one term of such a sum goes through on its way into the result. v is the unit of what
// the kernels store: a term is a product of two such numbers, and where they are alike (what comes
// down from the targets of a model that knows nothing) all err alike. The second part is
// rigorous, to first order, for the sum and for the rounding of what is summed; the first is
// statistical, for what the terms bring along (uncertainty.h). An element without any term (S_i = 0)
// must be exactly 0. No number here depends on a processor; docs/proof.md has the derivation, and
// says which choices were made after looking at results.
#ifndef BINDERY_TRAINER_PROOF_TOLERANCE_H
#define BINDERY_TRAINER_PROOF_TOLERANCE_H

#include <math.h>
#include <stdint.h>

#include "kernels/summation.h"
#include "kernels/type.h"

// N_i is the largest of four errors, or the typical one of a row: about 1.5 standard deviations. A
// model has millions of elements, of which the worst is at 5 to 6.
#define BD_TOLERANCE_FACTOR 4.0

// The largest relative error of one rounding to the nearest.
static inline double bd_rounding_unit(bd_type type)
{
    return type == BD_BF16 ? 0x1p-8 : 0x1p-24;
}

// The share of a token's largest ReLU input below which an input is 0 up to rounding: its own sum's
// roundings, or the one when it was stored, by the same factor.
static inline double bd_nearly_zero(bd_type type)
{
    const double own_sum = (double)BD_LONGEST_SUM * bd_rounding_unit(BD_FLOAT);
    return BD_TOLERANCE_FACTOR * fmax(own_sum, bd_rounding_unit(type));
}

// What rounding may do to a sum of terms of such a type whose absolute values add up to 1.
static inline double bd_sum_rounding(int64_t longest_sum, bd_type type)
{
    return (double)longest_sum * bd_rounding_unit(BD_FLOAT) + 2 * bd_rounding_unit(type);
}

static inline double bd_tolerance(double noise, double magnitude, double sum_rounding)
{
    if (magnitude == 0.0)
        return 0.0;
    const double own_sum = sum_rounding * magnitude;
    // What is not a number must not be passed over, as fmax() does.
    return BD_TOLERANCE_FACTOR * (noise <= own_sum ? own_sum : noise);
}

#endif
