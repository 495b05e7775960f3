#include "tests/unit/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "tests/unit/random.h"

// ---- Batches --------------------------------------------------------------------------------

enum { BEFORE = 3, N_VOCABULARY = 50 };  // boundaries of other rows before ours

static batch empty_batch(int64_t n_rows, int64_t seq_len)
{
    batch b = {.n_tokens = n_rows * seq_len, .n_vocabulary = N_VOCABULARY};
    b.offsets = get_memory((size_t)(n_rows + 1) * sizeof *b.offsets);
    b.values = get_memory((size_t)(BEFORE + n_rows * (seq_len + 1)) * sizeof *b.values);
    for (int i = 0; i < BEFORE; i++)
        b.values[i] = 7;
    b.offsets[0] = BEFORE;
    b.boundaries = (bd_boundaries){n_rows, seq_len, b.offsets, b.values};
    return b;
}

// Appends row r with these lengths.
static void add_row(batch *b, int64_t r, const int32_t *lengths, int n)
{
    int32_t *values = b->values + b->offsets[r];
    values[0] = 0;
    for (int i = 0; i < n; i++)
        values[i + 1] = values[i] + lengths[i];
    assert_true(values[n] <= b->boundaries.seq_len);
    b->offsets[r + 1] = b->offsets[r] + n + 1;
}

static void add_ids(batch *b, uint64_t seed)
{
    b->ids = get_memory((size_t)b->n_tokens * sizeof *b->ids);
    b->ids_16 = get_memory((size_t)b->n_tokens * sizeof *b->ids_16);
    for (int64_t t = 0; t < b->n_tokens; t++) {
        b->ids[t] = (uint32_t)random_between(&seed, 0, N_VOCABULARY - 1);
        b->ids_16[t] = (uint16_t)b->ids[t];
    }
}

batch awkward_batch(uint64_t seed)
{
    batch b = empty_batch(4, 160);
    add_row(&b, 0, (const int32_t[]){1, 31, 33, 1, 64, 30}, 6);
    add_row(&b, 1, (const int32_t[]){160}, 1);
    add_row(&b, 2, (const int32_t[]){129}, 1);
    add_row(&b, 3, (const int32_t[]){1}, 1);
    add_ids(&b, seed);
    return b;
}

batch random_batch(uint64_t seed, int64_t n_rows, int64_t seq_len)
{
    batch b = empty_batch(n_rows, seq_len);
    for (int64_t r = 0; r < n_rows; r++) {
        int32_t lengths[1024];
        int n = 0;
        int32_t left =
            (int32_t)seq_len - random_between(&seed, 0, 1) * random_between(&seed, 0, 9);
        while (left > 0 && n < 1024) {
            const int32_t longest = random_between(&seed, 0, 3) == 0 ? 3 : left;
            lengths[n] = random_between(&seed, 1, longest < left ? longest : left);
            left -= lengths[n++];
        }
        add_row(&b, r, lengths, n);
    }
    add_ids(&b, seed);
    return b;
}

batch batch_of_rows(int64_t n_rows, int64_t seq_len)
{
    batch b = empty_batch(n_rows, seq_len);
    for (int64_t r = 0; r < n_rows; r++)
        add_row(&b, r, (const int32_t[]){(int32_t)seq_len}, 1);
    add_ids(&b, 1);
    return b;
}

batch batch_of_one(int64_t length)
{
    return batch_of_rows(1, length);
}

void batch_release(batch *b)
{
    free(b->offsets);
    free(b->values);
    free(b->ids);
    free(b->ids_16);
    *b = (batch){0};
}

// Searches linearly on purpose, because the kernels do not.
static bool find_segment(const batch *b, int64_t token, int64_t *begin, int64_t *end)
{
    for (int64_t index = 0; segment_at(b, index, begin, end); index++)
        if (*begin <= token && token < *end)
            return true;
    return false;
}

bool segment_at(const batch *b, int64_t index, int64_t *begin, int64_t *end)
{
    for (int64_t r = 0; r < b->boundaries.n_rows; r++) {
        const int64_t n = b->offsets[r + 1] - b->offsets[r] - 1;
        if (index < n) {
            const int32_t *values = b->values + b->offsets[r] + index;
            *begin = r * b->boundaries.seq_len + values[0];
            *end = r * b->boundaries.seq_len + values[1];
            return true;
        }
        index -= n;
    }
    return false;
}

bool is_padding(const batch *b, int64_t token)
{
    int64_t begin, end;
    return !find_segment(b, token, &begin, &end);
}

int64_t segment_begin(const batch *b, int64_t token)
{
    int64_t begin, end;
    assert_true(find_segment(b, token, &begin, &end));
    return begin;
}

int64_t segment_end(const batch *b, int64_t token)
{
    int64_t begin, end;
    assert_true(find_segment(b, token, &begin, &end));
    return end;
}

batch_mask random_mask(uint64_t seed, const batch *b, int64_t first_bit)
{
    const int64_t n_rows = b->boundaries.n_rows, seq_len = b->boundaries.seq_len;
    batch_mask m = {.n_bytes = (first_bit + b->n_tokens + 7) / 8};
    m.bits = get_memory((size_t)m.n_bytes);
    m.offsets = get_memory((size_t)n_rows * sizeof *m.offsets);
    m.trained = get_memory((size_t)b->n_tokens * sizeof *m.trained);
    for (int64_t i = 0; i < m.n_bytes; i++)
        m.bits[i] = (uint8_t)random_between(&seed, 0, 255);
    for (int64_t r = 0; r < n_rows; r++)
        m.offsets[r] = r % 3 == 2 ? BD_ALL_TRAINED : first_bit + r * seq_len;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        const unsigned byte = m.bits[(first_bit + t) / 8], place = 1u << (first_bit + t) % 8;
        m.trained[t] = t / seq_len % 3 == 2 || (byte & place) != 0;
    }
    m.mask = (bd_loss_mask){m.bits, m.offsets};
    return m;
}

void mask_release(batch_mask *m)
{
    free(m->bits);
    free(m->offsets);
    free(m->trained);
    *m = (batch_mask){0};
}

bool has_target(const batch *b, const batch_mask *m, int64_t token)
{
    return !is_padding(b, token) && token + 1 < segment_end(b, token) &&
           (!m || !m->trained || m->trained[token + 1]);
}

int64_t count_targets(const batch *b, const batch_mask *m, int64_t token)
{
    int64_t n = 0;
    for (int64_t t = segment_begin(b, token); t < segment_end(b, token); t++)
        n += has_target(b, m, t);
    return n;
}

// ---- Numbers --------------------------------------------------------------------------------

double random_uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-52 - 1.0;
}

void *get_memory(size_t size_bytes)
{
    void *memory = malloc(size_bytes > 0 ? size_bytes : 1);
    assert_non_null(memory);
    return memory;
}

float *random_tensor(uint64_t *state, int64_t n, double scale)
{
    float *x = get_memory((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * random_uniform(state));
    return x;
}

float *random_activations(uint64_t *state, const batch *b, int64_t width, double scale)
{
    float *x = random_tensor(state, b->n_tokens * width, scale);
    for (int64_t t = 0; t < b->n_tokens; t++)
        if (is_padding(b, t))
            memset(x + t * width, 0, (size_t)width * sizeof *x);
    return x;
}

double *to_double(const float *x, int64_t n)
{
    double *y = get_memory((size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

// A header with the length, the floats, then the guard band. 64 bytes, so that rows keep their
// alignment.
enum { HEADER = 64, BAND = 64 };
static const unsigned char band_byte = 0xa5;

float *guarded(int64_t n)
{
    char *memory =
        aligned_alloc(64, (HEADER + (size_t)n * sizeof(float) + BAND + 63) / 64 * 64);
    assert_non_null(memory);
    memcpy(memory, &n, sizeof n);
    memset(memory + HEADER, 0xff, (size_t)n * sizeof(float));
    memset(memory + HEADER + (size_t)n * sizeof(float), band_byte, BAND);
    return (float *)(memory + HEADER);
}

float *guarded_copy(const float *x, int64_t n)
{
    float *copy = guarded(n);
    memcpy(copy, x, (size_t)n * sizeof *copy);
    return copy;
}

void guarded_free(float *x)
{
    int64_t n;
    memcpy(&n, (char *)x - HEADER, sizeof n);
    const unsigned char *band = (const unsigned char *)(x + n);
    for (int i = 0; i < BAND; i++)
        if (band[i] != band_byte)
            fail_msg("byte %d after an output of %lld floats was written", i, (long long)n);
    free((char *)x - HEADER);
}

float *spread(const float *x, int64_t n_tokens, int64_t width, int64_t stride, float filler)
{
    stride = bd_stride(stride, width);
    float *out = guarded(n_tokens * stride);
    for (int64_t i = 0; i < n_tokens * stride; i++)
        out[i] = i % stride < width ? x[i / stride * width + i % stride] : filler;
    return out;
}

float *gather(float *spread_out, int64_t n_tokens, int64_t width, int64_t stride, float filler)
{
    stride = bd_stride(stride, width);
    float *x = get_memory((size_t)(n_tokens * width) * sizeof *x);
    for (int64_t t = 0; t < n_tokens; t++) {
        memcpy(x + t * width, spread_out + t * stride, (size_t)width * sizeof *x);
        for (int64_t i = width; i < stride; i++)
            if (memcmp(spread_out + t * stride + i, &filler, sizeof filler) != 0)
                fail_msg("the gap after token %lld was written", (long long)t);
    }
    guarded_free(spread_out);
    return x;
}

// ---- Backends -------------------------------------------------------------------------------

static bd_backend *open_backend(bd_cpu_isa isa, int n_threads)
{
    bd_backend *backend;
    bd_error err = {0};
    if (bd_backend_open_cpu_isa(&backend, n_threads, isa, &err) != BD_OK) {
        if (isa > bd_cpu_isa_best())
            return NULL;
        fail_msg("%s", err.message);
    }
    return backend;
}

void for_each_isa(void (*check)(bd_backend *backend, void *context), void *context)
{
    for (int isa = 0; isa < BD_CPU_N_ISA; isa++) {
        bd_backend *backend = open_backend((bd_cpu_isa)isa, 2);
        if (!backend) {
            print_message("%s: not on this machine\n", bd_cpu_isa_name((bd_cpu_isa)isa));
            continue;
        }
        check(backend, context);
        backend->operations->close(backend);
    }
}

void expect_same_for_any_threads(void (*compute)(bd_backend *backend, float *out,
                                                 void *context),
                                 int64_t n, void *context)
{
    static const int thread_counts[] = {1, 2, 3, 7};
    for (int isa = 0; isa <= (int)bd_cpu_isa_best(); isa++) {
        float *first = NULL;
        for (size_t i = 0; i < sizeof thread_counts / sizeof *thread_counts; i++) {
            bd_backend *backend = open_backend((bd_cpu_isa)isa, thread_counts[i]);
            float *out = guarded(n);
            compute(backend, out, context);
            backend->operations->close(backend);
            if (!first) {
                first = out;
                continue;
            }
            char what[64];
            snprintf(what, sizeof what, "%s on %d threads", bd_cpu_isa_name((bd_cpu_isa)isa),
                     thread_counts[i]);
            expect_same(what, out, first, n);
            guarded_free(out);
        }
        guarded_free(first);
    }
}

void apply_activation(bd_backend *backend, bd_activation activation, int64_t n, const float *x,
                      float *out)
{
    const float one = 1.0f;
    RUN(backend, linear_forward,
        {.boundaries = {1, 1, (const int32_t[]){0, 2}, (const int32_t[]){0, 1}},
         .n_in = 1,
         .n_out = n,
         .activation = activation,
         .x = &one,
         .weight = x,
         .activated = out});
}

double reference_activation(bd_activation activation, double x)
{
    if (activation == BD_ACTIVATION_RELU)
        return x > 0.0 ? x : 0.0;
    if (activation == BD_ACTIVATION_SILU)
        return x / (1.0 + exp(-x));
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

double reference_activation_slope(bd_activation activation, double x)
{
    if (activation == BD_ACTIVATION_RELU)
        return x > 0.0 ? 1.0 : 0.0;
    if (activation == BD_ACTIVATION_SILU) {
        const double s = 1.0 / (1.0 + exp(-x));
        return s + x * s * (1.0 - s);
    }
    const double u = sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    const double slope = sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + tanh(u)) + 0.5 * x * (1.0 - tanh(u) * tanh(u)) * slope;
}

// ---- Expectations ---------------------------------------------------------------------------

void expect_close(const char *what, const float *got, const double *wanted, int64_t n,
                  double tolerance)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(wanted[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - wanted[i]) <= tolerance * largest))
            fail_msg("%s[%lld] is %.9g, not %.9g (largest %.3g, tolerance %.1g of it)", what,
                     (long long)i, (double)got[i], wanted[i], largest, tolerance);
}

void expect_same(const char *what, const float *got, const float *wanted, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(got + i, wanted + i, sizeof *got) != 0)
            fail_msg("%s: [%lld] is %.9g, not %.9g", what, (long long)i, (double)got[i],
                     (double)wanted[i]);
}

void expect_padding_zero(const char *what, const batch *b, const float *x, int64_t width)
{
    for (int64_t t = 0; t < b->n_tokens; t++) {
        if (!is_padding(b, t))
            continue;
        for (int64_t c = 0; c < width; c++) {
            const float zero = 0.0f;
            if (memcmp(&x[t * width + c], &zero, sizeof zero) != 0)
                fail_msg("%s of token %lld, which is padding, is %g", what, (long long)t,
                         (double)x[t * width + c]);
        }
    }
}

void expect_gradient(const char *what, double (*loss)(void *context), void *context, double *x,
                     const double *gradient, int64_t n, int64_t samples, double step,
                     double tolerance)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(gradient[i]));
    const int64_t stride = n / samples > 0 ? n / samples : 1;
    for (int64_t i = 0; i < n; i += stride) {
        const double kept = x[i];
        x[i] = kept + step;
        const double above = loss(context);
        x[i] = kept - step;
        const double below = loss(context);
        x[i] = kept;
        const double slope = (above - below) / (2.0 * step);
        if (!(fabs(slope - gradient[i]) <= tolerance * largest))
            fail_msg("%s[%lld]: gradient %.12g, but the loss moves by %.12g", what,
                     (long long)i, gradient[i], slope);
    }
}
