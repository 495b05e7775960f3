// The transfer slots of the CUDA backend: under every legal order of its streams, operations
// see exactly the data that was sent.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "module_fixture.h"
#include "tests/unit/kernels/kernel_fixture.h"

// Calls `check` under each order of the streams; the random one with several seeds.
static void in_every_order(void (*check)(void))
{
    const uint64_t n_seeds = ONE_SCHEDULE ? 1 : 8;
    if (!configure_emulation)
        check();
    for (int streams = 0; configure_emulation && streams < BD_N_STREAMS; streams++)
        for (uint64_t seed = 0; seed < (streams == BD_STREAMS_RANDOM ? n_seeds : 1); seed++) {
            configure_emulation(&(bd_emulation_settings){
                .streams = (bd_emulation_streams)streams, .seed = seed, .host_threads = 1});
            check();
        }
}

static void *allocate(size_t size_bytes)
{
    bd_error err;
    void *memory;
    must(cuda->operations->allocate(cuda, size_bytes, &memory, &err), &err);
    return memory;
}

static void send(int slot, void *to, const void *from, size_t size_bytes)
{
    bd_error err;
    must(cuda->operations->send(cuda, slot, to, from, size_bytes, &err), &err);
}

static void arrive(int slot)
{
    bd_error err;
    must(cuda->operations->arrive(cuda, slot, &err), &err);
}

static void leave(int slot)
{
    bd_error err;
    must(cuda->operations->leave(cuda, slot, &err), &err);
}

// ---- Batches of two parts, whose sum is computed --------------------------------------------

enum { N_BATCHES = 7 };

typedef struct traffic {
    int64_t n;                           // values of a part
    float *parts[BD_TRANSFER_SLOTS][2];  // on the device
    float *sums[N_BATCHES];              // on the device
    float *host;                         // every part is made here before it is sent
} traffic;

static float value_of(int number, int part, int64_t i)
{
    return (float)(1000 * (2 * number + part) + i % 997);
}

// Fresh memory is cleared by a queued operation, which must not run after the copies.
static traffic begin_traffic(int64_t n)
{
    traffic t = {.n = n, .host = get_memory((size_t)n * sizeof(float))};
    for (int k = 0; k < N_BATCHES; k++)
        t.sums[k] = allocate((size_t)n * sizeof(float));
    for (int slot = 0; slot < BD_TRANSFER_SLOTS; slot++)
        for (int part = 0; part < 2; part++)
            t.parts[slot][part] = allocate((size_t)n * sizeof(float));
    return t;
}

static void send_batch(const traffic *t, int number)
{
    const int slot = number % BD_TRANSFER_SLOTS;
    for (int part = 0; part < 2; part++) {
        for (int64_t i = 0; i < t->n; i++)
            t->host[i] = value_of(number, part, i);
        send(slot, t->parts[slot][part], t->host, (size_t)t->n * sizeof(float));
        send(slot, t->parts[slot][part], NULL, 0);
    }
}

static void compute_batch(const traffic *t, int number)
{
    const int slot = number % BD_TRANSFER_SLOTS;
    float *const *parts = t->parts[slot];
    arrive(slot);
    RUN(cuda, add, {BD_FLOAT, t->n, parts[0], parts[1], t->sums[number]});
    leave(slot);
}

static void end_traffic(traffic *t)
{
    for (int k = 0; k < N_BATCHES; k++) {
        float *sum = fetch_bytes(t->sums[k], (size_t)t->n * sizeof(float));
        for (int64_t i = 0; i < t->n; i++)
            if (sum[i] != value_of(k, 0, i) + value_of(k, 1, i))
                fail_msg("batch %d: sum %lld is %g", k, (long long)i, (double)sum[i]);
        free(sum);
        cuda->operations->release(cuda, t->sums[k]);
    }
    for (int slot = 0; slot < BD_TRANSFER_SLOTS; slot++)
        for (int part = 0; part < 2; part++)
            cuda->operations->release(cuda, t->parts[slot][part]);
    free(t->host);
}

// ---- The cases ------------------------------------------------------------------------------

static void check_one_after_the_other(void)
{
    traffic t = begin_traffic(100);
    for (int k = 0; k < N_BATCHES; k++) {
        send_batch(&t, k);
        compute_batch(&t, k);
    }
    end_traffic(&t);
}

static void batches_arrive_one_after_the_other(void)
{
    in_every_order(check_one_after_the_other);
}

static void check_one_ahead(void)
{
    traffic t = begin_traffic(100);
    send_batch(&t, 0);
    for (int k = 0; k < N_BATCHES; k++) {
        if (k + 1 < N_BATCHES)
            send_batch(&t, k + 1);
        compute_batch(&t, k);
    }
    end_traffic(&t);
}

static void batches_arrive_one_ahead(void)
{
    in_every_order(check_one_ahead);
}

// More than the initial size of the slots' buffers, and then more than they have grown to.
static void check_large(void)
{
    static const int64_t lengths[] = {200000, 700000};
    for (int i = 0; i < 2; i++) {
        traffic t = begin_traffic(lengths[i]);
        for (int k = 0; k < N_BATCHES; k++) {
            send_batch(&t, k);
            compute_batch(&t, k);
        }
        end_traffic(&t);
    }
}

static void large_batches_arrive(void)
{
    if (BRIEF)
        check_large();
    else
        in_every_order(check_large);
}

// A copy into memory that has been released does not reach the next owner of that memory.
static void check_reuse(void)
{
    enum { SIZE = 64 << 10 };
    static const char zeros[SIZE];
    char *sent = get_memory(SIZE);
    memset(sent, 1, SIZE);
    void *first = allocate(SIZE), *marker = allocate(SIZE);
    send(0, first, sent, SIZE);
    cuda->operations->release(cuda, first);
    void *second = allocate(SIZE);
    assert_ptr_equal(second, first);  // otherwise this would prove nothing
    send(1, marker, sent, SIZE);
    arrive(1);
    char *marked = fetch_bytes(marker, SIZE), *got = fetch_bytes(second, SIZE);
    assert_memory_equal(marked, sent, SIZE);
    assert_memory_equal(got, zeros, SIZE);
    leave(0);
    leave(1);
    cuda->operations->release(cuda, second);
    cuda->operations->release(cuda, marker);
    free(sent);
    free(marked);
    free(got);
}

static void memory_changes_hands_cleanly(void)
{
    in_every_order(check_reuse);
}

int main(int argc, char **argv)
{
    static const module_case cases[] = {
        {.name = "batches_arrive_one_after_the_other",
         .check = batches_arrive_one_after_the_other,
         .once = true},
        {.name = "batches_arrive_one_ahead", .check = batches_arrive_one_ahead, .once = true},
        {.name = "large_batches_arrive", .check = large_batches_arrive, .once = true},
        {.name = "memory_changes_hands_cleanly",
         .check = memory_changes_hands_cleanly,
         .once = true},
    };
    return run_module_cases(argc, argv, cases, sizeof cases / sizeof *cases);
}
