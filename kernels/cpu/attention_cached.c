// The keys of a document are divided into chunks. Each task has one chunk for one head of keys:
// it adds the new keys and values that belong there, and computes for every query what this
// chunk alone would give: the largest score (top), the sum of exp(score - top), and the sum of
// exp(score - top) * v, block of keys by block, as kernels/cpu/attention.c does. Then the chunks
// of each query are joined in order. So a single token of a long document occupies all threads.
//
// Chunks and blocks are counted from the start of the document, and each query goes through its
// own keys of a block alone. So the order of its sums depends only on its position, wherever the
// document's tokens were cut.
//
// Keys are cached in blocks of 64, with the channels as rows, [slot][head][block][channel][64],
// so that a product with queries gives the scores of neighbouring keys side by side; values are
// [slot][head][token][width].
#include "kernels/attention_cached.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm_small.h"
#include "kernels/cpu/vector_math.h"

enum { BLOCK = BD_CACHE_BLOCK, KEYS_PER_CHUNK = 4 * BLOCK, GROUP = 16 };
enum { MAX_HEAD_SIZE = BD_MOST_HEAD_SIZE, MAX_QUERIES = 64, JOINS_PER_TASK = 64 };

typedef struct cached_work {
    const bd_attention_cached_args *args;
    int64_t n_chunks;
    int64_t width;    // bd_cache_width()
    float *partials;  // [token][head][chunk][2 + width]: top, sum, sum of values
} cached_work;

static float *partial_at(const cached_work *work, int64_t token, int64_t head, int64_t chunk)
{
    const int64_t query = token * work->args->n_heads + head;
    return work->partials + (query * work->n_chunks + chunk) * (2 + work->width);
}

// The keys first … last - 1 that a query at `position` sees.
typedef struct key_range {
    int64_t first, last;
} key_range;

static key_range visible_keys(const bd_attention_cached_args *a, int64_t position)
{
    const int64_t before = position + 1 - a->window;
    return (key_range){a->window > 0 && before > 0 ? before : 0, position + 1};
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// ---- The cache --------------------------------------------------------------------------

// Where token `token` of a slot begins in either cache; for keys it is to be the first of a
// block.
static int64_t cache_offset(const cached_work *work, int64_t slot, int64_t kv_head,
                            int64_t token)
{
    const bd_attention_cached_args *a = work->args;
    return ((slot * a->n_kv_heads + kv_head) * a->capacity + token) * work->width;
}

// Adds token `token` of the batch to the cache, as token `at` of its document.
static void remember(const cached_work *work, int64_t slot, int64_t kv_head, int64_t at,
                     int64_t token)
{
    const bd_attention_cached_args *a = work->args;
    const int64_t from = token * a->kv_stride + kv_head * a->head_size, column = at % BLOCK;
    const float *k = bd_floats(a->k, from);
    float *keys = bd_floats_out(a->keys, cache_offset(work, slot, kv_head, at - column));
    for (int64_t c = 0; c < a->head_size; c++)
        keys[c * BLOCK + column] = k[c];
    memcpy(bd_floats_out(a->values, cache_offset(work, slot, kv_head, at)),
           bd_floats(a->v, from), (size_t)a->head_size * sizeof(float));
}

// ---- One chunk --------------------------------------------------------------------------

// Some queries of a segment, token by token and of each token the heads that share the keys.
typedef struct queries {
    _Alignas(64) float q[MAX_QUERIES * MAX_HEAD_SIZE];  // [n][head_size], scaled
    float scores[MAX_QUERIES * BLOCK];                  // then probabilities
    float out[MAX_QUERIES * MAX_HEAD_SIZE];             // [n][width]
    float top[MAX_QUERIES];
    float sum[MAX_QUERIES];
    key_range sees[MAX_QUERIES];
    int n;
} queries;

// Scores of one query become probabilities relative to its largest score so far; those outside
// of `range`, which is in the block, become 0.
static void soften(queries *s, int i, key_range range, int n, int width)
{
    float *restrict row = s->scores + i * BLOCK;
    float tops[GROUP], top = s->top[i];
    for (int64_t j = 0; j < range.first; j++)
        row[j] = -INFINITY;
    for (int64_t j = range.last; j < n; j++)
        row[j] = -INFINITY;
    for (int l = 0; l < GROUP; l++)
        tops[l] = row[l];
    for (int j = GROUP; j < n; j += GROUP)
        for (int l = 0; l < GROUP; l++)
            tops[l] = row[j + l] > tops[l] ? row[j + l] : tops[l];
    for (int l = 0; l < GROUP; l++)
        top = tops[l] > top ? tops[l] : top;
    for (int j = 0; j < n; j++)
        row[j] = bd_exp(row[j] - top);
    const float shrink = bd_exp(s->top[i] - top);
    s->sum[i] = s->sum[i] * shrink + (float)bd_sum(row, n);
    s->top[i] = top;
    float *restrict out = s->out + i * width;
    for (int c = 0; c < width; c += GROUP)
        for (int l = 0; l < GROUP; l++)
            out[c + l] *= shrink;
}

// Queries i … last - 1, all of which see the same keys of the block.
static void attend_block(queries *s, int i, int last, key_range range, const float *keys,
                         const float *values, int head_size, int width)
{
    const int n = (int)bd_ceil_divide(range.last, GROUP) * GROUP;
    bd_gemm_small((bd_gemm_small_args){
        .m = last - i,
        .n = n,
        .k = head_size,
        .a = s->q + i * head_size,
        .a_row = head_size,
        .a_column = 1,
        .b = keys,
        .b_stride = BLOCK,
        .c = s->scores + i * BLOCK,
        .c_stride = BLOCK,
    });
    for (int j = i; j < last; j++)
        soften(s, j, range, n, width);
    bd_gemm_small((bd_gemm_small_args){
        .m = last - i,
        .n = width,
        .k = (int)(range.last - range.first),
        .a = s->scores + i * BLOCK + range.first,
        .a_row = BLOCK,
        .a_column = 1,
        .b = values + range.first * width,
        .b_stride = width,
        .c = s->out + i * width,
        .c_stride = width,
        .add = true,
    });
}

// The part of a query's keys that lies in the block from `key` on, counted from there.
static key_range in_block(key_range sees, int64_t key)
{
    const key_range range = {larger(sees.first - key, 0), bd_min(sees.last - key, BLOCK)};
    return range.first < range.last ? range : (key_range){0, 0};
}

static void attend_chunk(queries *s, const cached_work *work, int64_t slot, int64_t kv_head,
                         int64_t first_key)
{
    const int64_t last_key = first_key + KEYS_PER_CHUNK;
    for (int64_t key = first_key; key < last_key && key < s->sees[s->n - 1].last;
         key += BLOCK) {
        const int64_t at = cache_offset(work, slot, kv_head, key);
        for (int i = 0, last; i < s->n; i = last) {
            const key_range range = in_block(s->sees[i], key);
            for (last = i + 1; last < s->n; last++) {
                const key_range next = in_block(s->sees[last], key);
                if (next.first != range.first || next.last != range.last)
                    break;
            }
            if (range.last > 0)
                attend_block(s, i, last, range, bd_floats(work->args->keys, at),
                             bd_floats(work->args->values, at), (int)work->args->head_size,
                             (int)work->width);
        }
    }
}

// ---- One task ---------------------------------------------------------------------------

typedef struct segment_part {
    int64_t first, length;  // its new tokens
    int64_t slot, past;
    int64_t kv_head, chunk;
} segment_part;

// Takes queries number `number` … of the segment's new tokens times heads that share the keys.
static void take_queries(queries *s, const cached_work *work, const segment_part *part,
                         int64_t number)
{
    const bd_attention_cached_args *a = work->args;
    const int64_t group = a->n_heads / a->n_kv_heads;
    s->n = (int)bd_min(MAX_QUERIES, part->length * group - number);
    for (int i = 0; i < s->n; i++, number++) {
        const int64_t t = number / group, head = part->kv_head * group + number % group;
        const float *q = bd_floats(a->q, (part->first + t) * a->q_stride + head * a->head_size);
        for (int64_t c = 0; c < a->head_size; c++)
            s->q[i * a->head_size + c] = a->scale * q[c];
        s->sees[i] = visible_keys(a, part->past + t);
        s->top[i] = -INFINITY;
        s->sum[i] = 0.0f;
    }
    memset(s->out, 0, (size_t)(s->n * work->width) * sizeof *s->out);
}

static void put_partials(const queries *s, const cached_work *work, const segment_part *part,
                         int64_t number)
{
    const int64_t group = work->args->n_heads / work->args->n_kv_heads;
    for (int i = 0; i < s->n; i++, number++) {
        float *to = partial_at(work, part->first + number / group,
                               part->kv_head * group + number % group, part->chunk);
        to[0] = s->top[i];
        to[1] = s->sum[i];
        memcpy(to + 2, s->out + i * work->width, (size_t)work->width * sizeof *to);
    }
}

static bd_status cached_task(void *context, int64_t index, bd_error *err)
{
    (void)err;
    const cached_work *work = context;
    const bd_attention_cached_args *a = work->args;
    const int64_t segment = index / work->n_chunks / a->n_kv_heads;
    int64_t n_segments;
    const int32_t *bounds = bd_row_bounds(&a->boundaries, 0, &n_segments);
    const segment_part part = {
        .first = bounds[segment],
        .length = bounds[segment + 1] - bounds[segment],
        .slot = a->slots[segment],
        .past = a->past[segment],
        .kv_head = index / work->n_chunks % a->n_kv_heads,
        .chunk = index % work->n_chunks,
    };
    const int64_t first_key = part.chunk * KEYS_PER_CHUNK;
    for (int64_t at = larger(first_key, part.past);
         at < bd_min(first_key + KEYS_PER_CHUNK, part.past + part.length); at++)
        remember(work, part.slot, part.kv_head, at, part.first + at - part.past);

    queries s;
    const int64_t n_queries = part.length * (a->n_heads / a->n_kv_heads);
    for (int64_t number = 0; number < n_queries; number += s.n) {
        take_queries(&s, work, &part, number);
        if (s.sees[0].first >= first_key + KEYS_PER_CHUNK || s.sees[s.n - 1].last <= first_key)
            continue;
        attend_chunk(&s, work, part.slot, part.kv_head, first_key);
        put_partials(&s, work, &part, number);
    }
    return BD_OK;
}

// ---- Joining the chunks -----------------------------------------------------------------

static void join_chunks(const cached_work *work, int64_t token, int64_t head, int64_t position)
{
    const bd_attention_cached_args *a = work->args;
    const key_range sees = visible_keys(a, position);
    const int64_t first = sees.first / KEYS_PER_CHUNK, last = position / KEYS_PER_CHUNK;
    float top = -INFINITY;
    for (int64_t chunk = first; chunk <= last; chunk++) {
        const float chunk_top = *partial_at(work, token, head, chunk);
        top = chunk_top > top ? chunk_top : top;
    }
    double sum = 0.0, sums[MAX_HEAD_SIZE] = {0};
    for (int64_t chunk = first; chunk <= last; chunk++) {
        const float *from = partial_at(work, token, head, chunk);
        const double factor = (double)bd_exp(from[0] - top);
        sum += factor * (double)from[1];
        for (int64_t c = 0; c < a->head_size; c++)
            sums[c] += factor * (double)from[2 + c];
    }
    float *out = bd_floats_out(a->out, (token * a->n_heads + head) * a->head_size);
    for (int64_t c = 0; c < a->head_size; c++)
        out[c] = (float)(sums[c] / sum);
}

static void join_loop(const void *context, int64_t first, int64_t last)
{
    const cached_work *work = context;
    const bd_attention_cached_args *a = work->args;
    for (int64_t query = first; query < last; query++) {
        const int64_t token = query / a->n_heads;
        join_chunks(work, token, query % a->n_heads,
                    bd_token_position(&a->boundaries, a->past, token));
    }
}

BD_CPU_OPERATION(attention_cached)
{
    if (args->head_size > MAX_HEAD_SIZE)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "attention heads of %lld channels (at most %d)",
                       (long long)args->head_size, MAX_HEAD_SIZE);
    const int64_t n_queries = args->boundaries.seq_len * args->n_heads;
    const int64_t n_segments = bd_count_segments(&args->boundaries);
    cached_work work = {
        .args = args,
        .n_chunks = bd_ceil_divide(args->longest, KEYS_PER_CHUNK),
        .width = bd_cache_width(args->head_size),
    };
    void *memory;
    BD_TRY(bd_cpu_scratch(
        backend, (size_t)(n_queries * work.n_chunks * (2 + work.width)) * sizeof(float),
        &memory, err));
    work.partials = memory;
    BD_TRY(bd_threads_run(((bd_cpu_backend *)backend)->threads, cached_task, &work,
                          n_segments * args->n_kv_heads * work.n_chunks, err));
    return bd_cpu_for(backend, n_queries, JOINS_PER_TASK, join_loop, &work, err);
}
