// shares.h - weights as whole numbers of rows in a block.
#ifndef BINDERY_TRAINER_DATA_SHARES_H
#define BINDERY_TRAINER_DATA_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { BD_SHARES_BLOCK = 1024 };

// How many rows of a block each of n datasets has, by weights that are more than 0: shares are
// rounded so that they add up, those up that lose most by it. One that would have none is
// BD_ERR_ARGUMENT and is named by its place, from 1 on.
bd_status bd_shares_round(const double *weights, size_t n, int64_t *shares, bd_error *err);

#endif
