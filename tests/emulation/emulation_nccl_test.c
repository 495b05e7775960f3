// The emulated NCCL: the data that ranks exchange once all have come, and the refusals.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <nccl.h>

#include "tests/emulation/emulation.h"
#include "tests/emulation/run_again.h"

enum { N_RANKS = 2, N = 8 };  // ranks; numbers of a rank's array

typedef struct rank {
    int number;
    ncclUniqueId id;
    ncclComm_t communicator;
    cudaStream_t stream;
    float *x;          // device memory [N]
    float numbers[N];  // its contents, before and after the action
    ncclResult_t (*act)(struct rank *r);
    ncclResult_t code;
} rank;

static void *run_rank(void *state)
{
    rank *r = state;
    const size_t size = sizeof r->numbers;
    r->code = ncclInternalError;
    if (cudaSetDevice(r->number) != cudaSuccess ||
        cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMalloc((void **)&r->x, size) != cudaSuccess ||
        cudaMemcpyAsync(r->x, r->numbers, size, cudaMemcpyHostToDevice, r->stream) !=
            cudaSuccess)
        return NULL;
    r->code = ncclCommInitRank(&r->communicator, N_RANKS, r->id, r->number);
    if (r->code == ncclSuccess)
        r->code = r->act(r);
    if (r->code == ncclSuccess)
        cudaMemcpyAsync(r->numbers, r->x, size, cudaMemcpyDeviceToHost, r->stream);
    if (r->communicator)
        ncclCommDestroy(r->communicator);
    cudaFree(r->x);
    cudaStreamDestroy(r->stream);
    return NULL;
}

// 0, 1, 2, … on rank 0, ten more on rank 1.
static void run_ranks(ncclResult_t (*act)(rank *r), rank *ranks)
{
    pthread_t threads[N_RANKS];
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess)
        abort();
    for (int i = 0; i < N_RANKS; i++) {
        ranks[i] = (rank){.number = i, .id = id, .act = act};
        for (int k = 0; k < N; k++)
            ranks[i].numbers[k] = (float)(10 * i + k);
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0)
            abort();
    }
    for (int i = 0; i < N_RANKS; i++)
        pthread_join(threads[i], NULL);
}

static void expect_success(const rank *ranks)
{
    for (int i = 0; i < N_RANKS; i++)
        if (ranks[i].code != ncclSuccess)
            fail_msg("rank %d: %s", i, ncclGetErrorString(ranks[i].code));
}

// ---- Exchanges ------------------------------------------------------------------------------

static ncclResult_t gather(rank *r)
{
    return ncclAllGather(r->x, r->x + 4, 2, ncclFloat, r->communicator, r->stream);
}

static void gathered_elsewhere(void **state)
{
    (void)state;
    static const float wanted[N_RANKS][N] = {{0, 1, 2, 3, 0, 1, 10, 11},
                                             {10, 11, 12, 13, 0, 1, 10, 11}};
    rank ranks[N_RANKS];
    run_ranks(gather, ranks);
    expect_success(ranks);
    for (int i = 0; i < N_RANKS; i++)
        assert_memory_equal(ranks[i].numbers, wanted[i], sizeof wanted[i]);
}

static ncclResult_t scatter(rank *r)
{
    return ncclReduceScatter(r->x, r->x + 4, 2, ncclFloat, ncclSum, r->communicator, r->stream);
}

static void summed_elsewhere(void **state)
{
    (void)state;
    static const float wanted[N_RANKS][N] = {{0, 1, 2, 3, 10, 12, 6, 7},
                                             {10, 11, 12, 13, 14, 16, 16, 17}};
    rank ranks[N_RANKS];
    run_ranks(scatter, ranks);
    expect_success(ranks);
    for (int i = 0; i < N_RANKS; i++)
        assert_memory_equal(ranks[i].numbers, wanted[i], sizeof wanted[i]);
}

// Only the root's sum is defined; in place, the terms of the other ranks are lost.
static ncclResult_t sum_at_the_last(rank *r)
{
    return ncclReduce(r->x, r->x, N, ncclFloat, ncclSum, 1, r->communicator, r->stream);
}

static void terms_are_spoiled(void **state)
{
    (void)state;
    rank ranks[N_RANKS];
    run_ranks(sum_at_the_last, ranks);
    expect_success(ranks);
    for (int k = 0; k < N; k++) {
        assert_true(ranks[0].numbers[k] != ranks[0].numbers[k]);
        assert_true(ranks[1].numbers[k] == (float)(10 + 2 * k));
    }
}

// Rank 1 comes late; rank 0 waits in the meantime, in every way of waiting.
static ncclResult_t broadcast_late(rank *r)
{
    if (r->number == 1)
        usleep(50000);
    const ncclResult_t code =
        ncclBroadcast(r->x, r->x, N, ncclFloat, 1, r->communicator, r->stream);
    cudaStreamSynchronize(r->stream);
    return code;
}

static void ranks_wait_for_each_other(void **state)
{
    (void)state;
    rank ranks[N_RANKS];
    run_ranks(broadcast_late, ranks);
    expect_success(ranks);
    assert_true(ranks[0].numbers[3] == 13.0f);
}

// ---- Refusals -------------------------------------------------------------------------------

static ncclResult_t make_refused_calls(rank *r)
{
    ncclComm_t gone = (ncclComm_t)r;
    cudaStream_t elsewhere;
    const ncclResult_t codes[] = {
        ncclBroadcast(r->x, r->x, N, ncclFloat, N_RANKS, r->communicator, r->stream),
        ncclBroadcast(r->x, r->x, N, ncclFloat, -1, r->communicator, r->stream),
        ncclBroadcast(r->x, NULL, N, ncclFloat, 0, r->communicator, r->stream),
        ncclBroadcast(r->x, r->x, N, ncclFloat, 0, gone, r->stream),
        ncclReduce(r->x, r->x, N, ncclFloat, ncclMax, 0, r->communicator, r->stream),
        ncclReduce(r->x, r->x, N, ncclBfloat16, ncclSum, 0, r->communicator, r->stream),
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] != ncclInvalidArgument)
            return ncclInternalError;
    if (ncclGroupEnd() != ncclInvalidUsage)
        return ncclInternalError;
    cudaSetDevice(N_RANKS);  // a stream of another device than the communicator's
    cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking);
    const ncclResult_t code =
        ncclBroadcast(r->x, r->x, N, ncclFloat, 0, r->communicator, elsewhere);
    cudaStreamDestroy(elsewhere);
    cudaSetDevice(r->number);
    return code == ncclUnhandledCudaError ? ncclSuccess : ncclInternalError;
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    rank ranks[N_RANKS];
    run_ranks(make_refused_calls, ranks);
    expect_success(ranks);
}

static void wrong_ranks_are_refused(void **state)
{
    (void)state;
    ncclUniqueId id, unknown = {"an id of another process"};
    ncclComm_t communicator;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    assert_int_equal(ncclCommInitRank(&communicator, 2, id, 2), ncclInvalidArgument);
    assert_int_equal(ncclCommInitRank(&communicator, 0, id, 0), ncclInvalidArgument);
    assert_int_equal(ncclCommInitRank(&communicator, 1, unknown, 0), ncclSystemError);
    assert_non_null(strstr(ncclGetLastError(NULL), "ranks are threads"));
}

// ---- Faults that end the process ------------------------------------------------------------

static ncclResult_t other_count(rank *r)
{
    return ncclReduce(r->x, r->x, (size_t)(4 + r->number), ncclFloat, ncclSum, 0,
                      r->communicator, r->stream);
}

static ncclResult_t other_root(rank *r)
{
    return ncclBroadcast(r->x, r->x, N, ncclFloat, r->number, r->communicator, r->stream);
}

static ncclResult_t other_call(rank *r)
{
    return r->number == 0 ? scatter(r) : gather(r);
}

static ncclResult_t other_group(rank *r)
{
    ncclGroupStart();
    ncclBroadcast(r->x, r->x, 4, ncclFloat, 0, r->communicator, r->stream);
    if (r->number == 1)
        ncclBroadcast(r->x + 4, r->x + 4, 4, ncclFloat, 0, r->communicator, r->stream);
    return ncclGroupEnd();
}

static ncclResult_t dependent_calls(rank *r)
{
    ncclGroupStart();
    ncclBroadcast(r->x, r->x, 4, ncclFloat, 0, r->communicator, r->stream);
    ncclBroadcast(r->x + 3, r->x + 3, 4, ncclFloat, 0, r->communicator, r->stream);
    return ncclGroupEnd();
}

static ncclResult_t almost_in_place(rank *r)
{
    return ncclBroadcast(r->x, r->x + 1, 4, ncclFloat, 0, r->communicator, r->stream);
}

static ncclResult_t host_memory(rank *r)
{
    return ncclBroadcast(r->numbers, r->numbers, N, ncclFloat, 0, r->communicator, r->stream);
}

static ncclResult_t past_the_end(rank *r)
{
    return ncclAllGather(r->x, r->x, N / 2 + 1, ncclFloat, r->communicator, r->stream);
}

static ncclResult_t open_group(rank *r)
{
    (void)r;
    return ncclGroupStart();
}

static const struct {
    ncclResult_t (*act)(rank *r);
    const char *says;
} fatal_acts[] = {
    {other_count, "ncclReduce on rank 0 (count 4, type 7, root 0) meets ncclReduce on rank 1 "
                  "(count 5, type 7, root 0)"},
    {other_root, "root 0) meets ncclBroadcast on rank 1 (count 8, type 7, root 1)"},
    {other_call, "ncclReduceScatter on rank 0"},
    {other_group, "a group of 1 calls on rank 0 has 2 on rank 1"},
    {dependent_calls, "ncclBroadcast and ncclBroadcast of a group touch the same memory"},
    {almost_in_place, "receives where it sends from, but not in place"},
    {host_memory, "ncclBroadcast: the 32 bytes to "},
    {past_the_end, "ncclAllGather: the 40 bytes to receive are not in device memory"},
    {open_group, "ncclCommDestroy: in a group that was not ended"},
};
enum { N_FATAL_ACTS = sizeof fatal_acts / sizeof *fatal_acts };

static void disagreement_ends_the_process(void **state)
{
    (void)state;
    for (int i = 0; i < N_FATAL_ACTS; i++) {
        char text[4096];
        const int status = run_again(&i, 1, text, sizeof text);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        if (!strstr(text, fatal_acts[i].says))
            fail_msg("'%s' expected, got: %s", fatal_acts[i].says, text);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        rank ranks[N_RANKS];
        run_ranks(fatal_acts[atoi(argv[1])].act, ranks);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathered_elsewhere),
        cmocka_unit_test(summed_elsewhere),
        cmocka_unit_test(terms_are_spoiled),
        cmocka_unit_test(ranks_wait_for_each_other),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(wrong_ranks_are_refused),
        cmocka_unit_test(disagreement_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
