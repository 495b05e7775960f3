// If all slices are equal, except that the last one also has a rest, an exchange is a group of
// two calls of NCCL: one for the equal parts of all slices and one for the rest. Otherwise it
// is a group of one call for each slice.
#include "kernels/cuda/runtime/collectives.h"

#include <cstdlib>
#include <cstring>

#include <nccl.h>

#include "kernels/cuda/runtime/check.cuh"

struct nccl_collectives {
    bd_collectives base;
    int device;
    cudaStream_t stream;  // borrowed
    ncclComm_t communicator;
};

// The message is `cannot WHAT: REASON`, and NCCL's own description of its last failure, if
// there is one.
static bd_status check_nccl(ncclResult_t code, const char *what, bd_error *err)
{
    if (code == ncclSuccess)
        return BD_OK;
    const bool refused = code == ncclInvalidArgument || code == ncclInvalidUsage;
    const char *details = ncclGetLastError(NULL);
    return bd_fail(err, refused ? BD_ERR_ARGUMENT : BD_ERR_DEVICE, "cannot %s: %s%s%s", what,
                   ncclGetErrorString(code), details && *details ? ": " : "",
                   details ? details : "");
}

// Called before an exchange: sets the device of this thread, and reports whether an earlier
// exchange has failed. If a rank or the network fails, that shows only after the call that has
// queued the exchange.
static bd_status enter_exchange(const nccl_collectives *nccl, bd_error *err)
{
    BD_TRY(bd_cuda_check(cudaSetDevice(nccl->device), "use the device", err));
    ncclResult_t code = ncclSuccess;
    BD_TRY(check_nccl(ncclCommGetAsyncError(nccl->communicator, &code), "ask for NCCL's state",
                      err));
    return check_nccl(code, "go on exchanging among ranks", err);
}

// ---- Exchanges ------------------------------------------------------------------------------

// The size of all slices but for the rest of the last one; -1 if they have different sizes.
static int64_t equal_size(const int64_t *bounds, int32_t n_ranks)
{
    const int64_t size = bounds[1] - bounds[0];
    for (int32_t r = 1; r < n_ranks - 1; r++)
        if (bounds[r + 1] - bounds[r] != size)
            return -1;
    return bounds[n_ranks] - bounds[n_ranks - 1] >= size ? size : -1;
}

// Queues the sum of [begin, end) of x for one rank.
static ncclResult_t sum_for(const nccl_collectives *nccl, float *x, int64_t begin, int64_t end,
                            int32_t rank)
{
    return begin == end ? ncclSuccess
                        : ncclReduce(x + begin, x + begin, size_t(end - begin), ncclFloat,
                                     ncclSum, rank, nccl->communicator, nccl->stream);
}

static ncclResult_t queue_sums(const nccl_collectives *nccl, float *x, const int64_t *bounds)
{
    const int32_t rank = nccl->base.rank, n_ranks = nccl->base.n_ranks;
    const int64_t size = equal_size(bounds, n_ranks);
    ncclResult_t code = ncclSuccess;
    if (size < 0) {
        for (int32_t r = 0; code == ncclSuccess && r < n_ranks; r++)
            code = sum_for(nccl, x, bounds[r], bounds[r + 1], r);
        return code;
    }
    if (size > 0)
        code = ncclReduceScatter(x, x + rank * size, size_t(size), ncclFloat, ncclSum,
                                 nccl->communicator, nccl->stream);
    return code == ncclSuccess ? sum_for(nccl, x, size * n_ranks, bounds[n_ranks], n_ranks - 1)
                               : code;
}

static bd_status sum_slices(bd_collectives *collectives, float *x, const int64_t *bounds,
                            bd_error *err)
{
    const nccl_collectives *nccl = (nccl_collectives *)collectives;
    BD_TRY(enter_exchange(nccl, err));
    BD_TRY(check_nccl(ncclGroupStart(), "sum over the ranks", err));
    const ncclResult_t code = queue_sums(nccl, x, bounds);
    const ncclResult_t end = ncclGroupEnd();  // in any case: groups nest
    return check_nccl(code != ncclSuccess ? code : end, "sum over the ranks", err);
}

// Queues the broadcast of bytes [begin, end) of x from one rank. The numbers are only moved, so
// that their type does not matter: for NCCL they are bytes.
static ncclResult_t send_from(const nccl_collectives *nccl, char *x, size_t begin, size_t end,
                              int32_t rank)
{
    return begin == end ? ncclSuccess
                        : ncclBroadcast(x + begin, x + begin, end - begin, ncclUint8, rank,
                                        nccl->communicator, nccl->stream);
}

static ncclResult_t queue_slices(const nccl_collectives *nccl, char *x, const int64_t *bounds,
                                 size_t number_bytes)
{
    const int32_t rank = nccl->base.rank, n_ranks = nccl->base.n_ranks;
    const int64_t equal = equal_size(bounds, n_ranks);
    ncclResult_t code = ncclSuccess;
    if (equal < 0) {
        for (int32_t r = 0; code == ncclSuccess && r < n_ranks; r++)
            code = send_from(nccl, x, size_t(bounds[r]) * number_bytes,
                             size_t(bounds[r + 1]) * number_bytes, r);
        return code;
    }
    const size_t size = size_t(equal) * number_bytes;
    if (size > 0)
        code = ncclAllGather(x + rank * size, x, size, ncclUint8, nccl->communicator,
                             nccl->stream);
    return code == ncclSuccess ? send_from(nccl, x, size * n_ranks,
                                           size_t(bounds[n_ranks]) * number_bytes, n_ranks - 1)
                               : code;
}

static bd_status gather_slices(bd_collectives *collectives, void *x, const int64_t *bounds,
                               size_t number_bytes, bd_error *err)
{
    const nccl_collectives *nccl = (nccl_collectives *)collectives;
    BD_TRY(enter_exchange(nccl, err));
    BD_TRY(check_nccl(ncclGroupStart(), "gather from the ranks", err));
    const ncclResult_t code = queue_slices(nccl, (char *)x, bounds, number_bytes);
    const ncclResult_t end = ncclGroupEnd();
    return check_nccl(code != ncclSuccess ? code : end, "gather from the ranks", err);
}

// ---- Opening and closing --------------------------------------------------------------------

// A communicator that has failed is aborted, because destroying it would wait for the other
// ranks, which may never come.
static void close_collectives(bd_collectives *collectives)
{
    nccl_collectives *nccl = (nccl_collectives *)collectives;
    if (!nccl)
        return;
    ncclResult_t code = ncclSuccess;
    cudaSetDevice(nccl->device);
    if (ncclCommGetAsyncError(nccl->communicator, &code) == ncclSuccess && code == ncclSuccess)
        ncclCommDestroy(nccl->communicator);
    else
        ncclCommAbort(nccl->communicator);
    free(nccl);
}

static const bd_collectives_operations nccl_operations = {
    "nccl",
    sum_slices,
    gather_slices,
    close_collectives,
};

// NVLink's switches can add numbers, but in an order that changes from call to call
// (https://github.com/NVIDIA/nccl/issues/1497), so that is switched off unless the environment
// asks for it.
static void choose_ordered_sums(void)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

bd_status bd_cuda_make_collectives_id(bd_collectives_id *id, bd_error *err)
{
    ncclUniqueId unique;
    static_assert(sizeof unique.internal == sizeof id->bytes, "an id must fit");
    choose_ordered_sums();  // NCCL may read its settings now, and only once
    BD_TRY(check_nccl(ncclGetUniqueId(&unique), "make an id for the ranks", err));
    memcpy(id->bytes, unique.internal, sizeof id->bytes);
    return BD_OK;
}

bd_status bd_cuda_open_collectives(const bd_collectives_id *id, int32_t rank, int32_t n_ranks,
                                   cudaStream_t stream, bd_collectives **collectives,
                                   bd_error *err)
{
    *collectives = NULL;
    ncclUniqueId unique;
    memcpy(unique.internal, id->bytes, sizeof id->bytes);
    nccl_collectives *nccl = (nccl_collectives *)calloc(1, sizeof *nccl);
    if (!nccl)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the collectives");
    nccl->base = {&nccl_operations, rank, n_ranks};
    nccl->stream = stream;
    choose_ordered_sums();
    bd_status status = bd_cuda_check(cudaGetDevice(&nccl->device), "ask for the device", err);
    if (status == BD_OK)
        status = check_nccl(ncclCommInitRank(&nccl->communicator, n_ranks, unique, rank),
                            "join the ranks", err);
    if (status != BD_OK) {
        free(nccl);
        return status;
    }
    *collectives = &nccl->base;
    return BD_OK;
}
