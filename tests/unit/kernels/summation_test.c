// In no sum of the CPU backend, on any instruction set, a term is rounded more often than
// kernels/summation.h says.
//
// The data cause the worst case: a 1 comes first, and then, at every `stride`-th place, a
// number just below half a unit in the last place of 1. Adding these to the 1 one by one loses
// each of them, so the missing amount, in units of u, counts the additions. Strides from 1 to
// the length of a group test each level of a sum.
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
static const float lost = 0x1.fcp-25f;

static const int64_t strides[] = {1, 2, 31, 32, 64, 128, 256, 4096};
enum { N_STRIDES = sizeof strides / sizeof *strides };

static float term(int64_t i, int64_t stride)
{
    if (i == 0)
        return 1.0f;
    return i % stride == 0 ? lost : 0.0f;
}

// All terms are positive, so their sum is S.
static double exact_sum(int64_t n, int64_t stride)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)term(i, stride);
    return sum;
}

// `roundings` more than those of the sum are allowed.
static void expect_sums(const bd_backend *backend, const char *what, const float *got,
                        int64_t n_sums, int64_t n, int64_t stride, int roundings)
{
    const double wanted = exact_sum(n, stride);
    for (int64_t i = 0; i < n_sums; i++) {
        const double met = fabs((double)got[i] - wanted) / (u * wanted);
        if (!(met <= BD_LONGEST_SUM + roundings))
            fail_msg("%s on %s: a sum of %lld terms, every %lld-th lost, is off by %.0f "
                     "roundings (at most %d)",
                     what, backend->operations->isa, (long long)n, (long long)stride, met,
                     BD_LONGEST_SUM + roundings);
    }
}

// values[i][j] = factor(i) for j < width, where factor is a term or 1.
static float *terms_by_row(int64_t n, int64_t width, int64_t stride)
{
    float *x = get_memory((size_t)(n * width) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            x[i * width + j] = term(i, stride);
    return x;
}

static float *ones(int64_t n)
{
    float *x = get_memory((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 1.0f;
    return x;
}

static float *zeros(int64_t n)
{
    float *x = get_memory((size_t)n * sizeof *x);
    memset(x, 0, (size_t)n * sizeof *x);
    return x;
}

// ---- Over tokens ----------------------------------------------------------------------------

enum { N_TOKENS = 40000, N_IN = 7, N_OUT = 17 };

static void sum_weights(bd_backend *backend, void *context)
{
    batch *b = context;
    for (int s = 0; s < N_STRIDES; s++)
        for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++) {
            float *d_out = terms_by_row(N_TOKENS, N_OUT, strides[s]);
            float *x = ones((int64_t)N_TOKENS * N_IN), *weight = ones(N_IN * N_OUT);
            float *d_weight = zeros(N_IN * N_OUT), *d_bias = zeros(N_OUT);
            RUN(backend, linear_backward,
                {.boundaries = b->boundaries,
                 .n_in = N_IN,
                 .n_out = N_OUT,
                 .layout = (bd_weight_layout)layout,
                 .d_out = d_out,
                 .x = x,
                 .weight = weight,
                 .d_weight = d_weight,
                 .d_bias = d_bias});
            expect_sums(backend, "d_weight", d_weight, N_IN * N_OUT, N_TOKENS, strides[s], 0);
            expect_sums(backend, "d_bias", d_bias, N_OUT, N_TOKENS, strides[s], 0);
            free(d_out);
            free(x);
            free(weight);
            free(d_weight);
            free(d_bias);
        }
}

static void gradients_of_linear_layers(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_TOKENS / 8, 8);
    for_each_isa(sum_weights, &b);
    batch_release(&b);
}

static void sum_gammas(bd_backend *backend, void *context)
{
    batch *b = context;
    for (int s = 0; s < N_STRIDES; s++) {
        // With a mean of 0 and an inverse deviation of 1, x is the normalised input.
        float *d_out = terms_by_row(N_TOKENS, N_IN, strides[s]);
        float *x = ones((int64_t)N_TOKENS * N_IN), *gamma = ones(N_IN);
        float *mean = zeros(N_TOKENS), *rstd = ones(N_TOKENS);
        float *d_x = zeros((int64_t)N_TOKENS * N_IN);
        float *d_gamma = zeros(N_IN), *d_beta = zeros(N_IN);
        RUN(backend, layer_norm_backward,
            {.boundaries = b->boundaries,
             .n_channels = N_IN,
             .d_out = d_out,
             .x = x,
             .gamma = gamma,
             .mean = mean,
             .rstd = rstd,
             .d_x = d_x,
             .d_gamma = d_gamma,
             .d_beta = d_beta});
        expect_sums(backend, "d_gamma", d_gamma, N_IN, N_TOKENS, strides[s], 0);
        expect_sums(backend, "d_beta", d_beta, N_IN, N_TOKENS, strides[s], 0);
        free(d_out);
        free(x);
        free(gamma);
        free(mean);
        free(rstd);
        free(d_x);
        free(d_gamma);
        free(d_beta);
    }
}

static void gradients_of_layer_norms(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_TOKENS / 8, 8);
    for_each_isa(sum_gammas, &b);
    batch_release(&b);
}

// One vector per token, or several that share the gain.
static void sum_gains(bd_backend *backend, void *context)
{
    batch *b = context;
    for (int s = 0; s < N_STRIDES; s++)
        for (int64_t n_vectors = 1; n_vectors <= 5; n_vectors += 4) {
            // With an inverse deviation of 1, x is the normalised input.
            const int64_t n = (int64_t)N_TOKENS * n_vectors;
            float *d_out = terms_by_row(n, N_IN, strides[s]);
            float *x = ones(n * N_IN), *gain = ones(N_IN), *rstd = ones(n);
            float *d_x = zeros(n * N_IN), *d_gain = zeros(N_IN);
            RUN(backend, rms_norm_backward,
                {.boundaries = b->boundaries,
                 .n_vectors = n_vectors,
                 .n_channels = N_IN,
                 .d_out = d_out,
                 .x = x,
                 .gain = gain,
                 .rstd = rstd,
                 .d_x = d_x,
                 .d_gain = d_gain});
            expect_sums(backend, "d_gain", d_gain, N_IN, n, strides[s], 0);
            free(d_out);
            free(x);
            free(gain);
            free(rstd);
            free(d_x);
            free(d_gain);
        }
}

static void gradients_of_rms_norms(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_TOKENS / 8, 8);
    for_each_isa(sum_gains, &b);
    batch_release(&b);
}

// Rows of one token: all have the same id and the same position.
static void sum_tables(bd_backend *backend, void *context)
{
    batch *b = context;
    for (int s = 0; s < N_STRIDES; s++) {
        float *d_out = terms_by_row(N_TOKENS, N_IN, strides[s]);
        float *d_tokens = zeros(2 * N_IN), *d_positions = zeros(3 * N_IN);
        RUN(backend, embedding_backward,
            {.boundaries = b->boundaries,
             .ids = b->ids,
             .id_bytes = 4,
             .n_channels = N_IN,
             .n_vocabulary = 2,
             .n_positions = 3,
             .first_position = 2,
             .token_scale = 1.0f,
             .d_out = d_out,
             .d_token_table = d_tokens,
             .d_position_table = d_positions});
        expect_sums(backend, "d_token_table", d_tokens + N_IN, N_IN, N_TOKENS, strides[s], 0);
        expect_sums(backend, "d_position_table", d_positions + 2 * N_IN, N_IN, N_TOKENS,
                    strides[s], 0);
        free(d_out);
        free(d_tokens);
        free(d_positions);
    }
}

static void gradients_of_embeddings(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_TOKENS, 1);
    for (int64_t t = 0; t < N_TOKENS; t++)
        b.ids[t] = 1;
    for_each_isa(sum_tables, &b);
    batch_release(&b);
}

// ---- Over outputs, inputs and channels ------------------------------------------------------

enum { N_ROWS = 3, MANY = BD_LONGEST_SUM_TERMS };  // tokens, and what the sum runs over

// The terms as one row, `n_rows` times.
static float *rows_of_terms(int64_t n_rows, int64_t n, int64_t stride)
{
    float *x = get_memory((size_t)(n_rows * n) * sizeof *x);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < n; i++)
            x[r * n + i] = term(i, stride);
    return x;
}

static void sum_layers(bd_backend *backend, void *context)
{
    batch *b = context;
    float *weight = ones((int64_t)MANY * N_IN), *bias = zeros(N_IN);
    for (int s = 0; s < N_STRIDES; s++)
        for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++) {
            float *terms = rows_of_terms(N_ROWS, MANY, strides[s]);
            float *sums = zeros(N_ROWS * N_IN), *x = zeros(N_ROWS * N_IN);
            float *d_weight = zeros((int64_t)MANY * N_IN);
            RUN(backend, linear_forward,
                {.boundaries = b->boundaries,
                 .n_in = MANY,
                 .n_out = N_IN,
                 .layout = (bd_weight_layout)layout,
                 .activation = BD_ACTIVATION_NONE,
                 .x = terms,
                 .weight = weight,
                 .bias = bias,
                 .out = sums});
            expect_sums(backend, "out", sums, N_ROWS * N_IN, MANY, strides[s], 1);
            RUN(backend, linear_by_token,
                {.n_tokens = N_ROWS,
                 .n_in = MANY,
                 .n_out = N_IN,
                 .layout = (bd_weight_layout)layout,
                 .x = terms,
                 .weight = weight,
                 .bias = bias,
                 .out = sums});
            expect_sums(backend, "out by token", sums, N_ROWS * N_IN, MANY, strides[s], 1);
            RUN(backend, linear_backward,
                {.boundaries = b->boundaries,
                 .n_in = N_IN,
                 .n_out = MANY,
                 .layout = (bd_weight_layout)layout,
                 .d_out = terms,
                 .x = x,
                 .weight = weight,
                 .d_x = sums,
                 .d_weight = d_weight});
            expect_sums(backend, "d_x", sums, N_ROWS * N_IN, MANY, strides[s], 0);
            free(terms);
            free(sums);
            free(x);
            free(d_weight);
        }
    free(weight);
    free(bias);
}

static void results_of_linear_layers(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_ROWS, 1);
    for_each_isa(sum_layers, &b);
    batch_release(&b);
}

enum { N_CHANNELS = 16384 };

static void sum_channels(bd_backend *backend, void *context)
{
    batch *b = context;
    float *gamma = ones(N_CHANNELS), *beta = zeros(N_CHANNELS);
    for (int s = 0; s < N_STRIDES; s++) {
        float *x = rows_of_terms(N_ROWS, N_CHANNELS, strides[s]);
        float *out = zeros((int64_t)N_ROWS * N_CHANNELS), *mean = zeros(N_ROWS);
        float *rstd = zeros(N_ROWS);
        RUN(backend, layer_norm_forward,
            {.boundaries = b->boundaries,
             .n_channels = N_CHANNELS,
             .epsilon = 1.0f,
             .x = x,
             .gamma = gamma,
             .beta = beta,
             .out = out,
             .mean = mean,
             .rstd = rstd});
        for (int r = 0; r < N_ROWS; r++)
            mean[r] *= N_CHANNELS;  // a power of 2: exact
        expect_sums(backend, "mean", mean, N_ROWS, N_CHANNELS, strides[s], 1);
        free(x);
        free(out);
        free(mean);
        free(rstd);
    }
    free(gamma);
    free(beta);
}

static void means_of_layer_norms(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_ROWS, 1);
    for_each_isa(sum_channels, &b);
    batch_release(&b);
}

// The mean of squares, read from rstd = 1 / sqrt(mean of squares): the squares are the terms.
// rstd is rounded once, which is 2 roundings of the mean; so is the root of a term.
static void sum_squares(bd_backend *backend, void *context)
{
    batch *b = context;
    float *gain = ones(N_CHANNELS);
    for (int s = 0; s < N_STRIDES; s++) {
        float *x = rows_of_terms(N_ROWS, N_CHANNELS, strides[s]);
        float *rstd = zeros(N_ROWS);
        for (int64_t i = 0; i < (int64_t)N_ROWS * N_CHANNELS; i++)
            x[i] = sqrtf(x[i]);
        RUN(backend, rms_norm_forward,
            {.boundaries = b->boundaries,
             .n_vectors = 1,
             .n_channels = N_CHANNELS,
             .x = x,
             .gain = gain,
             .out = x,
             .rstd = rstd});
        for (int r = 0; r < N_ROWS; r++)
            rstd[r] = (float)(N_CHANNELS / ((double)rstd[r] * (double)rstd[r]));
        expect_sums(backend, "mean of squares", rstd, N_ROWS, N_CHANNELS, strides[s], 5);
        free(x);
        free(rstd);
    }
    free(gain);
}

static void mean_squares_of_rms_norms(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_ROWS, 1);
    for_each_isa(sum_squares, &b);
    batch_release(&b);
}

// average(g * h), read from d_x = rstd * (g - h * average): with h = 1 and a gradient of 0 in the
// last channel, that channel's d_x is -average.
static void sum_averages(bd_backend *backend, void *context)
{
    batch *b = context;
    float *gain = ones(N_CHANNELS), *x = ones((int64_t)N_ROWS * N_CHANNELS);
    float *rstd = ones(N_ROWS), *d_gain = zeros(N_CHANNELS), sums[N_ROWS];
    for (int s = 0; s < N_STRIDES; s++) {
        float *d_out = rows_of_terms(N_ROWS, N_CHANNELS, strides[s]);
        for (int r = 0; r < N_ROWS; r++)
            d_out[(r + 1) * N_CHANNELS - 1] = 0.0f;
        RUN(backend, rms_norm_backward,
            {.boundaries = b->boundaries,
             .n_vectors = 1,
             .n_channels = N_CHANNELS,
             .d_out = d_out,
             .x = x,
             .gain = gain,
             .rstd = rstd,
             .d_x = d_out,
             .d_gain = d_gain});
        for (int r = 0; r < N_ROWS; r++)
            sums[r] = -d_out[(r + 1) * N_CHANNELS - 1] * N_CHANNELS;  // a power of 2: exact
        expect_sums(backend, "average", sums, N_ROWS, N_CHANNELS - 1, strides[s], 2);
        free(d_out);
    }
    free(gain);
    free(x);
    free(rstd);
    free(d_gain);
}

static void averages_of_rms_norms(void **state)
{
    (void)state;
    batch b = batch_of_rows(N_ROWS, 1);
    for_each_isa(sum_averages, &b);
    batch_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_linear_layers),
        cmocka_unit_test(gradients_of_layer_norms),
        cmocka_unit_test(gradients_of_rms_norms),
        cmocka_unit_test(gradients_of_embeddings),
        cmocka_unit_test(results_of_linear_layers),
        cmocka_unit_test(means_of_layer_norms),
        cmocka_unit_test(mean_squares_of_rms_norms),
        cmocka_unit_test(averages_of_rms_norms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
