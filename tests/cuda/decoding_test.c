// The operations of generation on the CUDA backend: in float against the CPU backend, in bf16
// against double precision, and bit for bit however the tokens come.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bf16_fixture.h"
#include "parity_fixture.h"

// ---- Tensors of either type -----------------------------------------------------------------

// Floats that are representable in the type.
static float *numbers(uint64_t *seed, bd_type type, int64_t n)
{
    return type == BD_BF16 ? bf16_tensor(seed, n, 1.0) : random_tensor(seed, n, 1.0);
}

static void *on_device(bd_type type, const float *x, int64_t n)
{
    return type == BD_BF16 ? bf16_on_device(x, n) : floats_on_device(x, n);
}

static void *room_on_device(bd_type type, int64_t n)
{
    return type == BD_BF16 ? bf16_nan_on_device(n) : floats_on_device(NULL, n);
}

static float *fetch_values(const char *what, bd_type type, const void *device, int64_t n)
{
    if (type == BD_BF16)
        return fetch_bf16(what, device, n);
    float *got = fetch_bytes(device, (size_t)n * sizeof *got);
    expect_same_in_every_run(what, got, (size_t)n * sizeof *got);
    return got;
}

// `got` is the exact number, within `tolerance`, rounded to the type.
static void expect_number(const char *what, bd_type type, int64_t i, float got, double exact,
                          double tolerance)
{
    if (type == BD_BF16)
        expect_rounding(what, i, got, exact, tolerance);
    else if (!(fabs((double)got - exact) <= tolerance))
        fail_msg("%s[%lld] is %.9g, not %.9g", what, (long long)i, (double)got, exact);
}

// ---- linear_by_token ------------------------------------------------------------------------

typedef struct layer {
    bd_type type;
    int64_t n_tokens, n_in, n_out, stride;
    bd_weight_layout layout;
    bool with_bias, by_rows;
} layer;

static double exact_output(const layer *l, const float *x, const float *weight,
                           const float *bias, int64_t j, double *size)
{
    double sum = l->with_bias ? (double)bias[j] : 0.0;
    *size = fabs(sum);
    for (int64_t i = 0; i < l->n_in; i++) {
        const double term =
            (double)x[i] *
            (double)weight[l->layout == BD_WEIGHT_OUT_IN ? j * l->n_in + i : i * l->n_out + j];
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

// The values, and then the bits of every token alone.
static void check_layer(layer l)
{
    uint64_t seed = 46;
    const int64_t n_x = l.n_tokens * l.n_in, n_spread = l.n_tokens * l.stride;
    float *x = numbers(&seed, l.type, n_x), *weight = numbers(&seed, l.type, l.n_in * l.n_out);
    float *bias = numbers(&seed, l.type, l.n_out), *alone;
    int32_t *rows = get_memory((size_t)l.n_tokens * sizeof *rows);
    for (int64_t t = 0; t < l.n_tokens; t++)
        rows[t] = (int32_t)(l.by_rows ? l.n_tokens - 1 - t : t);
    bd_linear_by_token_args f = {
        .type = l.type,
        .n_tokens = l.n_tokens,
        .n_in = l.n_in,
        .n_out = l.n_out,
        .out_stride = l.stride,
        .layout = l.layout,
        .x = on_device(l.type, x, n_x),
        .rows = l.by_rows ? device_array(rows, l.n_tokens, sizeof *rows) : NULL,
        .weight = on_device(l.type, weight, l.n_in * l.n_out),
        .bias = l.with_bias ? on_device(l.type, bias, l.n_out) : NULL,
        .out = room_on_device(l.type, n_spread),
    };
    RUN(cuda, linear_by_token, f);
    float *out = fetch_values("out", l.type, f.out, n_spread);
    f.n_tokens = 1;
    f.out_stride = 0;
    f.out = room_on_device(l.type, l.n_out);
    for (int64_t t = 0; t < l.n_tokens; t++) {
        for (int64_t j = 0; j < l.n_out; j++) {
            double size;
            const double exact = exact_output(&l, x + rows[t] * l.n_in, weight, bias, j, &size);
            expect_number("out", l.type, j, out[t * l.stride + j], exact, long_sums * size);
        }
        for (int64_t j = l.n_out; j < l.stride; j++)
            assert_true(isnan(out[t * l.stride + j]));
        const int32_t row = rows[t];
        f.rows = device_array(&row, 1, sizeof row);
        RUN(cuda, linear_by_token, f);
        alone = fetch_values("alone", l.type, f.out, l.n_out);
        expect_same("alone", alone, out + t * l.stride, l.n_out);
        free(alone);
    }
    release_device();
    free(out);
    free(rows);
    free(x);
    free(weight);
    free(bias);
}

static void linear_by_token_agrees(void)
{
    static const int64_t tokens[] = {1, 2, 4, 5, 9, 3};
    for (int type = BD_FLOAT; type <= BD_BF16; type++)
        for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++)
            for (int i = 0; i < N_SIZES; i++) {
                const int64_t n_out = sizes[(i + 2) % N_SIZES];
                check_layer((layer){(bd_type)type, tokens[i], sizes[i], n_out, n_out + i % 3,
                                    (bd_weight_layout)layout, i % 2 == 0, i % 3 == 1});
            }
}

// The activation is applied to the sum before it is rounded.
static void activations_agree(void)
{
    enum { N = 33, N_IN = 8 };
    uint64_t seed = 3;
    float *x = random_tensor(&seed, N_IN, 2.0), *weight = random_tensor(&seed, N * N_IN, 2.0);
    for (bd_activation f = BD_ACTIVATION_NONE; f <= BD_ACTIVATION_SILU; f++) {
        float out[N];
        bd_linear_by_token_args a = {.n_tokens = 1, .n_in = N_IN, .n_out = N, .activation = f};
        a.x = x;
        a.weight = weight;
        a.out = out;
        RUN(cpu, linear_by_token, a);
        a.x = floats_on_device(x, N_IN);
        a.weight = floats_on_device(weight, N * N_IN);
        a.out = floats_on_device(NULL, N);
        RUN(cuda, linear_by_token, a);
        compare("activated", a.out, out, N, few_roundings);
        release_device();
    }
    free(x);
    free(weight);
}

// ---- attention_cached -----------------------------------------------------------------------

enum { N_DOCUMENTS = 3 };

typedef struct documents {
    bd_type type;
    int64_t n_heads, n_kv_heads, head_size, window;
    int64_t lengths[N_DOCUMENTS];
} documents;

static int64_t row_width(const documents *d)
{
    return (d->n_heads + 2 * d->n_kv_heads) * d->head_size;
}

static int64_t out_width(const documents *d)
{
    return d->n_heads * d->head_size;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// All tokens, at most `step` of each document at a time, through a cache, which is brought back
// after each call, so that guard bands around it are checked. Document i lies in slot
// N_DOCUMENTS - 1 - i. Returns [document][token][out_width].
static float *attend_in_steps(const documents *d, float *const *qkv, int64_t step)
{
    const int64_t wide = row_width(d), narrow = out_width(d);
    int64_t total = 0, longest = 0, done[N_DOCUMENTS] = {0}, first[N_DOCUMENTS];
    for (int i = 0; i < N_DOCUMENTS; i++) {
        first[i] = total;
        total += d->lengths[i];
        longest = d->lengths[i] > longest ? d->lengths[i] : longest;
    }
    const int64_t capacity = (longest + BD_CACHE_BLOCK - 1) / BD_CACHE_BLOCK * BD_CACHE_BLOCK;
    const int64_t n_cache =
        N_DOCUMENTS * capacity * d->n_kv_heads * bd_cache_width(d->head_size);
    const size_t each = bd_type_bytes(d->type), cache_bytes = (size_t)n_cache * each;
    void *keys = get_memory(cache_bytes), *values = get_memory(cache_bytes);
    memset(keys, 0, cache_bytes);
    memset(values, 0, cache_bytes);
    float *all = get_memory((size_t)(total * narrow) * sizeof *all);
    for (;;) {
        int32_t bounds[N_DOCUMENTS + 1] = {0}, slots[N_DOCUMENTS], past[N_DOCUMENTS];
        int segments[N_DOCUMENTS], n = 0;
        int64_t most = 0;
        for (int i = 0; i < N_DOCUMENTS; i++) {
            const int64_t count = smaller(step, d->lengths[i] - done[i]);
            if (count == 0)
                continue;
            slots[n] = N_DOCUMENTS - 1 - i;
            past[n] = (int32_t)done[i];
            bounds[n + 1] = bounds[n] + (int32_t)count;
            most = done[i] + count > most ? done[i] + count : most;
            segments[n++] = i;
        }
        if (n == 0)
            break;
        const int64_t n_tokens = bounds[n];
        const int32_t offsets[] = {0, (int32_t)n + 1};
        float *rows = get_memory((size_t)(n_tokens * wide) * sizeof *rows);
        for (int s = 0; s < n; s++)
            memcpy(rows + bounds[s] * wide, qkv[segments[s]] + past[s] * wide,
                   (size_t)((bounds[s + 1] - bounds[s]) * wide) * sizeof *rows);
        char *there = on_device(d->type, rows, n_tokens * wide);
        const bd_attention_cached_args a = {
            .boundaries = {1, n_tokens, device_array(offsets, 2, sizeof *offsets),
                           device_array(bounds, n + 1, sizeof *bounds)},
            .type = d->type,
            .n_heads = d->n_heads,
            .n_kv_heads = d->n_kv_heads,
            .head_size = d->head_size,
            .q_stride = wide,
            .kv_stride = wide,
            .window = d->window,
            .capacity = capacity,
            .longest = most,
            .scale = 0.25f,
            .slots = device_array(slots, n, sizeof *slots),
            .past = device_array(past, n, sizeof *past),
            .q = there,
            .k = there + (size_t)(d->n_heads * d->head_size) * each,
            .v = there + (size_t)((d->n_heads + d->n_kv_heads) * d->head_size) * each,
            .keys = device_array(keys, n_cache, each),
            .values = device_array(values, n_cache, each),
            .out = room_on_device(d->type, n_tokens * narrow),
        };
        RUN(cuda, attention_cached, a);
        float *out = fetch_values("attention", d->type, a.out, n_tokens * narrow);
        for (int s = 0; s < n; s++) {
            memcpy(all + (first[segments[s]] + past[s]) * narrow, out + bounds[s] * narrow,
                   (size_t)((bounds[s + 1] - bounds[s]) * narrow) * sizeof *all);
            done[segments[s]] += bounds[s + 1] - bounds[s];
        }
        free(out);
        free(rows);
        free(keys);
        free(values);
        keys = fetch_bytes(a.keys, cache_bytes);
        values = fetch_bytes(a.values, cache_bytes);
        release_device();
    }
    free(keys);
    free(values);
    return all;
}

// One query in double. Scores of at most 5, of 64 terms: their rounding moves a result by less
// than 1e-5 of the largest value, which is 1.
static void check_query(const documents *d, const float *qkv, int64_t t, int64_t head,
                        const float *got)
{
    const int64_t wide = row_width(d), size = d->head_size;
    const int64_t kv = d->n_heads + head / (d->n_heads / d->n_kv_heads);
    const int64_t first = d->window > 0 && t + 1 > d->window ? t + 1 - d->window : 0;
    double out[256] = {0}, sum = 0.0;
    for (int64_t j = first; j <= t; j++) {
        double score = 0.0;
        for (int64_t c = 0; c < size; c++)
            score +=
                (double)qkv[t * wide + head * size + c] * (double)qkv[j * wide + kv * size + c];
        const double p = exp(0.25 * score);
        sum += p;
        for (int64_t c = 0; c < size; c++)
            out[c] += p * (double)qkv[j * wide + (kv + d->n_kv_heads) * size + c];
    }
    for (int64_t c = 0; c < size; c++)
        expect_number("attention", d->type, c, got[c], out[c] / sum, 1e-5);
}

static void check_documents(documents d)
{
    static const int64_t steps[] = {5, 64};
    uint64_t seed = 17;
    float *qkv[N_DOCUMENTS];
    int64_t total = 0;
    for (int i = 0; i < N_DOCUMENTS; i++) {
        qkv[i] = numbers(&seed, d.type, d.lengths[i] * row_width(&d));
        total += d.lengths[i];
    }
    float *whole = attend_in_steps(&d, qkv, INT64_MAX), *at = whole;
    for (int i = 0; i < N_DOCUMENTS; i++)
        for (int64_t t = 0; t < d.lengths[i]; t++, at += out_width(&d))
            for (int64_t head = 0; head < d.n_heads; head++)
                check_query(&d, qkv[i], t, head, at + head * d.head_size);
    for (size_t i = BRIEF ? 1 : 0; i < sizeof steps / sizeof *steps; i++) {
        float *cut = attend_in_steps(&d, qkv, steps[i]);
        expect_same("cut", cut, whole, total * out_width(&d));
        free(cut);
    }
    free(whole);
    for (int i = 0; i < N_DOCUMENTS; i++)
        free(qkv[i]);
}

static void attention_cached_agrees(void)
{
    check_documents((documents){BD_FLOAT, 2, 1, 33, 0, {1, 31, 33}});
    check_documents((documents){BD_FLOAT, 1, 1, 64, 0, {258, 1, 3}});
    check_documents((documents){BD_BF16, 3, 1, 64, 0, {17, 2, 1}});
    check_documents((documents){BD_BF16, 2, 2, 20, 5, {40, 5, 6}});
    check_documents((documents){BD_FLOAT, 2, 1, 16, 100, {290, 100, 1}});
}

static void heads_that_are_too_large_are_refused(void)
{
    bd_error err;
    const bd_attention_cached_args args = {.boundaries = {.n_rows = 1, .seq_len = 1},
                                           .n_heads = 1,
                                           .n_kv_heads = 1,
                                           .head_size = 257,
                                           .longest = 1};
    assert_int_equal(cuda->operations->attention_cached(cuda, &args, &err), BD_ERR_UNSUPPORTED);
}

// ---- Positions ------------------------------------------------------------------------------

enum { N_CHANNELS = 32, N_POSITIONS = 120 };

// Tokens that precede a segment move its positions as on the CPU backend.
static void check_past(const batch *b)
{
    uint64_t seed = 9;
    int32_t past[256];
    uint64_t turns[N_CHANNELS / 2];
    int n = 0;
    for (int64_t begin, end; segment_at(b, n, &begin, &end); n++)
        past[n] = n * 29 % 50;
    for (int i = 0; i < N_CHANNELS / 2; i++)
        turns[i] = UINT64_MAX / (uint64_t)(7 + i);
    const int64_t size = b->n_tokens * N_CHANNELS;
    float *tokens = random_tensor(&seed, (int64_t)b->n_vocabulary * N_CHANNELS, 1.0);
    float *positions = random_tensor(&seed, N_POSITIONS * N_CHANNELS, 1.0);
    float *x = random_tensor(&seed, size, 1.0), *turned = guarded_copy(x, size);
    float *out = guarded(size);
    bd_embedding_forward_args e = {.boundaries = b->boundaries,
                                   .past = past,
                                   .ids = b->ids,
                                   .id_bytes = 4,
                                   .n_channels = N_CHANNELS,
                                   .n_vocabulary = b->n_vocabulary,
                                   .n_positions = N_POSITIONS,
                                   .token_scale = 1.0f,
                                   .token_table = tokens,
                                   .position_table = positions,
                                   .out = out};
    bd_rotary_args r = {.boundaries = b->boundaries,
                        .past = past,
                        .n_heads = 1,
                        .head_size = N_CHANNELS,
                        .stride = N_CHANNELS,
                        .turns = turns,
                        .scale = 1.0f,
                        .x = turned};
    RUN(cpu, embedding_forward, e);
    RUN(cpu, rotary, r);
    e.boundaries = r.boundaries = boundaries_on_device(b);
    e.past = r.past = device_array(past, n, sizeof *past);
    e.ids = ids_on_device(b, 4);
    e.token_table = floats_on_device(tokens, (int64_t)b->n_vocabulary * N_CHANNELS);
    e.position_table = floats_on_device(positions, N_POSITIONS * N_CHANNELS);
    e.out = floats_on_device(NULL, size);
    r.turns = device_array(turns, N_CHANNELS / 2, sizeof *turns);
    r.x = floats_on_device(x, size);
    RUN(cuda, embedding_forward, e);
    RUN(cuda, rotary, r);
    compare_padded("embedded", b, e.out, out, N_CHANNELS, 0.0);
    compare("turned", r.x, turned, size, few_roundings);
    release_device();
    free(tokens);
    free(positions);
    free(x);
    guarded_free(turned);
    guarded_free(out);
}

static void tokens_before_a_segment_count(void)
{
    for (int i = 0; i < 3; i++) {
        batch b = random_batch((uint64_t)(30 + i), 3, 66);
        check_past(&b);
        batch_release(&b);
    }
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "linear_by_token_agrees", .check = linear_by_token_agrees, .misaligned = true},
        {.name = "activations_agree", .check = activations_agree},
        {.name = "attention_cached_agrees",
         .check = attention_cached_agrees,
         .misaligned = true},
        {.name = "heads_that_are_too_large_are_refused",
         .check = heads_that_are_too_large_are_refused},
        {.name = "tokens_before_a_segment_count", .check = tokens_before_a_segment_count},
    };
    bd_error err;
    if (bd_backend_open_cpu(&cpu, 2, &err) != BD_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const int status = run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
    cpu->operations->close(cpu);
    return status;
}
