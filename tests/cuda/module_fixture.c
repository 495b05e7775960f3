#include "module_fixture.h"

#include <assert.h>
#include <dlfcn.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/module.h"

bd_backend *cuda;
const char *module_path;
void (*configure_emulation)(const bd_emulation_settings *settings);
static bd_emulation_counters (*take_counters)(void);

int64_t take_launches(void)
{
    return take_counters ? take_counters().launches : -1;
}

void must(bd_status status, const bd_error *err)
{
    if (status != BD_OK)
        fail_msg("%s", err->message);
}

// ---- Device memory --------------------------------------------------------------------------

enum { BAND_BYTES = 256, MAX_BLOCKS = 48 };

// The byte makes NaN as a float and as bf16, so that reading a band is noticed, too.
static unsigned char band_byte(size_t at)
{
    return at % 2 ? 0x7f : 0xbf;
}

typedef struct device_block {
    char *memory;
    size_t before, size;  // bytes before the requested memory, and its size
} device_block;

static device_block blocks[MAX_BLOCKS];
static int n_blocks;
static bool misaligned;

void *device_array(const void *from, int64_t n, size_t element_bytes)
{
    bd_error err;
    const size_t size = (size_t)n * element_bytes;
    const size_t before = BAND_BYTES + (misaligned ? element_bytes : 0);
    assert_true(n_blocks < MAX_BLOCKS);
    const size_t whole = before + size + BAND_BYTES;
    char *image = get_memory(whole);
    for (size_t k = 0; k < whole; k++)
        image[k] = (char)band_byte(k);
    if (from)
        memcpy(image + before, from, size);
    else
        memset(image + before, 0xff, size);
    void *memory;
    must(cuda->operations->allocate(cuda, whole, &memory, &err), &err);
    must(cuda->operations->upload(cuda, memory, image, whole, &err), &err);
    free(image);
    blocks[n_blocks++] = (device_block){memory, before, size};
    return (char *)memory + before;
}

float *floats_on_device(const float *x, int64_t n)
{
    return device_array(x, n, sizeof *x);
}

bd_boundaries boundaries_on_device(const batch *b)
{
    bd_boundaries boundaries = b->boundaries;
    const int64_t n_rows = boundaries.n_rows;
    boundaries.offsets = device_array(b->offsets, n_rows + 1, sizeof *b->offsets);
    boundaries.values = device_array(b->values, b->offsets[n_rows], sizeof *b->values);
    return boundaries;
}

bd_loss_mask mask_on_device(const batch *b, const batch_mask *m)
{
    if (!m)
        return (bd_loss_mask){0};
    return (bd_loss_mask){device_array(m->bits, m->n_bytes, 1),
                          device_array(m->offsets, b->boundaries.n_rows, sizeof *m->offsets)};
}

const void *ids_on_device(const batch *b, int32_t id_bytes)
{
    return device_array(id_bytes == 2 ? (const void *)b->ids_16 : (const void *)b->ids,
                        b->n_tokens, (size_t)id_bytes);
}

void *fetch_bytes(const void *device, size_t size_bytes)
{
    bd_error err;
    void *bytes = get_memory(size_bytes);
    must(cuda->operations->download(cuda, bytes, device, size_bytes, &err), &err);
    return bytes;
}

void release_device(void)
{
    for (int i = 0; i < n_blocks; i++) {
        const device_block *block = &blocks[i];
        const size_t end = block->before + block->size, whole = end + BAND_BYTES;
        unsigned char *image = fetch_bytes(block->memory, whole);
        for (size_t k = 0; k < whole; k++)
            if ((k < block->before || k >= end) && image[k] != band_byte(k))
                fail_msg("block %d of the case: byte %lld of %lld was written", i,
                         (long long)k - (long long)block->before, (long long)block->size);
        free(image);
        cuda->operations->release(cuda, block->memory);
    }
    n_blocks = 0;
}

// ---- Records: every run must equal the first ------------------------------------------------

typedef struct recorded {
    void *bytes;
    size_t size;
} recorded;

static recorded *records;
static size_t n_records, records_capacity, next_record;
static bool recording;

static void add_record(const void *bytes, size_t size)
{
    if (n_records == records_capacity) {
        records_capacity = 2 * records_capacity + 64;
        records = realloc(records, records_capacity * sizeof *records);
        assert_non_null(records);
    }
    void *copy = get_memory(size);
    memcpy(copy, bytes, size);
    records[n_records++] = (recorded){copy, size};
}

void expect_same_in_every_run(const char *what, const void *bytes, size_t size_bytes)
{
    if (recording) {
        add_record(bytes, size_bytes);
        return;
    }
    assert_true(next_record < n_records);
    const recorded *first = &records[next_record++];
    assert_int_equal(first->size, size_bytes);
    if (memcmp(first->bytes, bytes, size_bytes) != 0)
        fail_msg("%s: another run gave other bits", what);
}

static void forget_records(void)
{
    for (size_t i = 0; i < n_records; i++)
        free(records[i].bytes);
    n_records = 0;
}

// ---- Running --------------------------------------------------------------------------------

static void run_once(const module_case *c, int schedule)
{
    if (configure_emulation)
        configure_emulation(&(bd_emulation_settings){
            .schedule = (bd_emulation_schedule)schedule,
            .copies = (bd_emulation_copies)(schedule % BD_N_COPIES),
            .streams = (bd_emulation_streams)(schedule % BD_N_STREAMS),
            .seed = 78,
            .host_threads = 2,
        });
    next_record = 0;
    c->check();
    if (!recording)
        assert_int_equal(next_record, n_records);
    recording = false;
}

// A device cannot be given an order; results that depend on it may differ between any two runs.
enum { N_DEVICE_RUNS = 3 };

static int n_runs_of(const module_case *c)
{
    if (!configure_emulation)
        return N_DEVICE_RUNS;
    return c->once || ONE_SCHEDULE ? 1 : BD_N_SCHEDULES;
}

static void run_case(void **state)
{
    const module_case *c = *state;
    forget_records();  // left by a case that failed
    const int n_runs = n_runs_of(c);
    recording = true;
    for (int turn = 0; turn < (c->misaligned ? 2 : 1); turn++) {
        misaligned = turn == 1;
        if (misaligned && c->differs) {
            forget_records();
            recording = true;
        }
        for (int run = 0; run < n_runs; run++)
            run_once(c, run);
    }
    misaligned = false;
    forget_records();
}

static bool open_emulation(const char *path)
{
    void *module = dlopen(path, RTLD_NOW);
    if (!module)
        return false;
    *(void **)&configure_emulation = dlsym(module, "bd_emulation_configure");
    *(void **)&take_counters = dlsym(module, "bd_emulation_take_counters");
    return configure_emulation && take_counters;
}

// Tells whether the case matches one of the patterns; without a pattern every case does.
static bool is_asked_for(const module_case *c, char **patterns)
{
    for (char **pattern = patterns; *pattern; pattern++)
        if (fnmatch(*pattern, c->name, 0) == 0)
            return true;
    return *patterns == NULL;
}

int run_module_cases(int argc, char **argv, const module_case *cases, int n_cases)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s device|emulated MODULE [CASE…]\n", argv[0]);
        return 2;
    }
    const bool emulated = strcmp(argv[1], "emulated") == 0;
    bd_error err;
    module_path = argv[2];
    if (bd_backend_open_module(&cuda, module_path, &(bd_cuda_settings){0}, &err) != BD_OK) {
        printf("%s: %s\n", emulated ? "failed" : "skipped", err.message);
        return emulated ? 1 : 77;
    }
    if (emulated && !open_emulation(module_path)) {
        fprintf(stderr, "'%s' is not an emulated module\n", module_path);
        return 1;
    }
    enum { MOST_CASES = 64 };
    struct CMUnitTest tests[MOST_CASES];
    size_t n_tests = 0;
    assert(n_cases <= MOST_CASES);
    for (int i = 0; i < n_cases; i++)
        if (is_asked_for(&cases[i], argv + 3))
            tests[n_tests++] = (struct CMUnitTest){cases[i].name, run_case, NULL, NULL,
                                                   (void *)(uintptr_t)&cases[i]};
    if (n_tests == 0)
        printf("failed: no case has such a name\n");
    const int failures =
        n_tests == 0 ? 1 : _cmocka_run_group_tests("module", tests, n_tests, NULL, NULL);
    cuda->operations->close(cuda);
    free(records);
    return failures;
}
