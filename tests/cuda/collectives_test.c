// The collectives of the CUDA backend: ranks are threads, each with a device of its own; there
// are as many ranks as devices.
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/module.h"
#include "module_fixture.h"
#include "tests/unit/kernels/kernel_fixture.h"

enum { MOST_RANKS = 3, SEED = 20261116 };

// Below, at and above the multiples of a slice for one to three ranks.
static const int64_t lengths[] = {1, 63, 64, 65, 127, 128, 191, 192, 193, 1000};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

// ---- Ranks ----------------------------------------------------------------------------------

typedef struct rank rank;

// The action of a rank on its array, which is `x` on the device. It must not use cmocka's
// assertions, because those belong to the main thread.
typedef bd_status (*rank_act)(rank *r, void *x, bd_error *err);

struct rank {
    bd_backend *backend;
    bd_collectives *collectives;
    bd_collectives_id id;
    int32_t number, n_ranks;
    int64_t n;                       // length of the array
    int64_t bounds[MOST_RANKS + 1];  // of the slices
    size_t number_bytes;
    char *array;  // host memory [n], owned: first the input, then the result of the action
    rank_act act;
    bool wrote_outside;
    bd_status status;
    bd_error err;
};

// The bytes before the array give it the smallest alignment that its numbers allow.
enum { BAND_BYTES = 256 };

static char band_byte(size_t at)
{
    return at % 2 ? 0x7f : 0x3f;
}

static bd_status act_between_bands(rank *r, char *image, char *x, bd_error *err)
{
    const bd_operations *device = r->backend->operations;
    const size_t before = BAND_BYTES + r->number_bytes, size = (size_t)r->n * r->number_bytes;
    const size_t whole = before + size + BAND_BYTES;
    for (size_t k = 0; k < whole; k++)
        image[k] = band_byte(k);
    memcpy(image + before, r->array, size);
    BD_TRY(device->upload(r->backend, x, image, whole, err));
    BD_TRY(r->act(r, x + before, err));
    BD_TRY(device->download(r->backend, image, x, whole, err));
    memcpy(r->array, image + before, size);
    for (size_t k = 0; k < whole; k++)
        if ((k < before || k >= before + size) && image[k] != band_byte(k))
            r->wrote_outside = true;
    return BD_OK;
}

static bd_status act_with_memory(rank *r, bd_error *err)
{
    const size_t whole = (size_t)(r->n + 1) * r->number_bytes + 2 * BAND_BYTES;
    void *x;
    char *image = malloc(whole);
    if (!image)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for an image");
    bd_status status = r->backend->operations->allocate(r->backend, whole, &x, err);
    if (status == BD_OK) {
        status = act_between_bands(r, image, x, err);
        r->backend->operations->release(r->backend, x);
    }
    free(image);
    return status;
}

static void *run_rank(void *state)
{
    rank *r = state;
    r->status = r->backend->operations->open_collectives(r->backend, &r->id, r->number,
                                                         r->n_ranks, &r->collectives, &r->err);
    if (r->status != BD_OK)
        return NULL;
    r->status = act_with_memory(r, &r->err);
    r->collectives->operations->close(r->collectives);
    return NULL;
}

static void run_together(rank *ranks, int n_ranks)
{
    pthread_t threads[MOST_RANKS];
    bd_error err;
    bd_backend *first = ranks[0].backend;
    must(first->operations->make_collectives_id(first, &ranks[0].id, &err), &err);
    for (int i = 0; i < n_ranks; i++) {
        ranks[i].id = ranks[0].id;
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < n_ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

// ---- A group of them ------------------------------------------------------------------------

// Opens backends on all devices, one each.
static int open_devices(bd_backend **backends)
{
    int n_devices = 0;
    bd_error err;
    for (; n_devices < MOST_RANKS; n_devices++) {
        const bd_cuda_settings settings = {.device = n_devices};
        if (bd_backend_open_module(&backends[n_devices], module_path, &settings, &err) != BD_OK)
            break;
    }
    assert_true(n_devices == MOST_RANKS || (!configure_emulation && n_devices > 0));
    return n_devices;
}

static void close_devices(bd_backend **backends, int n_devices)
{
    for (int i = 0; i < n_devices; i++)
        backends[i]->operations->close(backends[i]);
}

// Sets the array of every rank before the action (`put`) and checks it afterwards (`check`).
typedef struct exercise {
    rank_act act;
    size_t number_bytes;
    void (*put)(const rank *r);
    void (*check)(const rank *r);
} exercise;

// Equal slices, with the rest at the last rank; unequal ones that begin anywhere; and the whole
// array for the first rank, which leaves the others empty slices.
enum { EQUAL, UNEQUAL, ALL_FOR_ONE, N_DIVISIONS };

static void divide(int division, int64_t n, int32_t n_ranks, int64_t *bounds)
{
    bd_divide_equally(n, n_ranks, bounds);
    for (int32_t r = 1; division != EQUAL && r < n_ranks; r++)
        bounds[r] = division == UNEQUAL ? n * r * r / (n_ranks * n_ranks) : n;
}

static void run_exercise(const exercise *e, bd_backend *const *backends, int n_ranks,
                         int division, int64_t n)
{
    rank ranks[MOST_RANKS];
    for (int i = 0; i < n_ranks; i++) {
        ranks[i] = (rank){.backend = backends[i], .number = i, .n_ranks = n_ranks, .n = n};
        ranks[i].number_bytes = e->number_bytes;
        ranks[i].act = e->act;
        divide(division, n, n_ranks, ranks[i].bounds);
        ranks[i].array = get_memory((size_t)n * e->number_bytes);
        e->put(&ranks[i]);
    }
    run_together(ranks, n_ranks);
    for (int i = 0; i < n_ranks; i++) {
        must(ranks[i].status, &ranks[i].err);
        assert_false(ranks[i].wrote_outside);
        e->check(&ranks[i]);
    }
    for (int i = 0; i < n_ranks; i++)
        free(ranks[i].array);
}

// Runs with every number of ranks, every division and every length.
static void run_everywhere(const exercise *e)
{
    bd_backend *backends[MOST_RANKS];
    const int n_devices = open_devices(backends);
    for (int n_ranks = 1; n_ranks <= n_devices; n_ranks++)
        for (int i = 0; i < N_LENGTHS * N_DIVISIONS; i++)
            run_exercise(e, backends, n_ranks, i % N_DIVISIONS, lengths[i / N_DIVISIONS]);
    close_devices(backends, n_devices);
}

static bd_status sum(rank *r, void *x, bd_error *err)
{
    return r->collectives->operations->sum_slices(r->collectives, x, r->bounds, err);
}

static bd_status gather_slices(rank *r, void *x, bd_error *err)
{
    return r->collectives->operations->gather_slices(r->collectives, x, r->bounds,
                                                     r->number_bytes, err);
}

// ---- Sums -----------------------------------------------------------------------------------

// Whole numbers, whose sum is the same in any order.
static float term(int number, int64_t i)
{
    return (float)((i * 7 + number * 13) % 101 - 50);
}

static float sum_of_terms(int n_ranks, int64_t i)
{
    float total = 0.0f;
    for (int k = 0; k < n_ranks; k++)
        total += term(k, i);
    return total;
}

static void put_terms(const rank *r)
{
    for (int64_t i = 0; i < r->n; i++)
        ((float *)r->array)[i] = term(r->number, i);
}

static void expect_number(const rank *r, int64_t i, float wanted)
{
    const float got = ((const float *)r->array)[i];
    if (got != wanted)
        fail_msg("rank %d of %d: number %lld of %lld is %g, not %g", r->number, r->n_ranks,
                 (long long)i, (long long)r->n, (double)got, (double)wanted);
}

static void check_sums(const rank *r)
{
    const bd_rank_slice own = bd_rank_slice_of(r->bounds, r->number);
    for (int64_t i = own.begin; i < own.end; i++)
        expect_number(r, i, sum_of_terms(r->n_ranks, i));
}

static void slices_become_sums(void)
{
    run_everywhere(&(exercise){sum, sizeof(float), put_terms, check_sums});
}

// ---- Slices ---------------------------------------------------------------------------------

static uint32_t mark_of(int owner, int64_t i)
{
    return (uint32_t)(i * 40503 + owner * 7919) & 0x7fff;
}

static void put_number(const rank *r, int64_t i, uint32_t number)
{
    // The low bytes come first on every machine that CUDA has.
    memcpy(r->array + (size_t)i * r->number_bytes, &number, r->number_bytes);
}

static void put_own_slice(const rank *r)
{
    const bd_rank_slice own = bd_rank_slice_of(r->bounds, r->number);
    memset(r->array, 0xff, (size_t)r->n * r->number_bytes);
    for (int64_t i = own.begin; i < own.end; i++)
        put_number(r, i, mark_of(r->number, i));
}

static void check_all_slices(const rank *r)
{
    for (int owner = 0; owner < r->n_ranks; owner++) {
        const bd_rank_slice slice = bd_rank_slice_of(r->bounds, owner);
        for (int64_t i = slice.begin; i < slice.end; i++) {
            uint32_t got = 0;
            memcpy(&got, r->array + (size_t)i * r->number_bytes, r->number_bytes);
            if (got != mark_of(owner, i))
                fail_msg("rank %d of %d: number %lld of %lld is %u, not %u", r->number,
                         r->n_ranks, (long long)i, (long long)r->n, got, mark_of(owner, i));
        }
    }
}

static void slices_reach_every_rank(void)
{
    for (size_t number_bytes = 2; number_bytes <= 4; number_bytes += 2)
        run_everywhere(
            &(exercise){gather_slices, number_bytes, put_own_slice, check_all_slices});
}

// ---- The stream -----------------------------------------------------------------------------

static bd_status twice(rank *r, float *x, int64_t n, bd_error *err)
{
    const bd_add_args args = {BD_FLOAT, n, x, x, x};
    return n == 0 ? BD_OK : r->backend->operations->add(r->backend, &args, err);
}

// As in a training step, nothing here waits.
static bd_status exchange_between_operations(rank *r, void *x, bd_error *err)
{
    const bd_rank_slice own = bd_rank_slice_of(r->bounds, r->number);
    BD_TRY(twice(r, x, r->n, err));
    BD_TRY(sum(r, x, err));
    BD_TRY(twice(r, (float *)x + own.begin, own.end - own.begin, err));
    BD_TRY(gather_slices(r, x, err));
    return twice(r, x, r->n, err);
}

static void check_eightfold_sums(const rank *r)
{
    for (int64_t i = 0; i < r->n; i++)
        expect_number(r, i, 8.0f * sum_of_terms(r->n_ranks, i));
}

static void exchanges_keep_their_place_on_the_stream(void)
{
    run_everywhere(&(exercise){exchange_between_operations, sizeof(float), put_terms,
                               check_eightfold_sums});
}

// ---- Bits -----------------------------------------------------------------------------------

static void put_fractions(const rank *r)
{
    uint64_t seed = SEED + (uint64_t)r->number;
    for (int64_t i = 0; i < r->n; i++)
        ((float *)r->array)[i] = (float)(random_uniform(&seed) * (i % 3 ? 1.0 : 1e4));
}

static void check_bits(const rank *r)
{
    const bd_rank_slice own = bd_rank_slice_of(r->bounds, r->number);
    expect_same_in_every_run("sums of fractions", (const float *)r->array + own.begin,
                             (size_t)(own.end - own.begin) * sizeof(float));
}

static void sums_are_the_same_bits_again(void)
{
    run_everywhere(&(exercise){sum, sizeof(float), put_fractions, check_bits});
}

// ---- Failures -------------------------------------------------------------------------------

static bool (*fail_nccl)(int n, int code);

static bool find_emulation(void)
{
    if (!configure_emulation)
        return false;  // a device cannot be told to fail
    *(void **)&fail_nccl = dlsym(dlopen(module_path, RTLD_NOW), "bd_emulation_fail_nccl");
    assert_non_null(fail_nccl);
    return true;
}

static bd_status sum_and_gather(rank *r, void *x, bd_error *err)
{
    BD_TRY(sum(r, x, err));
    return gather_slices(r, x, err);
}

static bd_status make_id_and_run(rank *r, bd_error *err)
{
    BD_TRY(cuda->operations->make_collectives_id(cuda, &r->id, err));
    run_rank(r);
    *err = r->err;
    return r->status;
}

// NCCL's result codes; the last one is no code of any NCCL.
static const struct {
    int code;
    bd_status status;
    const char *reason;
} failures[] = {
    {1, BD_ERR_DEVICE, "unhandled cuda error"}, {2, BD_ERR_DEVICE, "unhandled system error"},
    {3, BD_ERR_DEVICE, "internal error"},       {4, BD_ERR_ARGUMENT, "invalid argument"},
    {5, BD_ERR_ARGUMENT, "invalid usage"},      {6, BD_ERR_DEVICE, "remote process exited"},
    {15, BD_ERR_DEVICE, "unknown result code"},  // the largest value that the enum has bits for
};

// Making the id, joining, and twice four calls for an exchange. Failures of the calls that
// close a communicator are not reported.
enum { N_CALLS = 10 };

static void failures_of_nccl_are_reported(void)
{
    float array[65];
    if (!find_emulation())
        return;
    for (size_t f = 0; f < sizeof failures / sizeof *failures; f++)
        for (int n = 0; n <= N_CALLS + 1; n++) {
            rank r = {.backend = cuda, .n_ranks = 1, .n = 65, .bounds = {0, 65}};
            bd_error err;
            r.number_bytes = sizeof *array;
            r.array = (char *)array;
            r.act = sum_and_gather;
            put_terms(&r);
            fail_nccl(n, failures[f].code);
            const bd_status status = make_id_and_run(&r, &err);
            const bool came = fail_nccl(-1, 0);
            assert_int_equal(came, n <= N_CALLS);
            assert_int_equal(status, n < N_CALLS ? failures[f].status : BD_OK);
            if (n < N_CALLS && (strncmp(err.message, "cannot ", 7) != 0 ||
                                !strstr(err.message, failures[f].reason)))
                fail_msg("call %d: the message is '%s'", n, err.message);
        }
}

static void ranks_on_one_device_are_refused(void)
{
    bd_backend *backends[2];
    rank ranks[2];
    bd_error err;
    if (!find_emulation())
        return;
    for (int i = 0; i < 2; i++) {
        must(bd_backend_open_module(&backends[i], module_path, &(bd_cuda_settings){0}, &err),
             &err);
        ranks[i] = (rank){.backend = backends[i], .number = i, .n_ranks = 2, .act = sum};
    }
    run_together(ranks, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, BD_ERR_ARGUMENT);
        assert_null(ranks[i].collectives);
        assert_non_null(strstr(ranks[i].err.message, "cannot join the ranks: invalid usage"));
    }
    close_devices(backends, 2);
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "slices_become_sums", .check = slices_become_sums},
        {.name = "slices_reach_every_rank", .check = slices_reach_every_rank},
        {.name = "exchanges_keep_their_place_on_the_stream",
         .check = exchanges_keep_their_place_on_the_stream},
        {.name = "sums_are_the_same_bits_again", .check = sums_are_the_same_bits_again},
        {.name = "failures_of_nccl_are_reported",
         .check = failures_of_nccl_are_reported,
         .once = true},
        {.name = "ranks_on_one_device_are_refused",
         .check = ranks_on_one_device_are_refused,
         .once = true},
    };
    return run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
