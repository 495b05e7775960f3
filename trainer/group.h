// group.h - the processes that train together: one alone, or those that mpirun started.
//
// Every rank calls the same functions in the same order, in its first thread. A rank that failed
// and no longer called them would let the others wait for ever. So either all ranks agree to
// fail, bd_group_agree(), or the one that failed aborts the others, bd_group_leave().
#ifndef BINDERY_TRAINER_GROUP_H
#define BINDERY_TRAINER_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/module.h"
#include "kernels/collectives.h"

typedef struct bd_group bd_group;

// The operations of a group of several processes. All memory is the host's, and every operation
// is complete when it returns.
typedef struct bd_group_operations {
    // Fills all [n_ranks][size_bytes] with the `mine` of each rank, in the order of ranks.
    bd_status (*collect)(bd_group *, const void *mine, size_t size_bytes, void *all,
                         bd_error *err);
    // Puts the slices (kernels/collectives.h) of all ranks together in `whole` of rank 0; the
    // others pass NULL. `mine` is this rank's slice.
    bd_status (*assemble)(bd_group *, const float *mine, float *whole, const int64_t *bounds,
                          bd_error *err);
    // Ends the processes of all ranks, this one too.
    void (*abort)(bd_group *, int exit_status);
    // Leaves MPI and frees the group.
    void (*leave)(bd_group *);
} bd_group_operations;

// The struct of every implementation begins with this one.
struct bd_group {
    const bd_group_operations *operations;
    bd_collectives *collectives;  // for host memory; part of the group
    int32_t rank, n_ranks;
    int32_t local_rank;   // among those on this machine
    bool agreed_to_fail;  // bd_group_agree() has found a failure
    bool reports;         // then: this is the lowest rank that failed, and prints the message
};

// ---- Joining and leaving ------------------------------------------------------------------

// Joins the group that this process was started in (common/base/ranks.h), for which it loads the
// module libbindery_mpi.so. Without a launcher that is a group of one. The message says what is
// missing. Leave the group at the end.
bd_status bd_group_join(bd_group **group, bd_error *err);
// Whether the module exists; it may still lack an MPI.
bool bd_group_module_exists(void);

// Leaves the group after all ranks have done their work or have agreed to fail. If this rank has
// failed without that, it aborts all of them with `exit_status`.
void bd_group_leave(bd_group *group, bool failed, int exit_status);

// ---- Asking each other --------------------------------------------------------------------

// Replaces values [n] by their sums over the ranks, which have the same bits on all ranks.
bd_status bd_group_sum(bd_group *group, double *values, size_t n, bd_error *err);

// Replaces value [size_bytes] by that of rank 0.
bd_status bd_group_follow(bd_group *group, void *value, size_t size_bytes, bd_error *err);

// BD_OK if the status of every rank is BD_OK. Else all ranks fail: those that had failed with
// their own status, the others with BD_ERR_IO. The lowest rank that had failed reports it.
bd_status bd_group_agree(bd_group *group, bd_status status, bd_error *err);

// ---- What program and module agree on -------------------------------------------------------

#define BD_MPI_MODULE_ABI_VERSION 2
#define BD_MPI_MODULE_ABI                                                                      \
    {                                                                                          \
        BD_MPI_MODULE_ABI_VERSION, sizeof(bd_group_operations) + sizeof(bd_group),             \
            sizeof(bd_collectives_operations) + sizeof(bd_collectives) + sizeof(bd_rank_slice) \
    }

extern BD_MODULE_EXPORT const bd_module_abi bd_mpi_module_abi;
// Joins as one of the processes of MPI_COMM_WORLD.
BD_MODULE_EXPORT bd_status bd_group_open_mpi(bd_group **group, bd_error *err);

#endif
