// gemm.h - the matrix product of an instruction set, for one tile of a layer's result.
//
// To keep the bound of summation.h, a sum has four levels: products are added one after the
// other within a run, the sums of runs within a piece, those of pieces within a group, and
// those of groups make the result.
#ifndef BINDERY_KERNELS_CPU_GEMM_H
#define BINDERY_KERNELS_CPU_GEMM_H

#include "kernels/boundaries.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_blas.h"
#include "kernels/summation.h"

// Our own gemm is used except where the BLAS was measured to be faster, which is AVX-512. So
// the BLAS, which dispatches on its own, never runs code of another instruction set than the
// chosen one.
#if !defined(__AVX512F__)
#define BD_CPU_OWN_GEMM
#endif

// Our own gemm can end a run at the cost of a few stores. The BLAS, which adds the products of
// a piece in an order of its own, has to be called again for each piece (oneDNN 2.6 on AVX-512:
// pieces of 128 are as fast as whole sums, and faster where strides are long; pieces of 64 are
// a twentieth slower).
#ifdef BD_CPU_OWN_GEMM
enum { BD_RUN = 32, BD_PIECE = 256 };
#else
enum { BD_RUN = 128, BD_PIECE = BD_RUN };
#endif
enum { BD_GROUP = BD_LONGEST_SUM_GROUP };

// The number of roundings that a term goes through on each level.
_Static_assert(BD_RUN + (BD_PIECE / BD_RUN - 1) + (BD_GROUP / BD_PIECE - 1) +
                       BD_LONGEST_SUM_TERMS / BD_GROUP <=
                   BD_LONGEST_SUM,
               "a gemm sums longer than summation.h says");

// The size of the largest tile.
enum { BD_TILE_ROWS = 512, BD_TILE_COLUMNS = 768 };

// The same as bd_gemm_blas(), for m up to BD_TILE_ROWS, n up to BD_TILE_COLUMNS and k of at
// least 1. If the sum runs over the tokens of a batch and args->add is set, `tokens` may be
// given: a piece that is all padding is then skipped. Otherwise it is NULL.
bd_status BD_CPU(gemm)(const bd_gemm_args *args, const bd_boundaries *tokens, bd_error *err);

#endif
