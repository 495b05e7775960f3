#include "kernels/embedding.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

// The backward pass is cut by channels. A row of a table gets the sum over its tokens, of which a
// common id has thousands: in float within a block of them, in double over the blocks
// (kernels/summation.h).
enum { TOKENS_PER_CHUNK = 64, CHANNELS_PER_STRIP = 32, TOKENS_PER_BLOCK = 64 };

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

// ---- Backward -------------------------------------------------------------------------------

// The tokens of each row of a table, in order: order[starts[row]] … order[starts[row + 1] - 1].
typedef struct token_lists {
    int64_t n_rows;
    int32_t *starts;  // [n_rows + 2]
    int32_t *order;   // [n_tokens]
} token_lists;

typedef struct backward_work {
    const bd_embedding_backward_args *args;
    token_lists by_id, by_position;
} backward_work;

typedef void (*token_visitor)(backward_work *work, int64_t token, int64_t position);

static void visit_tokens(backward_work *work, token_visitor visit)
{
    const bd_boundaries *boundaries = &work->args->boundaries;
    for (int64_t r = 0; r < boundaries->n_rows; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
        for (int64_t s = 0; s < n_segments; s++)
            for (int64_t t = bounds[s]; t < bounds[s + 1]; t++)
                visit(work, r * boundaries->seq_len + t, t - bounds[s]);
    }
}

// A counting sort. While it runs, starts[row + 2] counts the row's tokens, and then starts[row + 1] is
// where its next one goes, which in the end is where it ends.
static void count_token(backward_work *work, int64_t token, int64_t position)
{
    const bd_embedding_backward_args *a = work->args;
    work->by_id.starts[bd_token_id(a->ids, a->id_bytes, token) + 2]++;
    work->by_position.starts[a->first_position + position + 2]++;
}

static void place_token(backward_work *work, int64_t token, int64_t position)
{
    const bd_embedding_backward_args *a = work->args;
    int32_t *id_end = &work->by_id.starts[bd_token_id(a->ids, a->id_bytes, token) + 1];
    int32_t *position_end = &work->by_position.starts[a->first_position + position + 1];
    work->by_id.order[(*id_end)++] = (int32_t)token;
    work->by_position.order[(*position_end)++] = (int32_t)token;
}

static void add_counts(token_lists *lists)
{
    for (int64_t row = 2; row < lists->n_rows + 2; row++)
        lists->starts[row] += lists->starts[row - 1];
}

static bd_status list_tokens(bd_backend *backend, backward_work *work, bd_error *err)
{
    const bd_embedding_backward_args *a = work->args;
    const int64_t n_tokens = a->boundaries.n_rows * a->boundaries.seq_len;
    const int64_t n_starts = a->n_vocabulary + 2 + a->n_positions + 2;
    void *memory;
    BD_TRY(bd_cpu_scratch(backend, (size_t)(n_starts + 2 * n_tokens) * sizeof(int32_t), &memory,
                          err));
    int32_t *numbers = memory;
    memset(numbers, 0, (size_t)n_starts * sizeof *numbers);
    work->by_id = (token_lists){a->n_vocabulary, numbers, numbers + n_starts};
    work->by_position = (token_lists){a->n_positions, numbers + a->n_vocabulary + 2,
                                      numbers + n_starts + n_tokens};
    visit_tokens(work, count_token);
    add_counts(&work->by_id);
    add_counts(&work->by_position);
    visit_tokens(work, place_token);
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
    const backward_work *work = context;
    table_strip(&work->by_id, work->args, work->args->d_token_table, first, last);
    table_strip(&work->by_position, work->args, work->args->d_position_table, first, last);
}

BD_CPU_OPERATION(embedding_backward)
{
    backward_work work = {.args = args};
    BD_TRY(list_tokens(backend, &work, err));
    return bd_cpu_for(backend, args->n_channels, CHANNELS_PER_STRIP, backward_strip, &work,
                      err);
}
