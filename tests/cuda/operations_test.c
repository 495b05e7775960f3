// Parity of the CUDA backend with the CPU backend, operation by operation.
//
//   operations_test device|emulated MODULE [CASE]
//
// MODULE is the real module, and the test is skipped where that finds no device; or it is the
// emulated one, which must open anywhere. In the
// emulation every case runs under each schedule of threads, and must give the same bits. Inputs
// and outputs lie between guard bands; outputs begin as NaN where they are written, and as
// numbers where they are added to.
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../emulation/emulation.h"
#include "../unit/kernel_fixture.h"
#include "kernels/module.h"

// A bound is on max |got - wanted| / max |wanted|. Both sides round at 6e-8; sums of some
// hundred terms in another order differ by a few times that.
static const double few_roundings = 1e-6;
static const double long_sums = 4e-6;

// ThreadSanitizer finds a race under any schedule and at any size, slowly.
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
enum { BRIEF = 1 };
#else
enum { BRIEF = 0 };
#endif

static bd_backend *cpu, *cuda;
static const char *module_path;

static const int64_t sizes[] = {1, 31, 33, 64, 65, 300};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

// ---- Device memory between guard bands ------------------------------------------------------

enum { BAND_BYTES = 256, MAX_TENSORS = 32 };
static const unsigned char band_byte = 0xa5;

typedef struct device_block {
    char *memory;
    size_t before, size;  // bytes before what was asked for, and its own
} device_block;

static device_block blocks[MAX_TENSORS];
static int n_blocks;
static int misaligned;  // every tensor begins one float after an aligned address

static void must(bd_status status, const bd_error *err)
{
    if (status != BD_OK)
        fail_msg("%s", err->message);
}

static void *device_bytes(const void *from, size_t size)
{
    bd_error err;
    assert_true(n_blocks < MAX_TENSORS);
    device_block *block = &blocks[n_blocks++];
    *block =
        (device_block){.before = BAND_BYTES + (misaligned ? sizeof(float) : 0), .size = size};
    const size_t whole = block->before + size + BAND_BYTES;
    void *memory;
    must(cuda->operations->allocate(cuda, whole, &memory, &err), &err);
    char *image = get_memory(whole);
    memset(image, band_byte, whole);
    if (from)
        memcpy(image + block->before, from, size);
    else
        memset(image + block->before, 0xff, size);
    must(cuda->operations->upload(cuda, memory, image, whole, &err), &err);
    free(image);
    block->memory = memory;
    return block->memory + block->before;
}

static float *on_device(const float *x, int64_t n)
{
    return device_bytes(x, (size_t)n * sizeof *x);
}

static float *nan_on_device(int64_t n)
{
    return device_bytes(NULL, (size_t)n * sizeof(float));
}

static bd_boundaries boundaries_on_device(const batch *b)
{
    bd_boundaries boundaries = b->boundaries;
    const int64_t n_rows = boundaries.n_rows;
    boundaries.offsets = device_bytes(b->offsets, (size_t)(n_rows + 1) * sizeof *b->offsets);
    boundaries.values = device_bytes(b->values, (size_t)b->offsets[n_rows] * sizeof *b->values);
    return boundaries;
}

static void release_device(void)
{
    bd_error err;
    for (int i = 0; i < n_blocks; i++) {
        const device_block *block = &blocks[i];
        const size_t whole = block->before + block->size + BAND_BYTES;
        unsigned char *image = get_memory(whole);
        must(cuda->operations->download(cuda, image, block->memory, whole, &err), &err);
        for (size_t k = 0; k < whole; k++)
            if ((k < block->before || k >= block->before + block->size) &&
                image[k] != band_byte)
                fail_msg("block %d of the case: byte %lld of %lld was written", i,
                         (long long)k - (long long)block->before, (long long)block->size);
        free(image);
        cuda->operations->release(cuda, block->memory);
    }
    n_blocks = 0;
}

// ---- Results, and every schedule's against the first ---------------------------------------

typedef struct recorded {
    float *values;
    int64_t n;
} recorded;

static recorded *records;
static size_t n_records, records_capacity, next_record;
static int recording;

static void record(const char *what, float *got, int64_t n)
{
    if (recording) {
        if (n_records == records_capacity) {
            records_capacity = 2 * records_capacity + 64;
            records = realloc(records, records_capacity * sizeof *records);
            assert_non_null(records);
        }
        records[n_records++] = (recorded){got, n};
        return;
    }
    assert_true(next_record < n_records);
    const recorded *first = &records[next_record++];
    assert_int_equal(first->n, n);
    expect_same(what, got, first->values, n);
    free(got);
}

static float *fetch(const float *device, int64_t n)
{
    bd_error err;
    float *got = get_memory((size_t)n * sizeof *got);
    must(cuda->operations->download(cuda, got, device, (size_t)n * sizeof *got, &err), &err);
    return got;
}

// Tolerance 0 asks for the same bits.
static void compare(const char *what, const float *device, const float *wanted, int64_t n,
                    double tolerance)
{
    float *got = fetch(device, n);
    if (tolerance > 0.0) {
        double *precise = to_double(wanted, n);
        expect_close(what, got, precise, n, tolerance);
        free(precise);
    } else {
        expect_same(what, got, wanted, n);
    }
    record(what, got, n);
}

static void compare_padded(const char *what, const batch *b, const float *device,
                           const float *wanted, int64_t width, double tolerance)
{
    float *got = fetch(device, b->n_tokens * width);
    expect_padding_zero(what, b, got, width);
    free(got);
    compare(what, device, wanted, b->n_tokens * width, tolerance);
}

// For a small difference of numbers of size 1, whose own size says nothing.
static void compare_cancelled(const char *what, const batch *b, const float *device,
                              const float *wanted, int64_t width)
{
    const int64_t n = b->n_tokens * width;
    float *got = fetch(device, n);
    expect_padding_zero(what, b, got, width);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - wanted[i]) <= (float)long_sums))
            fail_msg("%s[%lld] is %.9g, not %.9g", what, (long long)i, (double)got[i],
                     (double)wanted[i]);
    record(what, got, n);
}

// ---- Batches --------------------------------------------------------------------------------

enum { N_BATCHES = 6 };

static batch make_batch(int which)
{
    batch b;
    switch (which) {
    case 0:
        return awkward_batch(5);
    case 1:
        return batch_of_one(1);
    case 2:
        b = random_batch(3, 3, 65);
        b.offsets[3] = b.offsets[2] + 1;  // a row of padding alone
        return b;
    case 3:
        return random_batch(4, 1, 300);
    case 4:
        b = random_batch(6, 2, 64);
        for (int64_t t = 0; t < b.n_tokens; t++)  // buckets of many tokens
            b.ids[t] = b.ids_16[t] = (uint16_t)(t % 11 == 0 ? 49 : 7);
        return b;
    default:
        return random_batch(7, 5, 31);
    }
}

static void for_each_batch(void (*check)(const batch *b, int64_t width, int32_t id_bytes))
{
    for (int which = BRIEF ? N_BATCHES - 1 : 0; which < N_BATCHES; which++) {
        batch b = make_batch(which);
        check(&b, sizes[which % N_SIZES], which % 2 == 0 ? 2 : 4);
        batch_release(&b);
    }
    for (int i = 0; i < N_SIZES && !BRIEF; i++) {
        batch b = random_batch((uint64_t)(20 + i), 2, 33);
        check(&b, sizes[i], i % 2 == 0 ? 4 : 2);
        batch_release(&b);
    }
}

static const void *ids_of(const batch *b, int32_t id_bytes)
{
    return id_bytes == 2 ? (const void *)b->ids_16 : (const void *)b->ids;
}

static const void *ids_on_device(const batch *b, int32_t id_bytes)
{
    return device_bytes(ids_of(b, id_bytes), (size_t)(b->n_tokens * id_bytes));
}

// ---- Embedding ------------------------------------------------------------------------------

enum { FIRST_POSITION = 2, POSITIONS_LEFT_OVER = 3 };

static void check_embedding(const batch *b, int64_t width, int32_t id_bytes)
{
    uint64_t seed = 11;
    const int64_t n = b->n_tokens * width;
    const int64_t n_positions = FIRST_POSITION + b->boundaries.seq_len + POSITIONS_LEFT_OVER;
    const int64_t n_words = b->n_vocabulary * width, n_places = n_positions * width;
    float *words = random_tensor(&seed, n_words, 1.0),
          *places = random_tensor(&seed, n_places, 1.0);
    float *out = guarded(n);
    bd_embedding_forward_args f = {
        .boundaries = b->boundaries,
        .ids = ids_of(b, id_bytes),
        .id_bytes = id_bytes,
        .n_channels = width,
        .n_vocabulary = b->n_vocabulary,
        .n_positions = n_positions,
        .first_position = FIRST_POSITION,
        .token_table = words,
        .position_table = places,
        .out = out,
    };
    RUN(cpu, embedding_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.ids = ids_on_device(b, id_bytes);
    f.token_table = on_device(words, n_words);
    f.position_table = on_device(places, n_places);
    f.out = nan_on_device(n);
    RUN(cuda, embedding_forward, f);
    compare_padded("embedding", b, f.out, out, width, 0.0);

    // Onto what the tables hold, in the order of the tokens, as the CPU does: the same bits.
    float *d_out = random_activations(&seed, b, width, 1.0);
    bd_embedding_backward_args g = {
        .boundaries = b->boundaries,
        .ids = ids_of(b, id_bytes),
        .id_bytes = id_bytes,
        .n_channels = width,
        .n_vocabulary = b->n_vocabulary,
        .n_positions = n_positions,
        .first_position = FIRST_POSITION,
        .d_out = d_out,
        .d_token_table = words,
        .d_position_table = places,
    };
    bd_embedding_backward_args h = g;
    h.boundaries = f.boundaries;
    h.ids = f.ids;
    h.d_out = on_device(d_out, n);
    h.d_token_table = on_device(words, n_words);
    h.d_position_table = on_device(places, n_places);
    RUN(cpu, embedding_backward, g);
    RUN(cuda, embedding_backward, h);
    compare("gradient of words", h.d_token_table, words, n_words, 0.0);
    compare("gradient of positions", h.d_position_table, places, n_places, 0.0);
    release_device();
    free(words);
    free(places);
    free(d_out);
    guarded_free(out);
}

static void embedding_agrees(void)
{
    for_each_batch(check_embedding);
}

// ---- Layer norm -----------------------------------------------------------------------------

static void check_layer_norm(const batch *b, int64_t width, int32_t id_bytes)
{
    (void)id_bytes;
    uint64_t seed = 12;
    const int64_t n = b->n_tokens * width;
    float *x = random_tensor(&seed, n, 2.0);
    float *gamma = random_tensor(&seed, width, 1.0), *beta = random_tensor(&seed, width, 1.0);
    for (int64_t i = 0; i < n; i++)  // where a one-pass variance loses its digits
        x[i] += 5.0f;
    float *out = guarded(n), *mean = guarded(b->n_tokens), *rstd = guarded(b->n_tokens);
    bd_layer_norm_forward_args f = {
        .boundaries = b->boundaries,
        .n_channels = width,
        .epsilon = 1e-5f,
        .x = x,
        .gamma = gamma,
        .beta = beta,
        .out = out,
        .mean = mean,
        .rstd = rstd,
    };
    RUN(cpu, layer_norm_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.x = on_device(x, n);
    f.gamma = on_device(gamma, width);
    f.beta = on_device(beta, width);
    f.out = nan_on_device(n);
    f.mean = nan_on_device(b->n_tokens);
    f.rstd = nan_on_device(b->n_tokens);
    RUN(cuda, layer_norm_forward, f);
    compare_padded("layer norm", b, f.out, out, width, 2.0 * few_roundings);
    compare_padded("mean", b, f.mean, mean, 1, few_roundings);
    compare_padded("rstd", b, f.rstd, rstd, 1, few_roundings);

    float *d_out = random_activations(&seed, b, width, 1.0);
    float *d_x = random_activations(&seed, b, width, 1.0);
    float *d_gamma = random_tensor(&seed, width, 1.0),
          *d_beta = random_tensor(&seed, width, 1.0);
    bd_layer_norm_backward_args g = {
        .boundaries = b->boundaries,
        .n_channels = width,
        .d_out = d_out,
        .x = x,
        .gamma = gamma,
        .mean = mean,
        .rstd = rstd,
        .d_x = d_x,
        .d_gamma = d_gamma,
        .d_beta = d_beta,
    };
    bd_layer_norm_backward_args h = g;
    h.boundaries = f.boundaries;
    h.d_out = on_device(d_out, n);
    h.x = f.x;
    h.gamma = f.gamma;
    h.mean = on_device(mean, b->n_tokens);
    h.rstd = on_device(rstd, b->n_tokens);
    h.d_x = on_device(d_x, n);
    h.d_gamma = on_device(d_gamma, width);
    h.d_beta = on_device(d_beta, width);
    RUN(cpu, layer_norm_backward, g);
    RUN(cuda, layer_norm_backward, h);
    // A difference of numbers of size 1 is multiplied by rstd, which is 316 for one channel.
    float steepest = 1.0f;
    for (int64_t t = 0; t < b->n_tokens; t++)
        steepest = fmaxf(steepest, rstd[t]);
    compare_padded("gradient of x", b, h.d_x, d_x, width, long_sums * (double)steepest);
    compare("gradient of gamma", h.d_gamma, d_gamma, width, long_sums);
    compare("gradient of beta", h.d_beta, d_beta, width, long_sums);
    release_device();
    free(x);
    free(gamma);
    free(beta);
    free(d_out);
    free(d_x);
    free(d_gamma);
    free(d_beta);
    guarded_free(out);
    guarded_free(mean);
    guarded_free(rstd);
}

static void layer_norm_agrees(void)
{
    for_each_batch(check_layer_norm);
}

// ---- Linear ---------------------------------------------------------------------------------

// What padding holds before it is multiplied: anything finite.
static void fill_padding(const batch *b, float *x, int64_t width)
{
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t c = 0; c < width && is_padding(b, t); c++)
            x[t * width + c] = 3.0f;
}

static void check_linear_forward(const batch *b, int64_t n_in, int64_t n_out,
                                 bd_weight_layout layout, int with_bias)
{
    uint64_t seed = 13;
    float *x = random_activations(&seed, b, n_in, 1.0);
    float *weight = random_tensor(&seed, n_in * n_out, 1.0);
    float *bias = random_tensor(&seed, n_out, 1.0);
    float *out = guarded(b->n_tokens * n_out);
    fill_padding(b, x, n_in);
    bd_linear_forward_args f = {
        .boundaries = b->boundaries,
        .n_in = n_in,
        .n_out = n_out,
        .layout = layout,
        .x = x,
        .weight = weight,
        .bias = with_bias ? bias : NULL,
        .out = out,
    };
    RUN(cpu, linear_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.x = on_device(x, b->n_tokens * n_in);
    f.weight = on_device(weight, n_in * n_out);
    f.bias = with_bias ? on_device(bias, n_out) : NULL;
    f.out = nan_on_device(b->n_tokens * n_out);
    RUN(cuda, linear_forward, f);
    compare_padded("linear", b, f.out, out, n_out, long_sums);
    release_device();
    free(x);
    free(weight);
    free(bias);
    guarded_free(out);
}

static void check_linear_backward(const batch *b, int64_t n_in, int64_t n_out,
                                  bd_weight_layout layout, int with_all)
{
    uint64_t seed = 14;
    const int64_t n_x = b->n_tokens * n_in, n_weight = n_in * n_out;
    float *d_out = random_activations(&seed, b, n_out, 1.0);
    float *x = random_activations(&seed, b, n_in, 1.0);
    float *weight = random_tensor(&seed, n_weight, 1.0);
    float *d_weight = random_tensor(&seed, n_weight, 1.0);
    float *d_bias = random_tensor(&seed, n_out, 1.0);
    float *d_x = guarded(n_x);
    bd_linear_backward_args g = {
        .boundaries = b->boundaries,
        .n_in = n_in,
        .n_out = n_out,
        .layout = layout,
        .d_out = d_out,
        .x = x,
        .weight = weight,
        .d_x = with_all ? d_x : NULL,
        .d_weight = d_weight,
        .d_bias = with_all ? d_bias : NULL,
    };
    bd_linear_backward_args h = g;
    h.boundaries = boundaries_on_device(b);
    h.d_out = on_device(d_out, b->n_tokens * n_out);
    h.x = on_device(x, n_x);
    h.weight = on_device(weight, n_weight);
    h.d_x = with_all ? nan_on_device(n_x) : NULL;
    h.d_weight = on_device(d_weight, n_weight);
    h.d_bias = with_all ? on_device(d_bias, n_out) : NULL;
    RUN(cpu, linear_backward, g);
    RUN(cuda, linear_backward, h);
    compare("gradient of the weight", h.d_weight, d_weight, n_weight, long_sums);
    if (with_all) {
        compare_padded("gradient of x", b, h.d_x, d_x, n_in, long_sums);
        compare("gradient of the bias", h.d_bias, d_bias, n_out, long_sums);
    }
    release_device();
    free(d_out);
    free(x);
    free(weight);
    free(d_weight);
    free(d_bias);
    guarded_free(d_x);
}

static void check_linear(const batch *b, int64_t width, int32_t id_bytes)
{
    const int64_t other = width == 300 ? 31 : 65;
    const int with = id_bytes == 4;  // half of the batches with a bias, half without
    for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++) {
        check_linear_forward(b, width, other, (bd_weight_layout)layout, with);
        check_linear_forward(b, other, width, (bd_weight_layout)layout, !with);
        check_linear_backward(b, width, other, (bd_weight_layout)layout, with);
        check_linear_backward(b, other, width, (bd_weight_layout)layout, !with);
    }
}

static void linear_agrees(void)
{
    for_each_batch(check_linear);
}

// The plan of a shape is kept; the bias that it was made with must not be.
static void same_shape_takes_another_bias(void)
{
    enum { N_IN = 33, N_OUT = 65, N_TURNS = 3 };
    uint64_t seed = 21;
    batch b = make_batch(5);
    float *x = random_activations(&seed, &b, N_IN, 1.0);
    float *weight = random_tensor(&seed, N_IN * N_OUT, 1.0);
    bd_linear_forward_args f = {.boundaries = b.boundaries, .n_in = N_IN, .n_out = N_OUT};
    bd_linear_forward_args d = f;
    d.boundaries = boundaries_on_device(&b);
    d.x = on_device(x, b.n_tokens * N_IN);
    d.weight = on_device(weight, N_IN * N_OUT);
    for (int turn = 0; turn < N_TURNS; turn++) {
        float *bias = random_tensor(&seed, N_OUT, 1.0), *out = guarded(b.n_tokens * N_OUT);
        f.x = x;
        f.weight = weight;
        f.bias = bias;
        f.out = out;
        d.bias = on_device(bias, N_OUT);
        d.out = nan_on_device(b.n_tokens * N_OUT);
        RUN(cpu, linear_forward, f);
        RUN(cuda, linear_forward, d);
        compare_padded("linear", &b, d.out, out, N_OUT, long_sums);
        free(bias);
        guarded_free(out);
    }
    release_device();
    free(x);
    free(weight);
    batch_release(&b);
}

// ---- Attention ------------------------------------------------------------------------------

enum { N_HEADS = 4, N_KV_HEADS = 2 };

static void check_attention(const batch *b, int64_t head_size, int32_t id_bytes)
{
    (void)id_bytes;
    if (head_size > 65)
        return;
    uint64_t seed = 22;
    const int64_t q_width = N_HEADS * head_size, kv_width = N_KV_HEADS * head_size;
    const int64_t n_q = b->n_tokens * q_width, n_kv = b->n_tokens * kv_width;
    const int64_t n_lse = b->n_tokens * N_HEADS;
    float *q = random_activations(&seed, b, q_width, 1.0);
    float *k = random_activations(&seed, b, kv_width, 1.0);
    float *v = random_activations(&seed, b, kv_width, 1.0);
    float *out = guarded(n_q), *lse = guarded(n_lse);
    bd_attention_forward_args f = {
        .boundaries = b->boundaries,
        .n_heads = N_HEADS,
        .n_kv_heads = N_KV_HEADS,
        .head_size = head_size,
        .q_stride = q_width,
        .kv_stride = kv_width,
        .scale = 0.3f,
        .q = q,
        .k = k,
        .v = v,
        .out = out,
        .lse = lse,
    };
    RUN(cpu, attention_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.q = on_device(q, n_q);
    f.k = on_device(k, n_kv);
    f.v = on_device(v, n_kv);
    f.out = nan_on_device(n_q);
    f.lse = nan_on_device(n_lse);
    RUN(cuda, attention_forward, f);
    compare_padded("attention", b, f.out, out, q_width, long_sums);
    compare_padded("lse", b, f.lse, lse, N_HEADS, long_sums);

    float *d_out = random_activations(&seed, b, q_width, 1.0);
    float *d_q = guarded(n_q), *d_k = guarded(n_kv), *d_v = guarded(n_kv);
    bd_attention_backward_args g = {
        .boundaries = b->boundaries,
        .n_heads = N_HEADS,
        .n_kv_heads = N_KV_HEADS,
        .head_size = head_size,
        .q_stride = q_width,
        .kv_stride = kv_width,
        .scale = 0.3f,
        .q = q,
        .k = k,
        .v = v,
        .out = out,
        .lse = lse,
        .d_out = d_out,
        .d_q = d_q,
        .d_k = d_k,
        .d_v = d_v,
    };
    RUN(cpu, attention_backward, g);
    g.boundaries = f.boundaries;
    g.q = f.q;
    g.k = f.k;
    g.v = f.v;
    g.out = on_device(out, n_q);
    g.lse = on_device(lse, n_lse);
    g.d_out = on_device(d_out, n_q);
    g.d_q = nan_on_device(n_q);
    g.d_k = nan_on_device(n_kv);
    g.d_v = nan_on_device(n_kv);
    RUN(cuda, attention_backward, g);
    compare_cancelled("gradient of q", b, g.d_q, d_q, q_width);
    compare_cancelled("gradient of k", b, g.d_k, d_k, kv_width);
    compare_padded("gradient of v", b, g.d_v, d_v, kv_width, long_sums);
    release_device();
    free(q);
    free(k);
    free(v);
    free(d_out);
    guarded_free(out);
    guarded_free(lse);
    guarded_free(d_q);
    guarded_free(d_k);
    guarded_free(d_v);
}

// The table leads to it; tests/unit/cuda_attention_test.c asks for more.
static void attention_agrees(void)
{
    for_each_batch(check_attention);
}

// ---- Elements -------------------------------------------------------------------------------

static void check_activation(bd_activation activation, int64_t n, double tolerance)
{
    uint64_t seed = 15;
    float *x = random_tensor(&seed, n, 12.0), *d_out = random_tensor(&seed, n, 1.0);
    x[0] = 0.0f;
    float *out = guarded(n), *d_x = guarded(n);
    bd_activation_forward_args f = {activation, n, x, out};
    bd_activation_backward_args g = {activation, n, x, d_out, d_x};
    RUN(cpu, activation_forward, f);
    RUN(cpu, activation_backward, g);
    f.x = g.x = on_device(x, n);
    f.out = nan_on_device(n);
    RUN(cuda, activation_forward, f);
    compare("activation", f.out, out, n, tolerance);
    g.d_x = on_device(d_out, n);  // in place, as the contract allows
    g.d_out = g.d_x;
    RUN(cuda, activation_backward, g);
    compare("gradient of the activation", g.d_x, d_x, n, tolerance);
    release_device();
    free(x);
    free(d_out);
    guarded_free(out);
    guarded_free(d_x);
}

static void check_add(int64_t n)
{
    uint64_t seed = 16;
    float *a = random_tensor(&seed, n, 1.0), *b = random_tensor(&seed, n, 1.0);
    float *out = guarded(n);
    bd_add_args add = {n, a, b, out};
    RUN(cpu, add, add);
    add.a = on_device(a, n);
    add.b = on_device(b, n);
    add.out = nan_on_device(n);
    RUN(cuda, add, add);
    compare("sum", add.out, out, n, 0.0);
    add.out = (float *)add.a;
    RUN(cuda, add, add);
    compare("sum in place", add.out, out, n, 0.0);
    release_device();
    free(a);
    free(b);
    guarded_free(out);
}

static void check_adamw(int64_t n, int64_t step)
{
    uint64_t seed = 17;
    float *gradient = random_tensor(&seed, n, 1.0), *parameter = random_tensor(&seed, n, 1.0);
    float *m = random_tensor(&seed, n, 0.1), *v = random_tensor(&seed, n, 0.1);
    for (int64_t i = 0; i < n; i++)
        v[i] = fabsf(v[i]);
    bd_adamw_args a = {
        .n = n,
        .step = step,
        .learning_rate = 0.01f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .epsilon = 1e-8f,
        .weight_decay = 0.1f,
        .gradient_scale = 0.3f,
        .gradient = gradient,
        .parameter = parameter,
        .m = m,
        .v = v,
    };
    bd_adamw_args d = a;
    d.gradient = on_device(gradient, n);
    d.parameter = on_device(parameter, n);
    d.m = on_device(m, n);
    d.v = on_device(v, n);
    RUN(cpu, adamw, a);
    RUN(cuda, adamw, d);
    compare("parameter", d.parameter, parameter, n, few_roundings);
    compare("m", d.m, m, n, few_roundings);
    compare("v", d.v, v, n, few_roundings);
    release_device();
    free(gradient);
    free(parameter);
    free(m);
    free(v);
}

static void for_each_length(void (*check)(int64_t n))
{
    for (misaligned = 0; misaligned < 2; misaligned++) {
        for (int i = BRIEF ? N_SIZES - 1 : 0; i < N_SIZES; i++)
            check(sizes[i]);
        check(4099);
    }
    misaligned = 0;
}

static void check_elements(int64_t n)
{
    check_activation(BD_ACTIVATION_RELU, n, 0.0);
    check_activation(BD_ACTIVATION_GELU, n, few_roundings);
    check_add(n);
    check_adamw(n, 1);
    check_adamw(n, 1000);
}

static void elements_agree(void)
{
    for_each_length(check_elements);
}

static void check_squares(int64_t n)
{
    uint64_t seed = 18;
    float *x = random_tensor(&seed, n, 1.0);
    double wanted = NAN, got = NAN;
    RUN(cpu, sum_of_squares, {n, x, &wanted});
    RUN(cuda, sum_of_squares, {n, on_device(x, n), &got});
    if (!(fabs(got - wanted) <= 1e-13 * wanted))
        fail_msg("sum of %lld squares is %.17g, not %.17g", (long long)n, got, wanted);
    float halves[2];
    memcpy(halves, &got, sizeof got);
    float *kept = get_memory(sizeof halves);
    memcpy(kept, halves, sizeof halves);
    record("sum of squares", kept, 2);
    release_device();
    free(x);
}

static void sum_of_squares_agrees(void)
{
    check_squares(0);
    for_each_length(check_squares);
    check_squares(3 * 4096);
    check_squares(5 * 4096 + 77);
}

// ---- Cross-entropy --------------------------------------------------------------------------

enum { PIECE = 37 };  // tokens whose logits exist at once

static void check_cross_entropy(const batch *b, int64_t n_vocabulary, int32_t id_bytes,
                                int want_gradient, double scale)
{
    uint64_t seed = 19;
    float *losses = guarded(b->n_tokens), *device_losses = nan_on_device(b->n_tokens);
    const bd_boundaries boundaries = boundaries_on_device(b);
    const void *ids = ids_on_device(b, id_bytes);
    for (int64_t first = 0; first < b->n_tokens; first += PIECE) {
        const int64_t n = first + PIECE < b->n_tokens ? PIECE : b->n_tokens - first;
        float *logits = random_tensor(&seed, n * n_vocabulary, scale);
        bd_cross_entropy_args a = {
            .boundaries = b->boundaries,
            .ids = ids_of(b, id_bytes),
            .id_bytes = id_bytes,
            .first = first,
            .n = n,
            .n_vocabulary = n_vocabulary,
            .want_gradient = want_gradient,
            .gradient_scale = 1.0f / 321.0f,
            .logits = logits,
            .losses = losses,
        };
        bd_cross_entropy_args d = a;
        d.boundaries = boundaries;
        d.ids = ids;
        d.logits = on_device(logits, n * n_vocabulary);
        d.losses = device_losses;
        RUN(cpu, cross_entropy, a);
        RUN(cuda, cross_entropy, d);
        compare("gradient of the logits", d.logits, logits, n * n_vocabulary,
                want_gradient ? few_roundings : 0.0);
        free(logits);
    }
    compare_padded("losses", b, device_losses, losses, 1, few_roundings);
    release_device();
    guarded_free(losses);
}

static void cross_entropy_agrees(void)
{
    static const int64_t vocabularies[] = {50, 257, 1003};
    for (int which = BRIEF ? N_BATCHES - 1 : 0; which < N_BATCHES; which++) {
        batch b = make_batch(which);
        const int64_t n_vocabulary = vocabularies[which % 3];
        check_cross_entropy(&b, n_vocabulary, which % 2 == 0 ? 2 : 4, 1, 1.0);
        check_cross_entropy(&b, n_vocabulary, which % 2 == 0 ? 4 : 2, which % 2, 60.0);
        batch_release(&b);
    }
}

// ---- Memory ---------------------------------------------------------------------------------

// More than two pieces of a staging buffer of 4 MiB, and not a whole number of them.
static void copies_keep_every_byte(void)
{
    static const size_t lengths[] = {0, 1, 4 << 20, (4 << 20) + 1, (13 << 20) + 5};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const size_t n = lengths[i];
        unsigned char *from = get_memory(n), *to = get_memory(n);
        for (size_t k = 0; k < n; k++)
            from[k] = (unsigned char)(k * 7 + k / 251);
        memset(to, 0xff, n);
        void *device = device_bytes(from, n);
        bd_error err;
        must(cuda->operations->download(cuda, to, device, n, &err), &err);
        assert_memory_equal(from, to, n);
        must(cuda->operations->zero(cuda, device, n, &err), &err);
        must(cuda->operations->download(cuda, to, device, n, &err), &err);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(to[k], 0);
        release_device();
        free(from);
        free(to);
    }
}

// A block that has been used and released comes back as zeros.
static void allocated_memory_is_zero(void)
{
    for (int turn = 0; turn < 3; turn++) {
        bd_error err;
        void *device;
        float values[300];
        must(cuda->operations->allocate(cuda, sizeof values, &device, &err), &err);
        must(cuda->operations->download(cuda, values, device, sizeof values, &err), &err);
        for (int i = 0; i < 300; i++)
            assert_true(values[i] == 0.0f);
        memset(values, 0xff, sizeof values);
        must(cuda->operations->upload(cuda, device, values, sizeof values, &err), &err);
        cuda->operations->release(cuda, device);
        cuda->operations->release(cuda, NULL);
    }
}

// The refusal leaves nothing behind that a later call would report.
static void too_much_memory_is_refused(void)
{
    bd_error err;
    void *device = &err;  // not NULL: must become so
    assert_int_equal(cuda->operations->allocate(cuda, SIZE_MAX / 4, &device, &err),
                     BD_ERR_MEMORY);
    assert_null(device);
    check_add(33);
}

static void missing_device_is_refused(void)
{
    bd_error err;
    bd_backend *other = cuda;  // not NULL: must become so
    const bd_cuda_settings settings = {.device = 1000};
    assert_int_equal(bd_backend_open_module(&other, module_path, &settings, &err),
                     BD_ERR_ARGUMENT);
    assert_null(other);
    assert_non_null(strstr(err.message, "there is no device 1000: the driver sees "));
}

// Two backends share nothing.
static void second_backend_leaves_the_first_alone(void)
{
    bd_error err;
    bd_backend *other;
    void *memory;
    must(bd_backend_open_module(&other, module_path, &(bd_cuda_settings){0}, &err), &err);
    must(other->operations->allocate(other, 1000, &memory, &err), &err);
    other->operations->close(other);  // takes its memory along
    check_add(300);
}

// ---- Running --------------------------------------------------------------------------------

typedef void (*configure_function)(const bd_emulation_settings *);
static configure_function configure;  // NULL on a device

typedef struct test_case {
    const char *name;
    void (*check)(void);
} test_case;

static test_case cases[] = {
    {"embedding_agrees", embedding_agrees},
    {"layer_norm_agrees", layer_norm_agrees},
    {"linear_agrees", linear_agrees},
    {"attention_agrees", attention_agrees},
    {"same_shape_takes_another_bias", same_shape_takes_another_bias},
    {"elements_agree", elements_agree},
    {"sum_of_squares_agrees", sum_of_squares_agrees},
    {"cross_entropy_agrees", cross_entropy_agrees},
    {"copies_keep_every_byte", copies_keep_every_byte},
    {"allocated_memory_is_zero", allocated_memory_is_zero},
    {"too_much_memory_is_refused", too_much_memory_is_refused},
    {"missing_device_is_refused", missing_device_is_refused},
    {"second_backend_leaves_the_first_alone", second_backend_leaves_the_first_alone},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void run_case(void **state)
{
    const test_case *c = *state;
    const int n_schedules = configure && !BRIEF ? BD_N_SCHEDULES : 1;
    n_records = 0;
    for (int schedule = 0; schedule < n_schedules; schedule++) {
        if (configure)
            configure(&(bd_emulation_settings){
                .schedule = (bd_emulation_schedule)schedule,
                .copies = (bd_emulation_copies)(schedule % BD_N_COPIES),
                .streams = (bd_emulation_streams)(schedule % BD_N_STREAMS),
                .seed = 77,
                .host_threads = 2,
            });
        recording = schedule == 0;
        next_record = 0;
        c->check();
        if (!recording)
            assert_int_equal(next_record, n_records);
    }
    for (size_t i = 0; i < n_records; i++)
        free(records[i].values);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s device|emulated MODULE [CASE]\n", argv[0]);
        return 2;
    }
    const int emulated = strcmp(argv[1], "emulated") == 0;
    bd_error err;
    module_path = argv[2];
    if (bd_backend_open_module(&cuda, module_path, &(bd_cuda_settings){0}, &err) != BD_OK) {
        printf("%s: %s\n", emulated ? "failed" : "skipped", err.message);
        return emulated ? 1 : 77;
    }
    if (bd_backend_open_cpu(&cpu, 2, &err) != BD_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (emulated) {
        *(void **)&configure = dlsym(dlopen(module_path, RTLD_NOW), "bd_emulation_configure");
        assert_non_null(configure);
    }

    struct CMUnitTest tests[N_CASES];
    for (int i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, run_case, NULL, NULL, &cases[i]};
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    cuda->operations->close(cuda);
    cpu->operations->close(cpu);
    free(records);
    return failures;
}
