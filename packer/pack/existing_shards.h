// existing_shards.h - shards that exist already: those of an earlier run, or of another process.
#ifndef BINDERY_PACKER_PACK_EXISTING_SHARDS_H
#define BINDERY_PACKER_PACK_EXISTING_SHARDS_H

#include <stdbool.h>

#include "common/dataset/units.h"
#include "packer/pack/unit.h"

// Whether the shard of a unit exists (both shards, with a holdout), is of this job and this unit,
// and has the bytes that packing it would give. `unit->last` of a stream is not known and not
// compared: packed->shard has it. A shard that cannot be used is no error: its unit is packed
// again.
bool bd_take_existing_unit(const bd_pack_job *job, const bd_planned *planned,
                           const bd_unit *unit, bd_packed_unit *packed);

#endif
