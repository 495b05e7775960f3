#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "parity_fixture.h"

bd_backend *cpu;
const int64_t sizes[N_SIZES] = {1, 31, 33, 64, 65, 300};

// ---- Results -------------------------------------------------------------------------------

static float *fetch(const char *what, const float *device, int64_t n)
{
    float *got = fetch_bytes(device, (size_t)n * sizeof *got);
    expect_same_in_every_run(what, got, (size_t)n * sizeof *got);
    return got;
}

void compare(const char *what, const float *device, const float *wanted, int64_t n,
             double tolerance)
{
    float *got = fetch(what, device, n);
    if (tolerance > 0.0) {
        double *precise = to_double(wanted, n);
        expect_close(what, got, precise, n, tolerance);
        free(precise);
    } else {
        expect_same(what, got, wanted, n);
    }
    free(got);
}

void compare_padded(const char *what, const batch *b, const float *device, const float *wanted,
                    int64_t width, double tolerance)
{
    float *got = fetch(what, device, b->n_tokens * width);
    expect_padding_zero(what, b, got, width);
    free(got);
    compare(what, device, wanted, b->n_tokens * width, tolerance);
}

void compare_cancelled(const char *what, const batch *b, const float *device,
                       const float *wanted, int64_t width)
{
    const int64_t n = b->n_tokens * width;
    float *got = fetch(what, device, n);
    expect_padding_zero(what, b, got, width);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - wanted[i]) <= (float)long_sums))
            fail_msg("%s[%lld] is %.9g, not %.9g", what, (long long)i, (double)got[i],
                     (double)wanted[i]);
    free(got);
}

void expect_untouched(const char *what, const batch *b, const float *device,
                      const float *before, int64_t width, int64_t stride, bool with_padding)
{
    float *got = fetch_bytes(device, (size_t)(b->n_tokens * stride) * sizeof *got);
    for (int64_t t = 0; t < b->n_tokens; t++) {
        const int64_t first = with_padding && is_padding(b, t) ? 0 : width;
        expect_same(what, got + t * stride + first, before + t * stride + first,
                    stride - first);
    }
    free(got);
}

float *spread_tensor(uint64_t *seed, const batch *b, int64_t width, int64_t stride,
                     double scale)
{
    float *x = random_tensor(seed, b->n_tokens * stride, scale);
    for (int64_t i = 0; i < b->n_tokens * stride; i++)
        if (i % stride >= width)
            x[i] = is_padding(b, i / stride) ? 0.0f : 1e-3f;
    return x;
}

// ---- Batches --------------------------------------------------------------------------------

batch make_batch(int which)
{
    batch b;
    switch (which) {
    case 0:
        return awkward_batch(5);
    case 1:
        return batch_of_one(1);
    case 2:
        b = random_batch(3, 3, 65);
        b.offsets[3] = b.offsets[2] + 1;  // a row of padding alone
        return b;
    case 3:
        return random_batch(4, 1, 300);
    case 4:
        b = random_batch(6, 2, 64);
        for (int64_t t = 0; t < b.n_tokens; t++)  // buckets of many tokens
            b.ids[t] = b.ids_16[t] = (uint16_t)(t % 11 == 0 ? 49 : 7);
        return b;
    default:
        return random_batch(7, 5, 31);
    }
}

void for_each_batch(void (*check)(const batch *b, int64_t width, int32_t id_bytes))
{
    for (int which = 0; which < N_BATCHES; which++) {
        batch b = make_batch(which);
        check(&b, sizes[which % N_SIZES], which % 2 == 0 ? 2 : 4);
        batch_release(&b);
    }
    for (int i = 0; i < N_SIZES && !BRIEF; i++) {
        batch b = random_batch((uint64_t)(20 + i), 2, 33);
        check(&b, sizes[i], i % 2 == 0 ? 4 : 2);
        batch_release(&b);
    }
}

const void *ids_of(const batch *b, int32_t id_bytes)
{
    return id_bytes == 2 ? (const void *)b->ids_16 : (const void *)b->ids;
}
