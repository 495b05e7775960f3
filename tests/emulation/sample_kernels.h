// sample_kernels.h - small kernels that use every feature of the emulation, and the same
// kernels with faults. Pointers are device memory; `stream` is a cudaStream_t or NULL.
#ifndef BINDERY_TESTS_EMULATION_SAMPLE_KERNELS_H
#define BINDERY_TESTS_EMULATION_SAMPLE_KERNELS_H

#include <stdint.h>

#include "common/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sample_fault {
    SAMPLE_RIGHT,
    SAMPLE_REMOVED_BARRIER,
    SAMPLE_EARLY_REFILL,       // refill of a buffer that others still read
    SAMPLE_WRONG_GROUP_COUNT,  // cp.async is waited for, but not the group that is read
    SAMPLE_ONE_PAST_END,       // write past shared memory
    SAMPLE_READ_PAST_END,      // read past shared memory
    SAMPLE_DIVERGENT_BARRIER,  // threads at two barriers
    SAMPLE_UNREACHED_BARRIER,  // half of the threads end before it
    SAMPLE_ABSENT_LANES,       // shuffle with lanes that are elsewhere in the code
    SAMPLE_ENDED_LANES,        // shuffle with lanes that have ended
    SAMPLE_MISALIGNED_VECTOR,
    SAMPLE_MISALIGNED_COPY,
    SAMPLE_PLAIN_STORE,  // every block stores to the same place
} sample_fault;

// out[row] = sum of in[row][0 … n_columns - 1]; one block of 96 threads per row.
// Faults: REMOVED_BARRIER, DIVERGENT_BARRIER, UNREACHED_BARRIER, ABSENT_LANES, ENDED_LANES,
// MISALIGNED_VECTOR (n_columns a multiple of 4), PLAIN_STORE.
bd_status sample_row_sums(float *out, const float *in, int64_t n_rows, int64_t n_columns,
                          sample_fault fault, void *stream, bd_error *err);

// out[c][r] = in[r][c] by tiles of 32 x 32 in static shared memory.
// Faults: REMOVED_BARRIER, ONE_PAST_END, READ_PAST_END.
bd_status sample_transpose(float *out, const float *in, int64_t n_rows, int64_t n_columns,
                           sample_fault fault, void *stream, bd_error *err);

// One warp: d[16][8] = a[16][16] * b[16][8] + c. a, b are bf16; their fragments are loaded by
// plain reads, or by ldmatrix from shared memory.
bd_status sample_multiply(float *d, const uint16_t *a, const uint16_t *b, const float *c,
                          int by_ldmatrix, void *stream, bd_error *err);

// One warp: fragments[lane][4] = ldmatrix of tile[32][8] (four matrices of 8 x 8, one after
// another), transposed or not.
bd_status sample_load_matrices(uint32_t *fragments, const uint16_t *tile, int transposed,
                               void *stream, bd_error *err);

// out[i] = sum over tiles t of in[t][i ^ 1]; 64 threads, tiles of 256 floats through two
// buffers in dynamic shared memory, filled by cp.async one tile ahead. Faults: REMOVED_BARRIER,
// EARLY_REFILL, WRONG_GROUP_COUNT, MISALIGNED_COPY.
bd_status sample_sum_of_tiles(float *out, const float *in, int64_t n_tiles, sample_fault fault,
                              void *stream, bd_error *err);

// histogram[v] += how often v occurs in values, by integer atomics; ballots[w] = which lanes of
// warp w saw an odd value.
bd_status sample_count(int *histogram, unsigned *ballots, const int *values, int64_t n,
                       void *stream, bd_error *err);

// A launch that CUDA refuses: no blocks.
bd_status sample_empty_grid(void *stream, bd_error *err);

// Two launches, the first one without a check.
void sample_unchecked_launch(void *stream, bd_error *err);

#ifdef __cplusplus
}
#endif

#endif
