// update.h - how an update begins: a dataset becomes an unfinished one of a new plan.
#ifndef BINDERY_PACKER_PACK_UPDATE_H
#define BINDERY_PACKER_PACK_UPDATE_H

#include "common/base/error.h"
#include "common/base/json.h"

// The dataset in `folder` has the plan `old`; `holdout` is the folder of the held-out one in it,
// or NULL. Plans that differ in more than what the inputs hold are refused (plan_difference.h).
// The manifests go, pack-log.json says that an update is under way, the shards of units that the
// new plan does not have are removed, and the new plan is published. What the other shards were
// made from must be looked at before one is kept (recheck.h). For whoever has the folder for
// itself.
bd_status bd_update_begin(const char *folder, const char *holdout, const bd_json *old,
                          const bd_json *plan, bd_error *err);

#endif
