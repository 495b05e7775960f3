// product.h - the matrix product that suits an instruction set.
#ifndef BINDERY_KERNELS_CPU_PRODUCT_H
#define BINDERY_KERNELS_CPU_PRODUCT_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/matmul.h"

// Our own where it has been measured to be the quicker one, else the BLAS.
#if defined(__AVX2__) && !defined(__AVX512F__)
#define BD_CPU_OWN_PRODUCT
#endif

// Sums that are long, or whose operands have long strides, are best taken so many products at a
// time: ours does nothing else, and the BLAS runs out of cache otherwise (oneDNN 2.6 on 3072 x 768
// from 1024 tokens, AVX-512: 98 GFLOP/s at once, 133 in pieces of 128).
#ifdef BD_CPU_OWN_PRODUCT
enum { BD_PIECE = 256 };
#else
enum { BD_PIECE = 128 };
#endif

// As bd_matmul().
bd_status BD_CPU(product)(const bd_matmul_args *args, bd_error *err);

#endif
