// Attention in blocks of 64 queries by 64 keys, as in FlashAttention: scores exist for one
// block at a time. Forward, each block of queries goes through the blocks of keys up to the
// diagonal and keeps, for each query, the largest score so far (top), the sum of exp(score -
// top), and the sum of exp(score - top) * v; when top grows, both sums are scaled down.
// Backward, each block of keys goes through the blocks of queries from the diagonal on:
//
//   p = exp(scale * q·k - lse)    d_v = pᵀ·d_out    d_s = scale * p * (d_out·v - out·d_out)
//   d_k = d_sᵀ·q                  d_q = d_s·k
//
// Blocks are counted from the start of the segment, and the order of every sum depends only on
// the length of the segment and on the window. So a segment gives the same bits wherever it
// lies and whatever lies beside it.
//
// Only blocks that hold a visible pair are visited. A block that the window's edge cuts is
// computed as a whole, and then the pairs outside the window are hidden.
//
// A block is copied before it is used: its rows lie close together (in q, k and v they are
// thousands of bytes apart) and are padded with zeros to a multiple of 16 channels. Products
// need contiguous rows of the right factor and take the left one either way (gemm_small.h), so
// only one factor of q · k ever has to be transposed.
#include "kernels/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_small.h"
#include "kernels/cpu/vector_math.h"

// In a block on the diagonal, only those GROUP x GROUP squares are computed that hold a visible
// pair.
enum {
    BLOCK = 64,
    GROUP = 16,
    MAX_HEAD_SIZE = BD_MOST_HEAD_SIZE,
    PADDING_TOKENS_PER_TASK = 256
};

typedef float block_rows[BLOCK * MAX_HEAD_SIZE];     // [BLOCK][width]
typedef float block_columns[MAX_HEAD_SIZE * BLOCK];  // [head_size][BLOCK]
typedef float block_pairs[BLOCK * BLOCK];

static int round_up(int64_t n)
{
    return (int)(bd_ceil_divide(n, GROUP) * GROUP);
}

// Copies n rows of `from` into rows of `width` floats, with zeros behind head_size.
static void copy_rows(float *to, int width, const float *from, int64_t stride, int n,
                      int head_size)
{
    for (int i = 0; i < n; i++) {
        memcpy(to + i * width, from + i * stride, (size_t)head_size * sizeof *to);
        memset(to + i * width + head_size, 0, (size_t)(width - head_size) * sizeof *to);
    }
}

// to[c][i] = scale * from[i][c]; columns from n to a multiple of 16 are 0.
static void transpose_rows(float *to, const float *from, int64_t stride, int n, int head_size,
                           float scale)
{
    const int whole_rows = n / 4 * 4, whole_columns = head_size / 4 * 4;
    for (int i = 0; i < whole_rows; i += 4)
        for (int c = 0; c < whole_columns; c += 4)
            bd_transpose_quad(to + c * BLOCK + i, BLOCK, from + i * stride + c, stride, scale);
    for (int c = 0; c < head_size; c++) {
        for (int i = c < whole_columns ? whole_rows : 0; i < n; i++)
            to[c * BLOCK + i] = scale * from[i * stride + c];
        for (int i = n; i < round_up(n); i++)
            to[c * BLOCK + i] = 0.0f;
    }
}

// ---- Windows --------------------------------------------------------------------------------

// The first key of the first block of keys that the block of queries from `begin` on visits:
// its first query sees furthest back.
static int64_t first_block(int64_t begin, int64_t window)
{
    const int64_t oldest = window > 0 ? begin - window + 1 : 0;
    return oldest > 0 ? oldest / BLOCK * BLOCK : 0;
}

// Query i of a block that begins `distance` keys after the block of keys sees no key before key
// i + oldest_key(). -BLOCK hides nothing.
static int oldest_key(int64_t distance, int64_t window)
{
    const int64_t oldest = window > 0 ? distance - window + 1 : -BLOCK;
    return oldest > -BLOCK ? (int)oldest : -BLOCK;
}

// ---- Forward --------------------------------------------------------------------------------

// Scores are stored as [key][query], so that a running maximum or sum of 16 queries is one
// vector.
typedef struct forward_state {
    _Alignas(64) block_columns q;  // transposed, scaled
    block_pairs scores;            // then probabilities
    block_rows v;                  // [key][width], only if head_size is not width
    block_rows out;                // [query][width]
    float top[BLOCK];              // largest score so far
    float sum[BLOCK];              // of exp(score - top)
    float shrink[BLOCK];           // exp(old top - new top)
} forward_state;

// The first query of the block for which scores of key j are computed: on the diagonal the
// first one of the group that j lies in.
static int first_query(bool diagonal, int j)
{
    return diagonal ? j / GROUP * GROUP : 0;
}

static void score_block(forward_state *s, const float *k, int64_t k_stride, int n_queries,
                        int n_keys, int head_size, bool diagonal, int oldest)
{
    const int n = round_up(n_queries);
    const int step = diagonal ? GROUP : BLOCK;
    for (int j = 0; j < n_keys; j += step) {
        const int i = first_query(diagonal, j);
        bd_gemm_small((bd_gemm_small_args){
            .m = (int)bd_min(step, n_keys - j),
            .n = n - i,
            .k = head_size,
            .a = k + j * k_stride,
            .a_row = k_stride,
            .a_column = 1,
            .b = s->q + i,
            .b_stride = BLOCK,
            .c = s->scores + j * BLOCK + i,
            .c_stride = BLOCK,
        });
    }
    if (diagonal)
        for (int j = 0; j < n_keys; j++)
            for (int i = first_query(true, j); i < j; i++)
                s->scores[j * BLOCK + i] = -INFINITY;
    if (oldest > -BLOCK)
        for (int j = 0; j < n_keys; j++)
            for (int i = j < oldest ? 0 : j - oldest + 1; i < n; i++)
                s->scores[j * BLOCK + i] = -INFINITY;
}

// Turns scores into probabilities relative to the largest score so far. A query whose window
// begins after the block has seen nothing yet: its top is -infinity, from which no score can be
// subtracted.
static void soften_block(forward_state *s, int n_queries, int n_keys, bool diagonal)
{
    const int n = round_up(n_queries);
    _Alignas(64) float top[BLOCK], base[BLOCK], sum[BLOCK] = {0};
    memcpy(top, s->top, sizeof top);
    for (int j = 0; j < n_keys; j++) {
        const float *row = s->scores + j * BLOCK;
        for (int i = first_query(diagonal, j); i < n; i++)
            top[i] = row[i] > top[i] ? row[i] : top[i];
    }
    for (int i = 0; i < n; i++)
        base[i] = top[i] == -INFINITY ? 0.0f : top[i];
    for (int j = 0; j < n_keys; j++) {
        float *row = s->scores + j * BLOCK;
        for (int i = first_query(diagonal, j); i < n; i++) {
            row[i] = bd_exp(row[i] - base[i]);
            sum[i] += row[i];
        }
    }
    for (int i = 0; i < n; i++) {
        s->shrink[i] = bd_exp(s->top[i] - base[i]);
        s->sum[i] = s->sum[i] * s->shrink[i] + sum[i];
        s->top[i] = top[i];
    }
}

static void gather_values(forward_state *s, const float *v, int64_t v_stride, int n_queries,
                          int n_keys, int width, bool diagonal)
{
    for (int i = 0; i < n_queries; i++)
        for (int c = 0; c < width; c++)
            s->out[i * width + c] *= s->shrink[i];
    const int step = diagonal ? GROUP : BLOCK;
    for (int i = 0; i < n_queries; i += step)
        bd_gemm_small((bd_gemm_small_args){
            .m = (int)bd_min(step, n_queries - i),
            .n = width,
            .k = diagonal ? (int)bd_min(i + step, n_keys) : n_keys,
            .a = s->scores + i,
            .a_row = 1,
            .a_column = BLOCK,
            .b = v,
            .b_stride = v_stride,
            .c = s->out + i * width,
            .c_stride = width,
            .add = true,
        });
}

typedef struct attention_forward_work {
    const bd_attention_forward_args *args;
    const bd_cpu_segment *segments;
    int64_t n_segments;
} attention_forward_work;

// Queries begin … begin + n_queries - 1 of a segment.
static void forward_block(forward_state *s, const bd_attention_forward_args *a, int64_t segment,
                          int64_t begin, int n_queries, int64_t head)
{
    const int head_size = (int)a->head_size, width = round_up(head_size);
    const int64_t kv_head = head / (a->n_heads / a->n_kv_heads);
    const float *q = bd_floats(a->q, (segment + begin) * a->q_stride + head * head_size);
    transpose_rows(s->q, q, a->q_stride, n_queries, head_size, a->scale);
    memset(s->out, 0, (size_t)(n_queries * width) * sizeof *s->out);
    for (int i = 0; i < BLOCK; i++) {
        s->top[i] = -INFINITY;
        s->sum[i] = 0.0f;
    }
    for (int64_t key = first_block(begin, a->window); key <= begin; key += BLOCK) {
        const bool diagonal = key == begin;
        const int n_keys = diagonal ? n_queries : BLOCK;
        const int64_t at = (segment + key) * a->kv_stride + kv_head * head_size;
        const float *v = bd_floats(a->v, at);
        int64_t v_stride = a->kv_stride;
        if (width != head_size) {
            copy_rows(s->v, width, v, v_stride, n_keys, head_size);
            v = s->v;
            v_stride = width;
        }
        score_block(s, bd_floats(a->k, at), a->kv_stride, n_queries, n_keys, head_size,
                    diagonal, oldest_key(begin - key, a->window));
        soften_block(s, n_queries, n_keys, diagonal);
        gather_values(s, v, v_stride, n_queries, n_keys, width, diagonal);
    }
    for (int i = 0; i < n_queries; i++) {
        const int64_t token = segment + begin + i;
        float *out = bd_floats_out(a->out, (token * a->n_heads + head) * head_size);
        const float inverse = 1.0f / s->sum[i];
        for (int c = 0; c < head_size; c++)
            out[c] = s->out[i * width + c] * inverse;
        a->lse[token * a->n_heads + head] = s->top[i] + logf(s->sum[i]);
    }
}

static bd_status forward_task(void *context, int64_t index, bd_error *err)
{
    (void)err;
    const attention_forward_work *work = context;
    const bd_cpu_segment segment = work->segments[index / work->args->n_heads];
    const int64_t head = index % work->args->n_heads;
    forward_state state;
    for (int64_t begin = 0; begin < segment.length; begin += BLOCK)
        forward_block(&state, work->args, segment.first, begin,
                      (int)bd_min(BLOCK, segment.length - begin), head);
    return BD_OK;
}

static void forward_padding(const void *context, int64_t first, int64_t last)
{
    const bd_attention_forward_args *a = context;
    for (int64_t token = first; token < last; token++) {
        if (bd_token_used(&a->boundaries, token))
            continue;
        const int64_t width = a->n_heads * a->head_size;
        memset(bd_floats_out(a->out, token * width), 0, (size_t)width * sizeof(float));
        memset(a->lse + token * a->n_heads, 0, (size_t)a->n_heads * sizeof *a->lse);
    }
}

static bd_status check_head_size(int64_t head_size, bd_error *err)
{
    if (head_size > MAX_HEAD_SIZE)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "attention heads of %lld channels (at most %d)",
                       (long long)head_size, MAX_HEAD_SIZE);
    return BD_OK;
}

BD_CPU_OPERATION(attention_forward)
{
    BD_TRY(check_head_size(args->head_size, err));
    attention_forward_work work = {.args = args};
    BD_TRY(bd_cpu_sort_segments(backend, &args->boundaries, &work.segments, &work.n_segments,
                                err));
    BD_TRY(bd_threads_run(((bd_cpu_backend *)backend)->threads, forward_task, &work,
                          work.n_segments * args->n_heads, err));
    return bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      PADDING_TOKENS_PER_TASK, forward_padding, args, err);
}

// ---- Backward -------------------------------------------------------------------------------

// One block of keys goes through the blocks of queries that see it, from its own on, for all
// query heads that share it. Pairs are stored as [query][key].
typedef struct backward_state {
    _Alignas(64) block_columns k_columns, v_columns;  // transposed; k scaled
    block_rows k, d_k, d_v;                           // [key][width]
    block_rows q, d_out, d_q;                         // [query][width]
    block_pairs p, d_s;
    float lse[BLOCK];
    float dot[BLOCK];  // d_out · out of each query
} backward_state;

// pairs = rows · columns. On the diagonal, each group of queries is multiplied by the keys up
// to the end of the group.
static void multiply_pairs(const float *rows, const float *columns, float *pairs, int n_queries,
                           int n_keys, int width, int head_size, bool diagonal)
{
    const int step = diagonal ? GROUP : BLOCK;
    for (int i = 0; i < n_queries; i += step)
        bd_gemm_small((bd_gemm_small_args){
            .m = (int)bd_min(step, n_queries - i),
            .n = diagonal ? i + GROUP : round_up(n_keys),
            .k = head_size,
            .a = rows + i * width,
            .a_row = width,
            .a_column = 1,
            .b = columns,
            .b_stride = BLOCK,
            .c = pairs + i * BLOCK,
            .c_stride = BLOCK,
        });
}

// On entry p holds the scores and d_s the gradients of the probabilities; on return p holds the
// probabilities and d_s the gradient of q · k.
static void differentiate_softmax(backward_state *s, int n_queries, int n_keys, float scale,
                                  bool diagonal, int oldest)
{
    for (int i = 0; i < n_queries; i++) {
        float *restrict p = s->p + i * BLOCK;
        float *restrict d_s = s->d_s + i * BLOCK;
        const float lse = s->lse[i], dot = s->dot[i];
        const int n = diagonal ? round_up(i + 1) : round_up(n_keys);
        if (diagonal)
            for (int j = i + 1; j < n; j++)
                p[j] = -INFINITY;
        for (int j = 0; j < n && j < i + oldest; j++)
            p[j] = -INFINITY;
        for (int j = 0; j < n; j++) {
            p[j] = bd_exp(p[j] - lse);
            d_s[j] = p[j] * (d_s[j] - dot) * scale;
        }
    }
}

// d_keys += pairs^T · rows. On the diagonal, keys are multiplied by the queries from their own
// group on.
static void add_to_keys(const float *pairs, const float *rows, float *d_keys, int n_queries,
                        int n_keys, int width, bool diagonal)
{
    const int step = diagonal ? GROUP : BLOCK;
    for (int j = 0; j < n_keys; j += step) {
        const int i = first_query(diagonal, j);
        bd_gemm_small((bd_gemm_small_args){
            .m = (int)bd_min(step, n_keys - j),
            .n = width,
            .k = n_queries - i,
            .a = pairs + i * BLOCK + j,
            .a_row = 1,
            .a_column = BLOCK,
            .b = rows + i * width,
            .b_stride = width,
            .c = d_keys + j * width,
            .c_stride = width,
            .add = true,
        });
    }
}

static void make_query_gradients(backward_state *s, int n_queries, int n_keys, int width,
                                 bool diagonal)
{
    const int step = diagonal ? GROUP : BLOCK;
    for (int i = 0; i < n_queries; i += step)
        bd_gemm_small((bd_gemm_small_args){
            .m = (int)bd_min(step, n_queries - i),
            .n = width,
            .k = diagonal ? (int)bd_min(i + step, n_keys) : n_keys,
            .a = s->d_s + i * BLOCK,
            .a_row = BLOCK,
            .a_column = 1,
            .b = s->k,
            .b_stride = width,
            .c = s->d_q + i * width,
            .c_stride = width,
        });
}

// The first block of keys that a query visits goes through it first and writes d_q; later
// blocks add to it.
static void put_query_gradients(const backward_state *s, const bd_attention_backward_args *a,
                                int64_t token, int n_queries, int64_t head, bool add)
{
    const int head_size = (int)a->head_size, width = round_up(head_size);
    for (int i = 0; i < n_queries; i++) {
        float *restrict to =
            bd_floats_out(a->d_q, (token + i) * a->q_stride + head * head_size);
        const float *from = s->d_q + i * width;
        if (add)
            for (int c = 0; c < head_size; c++)
                to[c] += from[c];
        else
            memcpy(to, from, (size_t)head_size * sizeof *to);
    }
}

static void take_queries(backward_state *s, const bd_attention_backward_args *a, int64_t token,
                         int n_queries, int64_t head)
{
    const int head_size = (int)a->head_size, width = round_up(head_size);
    const int64_t out_stride = a->n_heads * a->head_size;
    const int64_t at = token * out_stride + head * head_size;
    copy_rows(s->q, width, bd_floats(a->q, token * a->q_stride + head * head_size), a->q_stride,
              n_queries, head_size);
    copy_rows(s->d_out, width, bd_floats(a->d_out, at), out_stride, n_queries, head_size);
    for (int i = 0; i < n_queries; i++) {
        s->lse[i] = a->lse[(token + i) * a->n_heads + head];
        s->dot[i] = (float)bd_dot(s->d_out + i * width, bd_floats(a->out, at + i * out_stride),
                                  head_size);
    }
}

// Keys begin … begin + n_keys - 1 of a segment.
static void backward_block(backward_state *s, const bd_attention_backward_args *a,
                           const bd_cpu_segment *segment, int64_t begin, int64_t kv_head)
{
    const int head_size = (int)a->head_size, width = round_up(head_size);
    const int64_t group = a->n_heads / a->n_kv_heads;
    const int n_keys = (int)bd_min(BLOCK, segment->length - begin);
    const int64_t at = (segment->first + begin) * a->kv_stride + kv_head * head_size;
    transpose_rows(s->k_columns, bd_floats(a->k, at), a->kv_stride, n_keys, head_size,
                   a->scale);
    transpose_rows(s->v_columns, bd_floats(a->v, at), a->kv_stride, n_keys, head_size, 1.0f);
    copy_rows(s->k, width, bd_floats(a->k, at), a->kv_stride, n_keys, head_size);
    memset(s->d_k, 0, (size_t)(n_keys * width) * sizeof *s->d_k);
    memset(s->d_v, 0, (size_t)(n_keys * width) * sizeof *s->d_v);

    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (int64_t query = begin;
             query < segment->length && first_block(query, a->window) <= begin;
             query += BLOCK) {
            const bool diagonal = query == begin;
            const int n_queries = (int)bd_min(BLOCK, segment->length - query);
            take_queries(s, a, segment->first + query, n_queries, head);
            multiply_pairs(s->q, s->k_columns, s->p, n_queries, n_keys, width, head_size,
                           diagonal);
            multiply_pairs(s->d_out, s->v_columns, s->d_s, n_queries, n_keys, width, head_size,
                           diagonal);
            differentiate_softmax(s, n_queries, n_keys, a->scale, diagonal,
                                  oldest_key(query - begin, a->window));
            add_to_keys(s->p, s->d_out, s->d_v, n_queries, n_keys, width, diagonal);
            add_to_keys(s->d_s, s->q, s->d_k, n_queries, n_keys, width, diagonal);
            make_query_gradients(s, n_queries, n_keys, width, diagonal);
            put_query_gradients(s, a, segment->first + query, n_queries, head,
                                begin > first_block(query, a->window));
        }
    }
    for (int j = 0; j < n_keys; j++) {
        const size_t size = (size_t)head_size * sizeof(float);
        memcpy(bd_floats_out(a->d_k, at + j * a->kv_stride), s->d_k + j * width, size);
        memcpy(bd_floats_out(a->d_v, at + j * a->kv_stride), s->d_v + j * width, size);
    }
}

typedef struct attention_backward_work {
    const bd_attention_backward_args *args;
    const bd_cpu_segment *segments;
    int64_t n_segments;
} attention_backward_work;

static bd_status backward_task(void *context, int64_t index, bd_error *err)
{
    (void)err;
    const attention_backward_work *work = context;
    const bd_cpu_segment *segment = &work->segments[index / work->args->n_kv_heads];
    const int64_t kv_head = index % work->args->n_kv_heads;
    backward_state state;
    for (int64_t begin = 0; begin < segment->length; begin += BLOCK)
        backward_block(&state, work->args, segment, begin, kv_head);
    return BD_OK;
}

static void backward_padding(const void *context, int64_t first, int64_t last)
{
    const bd_attention_backward_args *a = context;
    const size_t q_size = (size_t)(a->n_heads * a->head_size) * sizeof(float);
    const size_t kv_size = (size_t)(a->n_kv_heads * a->head_size) * sizeof(float);
    for (int64_t token = first; token < last; token++) {
        if (bd_token_used(&a->boundaries, token))
            continue;
        memset(bd_floats_out(a->d_q, token * a->q_stride), 0, q_size);
        memset(bd_floats_out(a->d_k, token * a->kv_stride), 0, kv_size);
        memset(bd_floats_out(a->d_v, token * a->kv_stride), 0, kv_size);
    }
}

BD_CPU_OPERATION(attention_backward)
{
    BD_TRY(check_head_size(args->head_size, err));
    attention_backward_work work = {.args = args};
    BD_TRY(bd_cpu_sort_segments(backend, &args->boundaries, &work.segments, &work.n_segments,
                                err));
    BD_TRY(bd_threads_run(((bd_cpu_backend *)backend)->threads, backward_task, &work,
                          work.n_segments * args->n_kv_heads, err));
    return bd_cpu_for(backend, args->boundaries.n_rows * args->boundaries.seq_len,
                      PADDING_TOKENS_PER_TASK, backward_padding, args, err);
}
