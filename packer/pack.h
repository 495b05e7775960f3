// pack.h - a whole run: plan, units on all threads, manifest.
#ifndef BINDERY_PACKER_PACK_H
#define BINDERY_PACKER_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/manifest.h"
#include "packer/pack_unit.h"

typedef struct bd_pack_result {
    bd_manifest manifest;   // owned; release with bd_manifest_release()
    int64_t n_continued;    // shards that an earlier run had finished
    bool already_finished;  // the folder held the whole dataset: nothing was done
} bd_pack_result;

// Packs job->inputs into job->folder on `n_threads` threads. The shards and the manifest are
// the same bytes for any number of threads, and whether or not the run continues an earlier
// one. On failure finished shards stay for the next run and there is no manifest.
bd_status bd_pack(const bd_pack_job *job, int n_threads, bool overwrite, bd_pack_result *result,
                  bd_error *err);

#endif
