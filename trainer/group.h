// group.h - the processes that train together: one alone, or those that mpirun started.
//
// Every rank calls the same functions in the same order, in its first thread. A rank that fails
// between two of these calls leaves the others waiting, so a failure is either agreed upon or
// ends them all: bd_group_agree(), bd_group_leave().
#ifndef BINDERY_TRAINER_GROUP_H
#define BINDERY_TRAINER_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/module.h"
#include "kernels/collectives.h"

typedef struct bd_group bd_group;

// What a group of several processes is made of. All memory is the host's, all of it is done on
// return.
typedef struct bd_group_operations {
    // all [n_ranks][size_bytes]: what each rank has, in their order, `mine` among them.
    bd_status (*collect)(bd_group *, const void *mine, size_t size_bytes, void *all,
                         bd_error *err);
    // The slices (kernels/collectives.h) of all ranks, put together in whole [n] of rank 0; the
    // others need none. `mine` is this rank's slice.
    bd_status (*assemble)(bd_group *, const float *mine, float *whole, int64_t n,
                          bd_error *err);
    // Ends the processes of all ranks, this one too.
    void (*abort)(bd_group *, int exit_status);
    // The end; frees the group.
    void (*leave)(bd_group *);
} bd_group_operations;

// Every implementation's own struct begins with this.
struct bd_group {
    const bd_group_operations *operations;
    bd_collectives *collectives;  // part of the group: of host memory
    int32_t rank, n_ranks;
    int32_t local_rank;   // among those on this machine
    bool agreed_to_fail;  // bd_group_agree() has found a failure
    bool speaks;          // then: this is the lowest rank that failed
};

// ---- Joining and leaving ------------------------------------------------------------------

// The group that this process was started in (common/base/ranks.h), for which the module
// libbindery_mpi.so is loaded; without a launcher a group of one. The message says what is
// missing. Leave what comes out.
bd_status bd_group_join(bd_group **group, bd_error *err);
// Whether that module is there; not whether an MPI is.
bool bd_group_module_exists(void);

// Leaves the group when all have done their work, or have agreed to fail. A rank that has
// failed without that ends all of them, with `exit_status`.
void bd_group_leave(bd_group *group, bool failed, int exit_status);

// ---- Asking each other --------------------------------------------------------------------

// values [n] become their sums over the ranks, the same bits for all.
bd_status bd_group_sum(bd_group *group, double *values, size_t n, bd_error *err);

// value [size_bytes] becomes that of rank 0.
bd_status bd_group_follow(bd_group *group, void *value, size_t size_bytes, bd_error *err);

// BD_OK if every rank comes with BD_OK. Else a failure for all: who has failed gets its own
// status back, the others BD_ERR_IO. Only the lowest rank that failed speaks of it.
bd_status bd_group_agree(bd_group *group, bd_status status, bd_error *err);

// ---- What program and module agree on -------------------------------------------------------

#define BD_MPI_MODULE_ABI_VERSION 1
#define BD_MPI_MODULE_ABI                                                                      \
    {                                                                                          \
        BD_MPI_MODULE_ABI_VERSION, sizeof(bd_group_operations) + sizeof(bd_group),             \
            sizeof(bd_collectives_operations) + sizeof(bd_collectives) + sizeof(bd_rank_slice) \
    }

extern BD_MODULE_EXPORT const bd_module_abi bd_mpi_module_abi;
// Joins as one of the processes of MPI_COMM_WORLD.
BD_MODULE_EXPORT bd_status bd_group_open_mpi(bd_group **group, bd_error *err);

#endif
