// gemm_blas.h - one matrix product by the BLAS, on the calling thread.
#ifndef BINDERY_KERNELS_CPU_GEMM_BLAS_H
#define BINDERY_KERNELS_CPU_GEMM_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

// c[m][n] = A · B, or += with add; A is [m][k], B is [k][n], row-major.
// A transposed operand is stored the other way round: a as [k][m], b as [n][k]. Strides are the
// distances between rows in memory. Without add, the former contents of c do not matter.
typedef struct bd_gemm_args {
    bool transpose_a, transpose_b, add;
    int64_t m, n, k;
    const float *a;
    int64_t a_stride;
    const float *b;
    int64_t b_stride;
    float *c;
    int64_t c_stride;
} bd_gemm_args;

bd_status bd_gemm_blas(const bd_gemm_args *args, bd_error *err);

#endif
