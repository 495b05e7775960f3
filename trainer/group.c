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

static bd_status open_mpi(bd_group **group, bd_error *err)
{
    bd_status (*open)(bd_group **, bd_error *);
    BD_TRY(bd_module_load(&module, NULL, (void **)&open, err));
    return open(group, err);
}

// Where MPI was not the one that started us, each process is alone in a world of its own.
static bd_status check_world(const bd_group *group, const bd_ranks *expected, bd_error *err)
{
    if (group->n_ranks == expected->n_ranks)
        return BD_OK;
    return bd_fail(err, BD_ERR_UNSUPPORTED,
                   "MPI sees %d processes, not %" PRId64
                   ": start them with the mpirun of the MPI that bindery was built with",
                   (int)group->n_ranks, expected->n_ranks);
}

bd_status bd_group_join(bd_group **group, bd_error *err)
{
    bd_ranks ranks;
    *group = NULL;
    BD_TRY(bd_ranks_from_environment(&ranks, err));
    if (ranks.n_ranks == 1)
        return open_alone(group, err);
    const char *remedy = ", but MPI cannot be used (scripts/setup --mpi, then scripts/build)";
    bd_status status = open_mpi(group, err);
    if (status == BD_OK) {
        remedy = "";
        status = check_world(*group, &ranks, err);
    }
    if (status == BD_OK)
        return BD_OK;
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

// Calls `use` with what every rank has, in their order.
static bd_status ask_all(bd_group *group, const void *mine, size_t size_bytes,
                         void (*use)(void *context, const void *all, int32_t n_ranks),
                         void *context, bd_error *err)
{
    void *all = calloc((size_t)group->n_ranks, size_bytes);
    if (!all)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for what %d ranks say",
                       (int)group->n_ranks);
    const bd_status status = group->operations->collect(group, mine, size_bytes, all, err);
    if (status == BD_OK)
        use(context, all, group->n_ranks);
    free(all);
    return status;
}

typedef struct sums {
    double *values;
    size_t n;
} sums;

static void add_up(void *context, const void *all, int32_t n_ranks)
{
    const sums *s = context;
    const double *values = all;
    for (size_t i = 0; i < s->n; i++) {
        s->values[i] = values[i];
        for (int32_t r = 1; r < n_ranks; r++)
            s->values[i] += values[(size_t)r * s->n + i];
    }
}

bd_status bd_group_sum(bd_group *group, double *values, size_t n, bd_error *err)
{
    sums s = {values, n};
    if (group->n_ranks == 1)
        return BD_OK;
    return ask_all(group, values, n * sizeof *values, add_up, &s, err);
}

typedef struct followed {
    void *value;
    size_t size_bytes;
} followed;

static void take_first(void *context, const void *all, int32_t n_ranks)
{
    (void)n_ranks;
    const followed *f = context;
    memcpy(f->value, all, f->size_bytes);
}

bd_status bd_group_follow(bd_group *group, void *value, size_t size_bytes, bd_error *err)
{
    followed f = {value, size_bytes};
    if (group->n_ranks == 1)
        return BD_OK;
    return ask_all(group, value, size_bytes, take_first, &f, err);
}

static void find_failed(void *context, const void *all, int32_t n_ranks)
{
    const int64_t *statuses = all;
    int32_t *failed = context;
    *failed = 0;
    while (*failed < n_ranks && statuses[*failed] == BD_OK)
        ++*failed;
}

bd_status bd_group_agree(bd_group *group, bd_status status, bd_error *err)
{
    int32_t failed = 0;  // the lowest rank that has
    const int64_t mine = status;
    if (group->n_ranks == 1 || (group->agreed_to_fail && status != BD_OK))
        return status;
    if (group->agreed_to_fail)
        return bd_fail(err, BD_ERR_IO, "another rank has failed");
    BD_TRY(ask_all(group, &mine, sizeof mine, find_failed, &failed, err));
    if (failed == group->n_ranks)
        return BD_OK;
    group->agreed_to_fail = true;
    group->speaks = failed == group->rank;
    if (status != BD_OK)
        return status;
    return bd_fail(err, BD_ERR_IO, "rank %d has failed", (int)failed);
}
