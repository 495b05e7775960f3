#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

typedef struct shape {
    int64_t n_heads, head_size;
    int64_t stride;
    float scale;
} shape;

static const shape shapes[] = {
    {1, 2, 2, 1.0f},     {3, 6, 18, 1.0f},    {2, 62, 131, 1.0f},
    {4, 64, 256, 1.25f}, {2, 66, 132, 0.75f}, {1, 256, 260, 1.0f},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, MOST_PAIRS = 128 };

// sin and cos within 1e-7, a factor and a sum of two products: four roundings of 6e-8.
static const double tolerance = 4e-7;

static const float filler = 99.0f;  // between tokens; never written

typedef struct model {
    batch b;
    shape s;
    int64_t width, n;
    long double frequencies[MOST_PAIRS];
    uint64_t turns[MOST_PAIRS];
    float *x;  // without gaps
} model;

static model make_model(shape s, batch b)
{
    uint64_t seed = 24;
    model m = {.b = b, .s = s, .width = s.n_heads * s.head_size};
    m.n = b.n_tokens * m.width;
    for (int64_t i = 0; i < s.head_size / 2; i++) {
        // As Llama 3 has them: 1 for the first pair.
        m.frequencies[i] = powl(500000.0L, -2.0L * (long double)i / (long double)s.head_size);
        m.turns[i] = (uint64_t)(m.frequencies[i] / (2.0L * acosl(-1.0L)) * 0x1p64L);
    }
    m.x = random_tensor(&seed, m.n, 1.0);
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    free(m->x);
}

// Returns x (without gaps) turned; free with free().
static float *turn_after(bd_backend *backend, const model *m, const int32_t *past,
                         const float *x, float scale, bool inverse)
{
    float *turned = spread(x, m->b.n_tokens, m->width, m->s.stride, filler);
    RUN(backend, rotary,
        {.boundaries = m->b.boundaries,
         .past = past,
         .n_heads = m->s.n_heads,
         .head_size = m->s.head_size,
         .stride = m->s.stride,
         .turns = m->turns,
         .scale = scale,
         .inverse = inverse,
         .x = turned});
    return gather(turned, m->b.n_tokens, m->width, m->s.stride, filler);
}

static float *turn(bd_backend *backend, const model *m, const float *x, float scale,
                   bool inverse)
{
    return turn_after(backend, m, NULL, x, scale, inverse);
}

// One token at `position`. At a million, an angle in long double is exact to 1e-13.
static void reference_token(const model *m, const double *in, int64_t position, bool inverse,
                            double *out)
{
    const int64_t half = m->s.head_size / 2;
    for (int64_t h = 0; h < m->s.n_heads; h++)
        for (int64_t i = 0; i < half; i++) {
            const long double angle = (long double)position * m->frequencies[i];
            const double c = (double)cosl(angle) * (double)m->s.scale;
            const double s = (double)sinl(angle) * (double)m->s.scale * (inverse ? -1.0 : 1.0);
            const int64_t at = h * m->s.head_size + i;
            const double x = in[at], y = in[at + half];
            out[at] = x * c - y * s;
            out[at + half] = y * c + x * s;
        }
}

// All tokens; padding is left alone.
static void reference_batch(const model *m, const double *in, bool inverse, double *out)
{
    memcpy(out, in, (size_t)m->n * sizeof *out);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (!is_padding(&m->b, t))
            reference_token(m, in + t * m->width, t - segment_begin(&m->b, t), inverse,
                            out + t * m->width);
}

// ---- Promises -------------------------------------------------------------------------------

static void check_parity(bd_backend *backend, void *context)
{
    const model *m = context;
    double *x = to_double(m->x, m->n), *wanted = to_double(m->x, m->n);
    for (int inverse = 0; inverse < 2; inverse++) {
        reference_batch(m, x, inverse, wanted);
        float *got = turn(backend, m, m->x, m->s.scale, inverse);
        expect_close(inverse ? "turned back" : "turned", got, wanted, m->n, tolerance);
        for (int64_t t = 0; t < m->b.n_tokens; t++)
            if (is_padding(&m->b, t))
                expect_same("padding", got + t * m->width, m->x + t * m->width, m->width);
        free(got);
    }
    free(x);
    free(wanted);
}

static void positions_count_from_the_document_start(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], awkward_batch(25));
        for_each_isa(check_parity, &m);
        free_model(&m);
    }
}

typedef struct differentiated {
    const model *m;
    double *x, *out;
    const double *d_out;
} differentiated;

static double reference_loss(void *context)
{
    const differentiated *d = context;
    reference_batch(d->m, d->x, false, d->out);
    double loss = 0.0;
    for (int64_t i = 0; i < d->m->n; i++)
        loss += d->out[i] * d->d_out[i];
    return loss;
}

// The backward pass turns gradients by `inverse`, which check_parity() compares with the
// reference: here, that it is the gradient of turning at all.
static void reference_agrees_with_differences(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], random_batch(26, 2, 20));
        float *d_out = random_tensor(&(uint64_t){27}, m.n, 1.0);
        double *d = to_double(d_out, m.n), *d_x = to_double(d_out, m.n);
        differentiated context = {&m, to_double(m.x, m.n), to_double(m.x, m.n), d};
        reference_batch(&m, d, true, d_x);
        // The loss is linear in x, so differences are exact but for rounding.
        expect_gradient("x", reference_loss, &context, context.x, d_x, m.n, 100, 1e-3, 1e-8);
        free(d_out);
        free(d);
        free(d_x);
        free(context.x);
        free(context.out);
        free_model(&m);
    }
}

// The first token of a document does not turn, and is not rounded either.
static void check_first_tokens(bd_backend *backend, void *context)
{
    const model *m = context;
    float *got = turn(backend, m, m->x, 1.0f, false);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (!is_padding(&m->b, t) && segment_begin(&m->b, t) == t)
            expect_same("position 0", got + t * m->width, m->x + t * m->width, m->width);
    free(got);
}

static void position_0_does_not_turn(void **state)
{
    (void)state;
    model m = make_model(shapes[2], awkward_batch(25));
    for_each_isa(check_first_tokens, &m);
    free_model(&m);
}

// Angles in float would be off by hundredths of a turn at a position of a million.
static void check_far(bd_backend *backend, void *context)
{
    const model *m = context;
    const int64_t n_checked = 40, first = m->b.n_tokens - n_checked;
    float *got = turn(backend, m, m->x, m->s.scale, false);
    double *x = to_double(m->x + first * m->width, n_checked * m->width);
    double *wanted = get_memory((size_t)(n_checked * m->width) * sizeof *wanted);
    for (int64_t t = 0; t < n_checked; t++)
        reference_token(m, x + t * m->width, first + t, false, wanted + t * m->width);
    expect_close("far from the start", got + first * m->width, wanted, n_checked * m->width,
                 tolerance);
    free(x);
    free(wanted);
    free(got);
}

static void angles_are_exact_at_any_position(void **state)
{
    (void)state;
    model m = make_model((shape){1, 14, 14, 1.0f}, batch_of_one(1000033));
    for_each_isa(check_far, &m);
    free_model(&m);
}

// A token that others precede in its document is turned as at that place of a whole one.
static void check_past(bd_backend *backend, void *context)
{
    const model *m = context;
    model whole = make_model(m->s, batch_of_one(400));
    float *x = random_tensor(&(uint64_t){5}, m->width, 1.0);
    float *same = get_memory((size_t)m->n * sizeof *same);
    for (int64_t t = 0; t < whole.b.n_tokens; t++)
        memcpy(whole.x + t * m->width, x, (size_t)m->width * sizeof *x);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        memcpy(same + t * m->width, x, (size_t)m->width * sizeof *x);
    int32_t past[16];
    int64_t begin, end;
    int n = 0;
    for (; segment_at(&m->b, n, &begin, &end); n++)
        past[n] = n * 29 % 200;
    float *wanted = turn(backend, &whole, whole.x, m->s.scale, false);
    float *got = turn_after(backend, m, past, same, m->s.scale, false);
    for (int i = 0; i < n && segment_at(&m->b, i, &begin, &end); i++)
        expect_same("after others", got + begin * m->width, wanted + past[i] * m->width,
                    (end - begin) * m->width);
    free(x);
    free(same);
    free(wanted);
    free(got);
    free_model(&whole);
}

static void tokens_before_a_segment_count(void **state)
{
    (void)state;
    model m = make_model(shapes[2], awkward_batch(5));
    for_each_isa(check_past, &m);
    free_model(&m);
}

static void check_inverse(bd_backend *backend, void *context)
{
    const model *m = context;
    // Transposed, a rotation by `scale` is its own inverse times the square of the scale.
    double *wanted = to_double(m->x, m->n);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (!is_padding(&m->b, t))
            for (int64_t c = 0; c < m->width; c++)
                wanted[t * m->width + c] *= (double)m->s.scale * (double)m->s.scale;
    float *turned = turn(backend, m, m->x, m->s.scale, false);
    float *back = turn(backend, m, turned, m->s.scale, true);
    expect_close("there and back", back, wanted, m->n, 2.0 * tolerance);
    free(wanted);
    free(turned);
    free(back);
}

static void inverse_turns_back(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], awkward_batch(25));
        for_each_isa(check_inverse, &m);
        free_model(&m);
    }
}

// Every document of the batch gives the same bits as in a batch of its own.
static void check_documents(bd_backend *backend, void *context)
{
    const model *m = context;
    float *got = turn(backend, m, m->x, m->s.scale, false);
    int64_t begin, end;
    for (int64_t i = 0; segment_at(&m->b, i, &begin, &end); i++) {
        model alone = *m;
        alone.b = batch_of_one(end - begin);
        float *own = turn(backend, &alone, m->x + begin * m->width, m->s.scale, false);
        expect_same("alone", own, got + begin * m->width, (end - begin) * m->width);
        free(own);
        batch_release(&alone.b);
    }
    free(got);
}

static void neighbours_do_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++) {
        model m = make_model(shapes[i], awkward_batch(25));
        for_each_isa(check_documents, &m);
        free_model(&m);
    }
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    float *turned = turn(backend, m, m->x, m->s.scale, false);
    memcpy(out, turned, (size_t)m->n * sizeof *out);
    free(turned);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    model m = make_model(shapes[2], awkward_batch(25));
    expect_same_for_any_threads(compute_everything, m.n, &m);
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_count_from_the_document_start),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(position_0_does_not_turn),
        cmocka_unit_test(angles_are_exact_at_any_position),
        cmocka_unit_test(tokens_before_a_segment_count),
        cmocka_unit_test(inverse_turns_back),
        cmocka_unit_test(neighbours_do_not_matter),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
