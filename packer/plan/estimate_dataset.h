// estimate_dataset.h - the lengths of a dataset's documents, exactly, from its rows.
#ifndef BINDERY_PACKER_PLAN_ESTIMATE_DATASET_H
#define BINDERY_PACKER_PLAN_ESTIMATE_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "packer/plan/estimate.h"

// Adds every shard to every estimate, each shard a unit as it is, so that the figures are those
// that packing would give. Documents that were left out when it was packed are not counted. A
// shard that breaks a rule is BD_ERR_FORMAT. *time_ns is what reading took, all threads
// together. Memory, for each thread: 40 bytes per document of a shard, 70 per segment.
bd_status bd_estimate_dataset(bd_estimates *estimates, const char *folder,
                              const bd_manifest *manifest, int n_threads, bool quiet,
                              int64_t *time_ns, bd_error *err);

#endif
