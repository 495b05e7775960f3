#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

// Sums of up to 640 products in float; each addition is within 6e-8 of a partial sum, and the
// errors go both ways.
static const double tolerance = 3e-6;

typedef struct model {
    batch b;
    int64_t n_in, n_out;
    bd_weight_layout layout;
    bool with_bias;
    int64_t n_x, n_y, n_weight;
    float *x, *weight, *bias, *d_out;
} model;

static model make_model(int64_t n_in, int64_t n_out, bd_weight_layout layout, bool with_bias)
{
    uint64_t seed = 13;
    model m = {.b = awkward_batch(seed),
               .n_in = n_in,
               .n_out = n_out,
               .layout = layout,
               .with_bias = with_bias};
    m.n_x = m.b.n_tokens * n_in;
    m.n_y = m.b.n_tokens * n_out;
    m.n_weight = n_in * n_out;
    m.x = random_activations(&seed, &m.b, n_in, 1.0);
    m.weight = random_tensor(&seed, m.n_weight, 1.0);
    m.bias = random_tensor(&seed, n_out, 1.0);
    m.d_out = random_activations(&seed, &m.b, n_out, 1.0);
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    free(m->x);
    free(m->weight);
    free(m->bias);
    free(m->d_out);
}

static void forward(bd_backend *backend, const model *m, const float *x, float *out)
{
    RUN(backend, linear_forward,
        {.boundaries = m->b.boundaries,
         .n_in = m->n_in,
         .n_out = m->n_out,
         .layout = m->layout,
         .x = x,
         .weight = m->weight,
         .bias = m->with_bias ? m->bias : NULL,
         .out = out});
}

static void backward(bd_backend *backend, const model *m, float *d_x, float *d_weight,
                     float *d_bias)
{
    RUN(backend, linear_backward,
        {.boundaries = m->b.boundaries,
         .n_in = m->n_in,
         .n_out = m->n_out,
         .layout = m->layout,
         .d_out = m->d_out,
         .x = m->x,
         .weight = m->weight,
         .d_x = d_x,
         .d_weight = d_weight,
         .d_bias = m->with_bias ? d_bias : NULL});
}

// ---- The reference --------------------------------------------------------------------------

typedef struct reference {
    const model *m;
    double *x, *weight, *bias, *out;
    double *d_x, *d_weight, *d_bias;
} reference;

static int64_t weight_index(const model *m, int64_t i, int64_t j)
{
    return m->layout == BD_WEIGHT_OUT_IN ? j * m->n_in + i : i * m->n_out + j;
}

static void reference_forward(reference *r)
{
    const model *m = r->m;
    for (int64_t t = 0; t < m->b.n_tokens; t++) {
        for (int64_t j = 0; j < m->n_out; j++) {
            double sum = m->with_bias ? r->bias[j] : 0.0;
            for (int64_t i = 0; i < m->n_in; i++)
                sum += r->x[t * m->n_in + i] * r->weight[weight_index(m, i, j)];
            r->out[t * m->n_out + j] = is_padding(&m->b, t) ? 0.0 : sum;
        }
    }
}

static void reference_backward(reference *r)
{
    const model *m = r->m;
    for (int64_t t = 0; t < m->b.n_tokens; t++) {
        for (int64_t j = 0; j < m->n_out; j++) {
            const double d = (double)m->d_out[t * m->n_out + j];
            r->d_bias[j] += d;
            for (int64_t i = 0; i < m->n_in; i++) {
                const int64_t w = weight_index(m, i, j);
                r->d_x[t * m->n_in + i] += d * r->weight[w];
                r->d_weight[w] += d * r->x[t * m->n_in + i];
            }
        }
    }
}

static double reference_loss(void *context)
{
    reference *r = context;
    reference_forward(r);
    double loss = 0.0;
    for (int64_t i = 0; i < r->m->n_y; i++)
        loss += r->out[i] * (double)r->m->d_out[i];
    return loss;
}

static reference make_reference(const model *m)
{
    reference r = {
        .m = m,
        .x = to_double(m->x, m->n_x),
        .weight = to_double(m->weight, m->n_weight),
        .bias = to_double(m->bias, m->n_out),
        .out = get_memory((size_t)m->n_y * sizeof(double)),
        .d_x = calloc((size_t)m->n_x, sizeof(double)),
        .d_weight = calloc((size_t)m->n_weight, sizeof(double)),
        .d_bias = calloc((size_t)m->n_out, sizeof(double)),
    };
    reference_forward(&r);
    reference_backward(&r);
    return r;
}

static void free_reference(reference *r)
{
    double *const all[] = {r->x, r->weight, r->bias, r->out, r->d_x, r->d_weight, r->d_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

// ---- Promises -------------------------------------------------------------------------------

static void check_parity(bd_backend *backend, void *context)
{
    const model *m = context;
    reference r = make_reference(m);
    float *out = guarded(m->n_y), *d_x = guarded(m->n_x);
    float *d_weight = guarded_copy(m->weight, m->n_weight);  // any numbers: gradients are added
    float *d_bias = guarded_copy(m->bias, m->n_out);
    forward(backend, m, m->x, out);
    expect_close("out", out, r.out, m->n_y, tolerance);
    expect_padding_zero("out", &m->b, out, m->n_out);

    for (int64_t i = 0; i < m->n_weight; i++)
        r.d_weight[i] += (double)m->weight[i];
    for (int64_t j = 0; j < m->n_out; j++)
        r.d_bias[j] += (double)m->bias[j];
    backward(backend, m, d_x, d_weight, d_bias);
    expect_close("d_x", d_x, r.d_x, m->n_x, tolerance);
    expect_padding_zero("d_x", &m->b, d_x, m->n_in);
    expect_close("d_weight", d_weight, r.d_weight, m->n_weight, tolerance);
    if (m->with_bias)
        expect_close("d_bias", d_bias, r.d_bias, m->n_out, tolerance);

    // The gradients are the same if d_x is not requested.
    float *again = guarded_copy(m->weight, m->n_weight);
    backward(backend, m, NULL, again, d_bias);
    expect_same("d_weight without d_x", again, d_weight, m->n_weight);

    float *const outputs[] = {out, d_x, d_weight, d_bias, again};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        guarded_free(outputs[i]);
    free_reference(&r);
}

// One channel, very few, whole tiles and one more; rows of 160 do not align with tiles of 256.
static void agrees_with_double_precision(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},   {31, 33},  {33, 31},
                                        {64, 16}, {17, 401}, {300, 48}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int layout = 0; layout < 2; layout++) {
            model m = make_model(shapes[s][0], shapes[s][1], (bd_weight_layout)layout,
                                 (s + (size_t)layout) % 2 == 0);
            for_each_isa(check_parity, &m);
            free_model(&m);
        }
    }
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        model m = make_model(9, 7, (bd_weight_layout)layout, true);
        reference r = make_reference(&m);
        // The loss is linear in each of them, so differences are exact but for rounding.
        expect_gradient("x", reference_loss, &r, r.x, r.d_x, m.n_x, 20, 1e-3, 1e-8);
        expect_gradient("weight", reference_loss, &r, r.weight, r.d_weight, m.n_weight, 63,
                        1e-3, 1e-8);
        expect_gradient("bias", reference_loss, &r, r.bias, r.d_bias, m.n_out, 7, 1e-3, 1e-8);
        free_reference(&r);
        free_model(&m);
    }
}

// The contract of the forward pass allows any finite x in padding.
static void check_padding(bd_backend *backend, void *context)
{
    const model *m = context;
    float *x = guarded_copy(m->x, m->n_x), *out = guarded(m->n_y), *clean = guarded(m->n_y);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (is_padding(&m->b, t))
            for (int64_t i = 0; i < m->n_in; i++)
                x[t * m->n_in + i] = 3.5f;
    forward(backend, m, m->x, clean);
    forward(backend, m, x, out);
    expect_same("out", out, clean, m->n_y);
    guarded_free(x);
    guarded_free(out);
    guarded_free(clean);
}

static void padding_is_zero_whatever_it_holds(void **state)
{
    (void)state;
    model m = make_model(20, 40, BD_WEIGHT_OUT_IN, true);
    for_each_isa(check_padding, &m);
    free_model(&m);
}

static void check_gaps(bd_backend *backend, void *context)
{
    const model *m = context;
    const int64_t stride = m->n_out + 7, n_spread = m->b.n_tokens * stride;
    float *out = guarded(m->n_y), *d_x = guarded(m->n_x), *d_x_spread = guarded(m->n_x);
    const int64_t n_parameters = m->n_weight + m->n_out;
    float *d = guarded(n_parameters), *d_spread = guarded(n_parameters);
    memset(d, 0, (size_t)n_parameters * sizeof *d);
    memset(d_spread, 0, (size_t)n_parameters * sizeof *d_spread);
    forward(backend, m, m->x, out);
    backward(backend, m, d_x, d, d + m->n_weight);
    float *wanted = spread(out, m->b.n_tokens, m->n_out, stride, NAN);
    float *d_out = spread(m->d_out, m->b.n_tokens, m->n_out, stride, NAN);
    float *got = guarded_copy(wanted, n_spread);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        memset(got + t * stride, 0xff, (size_t)m->n_out * sizeof *got);
    RUN(backend, linear_forward,
        {.boundaries = m->b.boundaries,
         .n_in = m->n_in,
         .n_out = m->n_out,
         .out_stride = stride,
         .layout = m->layout,
         .x = m->x,
         .weight = m->weight,
         .bias = m->bias,
         .out = got});
    RUN(backend, linear_backward,
        {.boundaries = m->b.boundaries,
         .n_in = m->n_in,
         .n_out = m->n_out,
         .d_out_stride = stride,
         .layout = m->layout,
         .d_out = d_out,
         .x = m->x,
         .weight = m->weight,
         .d_x = d_x_spread,
         .d_weight = d_spread,
         .d_bias = d_spread + m->n_weight});
    expect_same("out", got, wanted, n_spread);
    expect_same("d_x", d_x_spread, d_x, m->n_x);
    expect_same("d_weight and d_bias", d_spread, d, n_parameters);
    float *const all[] = {out, d_x, d_x_spread, d, d_spread, wanted, d_out, got};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        guarded_free(all[i]);
}

static void gaps_are_neither_read_nor_written(void **state)
{
    (void)state;
    for (bd_weight_layout layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++) {
        model m = make_model(20, 33, layout, true);
        for_each_isa(check_gaps, &m);
        free_model(&m);
    }
}

// With and without `out`, an activation gives the bits of the two separate operations.
static void check_activation(bd_backend *backend, void *context)
{
    const model *m = context;
    const int64_t n = m->n_y;
    float *sum = guarded(n), *wanted = guarded(n), *out = guarded(n), *activated = guarded(n);
    forward(backend, m, m->x, sum);
    for (bd_activation f = BD_ACTIVATION_RELU; f <= BD_ACTIVATION_GELU; f++) {
        apply_activation(backend, f, n, sum, wanted);
        for (int with_out = 0; with_out < 2; with_out++) {
            RUN(backend, linear_forward,
                {.boundaries = m->b.boundaries,
                 .n_in = m->n_in,
                 .n_out = m->n_out,
                 .layout = m->layout,
                 .activation = f,
                 .x = m->x,
                 .weight = m->weight,
                 .bias = m->with_bias ? m->bias : NULL,
                 .out = with_out ? out : NULL,
                 .activated = activated});
            expect_same("activated", activated, wanted, n);
            if (with_out)
                expect_same("out", out, sum, n);
        }
    }
    guarded_free(sum);
    guarded_free(wanted);
    guarded_free(out);
    guarded_free(activated);
}

static void an_activation_is_what_it_is_alone(void **state)
{
    (void)state;
    model m = make_model(20, 33, BD_WEIGHT_IN_OUT, true);
    for_each_isa(check_activation, &m);
    free_model(&m);
}

static void check_neighbours(bd_backend *backend, void *context)
{
    const model *m = context;
    float *x = guarded_copy(m->x, m->n_x), *out = guarded(m->n_y), *before = guarded(m->n_y);
    forward(backend, m, m->x, before);
    int64_t begin, end;
    assert_true(segment_at(&m->b, 2, &begin, &end));
    for (int64_t i = begin * m->n_in; i < end * m->n_in; i++)
        x[i] = 1e30f;
    forward(backend, m, x, out);
    expect_same("tokens before", out, before, begin * m->n_out);
    expect_same("tokens after", out + end * m->n_out, before + end * m->n_out,
                m->n_y - end * m->n_out);
    guarded_free(x);
    guarded_free(out);
    guarded_free(before);
}

static void neighbours_do_not_matter(void **state)
{
    (void)state;
    model m = make_model(65, 40, BD_WEIGHT_IN_OUT, true);
    for_each_isa(check_neighbours, &m);
    free_model(&m);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    float *d_x = out + m->n_y, *d_weight = d_x + m->n_x, *d_bias = d_weight + m->n_weight;
    forward(backend, m, m->x, out);
    memset(d_weight, 0, (size_t)(m->n_weight + m->n_out) * sizeof *out);
    backward(backend, m, d_x, d_weight, d_bias);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        model m = make_model(300, 450, (bd_weight_layout)layout, true);
        expect_same_for_any_threads(compute_everything, m.n_y + m.n_x + m.n_weight + m.n_out,
                                    &m);
        free_model(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(padding_is_zero_whatever_it_holds),
        cmocka_unit_test(gaps_are_neither_read_nor_written),
        cmocka_unit_test(an_activation_is_what_it_is_alone),
        cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
