// existing_shards.h - shards that are there already: those of an earlier run, or of another process.
#ifndef BINDERY_PACKER_PACK_EXISTING_SHARDS_H
#define BINDERY_PACKER_PACK_EXISTING_SHARDS_H

#include <stdbool.h>

#include "common/dataset/units.h"
#include "packer/pack/unit.h"

// Whether a unit is finished: its shard (both, with a holdout) is there, is of this job and
// this unit, and has the bytes that packing it would give. `unit->last` of a series is not
// known and not compared: it is found in packed->shard. A shard that does not serve is no error:
// its unit is packed again.
bool bd_take_finished(const bd_pack_job *job, const bd_planned *planned, const bd_unit *unit,
                      bd_packed_unit *packed);

#endif
