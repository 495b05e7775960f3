// gemm.h - the matrix product of an instruction set, for one tile of a layer's result.
//
// Sums are taken as summation.h wants them: a run of products one after the other, runs to a piece,
// pieces to a group, groups to the result.
#ifndef BINDERY_KERNELS_CPU_GEMM_H
#define BINDERY_KERNELS_CPU_GEMM_H

#include "kernels/boundaries.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_blas.h"
#include "kernels/summation.h"

// Our own product, except where the BLAS has been measured to be the quicker one. So a BLAS
// computes for AVX-512 alone, and no instruction set asks it for another's code.
#if !defined(__AVX512F__)
#define BD_CPU_OWN_GEMM
#endif

// Ours ends a run at the cost of a few stores; the BLAS, whose order within a piece is its own, has
// to be called again (oneDNN 2.6 on AVX-512: pieces of 128 are as quick as whole sums, and quicker
// where strides are long; pieces of 64 a twentieth slower).
#ifdef BD_CPU_OWN_GEMM
enum { BD_RUN = 32, BD_PIECE = 256 };
#else
enum { BD_RUN = 128, BD_PIECE = BD_RUN };
#endif
enum { BD_GROUP = BD_LONGEST_SUM_GROUP };

// The roundings that a term meets, on each level.
_Static_assert(BD_RUN + (BD_PIECE / BD_RUN - 1) + (BD_GROUP / BD_PIECE - 1) +
                       BD_LONGEST_SUM_TERMS / BD_GROUP <=
                   BD_LONGEST_SUM,
               "a product sums longer than summation.h says");

// The largest tile.
enum { BD_TILE_ROWS = 512, BD_TILE_COLUMNS = 768 };

// As bd_gemm_blas(), for m up to BD_TILE_ROWS, n up to BD_TILE_COLUMNS and k of at least 1. If the sum
// runs over a batch's tokens, `tokens` may say where they are padding, which is then left out where
// a whole piece is (only with add); else it is NULL.
bd_status BD_CPU(gemm)(const bd_gemm_args *args, const bd_boundaries *tokens, bd_error *err);

#endif
