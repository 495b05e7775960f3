#include "common/base/ranks.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

// The order matters: an mpirun that a batch system started sets its variables beside those of
// that system.
static const struct {
    const char *rank, *n_ranks;
} variables[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},  // not SLURM_NTASKS: batch scripts have it, too
};

static bool read_rank(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= 0;
}

bd_status bd_ranks_from_environment(bd_ranks *ranks, bd_error *err)
{
    *ranks = (bd_ranks){.rank = 0, .n_ranks = 1};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *rank = getenv(variables[i].rank), *n_ranks = getenv(variables[i].n_ranks);
        if (!rank || !n_ranks)
            continue;
        if (!read_rank(rank, &ranks->rank) || !read_rank(n_ranks, &ranks->n_ranks) ||
            ranks->rank >= ranks->n_ranks)
            return bd_fail(err, BD_ERR_ARGUMENT, "%s is '%.20s' and %s '%.20s'",
                           variables[i].rank, rank, variables[i].n_ranks, n_ranks);
        return BD_OK;
    }
    return BD_OK;
}
