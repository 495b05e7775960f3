// vector.h - vectors of floats, as wide as the registers of the instruction set.
#ifndef BINDERY_KERNELS_CPU_VECTOR_H
#define BINDERY_KERNELS_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

#if defined(__AVX512F__)
enum { BD_LANES = 16 };
#elif defined(__AVX__)
enum { BD_LANES = 8 };
#else
enum { BD_LANES = 4 };
#endif

typedef float bd_vector __attribute__((vector_size(sizeof(float) * BD_LANES)));
typedef float bd_quad __attribute__((vector_size(16)));

static inline bd_vector bd_load(const float *from)  // any alignment
{
    bd_vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void bd_store(float *to, bd_vector v)
{
    memcpy(to, &v, sizeof v);
}

// ---- Sums -----------------------------------------------------------------------------------
// Stretches are summed in float, and their sums in double (kernels/summation.h).

// The number of vectors that are added one after the other in a stretch.
enum { BD_STRETCH = 64 };

// The sum of the lanes, added pair by pair: each half of a vector to the other one. (GCC makes
// slow code of a loop over lanes in memory.)
static inline double bd_add_lanes(bd_vector v)
{
#if defined(__AVX512F__)
    const bd_quad a =
        __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 8, 9, 10, 11);
    const bd_quad b = __builtin_shufflevector(v, v, 4, 5, 6, 7) +
                      __builtin_shufflevector(v, v, 12, 13, 14, 15);
    const bd_quad sum = a + b;
#elif defined(__AVX__)
    const bd_quad sum =
        __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
    const bd_quad sum = v;
#endif
    const bd_quad pairs = sum + __builtin_shufflevector(sum, sum, 2, 3, 2, 3);
    return (double)pairs[0] + (double)pairs[1];
}

static inline double bd_sum(const float *x, int64_t n)
{
    const int64_t whole = n / (2 * BD_LANES) * (2 * BD_LANES);
    double sum = 0.0;
    int64_t i = 0;
    while (i < whole) {
        const int64_t end = bd_min(i + BD_STRETCH * 2 * BD_LANES, whole);
        bd_vector even = {0}, odd = {0};
        for (; i < end; i += 2 * BD_LANES) {
            even += bd_load(x + i);
            odd += bd_load(x + i + BD_LANES);
        }
        sum += bd_add_lanes(even + odd);
    }
    for (; i < n; i++)
        sum += (double)x[i];
    return sum;
}

static inline double bd_dot(const float *x, const float *y, int64_t n)
{
    const int64_t whole = n / (2 * BD_LANES) * (2 * BD_LANES);
    double sum = 0.0;
    int64_t i = 0;
    while (i < whole) {
        const int64_t end = bd_min(i + BD_STRETCH * 2 * BD_LANES, whole);
        bd_vector even = {0}, odd = {0};
        for (; i < end; i += 2 * BD_LANES) {
            even += bd_load(x + i) * bd_load(y + i);
            odd += bd_load(x + i + BD_LANES) * bd_load(y + i + BD_LANES);
        }
        sum += bd_add_lanes(even + odd);
    }
    for (; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

// ---- Rows to columns ------------------------------------------------------------------------

// to[j][i] = scale * from[i][j] for 4 x 4 floats.
static inline void bd_transpose_quad(float *to, int64_t to_stride, const float *from,
                                     int64_t from_stride, float scale)
{
    bd_quad row[4];
    for (int i = 0; i < 4; i++) {
        memcpy(&row[i], from + i * from_stride, sizeof row[i]);
        row[i] *= scale;
    }
    const bd_quad a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const bd_quad b = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const bd_quad c = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const bd_quad d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const bd_quad column[4] = {
        __builtin_shufflevector(a, c, 0, 1, 4, 5),
        __builtin_shufflevector(a, c, 2, 3, 6, 7),
        __builtin_shufflevector(b, d, 0, 1, 4, 5),
        __builtin_shufflevector(b, d, 2, 3, 6, 7),
    };
    for (int j = 0; j < 4; j++)
        memcpy(to + j * to_stride, &column[j], sizeof column[j]);
}

#endif
