// The attention kernels of kernels/cuda, executed by the emulation, in float and bf16, compared
// with the same naive computation in double.
//
//   attention_test [CASE]
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "attention_reference.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/operations/operations.h"
#include "tests/emulation/emulation.h"

static const bd_emulation_settings usual_settings = {.host_threads = 2};

// ---- Running it -----------------------------------------------------------------------------

// Copies n bf16 of x into guarded memory; poison if x is NULL. Free with guarded_free().
static float *guarded_bf16(const float *x, int64_t n)
{
    float *memory = guarded((n + 1) / 2);
    uint16_t *y = (uint16_t *)memory;
    for (int64_t i = 0; x && i < n; i++)
        y[i] = bd_bf16_of_float(x[i]);
    return memory;
}

// Converts guarded bf16 to guarded floats and frees them.
static float *widened(float *bf16, int64_t n)
{
    float *x = guarded(n);
    const uint16_t *from = (const uint16_t *)bf16;
    for (int64_t i = 0; i < n; i++)
        x[i] = bd_float_of_bf16(from[i]);
    guarded_free(bf16);
    return x;
}

// Guarded floats, also if the kernels computed in bf16.
typedef struct outcome {
    float *out, *lse, *d_qkv;
} outcome;

static void free_outcome(outcome *o)
{
    guarded_free(o->out);
    guarded_free(o->lse);
    guarded_free(o->d_qkv);
}

// The fields that forward and backward arguments have in common. X is a pointer to the type.
#define COMMON_ARGS(m, X)                                                                      \
    .boundaries = (m)->b.boundaries, .type = (m)->s.bf16 ? BD_BF16 : BD_FLOAT,                 \
    .n_heads = (m)->s.n_heads, .n_kv_heads = (m)->s.n_kv_heads, .head_size = (m)->s.head_size, \
    .q_stride = (m)->q_stride, .kv_stride = (m)->kv_stride, .window = (m)->window,             \
    .scale = (m)->scale, .q = X, .k = X + (m)->k_at, .v = X + (m)->v_at

// Calls one operation with exactly the scratch memory that it asks for, and waits for it.
#define RUN_CUDA(operation, ...)                                                     \
    do {                                                                             \
        const bd_##operation##_args run_args_ = __VA_ARGS__;                         \
        const size_t n_ = bd_##operation##_scratch(&run_args_);                      \
        float *scratch_ = guarded((int64_t)(n_ / sizeof(float)));                    \
        cudaStream_t stream_;                                                        \
        assert_int_equal(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), \
                         cudaSuccess);                                               \
        bd_cuda_queue queue_ = {stream_, scratch_, n_, NULL};                        \
        bd_error err_ = {0};                                                         \
        if (bd_##operation(&run_args_, &queue_, &err_) != BD_OK)                     \
            fail_msg("%s", err_.message);                                            \
        assert_int_equal(cudaStreamSynchronize(stream_), cudaSuccess);               \
        assert_int_equal(cudaStreamDestroy(stream_), cudaSuccess);                   \
        guarded_free(scratch_);                                                      \
    } while (0)

typedef bd_attention_forward_args bd_cuda_attention_forward_args;
typedef bd_attention_backward_args bd_cuda_attention_backward_args;

static outcome run_float(const model *m)
{
    outcome o = {guarded(m->n_out), guarded(m->n_lse), guarded(m->n_qkv)};
    RUN_CUDA(cuda_attention_forward, {COMMON_ARGS(m, m->qkv), .out = o.out, .lse = o.lse});
    RUN_CUDA(cuda_attention_backward,
             {COMMON_ARGS(m, m->qkv), .out = o.out, .lse = o.lse, .d_out = m->d_out,
              .d_q = o.d_qkv, .d_k = o.d_qkv + m->k_at, .d_v = o.d_qkv + m->v_at});
    return o;
}

static outcome run_bf16(const model *m)
{
    float *qkv_memory = guarded_bf16(m->qkv, m->n_qkv);
    float *d_out = guarded_bf16(m->d_out, m->n_out);
    float *out = guarded_bf16(NULL, m->n_out), *d_qkv_memory = guarded_bf16(NULL, m->n_qkv);
    float *lse = guarded(m->n_lse);
    const uint16_t *qkv = (const uint16_t *)qkv_memory;
    uint16_t *d_qkv = (uint16_t *)d_qkv_memory;
    RUN_CUDA(cuda_attention_forward, {COMMON_ARGS(m, qkv), .out = out, .lse = lse});
    RUN_CUDA(cuda_attention_backward,
             {COMMON_ARGS(m, qkv), .out = out, .lse = lse, .d_out = d_out, .d_q = d_qkv,
              .d_k = d_qkv + m->k_at, .d_v = d_qkv + m->v_at});
    guarded_free(qkv_memory);
    guarded_free(d_out);
    return (outcome){widened(out, m->n_out), lse, widened(d_qkv_memory, m->n_qkv)};
}

static outcome run_model(const model *m)
{
    return m->s.bf16 ? run_bf16(m) : run_float(m);
}

static void expect_same_outcome(const model *m, const outcome *got, const outcome *wanted)
{
    expect_same("out", got->out, wanted->out, m->n_out);
    expect_same("lse", got->lse, wanted->lse, m->n_lse);
    expect_same("d_qkv", got->d_qkv, wanted->d_qkv, m->n_qkv);
}

// ---- Agreement ------------------------------------------------------------------------------

// Sums of up to 256 products and of up to 2048 weights: a few 1e-7 each, of values as large as
// the largest.
static const double float_tolerance = 5e-6;

// At most twice the plain program's error. If that is almost 0 (in a document of one token only
// v has a gradient), the rounding of a float sum in another order is allowed.
static void expect_error_of_plain(const char *what, const float *got, const double *plain,
                                  const double *wanted, int64_t n)
{
    double error = 0.0, largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        error = fmax(error, fabs(plain[i] - wanted[i]));
        largest = fmax(largest, fabs(wanted[i]));
    }
    const double allowed = 2.0 * error + 1e-6 * fmax(largest, 1.0);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - wanted[i]) <= allowed))
            fail_msg("%s[%lld] is %.9g, not %.9g (a plain program is wrong by up to %.3g)",
                     what, (long long)i, (double)got[i], wanted[i], error);
}

static void check_window_parity(shape s, batch b, int64_t window)
{
    model m = make_model(s, b);
    m.window = window;
    outcome o = run_model(&m);
    reference r = make_reference(&m, false);
    expect_close("lse", o.lse, r.lse, m.n_lse, float_tolerance);
    if (s.bf16) {
        reference plain = make_reference(&m, true);
        expect_error_of_plain("out", o.out, plain.out, r.out, m.n_out);
        expect_error_of_plain("d_qkv", o.d_qkv, plain.d_qkv, r.d_qkv, m.n_qkv);
        free_reference(&plain);
    } else {
        expect_close("out", o.out, r.out, m.n_out, float_tolerance);
        expect_close("d_qkv", o.d_qkv, r.d_qkv, m.n_qkv, float_tolerance);
    }
    expect_padding_zero("out", &m.b, o.out, s.n_heads * s.head_size);
    expect_padding_zero("lse", &m.b, o.lse, s.n_heads);
    if (s.together)
        expect_padding_zero("d_qkv", &m.b, o.d_qkv, m.q_stride);
    free_outcome(&o);
    free_reference(&r);
    free_model(&m);
}

static void check_parity(shape s, batch b)
{
    check_window_parity(s, b, 0);
}

static const shape shapes[] = {
    {2, 2, 64, true, true},    {4, 2, 64, true, false}, {2, 1, 128, true, true},
    {1, 1, 128, true, false},  {1, 1, 1, false, false}, {2, 1, 33, false, true},
    {1, 1, 80, false, false},  {4, 2, 64, false, true}, {1, 1, 256, false, true},
    {3, 1, 128, false, false}, {3, 1, 64, true, true},  {8, 1, 64, true, false},
    {8, 1, 6, false, true},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

// Small enough for ThreadSanitizer: two tiles of bf16 and a part, and several documents.
static void check_small_rows(bool bf16)
{
    for (int i = 0; i < N_SHAPES; i++) {
        if (shapes[i].bf16 != bf16)
            continue;
        check_parity(shapes[i], batch_of_one(130));
        check_window_parity(shapes[i], batch_of_one(130), 50);
        check_parity(shapes[i], random_batch(3, 1, 65));
    }
}

static void float_agrees_on_small_rows(void **state)
{
    (void)state;
    check_small_rows(false);
}

static void bf16_agrees_on_small_rows(void **state)
{
    (void)state;
    check_small_rows(true);
}

static void agrees_with_double_precision(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        check_parity(shapes[i], awkward_batch(3));
}

static void agrees_for_any_length_of_row(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 31, 64, 65, 300};
    for (int i = 0; i < N_SHAPES; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            check_parity(shapes[i],
                         random_batch(100 + k, lengths[k] < 100 ? 3 : 1, lengths[k]));
}

// Two shapes in bf16 and one in float.
static const shape some_shapes[] = {
    {2, 1, 64, true, true}, {1, 1, 128, true, true}, {2, 1, 33, false, true}};
enum { N_SOME_SHAPES = sizeof some_shapes / sizeof *some_shapes };

// Around the sizes of tiles, 16 and 64. From 128 on there are whole tiles between the edge and
// the diagonal also in bf16.
static const int64_t windows[] = {1, 2, 15, 16, 17, 63, 64, 65, 128, 129, 200};
enum { N_WINDOWS = sizeof windows / sizeof *windows };

static void agrees_with_windows(void **state)
{
    (void)state;
    for (int i = 0; i < N_SOME_SHAPES; i++)
        for (int k = 0; k < N_WINDOWS; k++) {
            check_window_parity(some_shapes[i], batch_of_one(333), windows[k]);
            check_window_parity(some_shapes[i], awkward_batch(3), windows[k]);
        }
}

#ifndef __SANITIZE_ADDRESS__  // too slow: this alone would take minutes
static void agrees_on_long_rows(void **state)
{
    (void)state;
    check_parity((shape){1, 1, 64, true, true}, batch_of_one(2048));
    check_parity((shape){1, 1, 128, true, true}, random_batch(7, 1, 2048));
    check_parity((shape){1, 1, 33, false, true}, random_batch(8, 1, 2048));
}
#endif

// Scores of a few hundred: exponentials overflow unless the largest score is subtracted first,
// also where a query has seen nothing yet, or where the largest score is outside the window.
static void large_scores_do_no_harm(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const bool bf16 = kind % 2 > 0;
        model m = make_model((shape){1, 1, 64, bf16, true}, awkward_batch(3));
        m.window = kind / 2 * 20;
        for (int64_t i = 0; i < m.n_qkv; i++)
            m.qkv[i] *= 8.0f;
        outcome o = run_model(&m);
        reference r = make_reference(&m, false);
        expect_close("lse", o.lse, r.lse, m.n_lse, float_tolerance);
        // A score near 500 is rounded to within 3e-5, a probability in bf16 to within 4e-3.
        expect_close("out", o.out, r.out, m.n_out, bf16 ? 8e-3 : 1e-4);
        // So is a gradient of a probability, of which one of a score has the difference of two.
        expect_close("d_qkv", o.d_qkv, r.d_qkv, m.n_qkv, bf16 ? 2e-2 : 1e-4);
        free_reference(&r);
        free_outcome(&o);
        free_model(&m);
    }
}

// ---- Independence ---------------------------------------------------------------------------

static void copy_tokens(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                        int64_t n_tokens, int64_t width)
{
    for (int64_t t = 0; t < n_tokens; t++)
        memcpy(to + t * to_stride, from + t * from_stride, (size_t)width * sizeof *to);
}

// Compares the segment's part of an array in the layout of qkv between two models.
static void copy_qkv(const model *to, float *to_qkv, const model *from, const float *from_qkv,
                     int64_t begin)
{
    const int64_t n = to->b.n_tokens;
    const int64_t q_width = to->s.n_heads * to->s.head_size;
    const int64_t kv_width = to->s.n_kv_heads * to->s.head_size;
    copy_tokens(to_qkv, to->q_stride, from_qkv + begin * from->q_stride, from->q_stride, n,
                q_width);
    copy_tokens(to_qkv + to->k_at, to->kv_stride,
                from_qkv + from->k_at + begin * from->kv_stride, from->kv_stride, n, kv_width);
    copy_tokens(to_qkv + to->v_at, to->kv_stride,
                from_qkv + from->v_at + begin * from->kv_stride, from->kv_stride, n, kv_width);
}

// Neither its neighbours nor its place in the row change a bit of a segment's results.
static void a_segment_in_a_row_is_as_it_is_alone(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES + N_SOME_SHAPES; i++) {
        const shape s = i < N_SHAPES ? shapes[i] : some_shapes[i - N_SHAPES];
        const int64_t width = s.n_heads * s.head_size;
        model m = make_model(s, random_batch(11, 1, 300));
        m.window = i < N_SHAPES ? 0 : 70;
        outcome packed = run_model(&m);
        for (int64_t k = 0, begin, end; segment_at(&m.b, k, &begin, &end); k++) {
            model one = make_model(s, batch_of_one(end - begin));
            one.window = m.window;
            copy_qkv(&one, one.qkv, &m, m.qkv, begin);
            memcpy(one.d_out, m.d_out + begin * width, (size_t)one.n_out * sizeof(float));
            outcome alone = run_model(&one);
            expect_same("out", packed.out + begin * width, alone.out, one.n_out);
            expect_same("lse", packed.lse + begin * s.n_heads, alone.lse, one.n_lse);
            float *d_qkv = guarded(one.n_qkv);
            copy_qkv(&one, d_qkv, &m, packed.d_qkv, begin);
            expect_same("d_qkv", d_qkv, alone.d_qkv, one.n_qkv);
            guarded_free(d_qkv);
            free_outcome(&alone);
            free_model(&one);
        }
        free_outcome(&packed);
        free_model(&m);
    }
}

// A window that is as long as the longest document, 160 tokens, or longer changes no bit.
static void a_window_as_long_as_the_document_is_none(void **state)
{
    (void)state;
    static const int64_t long_windows[] = {160, 161, 192, INT64_MAX};
    for (int i = 0; i < N_SOME_SHAPES; i++) {
        model m = make_model(some_shapes[i], awkward_batch(9));
        outcome without = run_model(&m);
        for (size_t k = 0; k < sizeof long_windows / sizeof *long_windows; k++) {
            m.window = long_windows[k];
            outcome with = run_model(&m);
            expect_same_outcome(&m, &with, &without);
            free_outcome(&with);
        }
        free_outcome(&without);
        free_model(&m);
    }
}

// AddressSanitizer is slow, and would find the same faults under each schedule.
#ifdef __SANITIZE_ADDRESS__
enum { FIRST_SCHEDULE = BD_N_SCHEDULES - 1 };
#else
enum { FIRST_SCHEDULE = 0 };
#endif

static void every_schedule_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * N_SOME_SHAPES; i++) {
        model m = make_model(some_shapes[i / 2], awkward_batch(3));
        m.window = i % 2 * 70;
        outcome first = run_model(&m);
        for (int schedule = FIRST_SCHEDULE; schedule < BD_N_SCHEDULES; schedule++)
            for (int copies = 0; copies < BD_N_COPIES; copies++) {
                bd_emulation_configure(&(bd_emulation_settings){
                    .schedule = (bd_emulation_schedule)schedule,
                    .copies = (bd_emulation_copies)copies,
                    .seed = 5,
                    .host_threads = 2,
                });
                outcome o = run_model(&m);
                expect_same_outcome(&m, &o, &first);
                free_outcome(&o);
            }
        bd_emulation_configure(&usual_settings);
        free_outcome(&first);
        free_model(&m);
    }
}

// ---- Work -----------------------------------------------------------------------------------

enum { FORWARD, KEY_GRADIENT, QUERY_GRADIENT };  // the kernels count these for the tests

// Counts pairs of tiles that contain an allowed pair of tokens, from the boundaries and the
// window alone. The last key of a tile is the nearest to the first query of another one.
static int64_t pairs_of_tiles(const model *m, int64_t query_tile, int64_t key_tile)
{
    const int64_t window = m->window > 0 ? m->window : INT64_MAX;
    int64_t n = 0;
    for (int64_t i = 0, begin, end; segment_at(&m->b, i, &begin, &end); i++)
        for (int64_t q = 0; q < end - begin; q += query_tile)
            for (int64_t k = 0; k < end - begin && k < q + query_tile; k += key_tile)
                n += q - (k + key_tile - 1) < window;
    return n;
}

static void kernels_visit_what_the_mask_allows_and_no_more(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES + N_WINDOWS * N_SOME_SHAPES; i++) {
        const int k = i - N_SHAPES;
        const shape s = k < 0 ? shapes[i] : some_shapes[k % N_SOME_SHAPES];
        const int64_t key_tile = s.bf16 ? 64 : 16, query_tile = !s.bf16             ? 16
                                                                : s.head_size == 64 ? 128
                                                                                    : 64;
        model m =
            make_model(s, random_batch(50 + (uint64_t)i, k < 0 ? 2 : 1, k < 0 ? 200 : 300));
        m.window = k < 0 ? 0 : windows[k / N_SOME_SHAPES];
        bd_emulation_take_counters();
        outcome o = run_model(&m);
        const bd_emulation_counters counted = bd_emulation_take_counters();
        const int64_t *visited = counted.of_kernels;
        const int64_t square = pairs_of_tiles(&m, key_tile, key_tile) * s.n_heads;
        assert_int_equal(visited[FORWARD],
                         pairs_of_tiles(&m, query_tile, key_tile) * s.n_heads);
        assert_int_equal(visited[KEY_GRADIENT], square);
        // In bf16 the pass over keys adds to the gradient of queries as well.
        assert_int_equal(visited[QUERY_GRADIENT], s.bf16 ? 0 : square);
        free_outcome(&o);
        free_model(&m);
    }
}

// ---- Refusals -------------------------------------------------------------------------------

static bd_status refused(bd_attention_forward_args args, size_t scratch_bytes,
                         const char *message)
{
    bd_cuda_queue queue = {.scratch_bytes = scratch_bytes};
    bd_error err = {0};
    const bd_status status = bd_cuda_attention_forward(&args, &queue, &err);
    assert_string_equal(err.message, message);
    return status;
}

static void impossible_shapes_are_refused(void **state)
{
    (void)state;
    const bd_attention_forward_args good = {
        .boundaries = {.n_rows = 1, .seq_len = 4},
        .type = BD_BF16,
        .n_heads = 2,
        .n_kv_heads = 1,
        .head_size = 64,
        .q_stride = 256,
        .kv_stride = 256,
        .scale = 0.125f,
    };
    bd_attention_forward_args bad = good;
    bad.head_size = 96;
    assert_int_equal(
        refused(bad, 1 << 20, "attention in bf16 has head sizes 64 and 128, not 96"),
        BD_ERR_UNSUPPORTED);
    bad = good;
    bad.n_kv_heads = 4;
    assert_int_equal(refused(bad, 1 << 20, "2 heads cannot share 4 key heads"),
                     BD_ERR_ARGUMENT);
    bad = good;
    bad.kv_stride = 260;
    assert_int_equal(
        refused(bad, 1 << 20, "attention in bf16 needs tokens that are aligned to 16 bytes"),
        BD_ERR_UNSUPPORTED);
    assert_int_equal(refused(good, 79, "attention needs 80 bytes of scratch, not 79"),
                     BD_ERR_ARGUMENT);
    bad = good;
    bad.boundaries.n_rows = bad.boundaries.seq_len = 1 << 16;
    assert_int_equal(refused(bad, SIZE_MAX,
                             "attention over 65536 rows of 65536 tokens is more than a launch "
                             "counts"),
                     BD_ERR_UNSUPPORTED);

    bd_cuda_queue queue = {.scratch_bytes = 1 << 20};
    bd_error err = {0};
    const bd_attention_forward_args wide = {
        .boundaries = good.boundaries, .n_heads = 1, .n_kv_heads = 1, .head_size = 257};
    assert_int_equal(bd_cuda_attention_forward(&wide, &queue, &err), BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "attention has head sizes up to 256, not 257");
}

static void no_rows_are_no_work(void **state)
{
    (void)state;
    bd_cuda_queue queue = {.scratch_bytes = 1 << 20};
    const bd_attention_backward_args none = {
        .boundaries = {.n_rows = 0, .seq_len = 64},
        .type = BD_BF16,
        .n_heads = 2,
        .n_kv_heads = 1,
        .head_size = 64,
    };
    assert_int_equal(bd_cuda_attention_backward(&none, &queue, NULL), BD_OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_agrees_on_small_rows),
        cmocka_unit_test(bf16_agrees_on_small_rows),
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(agrees_for_any_length_of_row),
        cmocka_unit_test(agrees_with_windows),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(agrees_on_long_rows),
#endif
        cmocka_unit_test(large_scores_do_no_harm),
        cmocka_unit_test(a_segment_in_a_row_is_as_it_is_alone),
        cmocka_unit_test(a_window_as_long_as_the_document_is_none),
        cmocka_unit_test(every_schedule_gives_the_same_bits),
        cmocka_unit_test(kernels_visit_what_the_mask_allows_and_no_more),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(no_rows_are_no_work),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    bd_emulation_configure(&usual_settings);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
