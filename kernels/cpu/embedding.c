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
        const int64_t position = bd_token_position(&a->boundaries, a->past, token);
        float *restrict out = bd_floats_out(a->out, token * n);
        if (position < 0) {
            memset(out, 0, (size_t)n * sizeof *out);
            continue;
        }
        const float *word = bd_floats(a->token_table, bd_id_at(a->ids, a->id_bytes, token) * n);
        const float scale = a->token_scale;
        if (a->position_table) {
            const float *place =
                bd_floats(a->position_table, (a->first_position + position) * n);
            for (int64_t c = 0; c < n; c++)
                out[c] = scale * word[c] + place[c];
        } else {
            for (int64_t c = 0; c < n; c++)
                out[c] = scale * word[c];
        }
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

// A counting sort by id or by position. After the first pass over the tokens, starts[row + 2] is
// the number of the row's tokens. Summed up, starts[row + 1] is where the row's list begins; the
// second pass moves it on with every token that it places, so that in the end it is where the
// list ends, which is where the next one begins.
static void list_tokens(const bd_embedding_backward_args *a, bool by_position,
                        token_lists *lists)
{
    const bd_boundaries *boundaries = &a->boundaries;
    memset(lists->starts, 0, (size_t)(lists->n_rows + 2) * sizeof *lists->starts);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t r = 0; r < boundaries->n_rows; r++) {
            int64_t n_segments;
            const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
            for (int64_t s = 0; s < n_segments; s++)
                for (int64_t t = bounds[s]; t < bounds[s + 1]; t++) {
                    const int64_t token = r * boundaries->seq_len + t;
                    int32_t *start = lists->starts;
                    start += by_position ? a->first_position + t - bounds[s]
                                         : bd_id_at(a->ids, a->id_bytes, token);
                    if (pass == 0)
                        start[2]++;
                    else
                        lists->order[start[1]++] = (int32_t)token;
                }
        }
        if (pass == 0)
            for (int64_t row = 2; row < lists->n_rows + 2; row++)
                lists->starts[row] += lists->starts[row - 1];
    }
}

// Channels first … last - 1 of one table.
static void table_strip(const token_lists *lists, const bd_embedding_backward_args *a,
                        float scale, float *table, int64_t first, int64_t last)
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
            to[c] += (float)((double)scale * sum[c]);
    }
}

static void backward_strip(const void *context, int64_t first, int64_t last)
{
    const embedding_backward_work *work = context;
    const bd_embedding_backward_args *a = work->args;
    table_strip(&work->by_id, a, a->token_scale, a->d_token_table, first, last);
    if (a->d_position_table)
        table_strip(&work->by_position, a, 1.0f, a->d_position_table, first, last);
}

BD_CPU_OPERATION(embedding_backward)
{
    const int64_t n_tokens = args->boundaries.n_rows * args->boundaries.seq_len;
    const int64_t n_starts = args->n_vocabulary + 2 + args->n_positions + 2;
    void *memory;
    BD_TRY(bd_cpu_scratch(backend, (size_t)(n_starts + 2 * n_tokens) * sizeof(int32_t), &memory,
                          err));
    int32_t *starts = memory, *order = starts + n_starts;
    embedding_backward_work work = {
        .args = args,
        .by_id = {args->n_vocabulary, starts, order},
        .by_position = {args->n_positions, starts + args->n_vocabulary + 2, order + n_tokens},
    };
    list_tokens(args, false, &work.by_id);
    if (args->d_position_table)
        list_tokens(args, true, &work.by_position);
    return bd_cpu_for(backend, args->n_channels, CHANNELS_PER_STRIP, backward_strip, &work,
                      err);
}
