// gemm_small.h - matrix products of blocks that fit the cache, for attention. Nothing is
// copied.
#ifndef BINDERY_KERNELS_CPU_GEMM_SMALL_H
#define BINDERY_KERNELS_CPU_GEMM_SMALL_H

#include <stdbool.h>

#include "kernels/cpu/vector.h"

// A longer sum is divided into runs of this many terms (kernels/summation.h).
enum { BD_BLOCK_RUN = 128 };

// The registers hold rows x vectors of sums, a row of b, and one broadcast element of a.
#if defined(__AVX512F__)
enum { BD_STRIP_ROWS = 6, BD_STRIP_VECTORS = 4 };
#else
enum { BD_STRIP_ROWS = 6, BD_STRIP_VECTORS = 2 };
#endif

// c[m][n] = a · b, or += with add. Element (i, j) of a is a[i * a_row + j * a_column], so that
// a may also be a transposed block. Rows of b and c are contiguous; n is a multiple of 16. The
// order of the additions depends only on k.
typedef struct bd_gemm_small_args {
    int m, n, k;
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t b_stride;
    float *c;
    int64_t c_stride;
    bool add;
} bd_gemm_small_args;

static inline __attribute__((always_inline)) void
bd_gemm_small_strip(const bd_gemm_small_args *p, int row, int column, const int n_rows,
                    const int n_vectors)
{
    bd_vector sum[BD_STRIP_ROWS][BD_STRIP_VECTORS] = {0};
    const float *a = p->a + row * p->a_row;
    const float *b = p->b + column;
    const int64_t a_row = p->a_row, a_column = p->a_column, b_stride = p->b_stride;
    for (int l = 0; l < p->k; l++) {
        bd_vector b_row[BD_STRIP_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++)
            b_row[v] = bd_load(b + v * BD_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++) {
            const float factor = a[i * a_row];
#pragma GCC unroll 4
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] += factor * b_row[v];
        }
        a += a_column;
        b += b_stride;
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        float *c = p->c + (row + i) * p->c_stride + column;
#pragma GCC unroll 4
        for (int v = 0; v < n_vectors; v++) {
            float *to = c + v * BD_LANES;
            bd_store(to, p->add ? bd_load(to) + sum[i][v] : sum[i][v]);
        }
    }
}

static inline __attribute__((always_inline)) void
bd_gemm_small_columns(const bd_gemm_small_args *p, int column, const int n_vectors)
{
    int row = 0;
    for (; row + BD_STRIP_ROWS <= p->m; row += BD_STRIP_ROWS)
        bd_gemm_small_strip(p, row, column, BD_STRIP_ROWS, n_vectors);
    switch (p->m - row) {
    case 5:
        bd_gemm_small_strip(p, row, column, 5, n_vectors);
        break;
    case 4:
        bd_gemm_small_strip(p, row, column, 4, n_vectors);
        break;
    case 3:
        bd_gemm_small_strip(p, row, column, 3, n_vectors);
        break;
    case 2:
        bd_gemm_small_strip(p, row, column, 2, n_vectors);
        break;
    case 1:
        bd_gemm_small_strip(p, row, column, 1, n_vectors);
        break;
    default:
        break;
    }
}

// Adds one run to c, or writes it.
static __attribute__((noinline)) void bd_gemm_small_run(bd_gemm_small_args p)
{
    const int n_vectors = p.n / BD_LANES;
    int v = 0;
    for (; v + BD_STRIP_VECTORS <= n_vectors; v += BD_STRIP_VECTORS)
        bd_gemm_small_columns(&p, v * BD_LANES, BD_STRIP_VECTORS);
    switch (n_vectors - v) {
#if defined(__AVX512F__)
    case 3:
        bd_gemm_small_columns(&p, v * BD_LANES, 3);
        break;
    case 2:
        bd_gemm_small_columns(&p, v * BD_LANES, 2);
        break;
#endif
    case 1:
        bd_gemm_small_columns(&p, v * BD_LANES, 1);
        break;
    default:
        break;
    }
}

static inline void bd_gemm_small(bd_gemm_small_args p)
{
    const int k = p.k;
    for (int l = 0; l < k; l += BD_BLOCK_RUN) {
        p.k = (int)bd_min(BD_BLOCK_RUN, k - l);
        bd_gemm_small_run(p);
        p.a += BD_BLOCK_RUN * p.a_column;
        p.b += BD_BLOCK_RUN * p.b_stride;
        p.add = true;
    }
}

#endif
