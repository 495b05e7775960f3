// ranks.h - which of several processes this is.
#ifndef BINDERY_COMMON_BASE_RANKS_H
#define BINDERY_COMMON_BASE_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct bd_ranks {
    int64_t rank;     // 0 to n_ranks - 1
    int64_t n_ranks;  // 1: alone
} bd_ranks;

// Reads the variables that mpirun (Open MPI, MPICH and their kin) or srun sets; without them
// this process is alone. A rank that is not a number below the number of ranks is
// BD_ERR_ARGUMENT, with a message that names the variable.
bd_status bd_ranks_from_environment(bd_ranks *ranks, bd_error *err);

#endif
