// pack.h - a whole run: plan, units on all threads and perhaps in several processes, manifest.
#ifndef BINDERY_PACKER_PACK_PACK_H
#define BINDERY_PACKER_PACK_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "common/dataset/units.h"
#include "packer/pack/job.h"

typedef enum bd_pack_mode {
    BD_PACK_ALONE,   // this process does everything
    BD_PACK_SHARED,  // other processes do the same job at the same time
    BD_PACK_FINISH,  // packs nothing: publishes what others have packed, or says what is missing
} bd_pack_mode;

typedef struct bd_pack_settings {
    bd_pack_mode mode;
    int64_t rank, n_ranks;  // where to begin, so that processes do not get in each other's way
    int n_threads;
    bool overwrite;
    bool update;  // pack again what has changed in the inputs, and nothing else
    bool quiet;
} bd_pack_settings;

typedef struct bd_pack_result {
    bd_manifest manifest;   // owned; empty if not finished
    int64_t n_packed;       // units that this process packed
    int64_t n_continued;    // units that were finished already
    bool already_finished;  // the folder held the whole dataset: nothing was done
    bool finished;          // the dataset is whole now; false if others are still at work
    size_t n_doubtful;      // inputs that may have changed since they were packed, if so, and
    size_t first_doubtful;  // the first of them
    bool card_kept;         // its README.md is not the one that would have been written
    bd_planned *missing;    // [n_missing], owned; units that nobody has packed, after a failure
    size_t n_missing;       // for that reason; of a stream the first one
} bd_pack_result;

// Packs job->inputs into job->folder. The shards and the manifest are the same bytes for any number
// of threads and processes, and whether or not the run continues an earlier one. On failure, also
// when interrupted, finished shards stay for the next run and there is no manifest. If several
// processes do the same job, the last to end packs what the others left undone and publishes the
// manifest.
bd_status bd_pack(const bd_pack_job *job, const bd_pack_settings *settings,
                  bd_pack_result *result, bd_error *err);

// Safe on an empty struct and safe twice.
void bd_pack_result_release(bd_pack_result *result);

#endif
