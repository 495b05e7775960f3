// exact_arithmetic.h - sums and products in double precision for reference.h, exact or with random
// rounding. Nothing here knows what a model is.
//
// How exact can a program be that computes in float? Monte Carlo arithmetic answers this
// without looking at any program: a run with a rounding moves every result at random, up or
// down, by as much as plain loops in float may move it. With units of 0 results are exact up to
// double precision.
#ifndef BINDERY_TRAINER_PROOF_EXACT_ARITHMETIC_H
#define BINDERY_TRAINER_PROOF_EXACT_ARITHMETIC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/random.h"

// Units are the largest relative error of one rounding: 2^-24 in float, 2^-8 in bf16.
typedef struct bd_rounding {
    double sum;     // of every addition of a sum inside an operation; 0: exact
    double stored;  // of every number that an operation hands to the next one; 0: exact
    bd_random random;
} bd_rounding;

// A random number in [-1, 1].
double bd_rounding_draw(bd_rounding *rounding);

// The sum x of n terms as a loop computes it that rounds after every addition. Each error is a
// share of the sum so far, which is about as large as x, or, where terms cancel, as `size`, the
// root of the sum of their squares.
double bd_round_sum(bd_rounding *rounding, double x, double size, int64_t n);
// The same for x [count] of sums that do not cancel.
void bd_round_sums(bd_rounding *rounding, double *x, int64_t count, int64_t n);
// Rounds x [n] as it is rounded when one operation stores it for the next.
void bd_round_stored(bd_rounding *rounding, double *x, int64_t n);

// Element (i, j) is at[i * row_step + j * column_step], or its absolute value.
typedef struct bd_matrix {
    const double *at;
    int64_t rows, columns;
    int64_t row_step, column_step;
    bool is_absolute;
} bd_matrix;

static inline bd_matrix bd_matrix_of_rows(const double *at, int64_t rows, int64_t columns)
{
    return (bd_matrix){at, rows, columns, columns, 1, false};
}

static inline bd_matrix bd_matrix_transposed(bd_matrix m)
{
    return (bd_matrix){m.at, m.columns, m.rows, m.column_step, m.row_step, m.is_absolute};
}

static inline bd_matrix bd_matrix_absolute(bd_matrix m)
{
    m.is_absolute = true;
    return m;
}

// c [a.rows][b.columns] += a * b. Without a rounding (NULL) it is exact.
void bd_matrix_add_product(bd_rounding *rounding, double *c, bd_matrix a, bd_matrix b);

// The sum of a[i] * b[i].
double bd_exact_dot(bd_rounding *rounding, const double *a, const double *b, int64_t n);
// y += factor * x, not rounded.
void bd_exact_add_scaled(double *y, double factor, const double *x, int64_t n);

#endif
