// All slices are equal, except that the last one also has the rest. So each exchange is a group
// of two calls of NCCL: one for the equal parts of all slices and one for the rest.
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

static bd_status sum_slices(bd_collectives *collectives, float *x, int64_t n, bd_error *err)
{
    const nccl_collectives *nccl = (nccl_collectives *)collectives;
    const int32_t rank = collectives->rank, n_ranks = collectives->n_ranks;
    const int64_t size = bd_rank_slice_size(n, n_ranks), equal = size * n_ranks;
    BD_TRY(enter_exchange(nccl, err));
    BD_TRY(check_nccl(ncclGroupStart(), "sum over the ranks", err));
    ncclResult_t code = ncclSuccess;
    if (size > 0)
        code = ncclReduceScatter(x, x + rank * size, size_t(size), ncclFloat, ncclSum,
                                 nccl->communicator, nccl->stream);
    if (code == ncclSuccess && equal < n)
        code = ncclReduce(x + equal, x + equal, size_t(n - equal), ncclFloat, ncclSum,
                          n_ranks - 1, nccl->communicator, nccl->stream);
    const ncclResult_t end = ncclGroupEnd();  // in any case: groups nest
    return check_nccl(code != ncclSuccess ? code : end, "sum over the ranks", err);
}

// The numbers are only moved, so that their type does not matter: for NCCL they are bytes.
static bd_status gather_slices(bd_collectives *collectives, void *x, int64_t n,
                               size_t number_bytes, bd_error *err)
{
    const nccl_collectives *nccl = (nccl_collectives *)collectives;
    const int32_t n_ranks = collectives->n_ranks;
    const size_t size = size_t(bd_rank_slice_size(n, n_ranks)) * number_bytes;
    const size_t equal = size * n_ranks, whole = size_t(n) * number_bytes;
    char *bytes = (char *)x;
    BD_TRY(enter_exchange(nccl, err));
    BD_TRY(check_nccl(ncclGroupStart(), "gather from the ranks", err));
    ncclResult_t code = ncclSuccess;
    if (size > 0)
        code = ncclAllGather(bytes + collectives->rank * size, bytes, size, ncclUint8,
                             nccl->communicator, nccl->stream);
    if (code == ncclSuccess && equal < whole)
        code = ncclBroadcast(bytes + equal, bytes + equal, whole - equal, ncclUint8,
                             n_ranks - 1, nccl->communicator, nccl->stream);
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
