// update.h - how an update begins: a dataset becomes an unfinished one of a new plan.
#ifndef BINDERY_PACKER_PACK_UPDATE_H
#define BINDERY_PACKER_PACK_UPDATE_H

#include "common/base/error.h"
#include "common/base/json.h"

// The dataset in `folder` has the plan `old`; `holdout` is the folder of the held-out dataset in
// it, or NULL. Plans that differ in more than the contents of the inputs are refused (pack_plan.h).
// The manifests are removed, pack-log.json says that an update has begun, the shards of units that
// the new plan does not have are removed, and the new plan is published. The caller must hold the
// exclusive lock, and compare every other shard with its inputs before keeping it (recheck.h).
bd_status bd_update_begin(const char *folder, const char *holdout, const bd_json *old,
                          const bd_json *plan, bd_error *err);

#endif
