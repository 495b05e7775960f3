// embedding.h - the vector of a token plus, if positions are learned, the vector of its position,
// which counts from the start of its document.
#ifndef BINDERY_KERNELS_EMBEDDING_H
#define BINDERY_KERNELS_EMBEDDING_H

#include <stdint.h>

#include "kernels/boundaries.h"
#include "kernels/type.h"

// The tables, out and d_out are of `type`.
//
// ids             [n_rows][seq_len], uint16_t or uint32_t as id_bytes says; all < n_vocabulary
// token_table     [n_vocabulary][n_channels]
// token_scale     the factor of a token's vector: 1, or what Gemma has
// position_table  [n_positions][n_channels]; token t of a segment that begins at b uses row
//                 first_position + past + t - b, which is below n_positions. NULL if positions
//                 are not learned; then n_positions and first_position are 0
// past            [segments of the batch]: how many tokens of its document precede a segment;
//                 NULL: none
// out             [n_rows][seq_len][n_channels]; exactly 0 in padding
typedef struct bd_embedding_forward_args {
    bd_boundaries boundaries;
    const int32_t *past;
    bd_type type;
    const void *ids;
    int32_t id_bytes;
    int64_t n_channels, n_vocabulary, n_positions, first_position;
    float token_scale;
    const void *token_table;
    const void *position_table;
    void *out;
} bd_embedding_forward_args;

// d_out has the shape of out. The operation adds to d_token_table and d_position_table, which
// have the shapes of the tables, in an order that depends only on shapes and boundaries.
// Padding adds nothing. d_position_table is NULL if there is no table.
typedef struct bd_embedding_backward_args {
    bd_boundaries boundaries;
    bd_type type;
    const void *ids;
    int32_t id_bytes;
    int64_t n_channels, n_vocabulary, n_positions, first_position;
    float token_scale;
    const void *d_out;
    float *d_token_table;
    float *d_position_table;
} bd_embedding_backward_args;

#endif
