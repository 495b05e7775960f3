#include "kernels/embedding.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

// The backward pass is cut by channels, because two tokens may share a table's row.
enum { TOKENS_PER_CHUNK = 64, CHANNELS_PER_STRIP = 32 };

static void forward_loop(const void *context, int64_t first, int64_t last)
{
    const bd_embedding_forward_args *a = context;
    const int64_t n = a->n_channels;
    for (int64_t token = first; token < last; token++) {
        const int64_t r = token / a->boundaries.seq_len, t = token % a->boundaries.seq_len;
        float *restrict out = bd_floats_out(a->out, token * n);
        if (t >= bd_row_used(&a->boundaries, r)) {
            memset(out, 0, (size_t)n * sizeof *out);
            continue;
        }
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(&a->boundaries, r, &n_segments);
        const int64_t position = t - *bd_segment_around(bounds, n_segments, t);
        const float *word =
            bd_floats(a->token_table, bd_token_id(a->ids, a->id_bytes, token) * n);
        const float *place = bd_floats(a->position_table, (a->first_position + position) * n);
        for (int64_t c = 0; c < n; c++)
            out[c] = word[c] + place[c];
    }
}

BD_CPU_OPERATION(embedding_forward)
{
    return bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      TOKENS_PER_CHUNK, forward_loop, args, err);
}

// Channels first … last - 1 of every token, in the order of the tokens.
static void backward_strip(const void *context, int64_t first, int64_t last)
{
    const bd_embedding_backward_args *a = context;
    const int64_t n = a->n_channels;
    for (int64_t r = 0; r < a->boundaries.n_rows; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(&a->boundaries, r, &n_segments);
        for (int64_t s = 0; s < n_segments; s++) {
            for (int64_t t = bounds[s]; t < bounds[s + 1]; t++) {
                const int64_t token = r * a->boundaries.seq_len + t;
                const float *d_out = bd_floats(a->d_out, token * n);
                float *word = a->d_token_table + bd_token_id(a->ids, a->id_bytes, token) * n;
                float *place = a->d_position_table + (a->first_position + t - bounds[s]) * n;
                for (int64_t c = first; c < last; c++) {
                    word[c] += d_out[c];
                    place[c] += d_out[c];
                }
            }
        }
    }
}

BD_CPU_OPERATION(embedding_backward)
{
    return bd_cpu_for(backend, args->n_channels, CHANNELS_PER_STRIP, backward_strip, args, err);
}
