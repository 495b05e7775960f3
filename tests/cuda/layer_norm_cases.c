#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

static void check_layer_norm(const batch *b, int64_t width, int32_t id_bytes)
{
    (void)id_bytes;
    uint64_t seed = 12;
    const int64_t n = b->n_tokens * width;
    float *x = random_tensor(&seed, n, 2.0);
    float *gamma = random_tensor(&seed, width, 1.0), *beta = random_tensor(&seed, width, 1.0);
    for (int64_t i = 0; i < n; i++)  // where a one-pass variance loses its digits
        x[i] += 5.0f;
    float *out = guarded(n), *mean = guarded(b->n_tokens), *rstd = guarded(b->n_tokens);
    bd_layer_norm_forward_args f = {
        .boundaries = b->boundaries,
        .n_channels = width,
        .epsilon = 1e-5f,
        .x = x,
        .gamma = gamma,
        .beta = beta,
        .out = out,
        .mean = mean,
        .rstd = rstd,
    };
    RUN(cpu, layer_norm_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.x = floats_on_device(x, n);
    f.gamma = floats_on_device(gamma, width);
    f.beta = floats_on_device(beta, width);
    f.out = floats_on_device(NULL, n);
    f.mean = floats_on_device(NULL, b->n_tokens);
    f.rstd = floats_on_device(NULL, b->n_tokens);
    RUN(cuda, layer_norm_forward, f);
    compare_padded("layer norm", b, f.out, out, width, 2.0 * few_roundings);
    compare_padded("mean", b, f.mean, mean, 1, few_roundings);
    compare_padded("rstd", b, f.rstd, rstd, 1, few_roundings);

    float *d_out = random_activations(&seed, b, width, 1.0);
    float *d_x = random_activations(&seed, b, width, 1.0);
    float *d_gamma = random_tensor(&seed, width, 1.0),
          *d_beta = random_tensor(&seed, width, 1.0);
    bd_layer_norm_backward_args g = {
        .boundaries = b->boundaries,
        .n_channels = width,
        .d_out = d_out,
        .x = x,
        .gamma = gamma,
        .mean = mean,
        .rstd = rstd,
        .d_x = d_x,
        .d_gamma = d_gamma,
        .d_beta = d_beta,
    };
    bd_layer_norm_backward_args h = g;
    h.boundaries = f.boundaries;
    h.d_out = floats_on_device(d_out, n);
    h.x = f.x;
    h.gamma = f.gamma;
    h.mean = floats_on_device(mean, b->n_tokens);
    h.rstd = floats_on_device(rstd, b->n_tokens);
    h.d_x = floats_on_device(d_x, n);
    h.d_gamma = floats_on_device(d_gamma, width);
    h.d_beta = floats_on_device(d_beta, width);
    RUN(cpu, layer_norm_backward, g);
    RUN(cuda, layer_norm_backward, h);
    // A difference of numbers of size 1 is multiplied by rstd, which is 316 for one channel.
    float steepest = 1.0f;
    for (int64_t t = 0; t < b->n_tokens; t++)
        steepest = fmaxf(steepest, rstd[t]);
    compare_padded("gradient of x", b, h.d_x, d_x, width, long_sums * (double)steepest);
    compare("gradient of gamma", h.d_gamma, d_gamma, width, long_sums);
    compare("gradient of beta", h.d_beta, d_beta, width, long_sums);
    release_device();
    free(x);
    free(gamma);
    free(beta);
    free(d_out);
    free(d_x);
    free(d_gamma);
    free(d_beta);
    guarded_free(out);
    guarded_free(mean);
    guarded_free(rstd);
}

void layer_norm_agrees(void)
{
    for_each_batch(check_layer_norm);
}
