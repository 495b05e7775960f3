#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

// Strides of 0 are tokens without gaps.
typedef struct shape {
    int64_t n_vectors, n_channels;
    int64_t x_stride, out_stride, d_x_stride;
    float gain_offset;
} shape;

static const shape shapes[] = {
    {1, 83, 0, 0, 0, 0.0f},        // a residual stream
    {1, 1, 0, 0, 0, 1.0f},         // nothing smaller
    {3, 33, 120, 101, 0, 1.0f},    // heads of queries between others, beside one another
    {2, 64, 0, 0, 390, 0.0f},      // whole registers
    {70, 3, 211, 211, 213, 0.0f},  // more vectors than a sum in float may have
    {1, 1100, 0, 0, 0, 0.0f},      // more channels than such a sum
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const float epsilon = 1e-5f;
// A dozen roundings of 6e-8 on values of the size of the largest.
static const double forward_tolerance = 1e-6;
// Sums over 350 tokens in float blocks of 64.
static const double backward_tolerance = 2e-6;

// What lies between tokens: never read (so it is NaN in inputs), never written.
static const float filler = 99.0f;

// Tensors without gaps; they are spread out when an operation gets them.
typedef struct model {
    batch b;
    shape s;
    int64_t width;  // floats per token
    int64_t n;      // floats per activation
    float *x, *gain, *d_out;
    float *residual;  // initial values of d_x before the backward pass
} model;

// With a batch of its own, which free_model() releases.
static model make_model(shape s, batch b)
{
    uint64_t seed = 21;
    model m = {.b = b, .s = s, .width = s.n_vectors * s.n_channels};
    m.n = b.n_tokens * m.width;
    m.x = random_tensor(&seed, m.n, 2.0);
    m.gain = random_tensor(&seed, s.n_channels, 1.0);
    m.d_out = random_tensor(&seed, m.n, 1.0);
    m.residual = random_tensor(&seed, m.n, 1.0);
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    free(m->x);
    free(m->gain);
    free(m->d_out);
    free(m->residual);
}

// NaN in the padding of inputs: it must neither be read nor change anything.
static float *spread_input(const model *m, const float *x, int64_t stride)
{
    float *out = spread(x, m->b.n_tokens, m->width, stride, NAN);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (is_padding(&m->b, t))
            for (int64_t c = 0; c < m->width; c++)
                out[t * bd_stride(stride, m->width) + c] = NAN;
    return out;
}

static void run_forward(bd_backend *backend, const model *m, const float *x, float *out,
                        int64_t out_stride, float *rstd)
{
    RUN(backend, rms_norm_forward,
        {.boundaries = m->b.boundaries,
         .n_vectors = m->s.n_vectors,
         .n_channels = m->s.n_channels,
         .x_stride = m->s.x_stride,
         .out_stride = out_stride,
         .epsilon = epsilon,
         .gain_offset = m->s.gain_offset,
         .x = x,
         .gain = m->gain,
         .out = out,
         .rstd = rstd});
}

// d_out is as far apart as out.
static void run_backward(bd_backend *backend, const model *m, const float *x,
                         const float *d_out, const float *rstd, bool adds, float *d_x,
                         int64_t d_x_stride, float *d_gain)
{
    RUN(backend, rms_norm_backward,
        {.boundaries = m->b.boundaries,
         .n_vectors = m->s.n_vectors,
         .n_channels = m->s.n_channels,
         .x_stride = m->s.x_stride,
         .d_out_stride = m->s.out_stride,
         .d_x_stride = d_x_stride,
         .gain_offset = m->s.gain_offset,
         .adds = adds,
         .d_out = d_out,
         .x = x,
         .gain = m->gain,
         .rstd = rstd,
         .d_x = d_x,
         .d_gain = d_gain});
}

// The result without gaps; free with free().
static float *forward(bd_backend *backend, const model *m, float *rstd)
{
    float *x = spread_input(m, m->x, m->s.x_stride);
    float *out = guarded(m->b.n_tokens * bd_stride(m->s.out_stride, m->width));
    for (int64_t i = 0; i < m->b.n_tokens * bd_stride(m->s.out_stride, m->width); i++)
        out[i] = filler;
    run_forward(backend, m, x, out, m->s.out_stride, rstd);
    guarded_free(x);
    return gather(out, m->b.n_tokens, m->width, m->s.out_stride, filler);
}

// d_x without gaps; d_gain begins with the gain (any numbers: gradients are added).
static float *backward(bd_backend *backend, const model *m, const float *rstd, bool adds,
                       float *d_gain)
{
    float *x = spread_input(m, m->x, m->s.x_stride);
    float *d_out = spread_input(m, m->d_out, m->s.out_stride);
    float *d_x = spread(m->residual, m->b.n_tokens, m->width, m->s.d_x_stride, filler);
    memcpy(d_gain, m->gain, (size_t)m->s.n_channels * sizeof *d_gain);
    run_backward(backend, m, x, d_out, rstd, adds, d_x, m->s.d_x_stride, d_gain);
    guarded_free(x);
    guarded_free(d_out);
    return gather(d_x, m->b.n_tokens, m->width, m->s.d_x_stride, filler);
}

// ---- The reference --------------------------------------------------------------------------

typedef struct reference {
    const model *m;
    double *x, *gain;
    double *out, *rstd;
    double *d_x, *d_gain;
} reference;

static void reference_forward(reference *r)
{
    const int64_t n = r->m->s.n_channels;
    for (int64_t v = 0; v < r->m->b.n_tokens * r->m->s.n_vectors; v++) {
        const double *x = r->x + v * n;
        double mean_of_squares = 0.0;
        for (int64_t c = 0; c < n; c++)
            mean_of_squares += x[c] * x[c] / (double)n;
        const bool padding = is_padding(&r->m->b, v / r->m->s.n_vectors);
        r->rstd[v] = padding ? 0.0 : 1.0 / sqrt(mean_of_squares + (double)epsilon);
        for (int64_t c = 0; c < n; c++)
            r->out[v * n + c] =
                padding ? 0.0 : x[c] * r->rstd[v] * ((double)r->m->s.gain_offset + r->gain[c]);
    }
}

// By the chain rule through the mean of squares, not by the formula of rms_norm.h.
static void reference_backward(reference *r)
{
    const int64_t n = r->m->s.n_channels;
    for (int64_t v = 0; v < r->m->b.n_tokens * r->m->s.n_vectors; v++) {
        if (is_padding(&r->m->b, v / r->m->s.n_vectors))
            continue;
        const double *x = r->x + v * n, rstd = r->rstd[v];
        double d_rstd = 0.0;
        for (int64_t c = 0; c < n; c++) {
            const double d = (double)r->m->d_out[v * n + c];
            const double factor = (double)r->m->s.gain_offset + r->gain[c];
            d_rstd += d * x[c] * factor;
            r->d_gain[c] += d * x[c] * rstd;
            r->d_x[v * n + c] = d * factor * rstd;
        }
        const double d_mean = d_rstd * -0.5 * rstd * rstd * rstd;
        for (int64_t c = 0; c < n; c++)
            r->d_x[v * n + c] += d_mean * 2.0 * x[c] / (double)n;
    }
}

static double reference_loss(void *context)
{
    reference *r = context;
    reference_forward(r);
    double loss = 0.0;
    for (int64_t i = 0; i < r->m->n; i++)
        loss += r->out[i] * (double)r->m->d_out[i];
    return loss;
}

// Runs forward and backward; gradients begin at 0.
static reference make_reference(const model *m)
{
    reference r = {
        .m = m,
        .x = to_double(m->x, m->n),
        .gain = to_double(m->gain, m->s.n_channels),
        .out = get_memory((size_t)m->n * sizeof(double)),
        .rstd = get_memory((size_t)(m->b.n_tokens * m->s.n_vectors) * sizeof(double)),
        .d_x = calloc((size_t)m->n, sizeof(double)),
        .d_gain = calloc((size_t)m->s.n_channels, sizeof(double)),
    };
    reference_forward(&r);
    reference_backward(&r);
    return r;
}

static void free_reference(reference *r)
{
    double *const all[] = {r->x, r->gain, r->out, r->rstd, r->d_x, r->d_gain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

// ---- Promises -------------------------------------------------------------------------------

static void check_parity(bd_backend *backend, void *context)
{
    const model *m = context;
    const batch *b = &m->b;
    const int64_t n_rstd = b->n_tokens * m->s.n_vectors;
    reference r = make_reference(m);
    float *rstd = guarded(n_rstd);
    float *out = forward(backend, m, rstd);
    expect_close("out", out, r.out, m->n, forward_tolerance);
    expect_close("rstd", rstd, r.rstd, n_rstd, forward_tolerance);
    expect_padding_zero("out", b, out, m->width);
    expect_padding_zero("rstd", b, rstd, m->s.n_vectors);

    // d_x is overwritten.
    float *d_gain = guarded(m->s.n_channels);
    for (int64_t c = 0; c < m->s.n_channels; c++)
        r.d_gain[c] += (double)m->gain[c];
    float *d_x = backward(backend, m, rstd, false, d_gain);
    expect_close("d_x", d_x, r.d_x, m->n, backward_tolerance);
    expect_close("d_gain", d_gain, r.d_gain, m->s.n_channels, backward_tolerance);
    expect_padding_zero("d_x", b, d_x, m->width);
    free(d_x);

    // d_x is added to, and what it holds in padding stays.
    float *d_gain_again = guarded(m->s.n_channels);
    for (int64_t i = 0; i < m->n; i++)
        r.d_x[i] += (double)m->residual[i];
    d_x = backward(backend, m, rstd, true, d_gain_again);
    expect_close("d_x, added", d_x, r.d_x, m->n, backward_tolerance);
    expect_same("d_gain if d_x is added", d_gain_again, d_gain, m->s.n_channels);
    for (int64_t t = 0; t < b->n_tokens; t++)
        if (is_padding(b, t))
            expect_same("d_x in padding", d_x + t * m->width, m->residual + t * m->width,
                        m->width);

    free(out);
    free(d_x);
    guarded_free(rstd);
    guarded_free(d_gain);
    guarded_free(d_gain_again);
    free_reference(&r);
}

static void agrees_with_double_precision(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], awkward_batch(22));
        for_each_isa(check_parity, &m);
        free_model(&m);
    }
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], random_batch(23, 2, 20));
        reference r = make_reference(&m);
        // Central differences of a smooth function: an error of step^2 times its third
        // derivative. That of one channel alone is large where it crosses 0: 1 / epsilon.
        const double tolerance = m.s.n_channels == 1 ? 1e-4 : 1e-6;
        expect_gradient("x", reference_loss, &r, r.x, r.d_x, m.n, 60, 1e-4, tolerance);
        expect_gradient("gain", reference_loss, &r, r.gain, r.d_gain, m.s.n_channels, 20, 1e-4,
                        1e-7);
        free_reference(&r);
        free_model(&m);
    }
}

// out may be x, and d_x may be d_out if it is not added to.
static void check_in_place(bd_backend *backend, void *context)
{
    const model *m = context;
    const int64_t n_tokens = m->b.n_tokens, n_rstd = n_tokens * m->s.n_vectors;
    float *rstd = guarded(n_rstd), *rstd_again = guarded(n_rstd);
    float *out = forward(backend, m, rstd);
    float *x = spread(m->x, n_tokens, m->width, m->s.x_stride, filler);
    run_forward(backend, m, x, x, m->s.x_stride, rstd_again);
    x = gather(x, n_tokens, m->width, m->s.x_stride, filler);
    expect_same("out in place", x, out, m->n);
    expect_same("rstd in place", rstd_again, rstd, n_rstd);
    free(x);

    float *d_gain = guarded(m->s.n_channels);
    float *d_x = backward(backend, m, rstd, false, d_gain);
    float *d_gain_again = guarded_copy(m->gain, m->s.n_channels);
    x = spread_input(m, m->x, m->s.x_stride);
    float *d_out = spread(m->d_out, n_tokens, m->width, m->s.out_stride, filler);
    run_backward(backend, m, x, d_out, rstd, false, d_out, m->s.out_stride, d_gain_again);
    d_out = gather(d_out, n_tokens, m->width, m->s.out_stride, filler);
    expect_same("d_x in place", d_out, d_x, m->n);
    expect_same("d_gain in place", d_gain_again, d_gain, m->s.n_channels);

    guarded_free(x);
    free(out);
    free(d_x);
    free(d_out);
    guarded_free(rstd);
    guarded_free(rstd_again);
    guarded_free(d_gain);
    guarded_free(d_gain_again);
}

static void results_are_the_same_in_place(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], awkward_batch(22));
        for_each_isa(check_in_place, &m);
        free_model(&m);
    }
}

// Every document of the batch gives the same bits as in a batch of its own.
static void check_documents(bd_backend *backend, void *context)
{
    const model *m = context;
    float *rstd = guarded(m->b.n_tokens * m->s.n_vectors), *d_gain = guarded(m->s.n_channels);
    float *out = forward(backend, m, rstd);
    float *d_x = backward(backend, m, rstd, true, d_gain);
    int64_t begin, end;
    for (int64_t i = 0; segment_at(&m->b, i, &begin, &end); i++) {
        const int64_t at = begin * m->width, length = end - begin;
        const model alone = {.b = batch_of_one(length),
                             .s = m->s,
                             .width = m->width,
                             .n = length * m->width,
                             .x = m->x + at,
                             .gain = m->gain,
                             .d_out = m->d_out + at,
                             .residual = m->residual + at};
        float *rstd_alone = guarded(length * m->s.n_vectors);
        float *out_alone = forward(backend, &alone, rstd_alone);
        float *d_x_alone = backward(backend, &alone, rstd_alone, true, d_gain);
        expect_same("rstd alone", rstd_alone, rstd + begin * m->s.n_vectors,
                    length * m->s.n_vectors);
        expect_same("out alone", out_alone, out + at, alone.n);
        expect_same("d_x alone", d_x_alone, d_x + at, alone.n);
        free(out_alone);
        free(d_x_alone);
        guarded_free(rstd_alone);
        batch own = alone.b;
        batch_release(&own);
    }
    free(out);
    free(d_x);
    guarded_free(rstd);
    guarded_free(d_gain);
}

static void neighbours_do_not_matter(void **state)
{
    (void)state;
    model m = make_model(shapes[2], awkward_batch(22));
    for_each_isa(check_documents, &m);
    free_model(&m);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    float *d_x = out + m->n, *rstd = d_x + m->n;
    float *d_gain = rstd + m->b.n_tokens * m->s.n_vectors;
    float *forward_result = forward(backend, m, rstd);
    float *backward_result = backward(backend, m, rstd, false, d_gain);
    memcpy(out, forward_result, (size_t)m->n * sizeof *out);
    memcpy(d_x, backward_result, (size_t)m->n * sizeof *d_x);
    free(forward_result);
    free(backward_result);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], awkward_batch(22));
        expect_same_for_any_threads(
            compute_everything, 2 * m.n + m.b.n_tokens * m.s.n_vectors + m.s.n_channels, &m);
        free_model(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(results_are_the_same_in_place),
        cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
