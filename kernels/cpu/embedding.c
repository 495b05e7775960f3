#include "kernels/embedding.h"

#include <string.h>

#include "common/base/token_ids.h"
#include "kernels/cpu/cpu.h"

// In the backward pass each task has a strip of channels. A row of a table gets the sum over
// its tokens, of which a common id has thousands: blocks of tokens are summed in float, and
// their sums in double (kernels/summation.h).
enum { TOKENS_PER_CHUNK = 64, CHANNELS_PER_STRIP = 32, TOKENS_PER_BLOCK = 64 };

static void embedding_forward_loop(const void *context, int64_t first, int64_t last)
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
        const float *word = bd_floats(a->token_table, bd_id_at(a->ids, a->id_bytes, token) * n);
        const float *place = bd_floats(a->position_table, (a->first_position + position) * n);
        for (int64_t c = 0; c < n; c++)
            out[c] = word[c] + place[c];
    }
}

BD_CPU_OPERATION(embedding_forward)
{
    return bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      TOKENS_PER_CHUNK, embedding_forward_loop, args, err);
}

// ---- Backward -------------------------------------------------------------------------------

// The tokens that use each row of a table, in the order of the batch: those of `row` are
// order[starts[row]] … order[starts[row + 1] - 1].
typedef struct token_lists {
    int64_t n_rows;
    int32_t *starts;  // [n_rows + 2]
    int32_t *order;   // [n_tokens]
} token_lists;

typedef struct embedding_backward_work {
    const bd_embedding_backward_args *args;
    token_lists by_id, by_position;
} embedding_backward_work;

// Two counting sorts at once. After the first pass over the tokens, starts[row + 2] is the
// number of the row's tokens. Summed up, starts[row + 1] is where the row's list begins; the
// second pass moves it on with every token that it places, so that in the end it is where the
// list ends, which is where the next one begins.
static bd_status list_tokens(bd_backend *backend, embedding_backward_work *work, bd_error *err)
{
    const bd_embedding_backward_args *a = work->args;
    const bd_boundaries *boundaries = &a->boundaries;
    const int64_t n_tokens = boundaries->n_rows * boundaries->seq_len;
    const int64_t n_starts = a->n_vocabulary + 2 + a->n_positions + 2;
    void *memory;
    BD_TRY(bd_cpu_scratch(backend, (size_t)(n_starts + 2 * n_tokens) * sizeof(int32_t), &memory,
                          err));
    int32_t *numbers = memory;
    memset(numbers, 0, (size_t)n_starts * sizeof *numbers);
    token_lists *ids = &work->by_id, *positions = &work->by_position;
    *ids = (token_lists){a->n_vocabulary, numbers, numbers + n_starts};
    *positions = (token_lists){a->n_positions, numbers + a->n_vocabulary + 2,
                               numbers + n_starts + n_tokens};

    for (int pass = 0; pass < 2; pass++) {
        for (int64_t r = 0; r < boundaries->n_rows; r++) {
            int64_t n_segments;
            const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
            for (int64_t s = 0; s < n_segments; s++)
                for (int64_t t = bounds[s]; t < bounds[s + 1]; t++) {
                    const int64_t token = r * boundaries->seq_len + t;
                    int32_t *id = ids->starts + bd_id_at(a->ids, a->id_bytes, token);
                    int32_t *position = positions->starts + a->first_position + t - bounds[s];
                    if (pass == 0) {
                        id[2]++;
                        position[2]++;
                    } else {
                        ids->order[id[1]++] = (int32_t)token;
                        positions->order[position[1]++] = (int32_t)token;
                    }
                }
        }
        if (pass == 0) {
            for (int64_t row = 2; row < ids->n_rows + 2; row++)
                ids->starts[row] += ids->starts[row - 1];
            for (int64_t row = 2; row < positions->n_rows + 2; row++)
                positions->starts[row] += positions->starts[row - 1];
        }
    }
    return BD_OK;
}

// Channels first … last - 1 of one table.
static void table_strip(const token_lists *lists, const bd_embedding_backward_args *a,
                        float *table, int64_t first, int64_t last)
{
    const int64_t n = last - first;
    for (int64_t row = 0; row < lists->n_rows; row++) {
        const int32_t begin = lists->starts[row], end = lists->starts[row + 1];
        if (begin == end)
            continue;
        double sum[CHANNELS_PER_STRIP] = {0};
        for (int64_t at = begin; at < end;) {
            const int64_t block_end = bd_min(at + TOKENS_PER_BLOCK, end);
            float block[CHANNELS_PER_STRIP] = {0};
            for (; at < block_end; at++) {
                const float *d_out =
                    bd_floats(a->d_out, lists->order[at] * a->n_channels + first);
                for (int64_t c = 0; c < n; c++)
                    block[c] += d_out[c];
            }
            for (int64_t c = 0; c < n; c++)
                sum[c] += (double)block[c];
        }
        float *to = table + row * a->n_channels + first;
        for (int64_t c = 0; c < n; c++)
            to[c] += (float)sum[c];
    }
}

static void backward_strip(const void *context, int64_t first, int64_t last)
{
    const embedding_backward_work *work = context;
    table_strip(&work->by_id, work->args, work->args->d_token_table, first, last);
    table_strip(&work->by_position, work->args, work->args->d_position_table, first, last);
}

BD_CPU_OPERATION(embedding_backward)
{
    embedding_backward_work work = {.args = args};
    BD_TRY(list_tokens(backend, &work, err));
    return bd_cpu_for(backend, args->n_channels, CHANNELS_PER_STRIP, backward_strip, &work,
                      err);
}
