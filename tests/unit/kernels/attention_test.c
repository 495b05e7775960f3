#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

// Scores are sums of up to 64 products, probabilities have the exponential of their error, and
// up to 160 of them are added: a few 1e-7 each, relative to the largest value.
static const double forward_tolerance = 2e-6;
static const double backward_tolerance = 4e-6;

typedef struct shape {
    int64_t n_heads, n_kv_heads, head_size;
    bool together;  // q, k and v are parts of one array
} shape;

// q, k, v (and their gradients) in one array: either [token][q k v] or one after the other.
typedef struct model {
    shape s;
    batch b;
    int64_t q_stride, kv_stride;
    int64_t k_at, v_at;  // where k and v begin in the array
    int64_t n_qkv, n_out, n_lse;
    int64_t window;
    float scale;
    float *qkv, *d_out;
} model;

static void lay_out(model *m)
{
    const int64_t q_width = m->s.n_heads * m->s.head_size;
    const int64_t kv_width = m->s.n_kv_heads * m->s.head_size;
    const int64_t together = q_width + 2 * kv_width;
    m->q_stride = m->s.together ? together : q_width;
    m->kv_stride = m->s.together ? together : kv_width;
    m->k_at = m->s.together ? q_width : m->b.n_tokens * q_width;
    m->v_at = m->k_at + (m->s.together ? kv_width : m->b.n_tokens * kv_width);
    m->n_qkv = m->b.n_tokens * together;
    m->n_out = m->b.n_tokens * q_width;
    m->n_lse = m->b.n_tokens * m->s.n_heads;
    m->scale = 1.0f / sqrtf((float)m->s.head_size);
}

// Everything except padding of d_out is random; padding of qkv is NaN, because it must not be
// read.
static model make_model(shape s, batch b)
{
    uint64_t seed = 14;
    model m = {.s = s, .b = b};
    lay_out(&m);
    m.qkv = random_tensor(&seed, m.n_qkv, 2.0);
    m.d_out = random_activations(&seed, &b, s.n_heads * s.head_size, 1.0);
    for (int64_t t = 0; t < b.n_tokens; t++) {
        if (!is_padding(&b, t))
            continue;
        for (int64_t c = 0; c < s.n_heads * s.head_size; c++)
            m.qkv[t * m.q_stride + c] = NAN;
        for (int64_t c = 0; c < s.n_kv_heads * s.head_size; c++)
            m.qkv[m.k_at + t * m.kv_stride + c] = m.qkv[m.v_at + t * m.kv_stride + c] = NAN;
    }
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    free(m->qkv);
    free(m->d_out);
}

static void forward(bd_backend *backend, const model *m, float *out, float *lse)
{
    RUN(backend, attention_forward,
        {.boundaries = m->b.boundaries,
         .n_heads = m->s.n_heads,
         .n_kv_heads = m->s.n_kv_heads,
         .head_size = m->s.head_size,
         .q_stride = m->q_stride,
         .kv_stride = m->kv_stride,
         .window = m->window,
         .scale = m->scale,
         .q = m->qkv,
         .k = m->qkv + m->k_at,
         .v = m->qkv + m->v_at,
         .out = out,
         .lse = lse});
}

static void backward(bd_backend *backend, const model *m, const float *out, const float *lse,
                     float *d_qkv)
{
    RUN(backend, attention_backward,
        {.boundaries = m->b.boundaries,
         .n_heads = m->s.n_heads,
         .n_kv_heads = m->s.n_kv_heads,
         .head_size = m->s.head_size,
         .q_stride = m->q_stride,
         .kv_stride = m->kv_stride,
         .window = m->window,
         .scale = m->scale,
         .q = m->qkv,
         .k = m->qkv + m->k_at,
         .v = m->qkv + m->v_at,
         .out = out,
         .lse = lse,
         .d_out = m->d_out,
         .d_q = d_qkv,
         .d_k = d_qkv + m->k_at,
         .d_v = d_qkv + m->v_at});
}

// ---- The reference --------------------------------------------------------------------------

typedef struct reference {
    const model *m;
    double *qkv, *out, *lse, *d_qkv;
    double *p;  // [n_tokens], one query's probabilities
} reference;

static double *q_of(const reference *r, double *qkv, int64_t t, int64_t h)
{
    return qkv + t * r->m->q_stride + h * r->m->s.head_size;
}

static double *k_of(const reference *r, double *qkv, int64_t t, int64_t h)
{
    const int64_t g = h / (r->m->s.n_heads / r->m->s.n_kv_heads);
    return qkv + r->m->k_at + t * r->m->kv_stride + g * r->m->s.head_size;
}

static double *v_of(const reference *r, double *qkv, int64_t t, int64_t h)
{
    return k_of(r, qkv, t, h) + r->m->v_at - r->m->k_at;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

// The first key that query t sees.
static int64_t first_key(const reference *r, int64_t t)
{
    const int64_t begin = segment_begin(&r->m->b, t), window = r->m->window;
    return window > 0 && t - begin >= window ? t - window + 1 : begin;
}

// Probabilities of query t over keys begin … t; returns the log-sum-exp.
static double reference_softmax(reference *r, int64_t begin, int64_t t, int64_t h)
{
    const int64_t n = r->m->s.head_size;
    double top = -INFINITY, sum = 0.0;
    for (int64_t s = begin; s <= t; s++) {
        r->p[s] = (double)r->m->scale * dot(q_of(r, r->qkv, t, h), k_of(r, r->qkv, s, h), n);
        top = fmax(top, r->p[s]);
    }
    for (int64_t s = begin; s <= t; s++)
        sum += exp(r->p[s] - top);
    for (int64_t s = begin; s <= t; s++)
        r->p[s] = exp(r->p[s] - top) / sum;
    return top + log(sum);
}

static void reference_forward(reference *r)
{
    const int64_t n = r->m->s.head_size;
    memset(r->out, 0, (size_t)r->m->n_out * sizeof *r->out);
    memset(r->lse, 0, (size_t)r->m->n_lse * sizeof *r->lse);
    for (int64_t t = 0; t < r->m->b.n_tokens; t++) {
        if (is_padding(&r->m->b, t))
            continue;
        const int64_t begin = first_key(r, t);
        for (int64_t h = 0; h < r->m->s.n_heads; h++) {
            double *out = r->out + (t * r->m->s.n_heads + h) * n;
            r->lse[t * r->m->s.n_heads + h] = reference_softmax(r, begin, t, h);
            for (int64_t s = begin; s <= t; s++)
                for (int64_t c = 0; c < n; c++)
                    out[c] += r->p[s] * v_of(r, r->qkv, s, h)[c];
        }
    }
}

static void reference_backward(reference *r)
{
    const int64_t n = r->m->s.head_size;
    memset(r->d_qkv, 0, (size_t)r->m->n_qkv * sizeof *r->d_qkv);
    for (int64_t t = 0; t < r->m->b.n_tokens; t++) {
        if (is_padding(&r->m->b, t))
            continue;
        const int64_t begin = first_key(r, t);
        for (int64_t h = 0; h < r->m->s.n_heads; h++) {
            reference_softmax(r, begin, t, h);
            double d_out[256], along = 0.0;
            for (int64_t c = 0; c < n; c++) {
                d_out[c] = (double)r->m->d_out[(t * r->m->s.n_heads + h) * n + c];
                along += d_out[c] * r->out[(t * r->m->s.n_heads + h) * n + c];
            }
            for (int64_t s = begin; s <= t; s++) {
                const double d_p = dot(d_out, v_of(r, r->qkv, s, h), n);
                const double d_s = r->p[s] * (d_p - along) * (double)r->m->scale;
                for (int64_t c = 0; c < n; c++) {
                    q_of(r, r->d_qkv, t, h)[c] += d_s * k_of(r, r->qkv, s, h)[c];
                    k_of(r, r->d_qkv, s, h)[c] += d_s * q_of(r, r->qkv, t, h)[c];
                    v_of(r, r->d_qkv, s, h)[c] += r->p[s] * d_out[c];
                }
            }
        }
    }
}

static double reference_loss(void *context)
{
    reference *r = context;
    reference_forward(r);
    double loss = 0.0;
    for (int64_t i = 0; i < r->m->n_out; i++)
        loss += r->out[i] * (double)r->m->d_out[i];
    return loss;
}

static reference make_reference(const model *m)
{
    reference r = {
        .m = m,
        .qkv = to_double(m->qkv, m->n_qkv),
        .out = get_memory((size_t)m->n_out * sizeof(double)),
        .lse = get_memory((size_t)m->n_lse * sizeof(double)),
        .d_qkv = get_memory((size_t)m->n_qkv * sizeof(double)),
        .p = get_memory((size_t)m->b.n_tokens * sizeof(double)),
    };
    reference_forward(&r);
    reference_backward(&r);
    return r;
}

static void free_reference(reference *r)
{
    free(r->qkv);
    free(r->out);
    free(r->lse);
    free(r->d_qkv);
    free(r->p);
}

// ---- Agreement ------------------------------------------------------------------------------

static void check_parity(bd_backend *backend, void *context)
{
    const model *m = context;
    reference r = make_reference(m);
    float *out = guarded(m->n_out), *lse = guarded(m->n_lse), *d_qkv = guarded(m->n_qkv);
    forward(backend, m, out, lse);
    expect_close("out", out, r.out, m->n_out, forward_tolerance);
    expect_close("lse", lse, r.lse, m->n_lse, forward_tolerance);
    expect_padding_zero("out", &m->b, out, m->s.n_heads * m->s.head_size);
    expect_padding_zero("lse", &m->b, lse, m->s.n_heads);

    backward(backend, m, out, lse, d_qkv);
    expect_close("d_qkv", d_qkv, r.d_qkv, m->n_qkv, backward_tolerance);
    if (m->s.together)
        expect_padding_zero("d_qkv", &m->b, d_qkv, m->q_stride);
    guarded_free(out);
    guarded_free(lse);
    guarded_free(d_qkv);
    free_reference(&r);
}

static void agrees_with_double_precision(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {1, 1, 1, false}, {2, 2, 64, true},  {4, 2, 8, true},   {3, 1, 24, false},
        {2, 1, 33, true}, {1, 1, 80, false}, {1, 1, 256, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        model m = make_model(shapes[i], awkward_batch(3));
        for_each_isa(check_parity, &m);
        free_model(&m);
    }
}

static void agrees_on_random_rows(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 106; seed++) {
        model m = make_model((shape){2, 1, 16, true}, random_batch(seed, 3, 150));
        for_each_isa(check_parity, &m);
        free_model(&m);
    }
}

// Around the size of a block, 64. From 128 on there are whole blocks between the edge and the
// diagonal.
static const int64_t windows[] = {1, 2, 17, 63, 64, 65, 128, 129, 200};
enum { N_WINDOWS = sizeof windows / sizeof *windows };

static void agrees_with_windows(void **state)
{
    (void)state;
    for (int i = 0; i < N_WINDOWS; i++) {
        model models[] = {
            make_model((shape){4, 2, 8, true}, awkward_batch(3)),
            make_model((shape){2, 1, 33, false}, batch_of_one(333)),
            make_model((shape){1, 1, 16, true}, batch_of_one(256)),
        };
        for (int k = 0; k < 3; k++) {
            models[k].window = windows[i];
            for_each_isa(check_parity, &models[k]);
            free_model(&models[k]);
        }
    }
}

// Scores of a few hundred: exponentials overflow unless the largest score is subtracted first,
// also where a query has seen nothing yet, or where the largest score is outside the window.
static void large_scores_do_no_harm(void **state)
{
    (void)state;
    for (int64_t window = 0; window < 100; window += 20) {
        model m = make_model((shape){1, 1, 16, true}, awkward_batch(3));
        m.window = window;
        for (int64_t i = 0; i < m.n_qkv; i++)
            m.qkv[i] *= 8.0f;
        reference r = make_reference(&m);
        bd_backend *backend;
        assert_int_equal(bd_backend_open_cpu(&backend, 2, NULL), BD_OK);
        float *out = guarded(m.n_out), *lse = guarded(m.n_lse), *d_qkv = guarded(m.n_qkv);
        forward(backend, &m, out, lse);
        backward(backend, &m, out, lse, d_qkv);
        // Scores up to 500 are rounded to within 3e-5, and probabilities by as much.
        expect_close("out", out, r.out, m.n_out, 1e-4);
        expect_close("lse", lse, r.lse, m.n_lse, forward_tolerance);
        expect_close("d_qkv", d_qkv, r.d_qkv, m.n_qkv, 1e-4);
        guarded_free(out);
        guarded_free(lse);
        guarded_free(d_qkv);
        backend->operations->close(backend);
        free_reference(&r);
        free_model(&m);
    }
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    for (int64_t window = 0; window < 10; window += 3) {
        model m = make_model((shape){4, 2, 8, true}, random_batch(21, 1, 40));
        m.window = window;
        reference r = make_reference(&m);
        // Central differences: an error of step^2 times the third derivative.
        expect_gradient("qkv", reference_loss, &r, r.qkv, r.d_qkv, m.n_qkv, 200, 1e-4, 1e-6);
        free_reference(&r);
        free_model(&m);
    }
}

// ---- Independence ---------------------------------------------------------------------------

typedef struct outcome {
    float *out, *lse, *d_qkv;
} outcome;

static outcome run_model(bd_backend *backend, const model *m)
{
    outcome o = {guarded(m->n_out), guarded(m->n_lse), guarded(m->n_qkv)};
    forward(backend, m, o.out, o.lse);
    backward(backend, m, o.out, o.lse, o.d_qkv);
    return o;
}

static void free_outcome(outcome *o)
{
    guarded_free(o->out);
    guarded_free(o->lse);
    guarded_free(o->d_qkv);
}

// Compares the same tokens of two outcomes: n from `a_first` of one, from `b_first` of the
// other. In both models q, k and v are together.
static void expect_same_tokens(const model *m, const outcome *a, int64_t a_first,
                               const outcome *b, int64_t b_first, int64_t n)
{
    const int64_t width = m->s.n_heads * m->s.head_size;
    expect_same("out", a->out + a_first * width, b->out + b_first * width, n * width);
    expect_same("lse", a->lse + a_first * m->s.n_heads, b->lse + b_first * m->s.n_heads,
                n * m->s.n_heads);
    expect_same("d_qkv", a->d_qkv + a_first * m->q_stride, b->d_qkv + b_first * m->q_stride,
                n * m->q_stride);
}

// A neighbour becomes infinite; no other document changes.
static void check_neighbours(bd_backend *backend, void *context)
{
    model *m = context;
    outcome before = run_model(backend, m);
    int64_t begin, end;
    for (int64_t s = 0; segment_at(&m->b, s, &begin, &end); s++) {
        const size_t size = (size_t)((end - begin) * m->q_stride) * sizeof(float);
        float *kept = get_memory(size);
        memcpy(kept, m->qkv + begin * m->q_stride, size);
        for (int64_t i = begin * m->q_stride; i < end * m->q_stride; i++)
            m->qkv[i] = i % 3 == 0 ? NAN : INFINITY;
        outcome after = run_model(backend, m);
        expect_same_tokens(m, &after, 0, &before, 0, begin);
        expect_same_tokens(m, &after, end, &before, end, m->b.n_tokens - end);
        memcpy(m->qkv + begin * m->q_stride, kept, size);
        free(kept);
        free_outcome(&after);
    }
    free_outcome(&before);
}

static void neighbours_do_not_matter(void **state)
{
    (void)state;
    for (int64_t window = 0; window < 100; window += 50) {
        model m = make_model((shape){2, 1, 40, true}, awkward_batch(5));
        m.window = window;
        for_each_isa(check_neighbours, &m);
        free_model(&m);
    }
}

static void check_alone(bd_backend *backend, void *context)
{
    const model *m = context;
    outcome packed = run_model(backend, m);
    int64_t begin, end;
    for (int64_t s = 0; segment_at(&m->b, s, &begin, &end); s++) {
        model single = {.s = m->s, .b = batch_of_one(end - begin), .window = m->window};
        lay_out(&single);
        single.qkv = m->qkv + begin * m->q_stride;
        single.d_out = m->d_out + begin * m->s.n_heads * m->s.head_size;
        outcome alone = run_model(backend, &single);
        expect_same_tokens(m, &packed, begin, &alone, 0, end - begin);
        free_outcome(&alone);
        batch_release(&single.b);
    }
    free_outcome(&packed);
}

// Packing is only a layout: a document's results are those that it has alone, to the last bit.
static void packed_equals_alone(void **state)
{
    (void)state;
    static const int64_t some_windows[] = {0, 1, 65};
    const shape shapes[] = {{2, 1, 40, true}, {1, 1, 64, true}};
    for (int i = 0; i < 6; i++) {
        model models[] = {
            make_model(shapes[i % 2], awkward_batch(6)),
            make_model(shapes[i % 2], random_batch(200 + (uint64_t)i, 2, 300)),
        };
        for (int k = 0; k < 2; k++) {
            models[k].window = some_windows[i / 2];
            for_each_isa(check_alone, &models[k]);
            free_model(&models[k]);
        }
    }
}

// A token's result does not depend on what follows it in its own document.
static void check_causal(bd_backend *backend, void *context)
{
    const model *m = context;
    float *out = guarded(m->n_out), *lse = guarded(m->n_lse);
    float *changed = guarded(m->n_out), *changed_lse = guarded(m->n_lse);
    forward(backend, m, out, lse);
    const int64_t width = m->s.n_heads * m->s.head_size;
    for (int64_t t = 160 + 1; t < 320; t += 13) {  // inside the second row's one document
        model other = *m;
        other.qkv = get_memory((size_t)m->n_qkv * sizeof *other.qkv);
        memcpy(other.qkv, m->qkv, (size_t)m->n_qkv * sizeof *other.qkv);
        for (int64_t i = t * m->q_stride; i < 320 * m->q_stride; i++)
            other.qkv[i] += 1.0f;
        forward(backend, &other, changed, changed_lse);
        expect_same("out of the past", changed, out, t * width);
        assert_true(changed[t * width] != out[t * width]);
        free(other.qkv);
    }
    guarded_free(out);
    guarded_free(lse);
    guarded_free(changed);
    guarded_free(changed_lse);
}

static void the_future_does_not_matter(void **state)
{
    (void)state;
    model m = make_model((shape){1, 1, 16, true}, awkward_batch(7));
    for_each_isa(check_causal, &m);
    free_model(&m);
}

// A window that is as long as the longest document, 160 tokens, or longer changes no bit.
static void check_long_windows(bd_backend *backend, void *context)
{
    static const int64_t long_windows[] = {160, 161, 192, INT64_MAX};
    model *m = context;
    m->window = 0;
    outcome without = run_model(backend, m);
    for (size_t i = 0; i < sizeof long_windows / sizeof *long_windows; i++) {
        m->window = long_windows[i];
        outcome with = run_model(backend, m);
        expect_same_tokens(m, &with, 0, &without, 0, m->b.n_tokens);
        free_outcome(&with);
    }
    free_outcome(&without);
}

static void a_window_as_long_as_the_document_is_none(void **state)
{
    (void)state;
    model m = make_model((shape){2, 1, 40, true}, awkward_batch(9));
    for_each_isa(check_long_windows, &m);
    free_model(&m);
}

// A change of token t reaches the queries up to t + window - 1, and no other one.
static void check_reach(bd_backend *backend, void *context)
{
    const model *m = context;
    float *out = guarded(m->n_out), *lse = guarded(m->n_lse);
    float *changed = guarded(m->n_out), *changed_lse = guarded(m->n_lse);
    forward(backend, m, out, lse);
    const int64_t width = m->s.n_heads * m->s.head_size;
    for (int64_t t = 0; t + m->window < m->b.n_tokens; t += 13) {
        const int64_t end = t + m->window;
        m->qkv[m->v_at + t * m->kv_stride] += 1.0f;
        forward(backend, m, changed, changed_lse);
        m->qkv[m->v_at + t * m->kv_stride] -= 1.0f;
        assert_true(changed[(end - 1) * width] != out[(end - 1) * width]);
        expect_same("out past the window", changed + end * width, out + end * width,
                    m->n_out - end * width);
    }
    guarded_free(out);
    guarded_free(lse);
    guarded_free(changed);
    guarded_free(changed_lse);
}

static void what_the_window_hides_does_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < N_WINDOWS; i++) {
        model m = make_model((shape){1, 1, 16, true}, batch_of_one(300));
        m.window = windows[i];
        for_each_isa(check_reach, &m);
        free_model(&m);
    }
}

// With a window of 100, queries from 192 on are in blocks that see no key of the first block,
// which a visit would make felt: 0 times infinity is NaN.
static void check_first_block_unseen(bd_backend *backend, void *context)
{
    (void)context;
    model m = make_model((shape){2, 1, 40, true}, batch_of_one(300));
    m.window = 100;
    outcome before = run_model(backend, &m);
    for (int64_t i = 0; i < 64 * m.q_stride; i++)
        m.qkv[i] = INFINITY;
    outcome after = run_model(backend, &m);
    expect_same_tokens(&m, &after, 192, &before, 192, m.b.n_tokens - 192);
    free_outcome(&before);
    free_outcome(&after);
    free_model(&m);
}

static void blocks_outside_the_window_are_not_visited(void **state)
{
    (void)state;
    for_each_isa(check_first_block_unseen, NULL);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    float *lse = out + m->n_out;
    forward(backend, m, out, lse);
    backward(backend, m, out, lse, lse + m->n_lse);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    for (int64_t window = 0; window < 100; window += 70) {
        model m = make_model((shape){6, 3, 32, true}, awkward_batch(8));
        m.window = window;
        expect_same_for_any_threads(compute_everything, m.n_out + m.n_lse + m.n_qkv, &m);
        free_model(&m);
    }
}

// ---- Limits ---------------------------------------------------------------------------------

static void too_wide_a_head_is_refused(void **state)
{
    (void)state;
    bd_backend *backend;
    bd_error err = {0};
    assert_int_equal(bd_backend_open_cpu(&backend, 1, &err), BD_OK);
    const bd_attention_forward_args args = {.n_heads = 1, .n_kv_heads = 1, .head_size = 257};
    assert_int_equal(backend->operations->attention_forward(backend, &args, &err),
                     BD_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "attention heads of 257 channels (at most 256)");
    backend->operations->close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(agrees_on_random_rows),
        cmocka_unit_test(agrees_with_windows),
        cmocka_unit_test(large_scores_do_no_harm),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(packed_equals_alone),
        cmocka_unit_test(the_future_does_not_matter),
        cmocka_unit_test(a_window_as_long_as_the_document_is_none),
        cmocka_unit_test(what_the_window_hides_does_not_matter),
        cmocka_unit_test(blocks_outside_the_window_are_not_visited),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(too_wide_a_head_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
