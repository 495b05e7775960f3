#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

// Logits of up to 20 and a sum of exponentials within 3e-7: the loss is rounded once, at 20.
static const double loss_tolerance = 3e-7;
// An exponential of 2 units in the last place times a rounded factor.
static const double gradient_tolerance = 1e-6;

static const float gradient_scale = 1.0f / 37.0f;

typedef struct model {
    batch b;
    int64_t n_vocabulary, n;
    float z_loss;
    float *logits;
} model;

// With vocabularies larger than the batch's, some ids never occur.
static model make_model(int64_t n_vocabulary, float z_loss)
{
    uint64_t seed = 19;
    model m = {.b = awkward_batch(seed), .n_vocabulary = n_vocabulary, .z_loss = z_loss};
    m.n = m.b.n_tokens * n_vocabulary;
    m.logits = random_tensor(&seed, m.n, 20.0);
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    free(m->logits);
}

static void run(bd_backend *backend, const model *m, int32_t id_bytes, bool want_gradient,
                float *logits, float *losses)
{
    RUN(backend, cross_entropy,
        {.boundaries = m->b.boundaries,
         .ids = id_bytes == 4 ? (const void *)m->b.ids : m->b.ids_16,
         .id_bytes = id_bytes,
         .n_vocabulary = m->n_vocabulary,
         .want_gradient = want_gradient,
         .gradient_scale = gradient_scale,
         .z_loss = m->z_loss,
         .logits = logits,
         .losses = losses});
}

// ---- The reference --------------------------------------------------------------------------

static bool has_target(const model *m, int64_t token)
{
    return !is_padding(&m->b, token) && token + 1 < segment_end(&m->b, token);
}

// `terms` are the terms of z_loss, which are not in the losses, but their gradient is.
static void reference(const model *m, const double *logits, double *losses, double *terms,
                      double *d_logits)
{
    const int64_t n = m->n_vocabulary;
    for (int64_t t = 0; t < m->b.n_tokens; t++) {
        losses[t] = terms[t] = 0.0;
        memset(d_logits + t * n, 0, (size_t)n * sizeof *d_logits);
        if (!has_target(m, t))
            continue;
        const int64_t target = m->b.ids[t + 1];
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += exp(logits[t * n + i]);
        losses[t] = log(sum) - logits[t * n + target];
        terms[t] = (double)m->z_loss * log(sum) * log(sum);
        for (int64_t i = 0; i < n; i++) {
            const double share = exp(logits[t * n + i]) / sum;
            d_logits[t * n + i] =
                (double)gradient_scale *
                (share - (i == target) + 2.0 * (double)m->z_loss * log(sum) * share);
        }
    }
}

typedef struct loss_context {
    const model *m;
    double *logits, *losses, *terms, *d_logits;
} loss_context;

static double reference_loss(void *context)
{
    loss_context *c = context;
    reference(c->m, c->logits, c->losses, c->terms, c->d_logits);
    double loss = 0.0;
    for (int64_t t = 0; t < c->m->b.n_tokens; t++)
        loss += (c->losses[t] + c->terms[t]) * (double)gradient_scale;
    return loss;
}

// ---- Promises -------------------------------------------------------------------------------

static void check_parity(bd_backend *backend, void *context)
{
    const model *m = context;
    double *logits = to_double(m->logits, m->n);
    double *wanted = get_memory((size_t)m->n * sizeof *wanted);
    double *wanted_losses = get_memory((size_t)m->b.n_tokens * sizeof *wanted_losses);
    double *terms = get_memory((size_t)m->b.n_tokens * sizeof *terms);
    reference(m, logits, wanted_losses, terms, wanted);

    float *got = guarded_copy(m->logits, m->n), *losses = guarded(m->b.n_tokens);
    run(backend, m, 4, true, got, losses);
    expect_close("losses", losses, wanted_losses, m->b.n_tokens, loss_tolerance);
    expect_close("gradient", got, wanted, m->n, gradient_tolerance);
    for (int64_t t = 0; t < m->b.n_tokens; t++) {
        if (has_target(m, t))
            continue;
        assert_true(losses[t] == 0.0f);
        for (int64_t i = 0; i < m->n_vocabulary; i++)
            assert_true(got[t * m->n_vocabulary + i] == 0.0f);
    }

    // With gaps between the tokens: the same, the gaps untouched.
    const int64_t stride = m->n_vocabulary + 5;
    float *apart = spread(m->logits, m->b.n_tokens, m->n_vocabulary, stride, 99.0f);
    float *apart_losses = guarded(m->b.n_tokens);
    RUN(backend, cross_entropy,
        {.boundaries = m->b.boundaries,
         .ids = m->b.ids,
         .id_bytes = 4,
         .n_vocabulary = m->n_vocabulary,
         .stride = stride,
         .want_gradient = true,
         .gradient_scale = gradient_scale,
         .z_loss = m->z_loss,
         .logits = apart,
         .losses = apart_losses});
    expect_same("losses with gaps", apart_losses, losses, m->b.n_tokens);
    apart = gather(apart, m->b.n_tokens, m->n_vocabulary, stride, 99.0f);
    expect_same("logits with gaps", apart, got, m->n);
    free(apart);
    guarded_free(apart_losses);

    // Without a gradient: the same losses, the logits untouched.
    float *kept = guarded_copy(m->logits, m->n), *again = guarded(m->b.n_tokens);
    run(backend, m, 2, false, kept, again);
    expect_same("losses without a gradient", again, losses, m->b.n_tokens);
    expect_same("logits without a gradient", kept, m->logits, m->n);

    guarded_free(got);
    guarded_free(losses);
    guarded_free(kept);
    guarded_free(again);
    free(logits);
    free(wanted);
    free(wanted_losses);
    free(terms);
}

static void targets_stay_in_the_document(void **state)
{
    (void)state;
    static const int64_t vocabularies[] = {50, 63, 64, 65, 2100};
    for (int i = 0; i < 5; i++)
        for (int z = 0; z < 2; z++) {
            model m = make_model(vocabularies[i], z == 0 ? 0.0f : 0.01f);
            for_each_isa(check_parity, &m);
            free_model(&m);
        }
}

// The reported loss is without the term of z_loss, so that runs with and without can be
// compared.
static void check_losses(bd_backend *backend, void *context)
{
    const model *m = context;
    model plain = *m;
    plain.z_loss = 0.0f;
    float *losses = guarded(m->b.n_tokens), *plain_losses = guarded(m->b.n_tokens);
    float *logits = guarded_copy(m->logits, m->n),
          *plain_logits = guarded_copy(m->logits, m->n);
    run(backend, m, 4, true, logits, losses);
    run(backend, &plain, 4, true, plain_logits, plain_losses);
    expect_same("losses with z_loss", losses, plain_losses, m->b.n_tokens);
    guarded_free(losses);
    guarded_free(plain_losses);
    guarded_free(logits);
    guarded_free(plain_logits);
}

static void z_loss_is_not_in_the_losses(void **state)
{
    (void)state;
    model m = make_model(65, 0.01f);
    for_each_isa(check_losses, &m);
    free_model(&m);
}

// NaN in places that must not be read, and old values.
static void check_padding(bd_backend *backend, void *context)
{
    const model *m = context;
    float *got = guarded_copy(m->logits, m->n), *losses = guarded(m->b.n_tokens);
    for (int64_t t = 0; t < m->b.n_tokens; t++)
        if (!has_target(m, t))
            for (int64_t i = 0; i < m->n_vocabulary; i++)
                got[t * m->n_vocabulary + i] = NAN;
    run(backend, m, 4, true, got, losses);
    expect_padding_zero("losses", &m->b, losses, 1);
    expect_padding_zero("gradient", &m->b, got, m->n_vocabulary);
    for (int64_t i = 0; i < m->n; i++)
        assert_false(isnan(got[i]));
    guarded_free(got);
    guarded_free(losses);
}

static void padding_is_zero_whatever_it_holds(void **state)
{
    (void)state;
    model m = make_model(70, 1e-4f);
    for_each_isa(check_padding, &m);
    free_model(&m);
}

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    model m = make_model(50, 0.01f);
    loss_context c = {&m, to_double(m.logits, m.n),
                      get_memory((size_t)m.b.n_tokens * sizeof(double)),
                      get_memory((size_t)m.b.n_tokens * sizeof(double)),
                      get_memory((size_t)m.n * sizeof(double))};
    reference_loss(&c);
    double *gradient = get_memory((size_t)m.n * sizeof *gradient);
    memcpy(gradient, c.d_logits, (size_t)m.n * sizeof *gradient);
    expect_gradient("logits", reference_loss, &c, c.logits, gradient, m.n, 150, 1e-4, 1e-6);
    free(gradient);
    free(c.logits);
    free(c.losses);
    free(c.terms);
    free(c.d_logits);
    free_model(&m);
}

// Logits of hundreds: exponentials overflow unless the largest logit is subtracted first.
static void large_logits_do_no_harm(void **state)
{
    (void)state;
    bd_backend *backend;
    assert_int_equal(bd_backend_open_cpu(&backend, 1, NULL), BD_OK);
    batch b = batch_of_one(2);
    float *logits = guarded(2 * 50), *losses = guarded(2);
    for (int i = 0; i < 100; i++)
        logits[i] = 500.0f;
    logits[b.ids[1]] = -500.0f;
    const model m = {.b = b, .n_vocabulary = 50, .n = 100};
    run(backend, &m, 4, true, logits, losses);
    assert_true(fabs((double)losses[0] - (1000.0 + log(49.0))) < 1e-4);
    assert_true(logits[b.ids[1]] == -gradient_scale);
    guarded_free(logits);
    guarded_free(losses);
    batch_release(&b);
    backend->operations->close(backend);
}

static void compute_everything(bd_backend *backend, float *out, void *context)
{
    const model *m = context;
    memcpy(out, m->logits, (size_t)m->n * sizeof *out);
    run(backend, m, 4, true, out, out + m->n);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    model m = make_model(2100, 1e-4f);
    expect_same_for_any_threads(compute_everything, m.n + m.b.n_tokens, &m);
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_stay_in_the_document),
        cmocka_unit_test(z_loss_is_not_in_the_losses),
        cmocka_unit_test(padding_is_zero_whatever_it_holds),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(large_logits_do_no_harm),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
