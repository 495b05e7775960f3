// The processes of MPI_COMM_WORLD as a group, and collectives of their host memory: the module
// libbindery_mpi.so.
//
// Data is exchanged in pieces, so that memory stays within 1 MiB for each rank and counts fit
// MPI's int. Sums are computed here, in the order of the ranks, and not by MPI, whose order may
// depend on sizes, versions and the network.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "trainer/group.h"

enum { PIECE = 1 << 18 };  // numbers that are sent at a time
enum { EXCHANGE_TAG, ASSEMBLE_TAG };

typedef struct mpi_group {
    bd_group base;
    bd_collectives collectives;
    float *pieces;          // [n_ranks][PIECE], owned: what the others send
    MPI_Request *requests;  // [2 * n_ranks], owned, and so are
    MPI_Status *statuses;   // [2 * n_ranks]
} mpi_group;

static mpi_group *mpi_of(bd_group *group)
{
    return (mpi_group *)group;
}

static mpi_group *mpi_of_collectives(bd_collectives *collectives)
{
    return (mpi_group *)((char *)collectives - offsetof(mpi_group, collectives));
}

static bd_status mpi_check(int code, const char *what, bd_error *err)
{
    char reason[MPI_MAX_ERROR_STRING] = "unknown";
    int length;
    if (code == MPI_SUCCESS)
        return BD_OK;
    MPI_Error_string(code, reason, &length);
    return bd_fail(err, BD_ERR_IO, "cannot %s: %.300s", what, reason);
}

// ---- Slices in pieces -----------------------------------------------------------------------

// The piece of a rank's slice that is sent in the round that begins `at` numbers into it; empty
// if the slice has ended before.
static bd_rank_slice piece_of(const int64_t *bounds, int32_t rank, int64_t at)
{
    bd_rank_slice piece = bd_rank_slice_of(bounds, rank);
    piece.begin = piece.begin + at < piece.end ? piece.begin + at : piece.end;
    piece.end = piece.begin + PIECE < piece.end ? piece.begin + PIECE : piece.end;
    return piece;
}

static int64_t longest_slice(const mpi_group *mpi, const int64_t *bounds)
{
    int64_t longest = 0;
    for (int32_t r = 0; r < mpi->base.n_ranks; r++)
        if (bounds[r + 1] - bounds[r] > longest)
            longest = bounds[r + 1] - bounds[r];
    return longest;
}

// Starts to send bytes to a rank and to receive others from it.
static bd_status swap_with(mpi_group *mpi, int32_t rank, const void *from, int64_t from_bytes,
                           void *to, int64_t to_bytes, int *n_requests, bd_error *err)
{
    BD_TRY(mpi_check(MPI_Irecv(to, (int)to_bytes, MPI_BYTE, rank, EXCHANGE_TAG, MPI_COMM_WORLD,
                               &mpi->requests[(*n_requests)++]),
                     "receive from another rank", err));
    return mpi_check(MPI_Isend(from, (int)from_bytes, MPI_BYTE, rank, EXCHANGE_TAG,
                               MPI_COMM_WORLD, &mpi->requests[(*n_requests)++]),
                     "send to another rank", err);
}

static bd_status wait_for(mpi_group *mpi, int n_requests, bd_error *err)
{
    int code = MPI_Waitall(n_requests, mpi->requests, mpi->statuses);
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < n_requests; i++)
        if (mpi->statuses[i].MPI_ERROR != MPI_SUCCESS &&
            mpi->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            code = mpi->statuses[i].MPI_ERROR;
    return mpi_check(code, "exchange numbers with the other ranks", err);
}

// ---- Collectives ----------------------------------------------------------------------------

static void add_pieces(const mpi_group *mpi, float *sum, int64_t n)
{
    memcpy(sum, mpi->pieces, (size_t)n * sizeof *sum);
    for (int32_t r = 1; r < mpi->base.n_ranks; r++) {
        const float *piece = mpi->pieces + (int64_t)r * PIECE;
        for (int64_t i = 0; i < n; i++)
            sum[i] += piece[i];
    }
}

static bd_status sum_piece(mpi_group *mpi, float *x, const int64_t *bounds, int64_t at,
                           bd_error *err)
{
    const bd_rank_slice mine = piece_of(bounds, mpi->base.rank, at);
    const int64_t n_mine = mine.end - mine.begin, number_bytes = sizeof *x;
    int n_requests = 0;
    for (int32_t r = 0; r < mpi->base.n_ranks; r++) {
        const bd_rank_slice theirs = piece_of(bounds, r, at);
        float *to = mpi->pieces + (int64_t)r * PIECE;
        if (r == mpi->base.rank)
            memcpy(to, x + mine.begin, (size_t)n_mine * sizeof *x);
        else
            BD_TRY(swap_with(mpi, r, x + theirs.begin,
                             (theirs.end - theirs.begin) * number_bytes, to,
                             n_mine * number_bytes, &n_requests, err));
    }
    BD_TRY(wait_for(mpi, n_requests, err));
    add_pieces(mpi, x + mine.begin, n_mine);
    return BD_OK;
}

static bd_status sum_slices(bd_collectives *collectives, float *x, const int64_t *bounds,
                            bd_error *err)
{
    mpi_group *mpi = mpi_of_collectives(collectives);
    for (int64_t at = 0; at < longest_slice(mpi, bounds); at += PIECE)
        BD_TRY(sum_piece(mpi, x, bounds, at, err));
    return BD_OK;
}

static bd_status gather_piece(mpi_group *mpi, char *x, const int64_t *bounds,
                              int64_t number_bytes, int64_t at, bd_error *err)
{
    const bd_rank_slice mine = piece_of(bounds, mpi->base.rank, at);
    int n_requests = 0;
    for (int32_t r = 0; r < mpi->base.n_ranks; r++) {
        const bd_rank_slice theirs = piece_of(bounds, r, at);
        if (r != mpi->base.rank)
            BD_TRY(swap_with(mpi, r, x + mine.begin * number_bytes,
                             (mine.end - mine.begin) * number_bytes,
                             x + theirs.begin * number_bytes,
                             (theirs.end - theirs.begin) * number_bytes, &n_requests, err));
    }
    return wait_for(mpi, n_requests, err);
}

static bd_status gather_slices(bd_collectives *collectives, void *x, const int64_t *bounds,
                               size_t number_bytes, bd_error *err)
{
    mpi_group *mpi = mpi_of_collectives(collectives);
    for (int64_t at = 0; at < longest_slice(mpi, bounds); at += PIECE)
        BD_TRY(gather_piece(mpi, x, bounds, (int64_t)number_bytes, at, err));
    return BD_OK;
}

// The collectives are part of the group, which frees them.
static void close_collectives(bd_collectives *collectives)
{
    (void)collectives;
}

static const bd_collectives_operations collectives_operations = {
    .name = "mpi",
    .sum_slices = sum_slices,
    .gather_slices = gather_slices,
    .close = close_collectives,
};

// ---- The group ------------------------------------------------------------------------------

static bd_status mpi_collect(bd_group *group, const void *mine, size_t size_bytes, void *all,
                             bd_error *err)
{
    (void)group;
    return mpi_check(MPI_Allgather(mine, (int)size_bytes, MPI_BYTE, all, (int)size_bytes,
                                   MPI_BYTE, MPI_COMM_WORLD),
                     "receive from the other ranks", err);
}

static bd_status send_slice(const float *mine, int64_t n, bd_error *err)
{
    for (int64_t at = 0; at < n; at += PIECE)
        BD_TRY(mpi_check(MPI_Send(mine + at, (int)(n - at < PIECE ? n - at : PIECE), MPI_FLOAT,
                                  0, ASSEMBLE_TAG, MPI_COMM_WORLD),
                         "send to rank 0", err));
    return BD_OK;
}

static bd_status receive_slice(float *to, int64_t n, int32_t rank, bd_error *err)
{
    for (int64_t at = 0; at < n; at += PIECE)
        BD_TRY(mpi_check(MPI_Recv(to + at, (int)(n - at < PIECE ? n - at : PIECE), MPI_FLOAT,
                                  rank, ASSEMBLE_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                         "receive from another rank", err));
    return BD_OK;
}

static bd_status mpi_assemble(bd_group *group, const float *mine, float *whole,
                              const int64_t *bounds, bd_error *err)
{
    const bd_rank_slice own = bd_rank_slice_of(bounds, group->rank);
    if (group->rank > 0)
        return send_slice(mine, own.end - own.begin, err);
    memcpy(whole, mine, (size_t)(own.end - own.begin) * sizeof *whole);
    for (int32_t r = 1; r < group->n_ranks; r++) {
        const bd_rank_slice theirs = bd_rank_slice_of(bounds, r);
        BD_TRY(receive_slice(whole + theirs.begin, theirs.end - theirs.begin, r, err));
    }
    return BD_OK;
}

static void free_group(mpi_group *mpi)
{
    free(mpi->pieces);
    free(mpi->requests);
    free(mpi->statuses);
    free(mpi);
}

static void mpi_leave(bd_group *group)
{
    MPI_Finalize();
    free_group(mpi_of(group));
}

static void mpi_abort(bd_group *group, int exit_status)
{
    (void)group;
    MPI_Abort(MPI_COMM_WORLD, exit_status);
}

static const bd_group_operations group_operations = {
    .collect = mpi_collect,
    .assemble = mpi_assemble,
    .abort = mpi_abort,
    .leave = mpi_leave,
};

// The rank among those that share this machine's memory.
static bd_status find_local_rank(int32_t *local_rank, bd_error *err)
{
    MPI_Comm local;
    int rank;
    BD_TRY(mpi_check(
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
        "ask MPI for the ranks on this machine", err));
    const bd_status status =
        mpi_check(MPI_Comm_rank(local, &rank), "ask MPI for the rank on this machine", err);
    MPI_Comm_free(&local);
    *local_rank = rank;
    return status;
}

static bd_status fill_group(mpi_group *mpi, bd_error *err)
{
    int rank, n_ranks, provided;
    BD_TRY(mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "start MPI",
                     err));
    BD_TRY(mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "set up MPI",
                     err));
    BD_TRY(mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "ask MPI for the rank", err));
    BD_TRY(mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &n_ranks), "ask MPI for the ranks", err));
    if (provided < MPI_THREAD_FUNNELED)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "this MPI does not support programs with threads");
    mpi->pieces = malloc((size_t)n_ranks * PIECE * sizeof *mpi->pieces);
    mpi->requests = calloc(2 * (size_t)n_ranks, sizeof *mpi->requests);
    mpi->statuses = calloc(2 * (size_t)n_ranks, sizeof *mpi->statuses);
    if (!mpi->pieces || !mpi->requests || !mpi->statuses)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to exchange numbers with %d ranks",
                       n_ranks);
    mpi->collectives = (bd_collectives){&collectives_operations, rank, n_ranks};
    mpi->base = (bd_group){.operations = &group_operations,
                           .collectives = &mpi->collectives,
                           .rank = rank,
                           .n_ranks = n_ranks};
    return find_local_rank(&mpi->base.local_rank, err);
}

bd_status bd_group_open_mpi(bd_group **group, bd_error *err)
{
    *group = NULL;
    mpi_group *mpi = calloc(1, sizeof *mpi);
    if (!mpi)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the group of processes");
    const bd_status status = fill_group(mpi, err);
    if (status != BD_OK)
        free_group(mpi);
    else
        *group = &mpi->base;
    return status;
}

const bd_module_abi bd_mpi_module_abi = BD_MPI_MODULE_ABI;
