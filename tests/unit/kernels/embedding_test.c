#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

enum { N_CHANNELS = 33, FIRST_POSITION = 2, N_POSITIONS = 160 + FIRST_POSITION };

// A product and a sum: half a unit in the last place each, of numbers larger than the result.
static const double forward_tolerance = 2e-7;
// Some hundred additions in float, each within 6e-8 of a partial sum.
static const double backward_tolerance = 3e-6;

typedef struct model {
    batch b;
    float token_scale;
    float *token_table, *position_table, *d_out;  // position_table: NULL if n_positions is 0
    int64_t n_positions, first_position;
    int64_t n_token_table, n_position_table, n_out;
} model;

static model make_model(float token_scale, bool with_positions)
{
    uint64_t seed = 11;
    model m = {.b = awkward_batch(seed), .token_scale = token_scale};
    if (with_positions) {
        m.n_positions = N_POSITIONS;
        m.first_position = FIRST_POSITION;
    }
    m.n_token_table = (int64_t)m.b.n_vocabulary * N_CHANNELS;
    m.n_position_table = m.n_positions * N_CHANNELS;
    m.n_out = m.b.n_tokens * N_CHANNELS;
    m.token_table = random_tensor(&seed, m.n_token_table, 1.0);
    if (with_positions)
        m.position_table = random_tensor(&seed, m.n_position_table, 1.0);
    m.d_out = random_activations(&seed, &m.b, N_CHANNELS, 1.0);
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    free(m->token_table);
    free(m->position_table);
    free(m->d_out);
}

// Learned positions, none, and a factor for tokens with either. 45.25 is as large as Gemma's.
static void for_each_model(void (*check)(bd_backend *backend, void *context))
{
    for (int i = 0; i < 4; i++) {
        model m = make_model(i < 2 ? 1.0f : 45.25f, i % 2 == 0);
        for_each_isa(check, &m);
        free_model(&m);
    }
}

static void forward_after(bd_backend *backend, const model *m, const int32_t *past, bool narrow,
                          float *out)
{
    RUN(backend, embedding_forward,
        {.boundaries = m->b.boundaries,
         .past = past,
         .ids = narrow ? (const void *)m->b.ids_16 : m->b.ids,
         .id_bytes = narrow ? 2 : 4,
         .n_channels = N_CHANNELS,
         .n_vocabulary = m->b.n_vocabulary,
         .n_positions = m->n_positions,
         .first_position = m->first_position,
         .token_scale = m->token_scale,
         .token_table = m->token_table,
         .position_table = m->position_table,
         .out = out});
}

static void forward(bd_backend *backend, const model *m, bool narrow, float *out)
{
    forward_after(backend, m, NULL, narrow, out);
}

static void backward(bd_backend *backend, const model *m, bool narrow, float *d_token_table,
                     float *d_position_table)
{
    RUN(backend, embedding_backward,
        {.boundaries = m->b.boundaries,
         .ids = narrow ? (const void *)m->b.ids_16 : m->b.ids,
         .id_bytes = narrow ? 2 : 4,
         .n_channels = N_CHANNELS,
         .n_vocabulary = m->b.n_vocabulary,
         .n_positions = m->n_positions,
         .first_position = m->first_position,
         .token_scale = m->token_scale,
         .d_out = m->d_out,
         .d_token_table = d_token_table,
         .d_position_table = m->position_table ? d_position_table : NULL});
}

// ---- The reference --------------------------------------------------------------------------

static int64_t position_of(const model *m, int64_t token)
{
    return m->first_position + token - segment_begin(&m->b, token);
}

static void reference_forward(const model *m, const double *token_table,
                              const double *position_table, double *out)
{
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        for (int64_t c = 0; c < N_CHANNELS; c++) {
            double *to = out + t * N_CHANNELS + c;
            *to = 0.0;
            if (is_padding(&m->b, t))
                continue;
            *to = (double)m->token_scale * token_table[m->b.ids[t] * N_CHANNELS + c];
            if (m->position_table)
                *to += position_table[position_of(m, t) * N_CHANNELS + c];
        }
}

static void reference_backward(const model *m, double *d_token_table, double *d_position_table)
{
    for (int64_t t = 0; t < m->b.n_tokens; t++) {
        if (is_padding(&m->b, t))
            continue;
        for (int64_t c = 0; c < N_CHANNELS; c++) {
            const double d = (double)m->d_out[t * N_CHANNELS + c];
            d_token_table[m->b.ids[t] * N_CHANNELS + c] += (double)m->token_scale * d;
            if (m->position_table)
                d_position_table[position_of(m, t) * N_CHANNELS + c] += d;
        }
    }
}

typedef struct reference {
    const model *m;
    double *token_table, *position_table, *out;
} reference;

static double reference_loss(void *context)
{
    reference *r = context;
    reference_forward(r->m, r->token_table, r->position_table, r->out);
    double loss = 0.0;
    for (int64_t i = 0; i < r->m->n_out; i++)
        loss += r->out[i] * (double)r->m->d_out[i];
    return loss;
}

// ---- Promises -------------------------------------------------------------------------------

static void check_forward(bd_backend *backend, void *context)
{
    const model *m = context;
    double *token_table = to_double(m->token_table, m->n_token_table);
    double *position_table = to_double(m->position_table, m->n_position_table);
    double *wanted = get_memory((size_t)m->n_out * sizeof *wanted);
    reference_forward(m, token_table, position_table, wanted);
    for (int narrow = 0; narrow < 2; narrow++) {
        float *out = guarded(m->n_out);
        forward(backend, m, narrow, out);
        expect_close("out", out, wanted, m->n_out, forward_tolerance);
        expect_padding_zero("out", &m->b, out, N_CHANNELS);
        guarded_free(out);
    }
    free(token_table);
    free(position_table);
    free(wanted);
}

static void positions_count_from_the_document_start(void **state)
{
    (void)state;
    for_each_model(check_forward);
}

// The gradients are added to existing values: 1 everywhere.
// Tokens that precede a segment move its positions as another first position would.
static void check_past(bd_backend *backend, void *context)
{
    const model *m = context;
    model moved = *m;
    int32_t past[160];
    int64_t begin, end;
    int n = 0;
    for (; segment_at(&m->b, n, &begin, &end); n++)
        past[n] = n * 29 % 100;
    float *out = guarded(m->n_out), *wanted = guarded(m->n_out);
    forward_after(backend, m, past, false, out);
    expect_padding_zero("after others", &m->b, out, N_CHANNELS);
    for (int i = 0; i < n && segment_at(&m->b, i, &begin, &end); i++) {
        moved.first_position = FIRST_POSITION + past[i];
        forward(backend, &moved, false, wanted);
        expect_same("after others", out + begin * N_CHANNELS, wanted + begin * N_CHANNELS,
                    (end - begin) * N_CHANNELS);
    }
    guarded_free(out);
    guarded_free(wanted);
}

static void tokens_before_a_segment_count(void **state)
{
    (void)state;
    model m = make_model(1.0f, true);
    batch_release(&m.b);
    m.b = random_batch(3, 4, 60);
    m.n_out = m.b.n_tokens * N_CHANNELS;
    for_each_isa(check_past, &m);
    free_model(&m);
}

static void check_backward(bd_backend *backend, void *context)
{
    model *m = context;
    double *token = get_memory((size_t)m->n_token_table * sizeof *token);
    double *position = get_memory((size_t)m->n_position_table * sizeof *position);
    float *d_token = guarded(m->n_token_table), *d_position = guarded(m->n_position_table);
    for (int64_t i = 0; i < m->n_token_table; i++)
        token[i] = d_token[i] = 1.0f;
    for (int64_t i = 0; i < m->n_position_table; i++)
        position[i] = d_position[i] = 1.0f;
    // Padding adds nothing even if it contains nonsense.
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (is_padding(&m->b, t))
            m->d_out[t * N_CHANNELS] = NAN;
    reference_backward(m, token, position);
    backward(backend, m, true, d_token, d_position);
    expect_close("d_token_table", d_token, token, m->n_token_table, backward_tolerance);
    expect_close("d_position_table", d_position, position, m->n_position_table,
                 backward_tolerance);
    guarded_free(d_token);
    guarded_free(d_position);
    free(token);
    free(position);
}

static void gradients_are_added_to_the_tables(void **state)
{
    (void)state;
    for_each_model(check_backward);
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    model m = make_model(45.25f, true);
    double *d_token = calloc((size_t)m.n_token_table, sizeof *d_token);
    double *d_position = calloc((size_t)m.n_position_table, sizeof *d_position);
    reference r = {&m, to_double(m.token_table, m.n_token_table),
                   to_double(m.position_table, m.n_position_table),
                   get_memory((size_t)m.n_out * sizeof(double))};
    reference_backward(&m, d_token, d_position);
    // The loss is linear in the tables, so differences are exact but for rounding.
    expect_gradient("token_table", reference_loss, &r, r.token_table, d_token, m.n_token_table,
                    50, 1e-3, 1e-8);
    expect_gradient("position_table", reference_loss, &r, r.position_table, d_position,
                    m.n_position_table, 50, 1e-3, 1e-8);
    free(r.token_table);
    free(r.position_table);
    free(r.out);
    free(d_token);
    free(d_position);
    free_model(&m);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    forward(backend, m, false, out);
    float *d_token = out + m->n_out, *d_position = d_token + m->n_token_table;
    memset(d_token, 0, (size_t)(m->n_token_table + m->n_position_table) * sizeof *out);
    backward(backend, m, false, d_token, d_position);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    model m = make_model(1.0f, true);
    expect_same_for_any_threads(compute_everything,
                                m.n_out + m.n_token_table + m.n_position_table, &m);
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_count_from_the_document_start),
        cmocka_unit_test(tokens_before_a_segment_count),
        cmocka_unit_test(gradients_are_added_to_the_tables),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
