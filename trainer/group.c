#include "trainer/group.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/ranks.h"

// ---- Joining and leaving --------------------------------------------------------------------

static bd_status open_alone(bd_group **group, bd_error *err)
{
    bd_group *alone = calloc(1, sizeof *alone);
    bd_collectives *collectives = calloc(1, sizeof *collectives);
    if (!alone || !collectives) {
        free(alone);
        free(collectives);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a group of one");
    }
    collectives->n_ranks = alone->n_ranks = 1;
    alone->collectives = collectives;
    *group = alone;
    return BD_OK;
}

static const bd_module_abi ours = BD_MPI_MODULE_ABI;
static const bd_module module = {
    .file = "libbindery_mpi.so",
    .abi_symbol = "bd_mpi_module_abi",
    .entry_symbol = "bd_group_open_mpi",
    .ours = &ours,
};

bool bd_group_module_exists(void)
{
    return bd_module_exists(&module);
}

bd_status bd_group_join(bd_group **group, bd_error *err)
{
    bd_ranks ranks;
    *group = NULL;
    BD_TRY(bd_ranks_from_environment(&ranks, err));
    if (ranks.n_ranks == 1)
        return open_alone(group, err);
    const char *remedy = ", but MPI cannot be used (scripts/setup --mpi, then scripts/build)";
    bd_status (*open_mpi)(bd_group **, bd_error *);
    bd_status status = bd_module_load(&module, NULL, (void **)&open_mpi, err);
    if (status == BD_OK)
        status = open_mpi(group, err);
    if (status == BD_OK) {
        if ((*group)->n_ranks == ranks.n_ranks)
            return BD_OK;
        // An MPI that did not start this process puts it into a world of its own.
        remedy = "";
        status = bd_fail(err, BD_ERR_UNSUPPORTED,
                         "MPI sees %d processes, not %" PRId64
                         ": start them with the mpirun of the MPI that bindery was built with",
                         (int)(*group)->n_ranks, ranks.n_ranks);
    }
    if (*group)
        bd_group_leave(*group, false, 0);
    *group = NULL;
    return bd_error_prefix(err, status, "this is process %" PRId64 " of %" PRId64 "%s",
                           ranks.rank, ranks.n_ranks, remedy);
}

void bd_group_leave(bd_group *group, bool failed, int exit_status)
{
    if (group->n_ranks == 1 && !group->operations) {
        free(group->collectives);
        free(group);
    } else if (failed && !group->agreed_to_fail) {
        group->operations->abort(group, exit_status);
    } else {
        group->operations->leave(group);
    }
}

// ---- Asking each other ----------------------------------------------------------------------

// Collects what every rank has, in their order: *all [n_ranks][size_bytes], to be freed.
static bd_status ask_all(bd_group *group, const void *mine, size_t size_bytes, void **all,
                         bd_error *err)
{
    *all = calloc((size_t)group->n_ranks, size_bytes);
    if (!*all)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the answers of %d ranks",
                       (int)group->n_ranks);
    const bd_status status = group->operations->collect(group, mine, size_bytes, *all, err);
    if (status != BD_OK)
        free(*all);
    return status;
}

bd_status bd_group_sum(bd_group *group, double *values, size_t n, bd_error *err)
{
    void *all;
    if (group->n_ranks == 1)
        return BD_OK;
    BD_TRY(ask_all(group, values, n * sizeof *values, &all, err));
    for (size_t i = 0; i < n; i++) {
        values[i] = ((double *)all)[i];
        for (int32_t r = 1; r < group->n_ranks; r++)
            values[i] += ((double *)all)[(size_t)r * n + i];
    }
    free(all);
    return BD_OK;
}

bd_status bd_group_follow(bd_group *group, void *value, size_t size_bytes, bd_error *err)
{
    void *all;
    if (group->n_ranks == 1)
        return BD_OK;
    BD_TRY(ask_all(group, value, size_bytes, &all, err));
    memcpy(value, all, size_bytes);
    free(all);
    return BD_OK;
}

bd_status bd_group_agree(bd_group *group, bd_status status, bd_error *err)
{
    void *all;
    const int64_t mine = status;
    int32_t failed = 0;  // the lowest rank that has failed
    if (group->n_ranks == 1 || (group->agreed_to_fail && status != BD_OK))
        return status;
    if (group->agreed_to_fail)
        return bd_fail(err, BD_ERR_IO, "another rank has failed");
    BD_TRY(ask_all(group, &mine, sizeof mine, &all, err));
    while (failed < group->n_ranks && ((int64_t *)all)[failed] == BD_OK)
        failed++;
    free(all);
    if (failed == group->n_ranks)
        return BD_OK;
    group->agreed_to_fail = true;
    group->reports = failed == group->rank;
    if (status != BD_OK)
        return status;
    return bd_fail(err, BD_ERR_IO, "rank %d has failed", (int)failed);
}
