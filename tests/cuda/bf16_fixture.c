#include "bf16_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "module_fixture.h"

// ---- Numbers --------------------------------------------------------------------------------

float rounded_to_bf16(float x)
{
    return bd_float_of_bf16(bd_bf16_of_float(x));
}

static float *rounded_in_place(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = rounded_to_bf16(x[i]);
    return x;
}

float *bf16_tensor(uint64_t *seed, int64_t n, double scale)
{
    return rounded_in_place(random_tensor(seed, n, scale), n);
}

float *bf16_activations(uint64_t *seed, const batch *b, int64_t width, double scale)
{
    return rounded_in_place(random_activations(seed, b, width, scale), b->n_tokens * width);
}

double *zeros(int64_t n)
{
    double *x = get_memory((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.0;
    return x;
}

double largest(const double *x, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

// ---- Device memory --------------------------------------------------------------------------

// Converts x, whose values are representable in bf16, to bf16.
void *bf16_on_device(const float *x, int64_t n)
{
    uint16_t *bits = get_memory((size_t)n * sizeof *bits);
    for (int64_t i = 0; i < n; i++)
        bits[i] = bd_bf16_of_float(x[i]);
    void *device = device_array(bits, n, sizeof *bits);
    free(bits);
    return device;
}

void *bf16_nan_on_device(int64_t n)
{
    return device_array(NULL, n, sizeof(uint16_t));
}

float *fetch_bf16(const char *what, const void *device, int64_t n)
{
    uint16_t *bits = fetch_bytes(device, (size_t)n * sizeof *bits);
    float *values = get_memory((size_t)n * sizeof *values);
    expect_same_in_every_run(what, bits, (size_t)n * sizeof *bits);
    for (int64_t i = 0; i < n; i++)
        values[i] = bd_float_of_bf16(bits[i]);
    free(bits);
    return values;
}

// ---- Expectations ---------------------------------------------------------------------------

void expect_rounding(const char *what, int64_t i, float got, double exact, double tolerance)
{
    const float low = rounded_to_bf16((float)(exact - tolerance));
    const float high = rounded_to_bf16((float)(exact + tolerance));
    if (!(low <= got && got <= high))
        fail_msg("%s[%lld] is %.9g, not the rounding of %.9g", what, (long long)i, (double)got,
                 exact);
}

// Frees `exact`. The batch, unless NULL, says where padding must be 0.
void expect_bf16(const char *what, const batch *b, const void *device, double *exact, int64_t n,
                 double tolerance)
{
    float *got = fetch_bf16(what, device, n);
    if (b)
        expect_padding_zero(what, b, got, n / b->n_tokens);
    tolerance *= largest(exact, n);
    for (int64_t i = 0; i < n; i++)
        expect_rounding(what, i, got[i], exact[i], tolerance);
    free(got);
    free(exact);
}

void expect_floats(const char *what, const void *device, double *exact, int64_t n,
                   double tolerance)
{
    float *got = fetch_bytes(device, (size_t)n * sizeof *got);
    expect_same_in_every_run(what, got, (size_t)n * sizeof *got);
    expect_close(what, got, exact, n, tolerance);
    free(got);
    free(exact);
}

// ---- Batches --------------------------------------------------------------------------------

static const shape shapes[] = {
    {1, 1, 768, 2},  {3, 31, 33, 4}, {2, 64, 64, 2},  {3, 65, 31, 2},
    {1, 300, 64, 4}, {2, 33, 1, 2},  {2, 65, 768, 4},
};

void for_each_shape(void (*check)(const batch *b, shape s))
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        batch b = random_batch(30 + i, shapes[i].n_rows, shapes[i].seq_len);
        if (b.boundaries.n_rows == 3)
            b.offsets[3] = b.offsets[2] + 1;  // a row of padding alone
        check(&b, shapes[i]);
        release_device();
        batch_release(&b);
    }
}
