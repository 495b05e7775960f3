// recheck.h - whether finished units are what their inputs would become now.
//
// The records are read again and their digests compared with those in the shards; nothing is
// tokenised.
#ifndef BINDERY_PACKER_PACK_RECHECK_H
#define BINDERY_PACKER_PACK_RECHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/units.h"
#include "packer/pack/unit.h"

typedef struct bd_recheck {
    const bd_pack_job *job;  // borrowed
    const bd_units *units;   // borrowed
    const bool *same;        // [inputs]; inputs that are known to be the same are not read
    bool removes;  // a shard that differs is removed, so that its unit is packed again
    int n_threads;
    bool quiet;
} bd_recheck;

typedef struct bd_rechecked {
    int64_t n_different;
    bd_unit first;  // of those, in the order of the units
} bd_rechecked;

// Standard input, which cannot be read twice, is passed over. Units that are not finished are no
// difference. With a limit on documents all units are read, in order and by one thread.
bd_status bd_recheck_units(const bd_recheck *check, bd_rechecked *result, bd_error *err);

#endif
