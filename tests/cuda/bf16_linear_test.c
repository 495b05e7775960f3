// Linear layers of the CUDA backend in bf16, with and without an activation.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bf16_fixture.h"
#include "module_fixture.h"

static const double half_ulp = 1.0 / 256.0;  // largest relative error of rounding to bf16

typedef struct layer {
    int64_t n_in, n_out;
    bd_weight_layout layout;
    float *x, *weight, *bias, *d_out;
    float *d_weight, *d_bias;  // initial values, to which the gradients are added
} layer;

static double weight_at(const layer *l, int64_t i, int64_t j)
{
    return (double)
        l->weight[l->layout == BD_WEIGHT_OUT_IN ? j * l->n_in + i : i * l->n_out + j];
}

static layer make_layer(const batch *b, int64_t n_in, int64_t n_out, bd_weight_layout layout)
{
    uint64_t seed = 46;
    layer l = {.n_in = n_in, .n_out = n_out, .layout = layout};
    l.x = bf16_activations(&seed, b, n_in, 1.0);
    l.weight = bf16_tensor(&seed, n_in * n_out, 1.0);
    l.bias = bf16_tensor(&seed, n_out, 1.0);
    l.d_out = bf16_activations(&seed, b, n_out, 1.0);
    l.d_weight = random_tensor(&seed, n_in * n_out, 1.0);
    l.d_bias = random_tensor(&seed, n_out, 1.0);
    return l;
}

static void free_layer(layer *l)
{
    float *all[] = {l->x, l->weight, l->bias, l->d_out, l->d_weight, l->d_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static double *exact_sums(const batch *b, const layer *l, bool with_bias)
{
    double *sums = zeros(b->n_tokens * l->n_out);
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t j = 0; j < l->n_out && !is_padding(b, t); j++) {
            double sum = with_bias ? (double)l->bias[j] : 0.0;
            for (int64_t i = 0; i < l->n_in; i++)
                sum += (double)l->x[t * l->n_in + i] * weight_at(l, i, j);
            sums[t * l->n_out + j] = sum;
        }
    return sums;
}

// The activation may be applied before or after the sum is rounded. The slopes of GELU
// and SiLU are below 1.13.
static void expect_activated(const batch *b, const void *device, const double *sums,
                             bd_activation activation, int64_t n)
{
    const double tolerance = long_sums * largest(sums, n);
    float *got = fetch_bf16("activated", device, n);
    expect_padding_zero("activated", b, got, n / b->n_tokens);
    for (int64_t i = 0; i < n; i++)
        expect_rounding("activated", i, got[i], reference_activation(activation, sums[i]),
                        1.13 * half_ulp * fabs(sums[i]) + tolerance);
    free(got);
}

static void check_linear_forward(const batch *b, const layer *l, bool with_bias,
                                 bd_activation activation, bool with_out)
{
    const int64_t n = b->n_tokens * l->n_out;
    double *sums = exact_sums(b, l, with_bias);
    const bd_linear_forward_args f = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .n_in = l->n_in,
        .n_out = l->n_out,
        .layout = l->layout,
        .activation = activation,
        .x = bf16_on_device(l->x, b->n_tokens * l->n_in),
        .weight = bf16_on_device(l->weight, l->n_in * l->n_out),
        .bias = with_bias ? bf16_on_device(l->bias, l->n_out) : NULL,
        .out = with_out ? bf16_nan_on_device(n) : NULL,
        .activated = activation == BD_ACTIVATION_NONE ? NULL : bf16_nan_on_device(n),
    };
    RUN(cuda, linear_forward, f);
    if (activation != BD_ACTIVATION_NONE)
        expect_activated(b, f.activated, sums, activation, n);
    if (with_out)
        expect_bf16("linear", b, f.out, sums, n, long_sums);
    else
        free(sums);
    release_device();
}

static void check_linear_backward(const batch *b, const layer *l)
{
    const int64_t n_in = l->n_in, n_out = l->n_out, n_weight = n_in * n_out;
    double *d_x = zeros(b->n_tokens * n_in), *d_weight = to_double(l->d_weight, n_weight);
    double *d_bias = to_double(l->d_bias, n_out);
    for (int64_t t = 0; t < b->n_tokens; t++)
        for (int64_t j = 0; j < n_out; j++) {
            const double d = (double)l->d_out[t * n_out + j];
            d_bias[j] += d;
            for (int64_t i = 0; i < n_in; i++) {
                d_x[t * n_in + i] += d * weight_at(l, i, j);
                d_weight[l->layout == BD_WEIGHT_OUT_IN ? j * n_in + i : i * n_out + j] +=
                    d * (double)l->x[t * n_in + i];
            }
        }
    const bd_linear_backward_args g = {
        .boundaries = boundaries_on_device(b),
        .type = BD_BF16,
        .n_in = n_in,
        .n_out = n_out,
        .layout = l->layout,
        .d_out = bf16_on_device(l->d_out, b->n_tokens * n_out),
        .x = bf16_on_device(l->x, b->n_tokens * n_in),
        .weight = bf16_on_device(l->weight, n_weight),
        .d_x = bf16_nan_on_device(b->n_tokens * n_in),
        .d_weight = floats_on_device(l->d_weight, n_weight),
        .d_bias = floats_on_device(l->d_bias, n_out),
    };
    RUN(cuda, linear_backward, g);
    expect_bf16("gradient of x", b, g.d_x, d_x, b->n_tokens * n_in, long_sums);
    expect_floats("gradient of the weight", g.d_weight, d_weight, n_weight, long_sums);
    expect_floats("gradient of the bias", g.d_bias, d_bias, n_out, long_sums);
    release_device();
}

static void check_linear(const batch *b, shape s)
{
    const int64_t n_out = s.id_bytes == 2 ? 40 : 33;
    for (int turn = 0; turn < 2; turn++) {
        const bool with_bias = (turn == 0) == (s.id_bytes == 2);
        layer l =
            make_layer(b, s.width, n_out, turn == 0 ? BD_WEIGHT_OUT_IN : BD_WEIGHT_IN_OUT);
        check_linear_forward(b, &l, with_bias, BD_ACTIVATION_NONE, true);
        for (int with_out = 0; with_out < 2; with_out++) {
            check_linear_forward(b, &l, with_bias, BD_ACTIVATION_RELU, with_out == 1);
            check_linear_forward(b, &l, with_bias, BD_ACTIVATION_GELU, with_out == 1);
            check_linear_forward(b, &l, with_bias, BD_ACTIVATION_SILU, with_out == 1);
        }
        check_linear_backward(b, &l);
        free_layer(&l);
    }
}

static void linear_is_exact(void)
{
    for_each_shape(check_linear);
}

// If cuBLASLt can do the activation, no kernel of our own runs except to clear padding.
static void activation_is_part_of_the_product(void)
{
    static const struct {
        bd_activation activation;
        bool with_out;
        int64_t n_in, n_out, n_kernels;
    } expected[] = {
        {BD_ACTIVATION_RELU, false, 64, 40, 1}, {BD_ACTIVATION_RELU, false, 64, 33, 1},
        {BD_ACTIVATION_GELU, true, 64, 40, 1},  {BD_ACTIVATION_GELU, true, 64, 33, 2},
        {BD_ACTIVATION_GELU, true, 31, 40, 2},  {BD_ACTIVATION_GELU, false, 64, 40, 1},
        {BD_ACTIVATION_SILU, true, 64, 40, 2},  {BD_ACTIVATION_SILU, false, 64, 40, 2},
        {BD_ACTIVATION_RELU, true, 64, 40, 2},  {BD_ACTIVATION_NONE, true, 64, 40, 1},
    };
    batch b = random_batch(9, 2, 31);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        layer l = make_layer(&b, expected[i].n_in, expected[i].n_out, BD_WEIGHT_OUT_IN);
        take_launches();
        check_linear_forward(&b, &l, true, expected[i].activation, expected[i].with_out);
        const int64_t launches = take_launches();
        if (launches >= 0)
            assert_int_equal(launches, expected[i].n_kernels);
        free_layer(&l);
    }
    batch_release(&b);
}

// A stored algorithm is valid only for the alignment it was chosen for, also of bias and sums.
static void other_alignment_takes_another_plan(void)
{
    static const int64_t shifts[] = {0, 8, 32, 0};  // in values of 2 bytes
    batch b = random_batch(9, 2, 31);
    layer l = make_layer(&b, 64, 40, BD_WEIGHT_OUT_IN);
    const int64_t n = b.n_tokens * l.n_out;
    bd_linear_forward_args f = {
        .boundaries = boundaries_on_device(&b),
        .type = BD_BF16,
        .n_in = l.n_in,
        .n_out = l.n_out,
        .activation = BD_ACTIVATION_GELU,
        .x = bf16_on_device(l.x, b.n_tokens * l.n_in),
        .weight = bf16_on_device(l.weight, l.n_in * l.n_out),
        .activated = bf16_nan_on_device(n),
    };
    double *sums = exact_sums(&b, &l, true);
    for (size_t i = 0; i < 2 * sizeof shifts / sizeof *shifts; i++) {
        const int64_t shift = shifts[i / 2], bias_shift = i % 2 == 0 ? 0 : shift;
        float *shifted = guarded(bias_shift + l.n_out);
        memcpy(shifted + bias_shift, l.bias, (size_t)l.n_out * sizeof(float));
        f.bias = (uint16_t *)bf16_on_device(shifted, bias_shift + l.n_out) + bias_shift;
        f.out = (uint16_t *)bf16_nan_on_device(n + shift) + shift;
        RUN(cuda, linear_forward, f);
        expect_activated(&b, f.activated, sums, BD_ACTIVATION_GELU, n);
        guarded_free(shifted);
    }
    free(sums);
    release_device();
    free_layer(&l);
    batch_release(&b);
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "linear_is_exact",
         .check = linear_is_exact,
         .misaligned = true,
         .differs = true},
        {.name = "other_alignment_takes_another_plan",
         .check = other_alignment_takes_another_plan},
        {.name = "activation_is_part_of_the_product",
         .check = activation_is_part_of_the_product},
    };
    return run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
