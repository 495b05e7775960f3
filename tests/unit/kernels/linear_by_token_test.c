#include "kernels/linear_by_token.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/summation.h"
#include "tests/unit/kernels/kernel_fixture.h"

static const double u = 0x1p-24;

typedef struct layer {
    int64_t n_tokens, n_in, n_out, stride;
    bd_weight_layout layout;
    float *x, *weight, *bias;
    int32_t *rows;  // NULL, or the rows of x backwards
} layer;

static layer make_layer(int64_t n_tokens, int64_t n_in, int64_t n_out, bd_weight_layout layout)
{
    uint64_t seed = (uint64_t)(n_tokens * 1000003 + n_in * 1009 + n_out);
    layer l = {n_tokens, n_in, n_out, n_out, layout, NULL, NULL, NULL, NULL};
    l.x = random_tensor(&seed, n_tokens * n_in, 1.0);
    l.weight = random_tensor(&seed, n_in * n_out, 1.0);
    l.bias = random_tensor(&seed, n_out, 1.0);
    return l;
}

static void reverse_rows(layer *l)
{
    l->rows = get_memory((size_t)l->n_tokens * sizeof *l->rows);
    for (int64_t t = 0; t < l->n_tokens; t++)
        l->rows[t] = (int32_t)(l->n_tokens - 1 - t);
}

static void free_layer(layer *l)
{
    free(l->x);
    free(l->weight);
    free(l->bias);
    free(l->rows);
}

static bd_linear_by_token_args args_of(const layer *l, float *out)
{
    return (bd_linear_by_token_args){
        .n_tokens = l->n_tokens,
        .n_in = l->n_in,
        .n_out = l->n_out,
        .out_stride = l->stride,
        .layout = l->layout,
        .x = l->x,
        .rows = l->rows,
        .weight = l->weight,
        .bias = l->bias,
        .out = out,
    };
}

// ---- Values -----------------------------------------------------------------------------

// Every result is within the bound of kernels/summation.h, and nothing between tokens changes.
static void check_values(bd_backend *backend, void *context)
{
    const layer *l = context;
    float *out = guarded(l->n_tokens * l->stride), *gaps = guarded(l->n_tokens * l->stride);
    RUN(backend, linear_by_token, args_of(l, out));
    for (int64_t t = 0; t < l->n_tokens; t++) {
        const float *x = l->x + (l->rows ? l->rows[t] : t) * l->n_in;
        for (int64_t j = 0; j < l->n_out; j++) {
            double sum = l->bias ? (double)l->bias[j] : 0.0, size = fabs(sum);
            for (int64_t i = 0; i < l->n_in; i++) {
                const double w =
                    (double)l->weight[l->layout == BD_WEIGHT_OUT_IN ? j * l->n_in + i
                                                                    : i * l->n_out + j];
                sum += (double)x[i] * w;
                size += fabs((double)x[i] * w);
            }
            const double got = (double)out[t * l->stride + j];
            if (!(fabs(got - sum) <= (BD_LONGEST_SUM + 1) * u * size))
                fail_msg(
                    "%s, %lld inputs, %lld outputs, %lld tokens: [%lld][%lld] is %.9g, not "
                    "%.9g",
                    backend->operations->isa, (long long)l->n_in, (long long)l->n_out,
                    (long long)l->n_tokens, (long long)t, (long long)j, got, sum);
        }
        expect_same("numbers between tokens", out + t * l->stride + l->n_out,
                    gaps + t * l->stride + l->n_out, l->stride - l->n_out);
    }
    guarded_free(out);
    guarded_free(gaps);
}

static void agrees_with_double_precision(void **state)
{
    (void)state;
    static const int64_t tokens[] = {1, 2, 3, 5, 6, 7, 13};
    static const int64_t widths[] = {1, 15, 31, 33, 64, 65, 300};
    for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (size_t j = 0; j < sizeof widths / sizeof *widths; j++) {
                layer l = make_layer(tokens[(i + j) % 7], widths[i], widths[j],
                                     (bd_weight_layout)layout);
                l.stride += (int64_t)(i % 3);
                if (j % 2 == 1)
                    reverse_rows(&l);
                for_each_isa(check_values, &l);
                free_layer(&l);
            }
}

// More inputs than a run has on any instruction set, and no bias.
static void long_sums_agree_with_double_precision(void **state)
{
    (void)state;
    for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++) {
        layer l = make_layer(7, 5003, 35, (bd_weight_layout)layout);
        free(l.bias);
        l.bias = NULL;
        for_each_isa(check_values, &l);
        free_layer(&l);
    }
}

// An activation gives the bits of the two separate operations.
static void check_activation(bd_backend *backend, void *context)
{
    const layer *l = context;
    const int64_t n = l->n_tokens * l->n_out;
    float *sums = guarded(n), *wanted = guarded(n), *out = guarded(n);
    RUN(backend, linear_by_token, args_of(l, sums));
    for (bd_activation f = BD_ACTIVATION_RELU; f <= BD_ACTIVATION_SILU; f++) {
        bd_linear_by_token_args args = args_of(l, out);
        args.activation = f;
        RUN(backend, linear_by_token, args);
        apply_activation(backend, f, n, sums, wanted);
        expect_same("activated", out, wanted, n);
    }
    guarded_free(sums);
    guarded_free(wanted);
    guarded_free(out);
}

static void an_activation_is_what_it_is_alone(void **state)
{
    (void)state;
    layer l = make_layer(3, 65, 1033, BD_WEIGHT_OUT_IN);
    for_each_isa(check_activation, &l);
    free_layer(&l);
}

// ---- Bits -------------------------------------------------------------------------------

// Each number of tokens up to 14 gives the bits of every token alone.
static void check_alone(bd_backend *backend, void *context)
{
    const layer *all = context;
    float *alone = guarded(all->n_tokens * all->n_out),
          *out = guarded(all->n_tokens * all->n_out);
    for (int64_t t = 0; t < all->n_tokens; t++) {
        layer one = *all;
        one.n_tokens = 1;
        one.x += t * all->n_in;
        RUN(backend, linear_by_token, args_of(&one, alone + t * all->n_out));
    }
    for (int64_t n = 2; n <= all->n_tokens; n++) {
        layer some = *all;
        some.n_tokens = n;
        RUN(backend, linear_by_token, args_of(&some, out));
        expect_same("among others", out, alone, n * all->n_out);
    }
    guarded_free(alone);
    guarded_free(out);
}

static void a_token_is_the_same_alone_and_among_others(void **state)
{
    (void)state;
    for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++) {
        layer l = make_layer(14, 333, 421, (bd_weight_layout)layout);
        for_each_isa(check_alone, &l);
        free_layer(&l);
    }
}

static void compute(bd_backend *backend, float *out, void *context)
{
    RUN(backend, linear_by_token, args_of(context, out));
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++)
        for (int64_t n_tokens = 1; n_tokens < 9; n_tokens += 7) {
            layer l = make_layer(n_tokens, 700, 1900, (bd_weight_layout)layout);
            expect_same_for_any_threads(compute, l.n_tokens * l.n_out, &l);
            free_layer(&l);
        }
}

static void check_nothing(bd_backend *backend, void *context)
{
    (void)context;
    float *out = guarded(0);
    RUN(backend, linear_by_token, {.n_in = 3, .n_out = 5, .out = out});
    guarded_free(out);
}

static void no_token_is_nothing_to_do(void **state)
{
    (void)state;
    for_each_isa(check_nothing, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double_precision),
        cmocka_unit_test(long_sums_agree_with_double_precision),
        cmocka_unit_test(an_activation_is_what_it_is_alone),
        cmocka_unit_test(a_token_is_the_same_alone_and_among_others),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(no_token_is_nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
