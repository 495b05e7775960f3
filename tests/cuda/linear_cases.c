#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operations_cases.h"
#include "parity_fixture.h"

// Fills padding with finite numbers, which is all that the contract asks for.
static void fill_padding(const batch *b, float *x, int64_t width)
{
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t c = 0; c < width && is_padding(b, t); c++)
            x[t * width + c] = 3.0f;
}

static void check_linear_forward(const batch *b, int64_t n_in, int64_t n_out,
                                 bd_weight_layout layout, int with_bias)
{
    uint64_t seed = 13;
    float *x = random_activations(&seed, b, n_in, 1.0);
    float *weight = random_tensor(&seed, n_in * n_out, 1.0);
    float *bias = random_tensor(&seed, n_out, 1.0);
    // Without a bias there are gaps between the tokens, which must not be changed.
    const int64_t stride = n_out + (with_bias ? 0 : 7), n_spread = b->n_tokens * stride;
    float *out = get_memory((size_t)n_spread * sizeof *out);
    for (int64_t i = 0; i < n_spread; i++)
        out[i] = i % stride < n_out ? NAN : 0.0f;
    fill_padding(b, x, n_in);
    bd_linear_forward_args f = {
        .boundaries = b->boundaries,
        .n_in = n_in,
        .n_out = n_out,
        .out_stride = stride,
        .layout = layout,
        .x = x,
        .weight = weight,
        .bias = with_bias ? bias : NULL,
        .out = out,
    };
    float *device_out = floats_on_device(out, n_spread);
    RUN(cpu, linear_forward, f);
    f.boundaries = boundaries_on_device(b);
    f.x = floats_on_device(x, b->n_tokens * n_in);
    f.weight = floats_on_device(weight, n_in * n_out);
    f.bias = with_bias ? floats_on_device(bias, n_out) : NULL;
    f.out = device_out;
    RUN(cuda, linear_forward, f);
    compare_padded("linear", b, f.out, out, stride, long_sums);
    release_device();
    free(x);
    free(weight);
    free(bias);
    free(out);
}

static void check_linear_backward(const batch *b, int64_t n_in, int64_t n_out,
                                  bd_weight_layout layout, int with_all)
{
    uint64_t seed = 14;
    const int64_t n_x = b->n_tokens * n_in, n_weight = n_in * n_out;
    // With all three results there are gaps between the tokens, which must not be read.
    const int64_t stride = n_out + (with_all ? 7 : 0), n_spread = b->n_tokens * stride;
    float *d_out = random_activations(&seed, b, stride, 1.0);
    for (int64_t i = 0; i < n_spread; i++)
        if (i % stride >= n_out)
            d_out[i] = NAN;
    float *x = random_activations(&seed, b, n_in, 1.0);
    float *weight = random_tensor(&seed, n_weight, 1.0);
    float *d_weight = random_tensor(&seed, n_weight, 1.0);
    float *d_bias = random_tensor(&seed, n_out, 1.0);
    float *d_x = guarded(n_x);
    bd_linear_backward_args g = {
        .boundaries = b->boundaries,
        .n_in = n_in,
        .n_out = n_out,
        .d_out_stride = stride,
        .layout = layout,
        .d_out = d_out,
        .x = x,
        .weight = weight,
        .d_x = with_all ? d_x : NULL,
        .d_weight = d_weight,
        .d_bias = with_all ? d_bias : NULL,
    };
    bd_linear_backward_args h = g;
    h.boundaries = boundaries_on_device(b);
    h.d_out = floats_on_device(d_out, n_spread);
    h.x = floats_on_device(x, n_x);
    h.weight = floats_on_device(weight, n_weight);
    h.d_x = with_all ? floats_on_device(NULL, n_x) : NULL;
    h.d_weight = floats_on_device(d_weight, n_weight);
    h.d_bias = with_all ? floats_on_device(d_bias, n_out) : NULL;
    RUN(cpu, linear_backward, g);
    RUN(cuda, linear_backward, h);
    compare("gradient of the weight", h.d_weight, d_weight, n_weight, long_sums);
    if (with_all) {
        compare_padded("gradient of x", b, h.d_x, d_x, n_in, long_sums);
        compare("gradient of the bias", h.d_bias, d_bias, n_out, long_sums);
    }
    release_device();
    free(d_out);
    free(x);
    free(weight);
    free(d_weight);
    free(d_bias);
    guarded_free(d_x);
}

static void check_linear(const batch *b, int64_t width, int32_t id_bytes)
{
    const int64_t other = width == 300 ? 31 : 65;
    const int with = id_bytes == 4;  // half of the batches with a bias, half without
    for (int layout = BD_WEIGHT_OUT_IN; layout <= BD_WEIGHT_IN_OUT; layout++) {
        check_linear_forward(b, width, other, (bd_weight_layout)layout, with);
        check_linear_forward(b, other, width, (bd_weight_layout)layout, !with);
        check_linear_backward(b, width, other, (bd_weight_layout)layout, with);
        check_linear_backward(b, other, width, (bd_weight_layout)layout, !with);
    }
}

void linear_agrees(void)
{
    for_each_batch(check_linear);
}

// The plan of a shape is stored; the bias that it was made with must not be.
void same_shape_takes_another_bias(void)
{
    enum { N_IN = 33, N_OUT = 65, N_TURNS = 3 };
    uint64_t seed = 21;
    batch b = make_batch(5);
    float *x = random_activations(&seed, &b, N_IN, 1.0);
    float *weight = random_tensor(&seed, N_IN * N_OUT, 1.0);
    bd_linear_forward_args f = {.boundaries = b.boundaries, .n_in = N_IN, .n_out = N_OUT};
    bd_linear_forward_args d = f;
    d.boundaries = boundaries_on_device(&b);
    d.x = floats_on_device(x, b.n_tokens * N_IN);
    d.weight = floats_on_device(weight, N_IN * N_OUT);
    for (int turn = 0; turn < N_TURNS; turn++) {
        float *bias = random_tensor(&seed, N_OUT, 1.0), *out = guarded(b.n_tokens * N_OUT);
        f.x = x;
        f.weight = weight;
        f.bias = bias;
        f.out = out;
        d.bias = floats_on_device(bias, N_OUT);
        d.out = floats_on_device(NULL, b.n_tokens * N_OUT);
        RUN(cpu, linear_forward, f);
        RUN(cuda, linear_forward, d);
        compare_padded("linear", &b, d.out, out, N_OUT, long_sums);
        free(bias);
        guarded_free(out);
    }
    release_device();
    free(x);
    free(weight);
    batch_release(&b);
}
