#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device_fixture.h"

bd_backend *cpu, *cuda;
const char *module_path;
int misaligned;
const int64_t sizes[N_SIZES] = {1, 31, 33, 64, 65, 300};

void must(bd_status status, const bd_error *err)
{
    if (status != BD_OK)
        fail_msg("%s", err->message);
}

// ---- Device memory between guard bands ------------------------------------------------------

enum { BAND_BYTES = 256, MAX_TENSORS = 32 };

// NaN as a float and as bf16, so that reading a band is seen, too.
static unsigned char band_byte(size_t at)
{
    return at % 2 ? 0x7f : 0xbf;
}

typedef struct device_block {
    char *memory;
    size_t before, size;  // bytes before what was asked for, and its own
} device_block;

static device_block blocks[MAX_TENSORS];
static int n_blocks;

void *device_bytes(const void *from, size_t size)
{
    bd_error err;
    assert_true(n_blocks < MAX_TENSORS);
    device_block *block = &blocks[n_blocks++];
    *block =
        (device_block){.before = BAND_BYTES + (misaligned ? sizeof(float) : 0), .size = size};
    const size_t whole = block->before + size + BAND_BYTES;
    void *memory;
    must(cuda->operations->allocate(cuda, whole, &memory, &err), &err);
    char *image = get_memory(whole);
    for (size_t k = 0; k < whole; k++)
        image[k] = (char)band_byte(k);
    if (from)
        memcpy(image + block->before, from, size);
    else
        memset(image + block->before, 0xff, size);
    must(cuda->operations->upload(cuda, memory, image, whole, &err), &err);
    free(image);
    block->memory = memory;
    return block->memory + block->before;
}

float *on_device(const float *x, int64_t n)
{
    return device_bytes(x, (size_t)n * sizeof *x);
}

float *nan_on_device(int64_t n)
{
    return device_bytes(NULL, (size_t)n * sizeof(float));
}

bd_boundaries boundaries_on_device(const batch *b)
{
    bd_boundaries boundaries = b->boundaries;
    const int64_t n_rows = boundaries.n_rows;
    boundaries.offsets = device_bytes(b->offsets, (size_t)(n_rows + 1) * sizeof *b->offsets);
    boundaries.values = device_bytes(b->values, (size_t)b->offsets[n_rows] * sizeof *b->values);
    return boundaries;
}

void release_device(void)
{
    bd_error err;
    for (int i = 0; i < n_blocks; i++) {
        const device_block *block = &blocks[i];
        const size_t whole = block->before + block->size + BAND_BYTES;
        unsigned char *image = get_memory(whole);
        must(cuda->operations->download(cuda, image, block->memory, whole, &err), &err);
        for (size_t k = 0; k < whole; k++)
            if ((k < block->before || k >= block->before + block->size) &&
                image[k] != band_byte(k))
                fail_msg("block %d of the case: byte %lld of %lld was written", i,
                         (long long)k - (long long)block->before, (long long)block->size);
        free(image);
        cuda->operations->release(cuda, block->memory);
    }
    n_blocks = 0;
}

// ---- Results, and every schedule's against the first ---------------------------------------

typedef struct recorded {
    float *values;
    int64_t n;
} recorded;

static recorded *records;
static size_t n_records, records_capacity, next_record;
static bool recording;

void record(const char *what, float *got, int64_t n)
{
    if (recording) {
        if (n_records == records_capacity) {
            records_capacity = 2 * records_capacity + 64;
            records = realloc(records, records_capacity * sizeof *records);
            assert_non_null(records);
        }
        records[n_records++] = (recorded){got, n};
        return;
    }
    assert_true(next_record < n_records);
    const recorded *first = &records[next_record++];
    assert_int_equal(first->n, n);
    expect_same(what, got, first->values, n);
    free(got);
}

void forget_comparisons(void)
{
    for (size_t i = 0; i < n_records; i++)
        free(records[i].values);
    free(records);
    records = NULL;
    n_records = records_capacity = 0;
}

void start_comparisons(bool first)
{
    if (first)
        forget_comparisons();  // of a case that has failed
    recording = first;
    next_record = 0;
}

void end_comparisons(void)
{
    if (!recording)
        assert_int_equal(next_record, n_records);
}

static float *fetch(const float *device, int64_t n)
{
    bd_error err;
    float *got = get_memory((size_t)n * sizeof *got);
    must(cuda->operations->download(cuda, got, device, (size_t)n * sizeof *got, &err), &err);
    return got;
}

void compare(const char *what, const float *device, const float *wanted, int64_t n,
             double tolerance)
{
    float *got = fetch(device, n);
    if (tolerance > 0.0) {
        double *precise = to_double(wanted, n);
        expect_close(what, got, precise, n, tolerance);
        free(precise);
    } else {
        expect_same(what, got, wanted, n);
    }
    record(what, got, n);
}

void compare_padded(const char *what, const batch *b, const float *device, const float *wanted,
                    int64_t width, double tolerance)
{
    float *got = fetch(device, b->n_tokens * width);
    expect_padding_zero(what, b, got, width);
    free(got);
    compare(what, device, wanted, b->n_tokens * width, tolerance);
}

void compare_cancelled(const char *what, const batch *b, const float *device,
                       const float *wanted, int64_t width)
{
    const int64_t n = b->n_tokens * width;
    float *got = fetch(device, n);
    expect_padding_zero(what, b, got, width);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - wanted[i]) <= (float)long_sums))
            fail_msg("%s[%lld] is %.9g, not %.9g", what, (long long)i, (double)got[i],
                     (double)wanted[i]);
    record(what, got, n);
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

const void *ids_on_device(const batch *b, int32_t id_bytes)
{
    return device_bytes(ids_of(b, id_bytes), (size_t)(b->n_tokens * id_bytes));
}
