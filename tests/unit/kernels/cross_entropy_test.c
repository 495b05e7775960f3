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
    batch_mask mask;  // may be empty
    bool per_document;
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

// Rows of any length with a mask. The first begins inside a byte.
static model make_masked_model(int64_t n_rows, int64_t seq_len, int64_t n_vocabulary,
                               bool per_document)
{
    uint64_t seed = 23;
    model m = {.b = random_batch((uint64_t)seq_len, n_rows, seq_len),
               .per_document = per_document,
               .n_vocabulary = n_vocabulary,
               .z_loss = 0.01f};
    m.mask = random_mask(29, &m.b, 3);
    m.n = m.b.n_tokens * n_vocabulary;
    m.logits = random_tensor(&seed, m.n, 20.0);
    return m;
}

static void free_model(model *m)
{
    batch_release(&m->b);
    mask_release(&m->mask);
    free(m->logits);
}

static void run_strided(bd_backend *backend, const model *m, int32_t id_bytes,
                        bool want_gradient, int64_t stride, float *logits, float *losses)
{
    RUN(backend, cross_entropy,
        {.boundaries = m->b.boundaries,
         .mask = m->mask.mask,
         .ids = id_bytes == 4 ? (const void *)m->b.ids : m->b.ids_16,
         .id_bytes = id_bytes,
         .n_vocabulary = m->n_vocabulary,
         .stride = stride,
         .want_gradient = want_gradient,
         .per_document = m->per_document,
         .gradient_scale = gradient_scale,
         .z_loss = m->z_loss,
         .logits = logits,
         .losses = losses});
}

static void run(bd_backend *backend, const model *m, int32_t id_bytes, bool want_gradient,
                float *logits, float *losses)
{
    run_strided(backend, m, id_bytes, want_gradient, 0, logits, losses);
}

// ---- The reference --------------------------------------------------------------------------

// `terms` are the terms of z_loss, which are not in the losses, but their gradient is.
static void reference(const model *m, const double *logits, double *losses, double *terms,
                      double *d_logits)
{
    const int64_t n = m->n_vocabulary;
    for (int64_t t = 0; t < m->b.n_tokens; t++) {
        losses[t] = terms[t] = 0.0;
        memset(d_logits + t * n, 0, (size_t)n * sizeof *d_logits);
        if (!has_target(&m->b, &m->mask, t))
            continue;
        const int64_t target = m->b.ids[t + 1];
        const double weight =
            m->per_document ? 1.0 / (double)count_targets(&m->b, &m->mask, t) : 1.0;
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += exp(logits[t * n + i]);
        losses[t] = weight * (log(sum) - logits[t * n + target]);
        terms[t] = weight * (double)m->z_loss * log(sum) * log(sum);
        for (int64_t i = 0; i < n; i++) {
            const double share = exp(logits[t * n + i]) / sum;
            d_logits[t * n + i] =
                weight * (double)gradient_scale *
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
        if (has_target(&m->b, &m->mask, t))
            continue;
        assert_true(losses[t] == 0.0f);
        for (int64_t i = 0; i < m->n_vocabulary; i++)
            assert_true(got[t * m->n_vocabulary + i] == 0.0f);
    }

    // With gaps between the tokens: the same, the gaps untouched.
    const int64_t stride = m->n_vocabulary + 5;
    float *apart = spread(m->logits, m->b.n_tokens, m->n_vocabulary, stride, 99.0f);
    float *apart_losses = guarded(m->b.n_tokens);
    run_strided(backend, m, 4, true, stride, apart, apart_losses);
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

static void masks_choose_the_targets(void **state)
{
    (void)state;
    static const int64_t lengths[] = {7, 9, 1001};
    for (int i = 0; i < 3; i++)
        for (int per_document = 0; per_document < 2; per_document++) {
            model m = make_masked_model(i < 2 ? 13 : 4, lengths[i], 50, per_document);
            for_each_isa(check_parity, &m);
            free_model(&m);
        }
}

static void documents_weigh_the_same_without_a_mask(void **state)
{
    (void)state;
    model m = make_model(65, 0.01f);
    m.per_document = true;
    for_each_isa(check_parity, &m);
    free_model(&m);
}

// A mask of ones gives the bits of no mask.
static void check_whole_mask(bd_backend *backend, void *context)
{
    const model *m = context;
    model plain = *m;
    plain.mask = (batch_mask){0};
    float *losses = guarded(m->b.n_tokens), *logits = guarded_copy(m->logits, m->n);
    float *plain_losses = guarded(m->b.n_tokens), *plain_logits = guarded_copy(m->logits, m->n);
    run(backend, m, 4, true, logits, losses);
    run(backend, &plain, 4, true, plain_logits, plain_losses);
    expect_same("losses of a whole mask", losses, plain_losses, m->b.n_tokens);
    expect_same("gradient of a whole mask", logits, plain_logits, m->n);
    guarded_free(losses);
    guarded_free(logits);
    guarded_free(plain_losses);
    guarded_free(plain_logits);
}

static void whole_masks_change_no_bit(void **state)
{
    (void)state;
    for (int per_document = 0; per_document < 2; per_document++) {
        model m = make_masked_model(5, 101, 65, per_document);
        memset(m.mask.bits, 0xff, (size_t)m.mask.n_bytes);
        for_each_isa(check_whole_mask, &m);
        free_model(&m);
    }
}

// Inverts all bits but those of the segment's possible targets, in its own row and in others.
static void invert_around(const model *m, int64_t begin, int64_t end, uint8_t *bits)
{
    const int64_t seq_len = m->b.boundaries.seq_len, row = begin / seq_len;
    const int64_t first = m->mask.offsets[row] + begin % seq_len + 1;
    for (int64_t bit = 0; bit < 8 * m->mask.n_bytes; bit++)
        if (bit < first || bit >= first + end - begin - 1)
            bits[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static void check_neighbours(bd_backend *backend, void *context)
{
    const model *m = context;
    const size_t n_bytes = (size_t)m->mask.n_bytes;
    float *losses = guarded(m->b.n_tokens), *logits = guarded_copy(m->logits, m->n);
    run(backend, m, 4, true, logits, losses);
    int64_t begin, end;
    for (int64_t k = 0; segment_at(&m->b, k, &begin, &end); k++) {
        if (m->mask.offsets[begin / m->b.boundaries.seq_len] == BD_ALL_TRAINED)
            continue;
        model other = *m;
        uint8_t *bits = get_memory(n_bytes);
        memcpy(bits, m->mask.bits, n_bytes);
        invert_around(m, begin, end, bits);
        other.mask.mask.bits = bits;
        float *again = guarded(m->b.n_tokens), *gradient = guarded_copy(m->logits, m->n);
        run(backend, &other, 4, true, gradient, again);
        expect_same("losses beside other bits", again + begin, losses + begin, end - begin);
        expect_same("gradient beside other bits", gradient + begin * m->n_vocabulary,
                    logits + begin * m->n_vocabulary, (end - begin) * m->n_vocabulary);
        guarded_free(again);
        guarded_free(gradient);
        free(bits);
    }
    guarded_free(losses);
    guarded_free(logits);
}

static void bits_of_neighbours_do_not_matter(void **state)
{
    (void)state;
    for (int per_document = 0; per_document < 2; per_document++) {
        model m = make_masked_model(7, 9, 50, per_document);
        for_each_isa(check_neighbours, &m);
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
        if (!has_target(&m->b, &m->mask, t))
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
    model m = make_model(70, 1e-4f), masked = make_masked_model(7, 9, 50, true);
    for_each_isa(check_padding, &m);
    for_each_isa(check_padding, &masked);
    free_model(&m);
    free_model(&masked);
}

static void check_differences(model m)
{
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

static void reference_agrees_with_differences(void **state)
{
    (void)state;
    check_differences(make_model(50, 0.01f));
    for (int per_document = 0; per_document < 2; per_document++)
        check_differences(make_masked_model(3, 33, 50, per_document));
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
    m = make_masked_model(4, 1001, 300, true);
    expect_same_for_any_threads(compute_everything, m.n + m.b.n_tokens, &m);
    free_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_stay_in_the_document),
        cmocka_unit_test(masks_choose_the_targets),
        cmocka_unit_test(documents_weigh_the_same_without_a_mask),
        cmocka_unit_test(whole_masks_change_no_bit),
        cmocka_unit_test(bits_of_neighbours_do_not_matter),
        cmocka_unit_test(z_loss_is_not_in_the_losses),
        cmocka_unit_test(padding_is_zero_whatever_it_holds),
        cmocka_unit_test(reference_agrees_with_differences),
        cmocka_unit_test(large_logits_do_no_harm),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
