#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

// Gaps between tokens keep packs aligned (8), or not (7). The norm either adds to d_x, or works
// in place both ways.
typedef struct variant {
    int64_t n_vectors, gap;
    float gain_offset;
    bool adds;
} variant;

typedef struct norm {
    const batch *b;
    variant v;
    int64_t n_channels, width, stride;
    int64_t n, n_vectors;  // numbers, with gaps; vectors of all tokens
    float *x, *gain, *rstd;
} norm;

static norm make_norm(const batch *b, int64_t n_channels, variant v)
{
    uint64_t seed = 22;
    norm m = {.b = b, .v = v, .n_channels = n_channels, .width = v.n_vectors * n_channels};
    m.stride = m.width + v.gap;
    m.n = b->n_tokens * m.stride;
    m.n_vectors = b->n_tokens * v.n_vectors;
    m.x = spread_tensor(&seed, b, m.width, m.stride, 2.0);
    for (int64_t i = 0; i < m.n; i++)
        if (is_padding(b, i / m.stride) && i % m.stride < m.width)
            m.x[i] = NAN;  // nothing there may be used
    m.gain = random_tensor(&seed, n_channels, 1.0);
    m.rstd = guarded(m.n_vectors);
    return m;
}

static void free_norm(norm *m)
{
    free(m->x);
    free(m->gain);
    guarded_free(m->rstd);
}

static void check_forward(norm *m)
{
    float *out = guarded_copy(m->x, m->n);
    if (m->v.adds) {  // not in place: a buffer of its own, whose gaps are the same
        for (int64_t i = 0; i < m->n; i++)
            out[i] = i % m->stride < m->width ? NAN : m->x[i];
    }
    float *before = get_memory((size_t)m->n * sizeof *before);
    memcpy(before, out, (size_t)m->n * sizeof *before);
    bd_rms_norm_forward_args f = {
        .boundaries = m->b->boundaries,
        .n_vectors = m->v.n_vectors,
        .n_channels = m->n_channels,
        .x_stride = m->stride,
        .out_stride = m->v.gap > 0 ? m->stride : 0,
        .epsilon = 1e-5f,
        .gain_offset = m->v.gain_offset,
        .x = m->v.adds ? m->x : out,
        .gain = m->gain,
        .out = out,
        .rstd = m->rstd,
    };
    RUN(cpu, rms_norm_forward, f);
    f.boundaries = boundaries_on_device(m->b);
    f.out = floats_on_device(before, m->n);
    f.x = m->v.adds ? floats_on_device(m->x, m->n) : f.out;
    f.gain = floats_on_device(m->gain, m->n_channels);
    f.rstd = floats_on_device(NULL, m->n_vectors);
    RUN(cuda, rms_norm_forward, f);
    compare_padded("RMS norm", m->b, f.out, out, m->stride, 2.0 * few_roundings);
    expect_untouched("gaps of RMS norm", m->b, f.out, before, m->width, m->stride, false);
    compare_padded("rstd", m->b, f.rstd, m->rstd, m->v.n_vectors, few_roundings);
    release_device();
    free(before);
    guarded_free(out);
}

// The largest sum of the absolute terms of a channel's d_gain, to which its rounding error is
// relative.
static double size_of_gain_gradient(const norm *m, const float *d_out)
{
    double most = 0.0;
    for (int64_t c = 0; c < m->n_channels; c++) {
        double sum = 0.0;
        for (int64_t i = 0; i < m->n_vectors; i++) {
            const int64_t t = i / m->v.n_vectors, v = i % m->v.n_vectors;
            const int64_t at = t * m->stride + v * m->n_channels + c;
            if (!is_padding(m->b, t))
                sum += fabs((double)d_out[at] * (double)m->x[at] * (double)m->rstd[i]);
        }
        most = fmax(most, sum);
    }
    return most;
}

// Uses the rstd of the forward pass.
static void check_backward(norm *m)
{
    uint64_t seed = 23;
    float *d_out = spread_tensor(&seed, m->b, m->width, m->stride, 1.0);
    float *d_x = spread_tensor(&seed, m->b, m->width, m->stride, 1.0);
    float *d_gain = random_tensor(&seed, m->n_channels, 1.0);
    const float *before = m->v.adds ? d_x : d_out;
    float *result = guarded_copy(before, m->n);
    bd_rms_norm_backward_args g = {
        .boundaries = m->b->boundaries,
        .n_vectors = m->v.n_vectors,
        .n_channels = m->n_channels,
        .x_stride = m->stride,
        .d_out_stride = m->v.gap > 0 ? m->stride : 0,
        .d_x_stride = m->stride,
        .gain_offset = m->v.gain_offset,
        .adds = m->v.adds,
        .d_out = m->v.adds ? d_out : result,
        .x = m->x,
        .gain = m->gain,
        .rstd = m->rstd,
        .d_x = result,
        .d_gain = d_gain,
    };
    bd_rms_norm_backward_args h = g;
    h.boundaries = boundaries_on_device(m->b);
    h.d_x = floats_on_device(before, m->n);
    h.d_out = m->v.adds ? floats_on_device(d_out, m->n) : h.d_x;
    h.x = floats_on_device(m->x, m->n);
    h.gain = floats_on_device(m->gain, m->n_channels);
    h.rstd = floats_on_device(m->rstd, m->n_vectors);
    h.d_gain = floats_on_device(d_gain, m->n_channels);
    RUN(cpu, rms_norm_backward, g);
    RUN(cuda, rms_norm_backward, h);
    // A difference of numbers of size 1 is multiplied by rstd, which is 316 for one channel.
    float steepest = 1.0f;
    for (int64_t i = 0; i < m->n_vectors; i++)
        steepest = fmaxf(steepest, m->rstd[i]);
    const double tolerance = long_sums * (double)steepest;
    if (m->v.adds)
        compare("gradient of x", h.d_x, result, m->n, tolerance);
    else
        compare_padded("gradient of x", m->b, h.d_x, result, m->stride, tolerance);
    expect_untouched("gaps of the gradient", m->b, h.d_x, before, m->width, m->stride,
                     m->v.adds);
    float largest = 0.0f;
    for (int64_t c = 0; c < m->n_channels; c++)
        largest = fmaxf(largest, fabsf(d_gain[c]));
    const double terms = size_of_gain_gradient(m, d_out) / (double)largest;
    compare("gradient of the gain", h.d_gain, d_gain, m->n_channels,
            long_sums * fmax(1.0, terms));
    release_device();
    free(d_out);
    free(d_x);
    free(d_gain);
    guarded_free(result);
}

static void check_rms_norm(const batch *b, int64_t n_channels, int32_t id_bytes)
{
    (void)id_bytes;
    static const variant variants[] = {
        {.n_vectors = 1, .adds = true},
        {.n_vectors = 5, .gap = 7, .gain_offset = 1.0f},
        {.n_vectors = 3, .gap = 8, .adds = true},
        {.n_vectors = 2},
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        norm m = make_norm(b, n_channels, variants[i]);
        check_forward(&m);
        check_backward(&m);
        free_norm(&m);
    }
}

void rms_norm_agrees(void)
{
    for_each_batch(check_rms_norm);
}
