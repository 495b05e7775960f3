#include "kernels/attention_cached.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/kernel_fixture.h"

static const double u = 0x1p-24;
enum { MAX_DOCUMENTS = 4 };

// Documents with all of their queries, keys and values: [token][heads, kv heads, kv heads].
typedef struct documents {
    int n;
    int64_t lengths[MAX_DOCUMENTS];
    float *qkv[MAX_DOCUMENTS];
    int64_t n_heads, n_kv_heads, head_size, window;
    float scale;
} documents;

static int64_t row_width(const documents *d)
{
    return (d->n_heads + 2 * d->n_kv_heads) * d->head_size;
}

static int64_t out_width(const documents *d)
{
    return d->n_heads * d->head_size;
}

static documents make_documents(int64_t n_heads, int64_t n_kv_heads, int64_t head_size,
                                int64_t window, const int64_t *lengths, int n)
{
    uint64_t seed = (uint64_t)(head_size * 1000 + window);
    documents d = {.n = n,
                   .n_heads = n_heads,
                   .n_kv_heads = n_kv_heads,
                   .head_size = head_size,
                   .window = window,
                   .scale = (float)(1.0 / sqrt((double)head_size))};
    for (int i = 0; i < n; i++) {
        d.lengths[i] = lengths[i];
        d.qkv[i] = random_tensor(&seed, lengths[i] * row_width(&d), 2.0);
    }
    return d;
}

static void free_documents(documents *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->qkv[i]);
}

// ---- A cache, and calls that add tokens to it -------------------------------------------

typedef struct cache {
    int64_t n_slots, capacity;
    float *keys, *values;
} cache;

static cache make_cache(const documents *d, int64_t n_slots)
{
    int64_t longest = 0;
    for (int i = 0; i < d->n; i++)
        longest = d->lengths[i] > longest ? d->lengths[i] : longest;
    cache c = {.n_slots = n_slots,
               .capacity = (longest + BD_CACHE_BLOCK - 1) / BD_CACHE_BLOCK * BD_CACHE_BLOCK};
    const int64_t n = n_slots * c.capacity * d->n_kv_heads * bd_cache_width(d->head_size);
    c.keys = guarded(n);
    c.values = guarded(n);
    memset(c.keys, 0, (size_t)n * sizeof *c.keys);
    memset(c.values, 0, (size_t)n * sizeof *c.values);
    return c;
}

static void free_cache(cache *c)
{
    guarded_free(c->keys);
    guarded_free(c->values);
}

// One call: `added[i]` tokens of document i, which has past[i] in slot slots[i]. out[i] has the
// results of all tokens of the document.
static void add_tokens(bd_backend *backend, const documents *d, cache *c, const int *slots,
                       const int64_t *past, const int64_t *added, float *const *out)
{
    int32_t bounds[MAX_DOCUMENTS + 1] = {0}, used[MAX_DOCUMENTS], before[MAX_DOCUMENTS];
    int segments[MAX_DOCUMENTS], n = 0;
    int64_t longest = 0;
    for (int i = 0; i < d->n; i++)
        if (added[i] > 0) {
            bounds[n + 1] = bounds[n] + (int32_t)added[i];
            used[n] = slots[i];
            before[n] = (int32_t)past[i];
            longest = past[i] + added[i] > longest ? past[i] + added[i] : longest;
            segments[n++] = i;
        }
    const int64_t n_tokens = bounds[n], wide = row_width(d), narrow = out_width(d);
    const int32_t offsets[] = {0, (int32_t)(n + 1)};
    float *qkv = guarded(n_tokens * wide), *result = guarded(n_tokens * narrow);
    for (int s = 0; s < n; s++)
        memcpy(qkv + bounds[s] * wide, d->qkv[segments[s]] + past[segments[s]] * wide,
               (size_t)(added[segments[s]] * wide) * sizeof *qkv);
    RUN(backend, attention_cached,
        {.boundaries = {1, n_tokens, offsets, bounds},
         .n_heads = d->n_heads,
         .n_kv_heads = d->n_kv_heads,
         .head_size = d->head_size,
         .q_stride = wide,
         .kv_stride = wide,
         .window = d->window,
         .capacity = c->capacity,
         .longest = longest,
         .scale = d->scale,
         .slots = used,
         .past = before,
         .q = qkv,
         .k = qkv + d->n_heads * d->head_size,
         .v = qkv + (d->n_heads + d->n_kv_heads) * d->head_size,
         .keys = c->keys,
         .values = c->values,
         .out = result});
    for (int s = 0; s < n; s++)
        memcpy(out[segments[s]] + past[segments[s]] * narrow, result + bounds[s] * narrow,
               (size_t)(added[segments[s]] * narrow) * sizeof *result);
    guarded_free(qkv);
    guarded_free(result);
}

// All tokens of all documents, at most `step` of each at a time.
static void add_all(bd_backend *backend, const documents *d, cache *c, const int *slots,
                    int64_t step, float *const *out)
{
    int64_t past[MAX_DOCUMENTS] = {0}, added[MAX_DOCUMENTS], left;
    do {
        left = 0;
        for (int i = 0; i < d->n; i++) {
            added[i] = d->lengths[i] - past[i] < step ? d->lengths[i] - past[i] : step;
            left += added[i];
        }
        if (left > 0)
            add_tokens(backend, d, c, slots, past, added, out);
        for (int i = 0; i < d->n; i++)
            past[i] += added[i];
    } while (left > 0);
}

static void make_results(const documents *d, float **out)
{
    for (int i = 0; i < d->n; i++)
        out[i] = guarded(d->lengths[i] * out_width(d));
}

static void free_results(const documents *d, float **out)
{
    for (int i = 0; i < d->n; i++)
        guarded_free(out[i]);
}

static const int in_order[MAX_DOCUMENTS] = {0, 1, 2, 3};

// ---- Values -----------------------------------------------------------------------------

// One query in double. A score is a sum of head_size products, so that it is off by at most
// (head_size + 2) u times the sum of their magnitudes. That is a relative error of its
// exponential, which may move the result by twice as much of the largest value. Sums over keys add
// one rounding for each key of a block, and two for each of the at most 4 blocks of a chunk;
// exponentials are good to 2 units.
static void check_query(const documents *d, int i, int64_t t, int64_t head, const float *got)
{
    const int64_t wide = row_width(d), size = d->head_size;
    const int64_t kv = d->n_heads + head / (d->n_heads / d->n_kv_heads);
    const int64_t first = d->window > 0 && t + 1 > d->window ? t + 1 - d->window : 0;
    const float *rows = d->qkv[i], *q = rows + t * wide + head * size;
    double out[256] = {0}, sum = 0.0, top = -INFINITY, largest_terms = 0.0, largest_value = 0.0;
    double *p = get_memory((size_t)(t + 1) * sizeof *p);
    for (int64_t j = first; j <= t; j++) {
        double score = 0.0, terms = 0.0;
        for (int64_t c = 0; c < size; c++) {
            const double term =
                (double)d->scale * (double)q[c] * (double)rows[j * wide + kv * size + c];
            score += term;
            terms += fabs(term);
        }
        p[j] = score;
        top = fmax(top, score);
        largest_terms = fmax(largest_terms, terms);
    }
    for (int64_t j = first; j <= t; j++) {
        p[j] = exp(p[j] - top);
        sum += p[j];
        for (int64_t c = 0; c < size; c++) {
            const double v = (double)rows[j * wide + (kv + d->n_kv_heads) * size + c];
            out[c] += p[j] * v;
            largest_value = fmax(largest_value, fabs(v));
        }
    }
    const double bound =
        largest_value * u *
        (2.0 * (double)(size + 3) * largest_terms + BD_CACHE_BLOCK + 2 * 4 + 10);
    for (int64_t c = 0; c < size; c++)
        if (!(fabs((double)got[c] - out[c] / sum) <= bound))
            fail_msg(
                "head size %lld, window %lld, token %lld, head %lld: [%lld] is %.9g, not %.9g "
                "within %.2g",
                (long long)size, (long long)d->window, (long long)t, (long long)head,
                (long long)c, (double)got[c], out[c] / sum, bound);
    free(p);
}

static void check_values(bd_backend *backend, void *context)
{
    const documents *d = context;
    cache c = make_cache(d, d->n);
    float *out[MAX_DOCUMENTS];
    make_results(d, out);
    add_all(backend, d, &c, in_order, 61, out);
    for (int i = 0; i < d->n; i++)
        for (int64_t t = 0; t < d->lengths[i]; t++)
            for (int64_t head = 0; head < d->n_heads; head++)
                check_query(d, i, t, head, out[i] + t * out_width(d) + head * d->head_size);
    free_results(d, out);
    free_cache(&c);
}

static void agrees_with_double_precision(void **state)
{
    (void)state;
    static const struct {
        int64_t n_heads, n_kv_heads, head_size, window;
        int64_t lengths[MAX_DOCUMENTS];
    } shapes[] = {
        {1, 1, 1, 0, {1, 2, 31, 33}},        {2, 1, 4, 0, {64, 1, 65, 127}},
        {6, 2, 20, 0, {257, 3, 256, 1}},     {3, 3, 64, 0, {300, 1, 64, 128}},
        {8, 1, 80, 0, {70, 129, 1, 5}},      {70, 1, 16, 0, {3, 66, 1, 1}},
        {2, 2, 256, 0, {40, 1, 65, 2}},      {4, 2, 33, 1, {65, 1, 2, 129}},
        {4, 2, 64, 5, {300, 4, 5, 6}},       {3, 1, 64, 64, {300, 64, 65, 1}},
        {2, 1, 128, 100, {700, 99, 100, 1}}, {2, 1, 16, 300, {600, 299, 301, 1}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        documents d =
            make_documents(shapes[i].n_heads, shapes[i].n_kv_heads, shapes[i].head_size,
                           shapes[i].window, shapes[i].lengths, MAX_DOCUMENTS);
        for_each_isa(check_values, &d);
        free_documents(&d);
    }
}

// ---- Bits -------------------------------------------------------------------------------

static const int64_t lengths_of_bits[MAX_DOCUMENTS] = {330, 1, 64, 129};

static void expect_same_results(const char *what, const documents *d, float *const *got,
                                float *const *wanted)
{
    for (int i = 0; i < d->n; i++)
        expect_same(what, got[i], wanted[i], d->lengths[i] * out_width(d));
}

static void check_cuts(bd_backend *backend, void *context)
{
    const documents *d = context;
    static const int64_t steps[] = {1, 7, 64, 100};
    float *whole[MAX_DOCUMENTS], *out[MAX_DOCUMENTS];
    make_results(d, whole);
    make_results(d, out);
    cache c = make_cache(d, d->n);
    add_all(backend, d, &c, in_order, INT64_MAX, whole);
    free_cache(&c);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        c = make_cache(d, d->n);
        add_all(backend, d, &c, in_order, steps[i], out);
        expect_same_results("cut", d, out, whole);
        free_cache(&c);
    }
    free_results(d, whole);
    free_results(d, out);
}

static void cuts_do_not_matter(void **state)
{
    (void)state;
    for (int64_t window = 0; window <= 70; window += 35) {
        documents d = make_documents(6, 2, 24, window, lengths_of_bits, MAX_DOCUMENTS);
        for_each_isa(check_cuts, &d);
        free_documents(&d);
    }
}

// Alone in slot 3 of a cache that has held another document, one of NaNs.
static void check_alone(bd_backend *backend, void *context)
{
    const documents *d = context;
    float *together[MAX_DOCUMENTS], *out[MAX_DOCUMENTS];
    make_results(d, together);
    make_results(d, out);
    cache c = make_cache(d, d->n);
    add_all(backend, d, &c, in_order, 50, together);
    free_cache(&c);
    for (int i = 0; i < d->n; i++) {
        documents alone = *d, broken = *d;
        alone.n = broken.n = 1;
        alone.lengths[0] = d->lengths[i];
        alone.qkv[0] = d->qkv[i];
        broken.qkv[0] = guarded(broken.lengths[0] * row_width(d));
        c = make_cache(d, 4);
        const int slot = 3;
        float *lost = guarded(broken.lengths[0] * out_width(d));
        add_all(backend, &broken, &c, &slot, 50, &lost);
        add_all(backend, &alone, &c, &slot, 13, &out[i]);
        guarded_free(broken.qkv[0]);
        guarded_free(lost);
        free_cache(&c);
    }
    expect_same_results("alone", d, out, together);
    free_results(d, together);
    free_results(d, out);
}

static void other_documents_do_not_matter(void **state)
{
    (void)state;
    documents d = make_documents(4, 2, 40, 0, lengths_of_bits, MAX_DOCUMENTS);
    for_each_isa(check_alone, &d);
    free_documents(&d);
}

static void compute(bd_backend *backend, float *out, void *context)
{
    const documents *d = context;
    float *results[MAX_DOCUMENTS];
    for (int i = 0; i < d->n; i++) {
        results[i] = out;
        out += d->lengths[i] * out_width(d);
    }
    cache c = make_cache(d, d->n);
    add_all(backend, d, &c, in_order, 90, results);
    free_cache(&c);
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    documents d = make_documents(6, 3, 32, 0, lengths_of_bits, MAX_DOCUMENTS);
    int64_t n = 0;
    for (int i = 0; i < d.n; i++)
        n += d.lengths[i] * out_width(&d);
    expect_same_for_any_threads(compute, n, &d);
    free_documents(&d);
}

static void check_refusal(bd_backend *backend, void *context)
{
    (void)context;
    bd_error err;
    const int32_t offsets[] = {0, 2}, values[] = {0, 1};
    const bd_attention_cached_args args = {
        .boundaries = {1, 1, offsets, values}, .n_heads = 1, .n_kv_heads = 1, .head_size = 257};
    assert_int_equal(backend->operations->attention_cached(backend, &args, &err),
                     BD_ERR_UNSUPPORTED);
}

static void heads_that_are_too_large_are_refused(void **state)
{
    (void)state;
    for_each_isa(check_refusal, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(other_documents_do_not_matter),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(heads_that_are_too_large_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
