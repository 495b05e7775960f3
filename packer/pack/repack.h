// repack.h - datasets packed again from their own shards, without tokenising, into one.
//
// Shard by shard the documents are put together from their pieces, and packed as `pack` would
// have packed them: the result is what packing the corpus with the new options would have
// given, as long as nothing had been truncated or dropped.
#ifndef BINDERY_PACKER_PACK_REPACK_H
#define BINDERY_PACKER_PACK_REPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "packer/pack/joined.h"

// A packing that the caller does not want to change is that of the first manifest.
typedef struct bd_repack_job {
    const bd_joined *from;  // borrowed
    const char *to;         // where the new one goes; borrowed
    bd_dataset_config
        config;  // the new one; ids, tokenizer and selection are those of the old ones
    int n_threads;
    bool overwrite;
    bool quiet;
} bd_repack_job;

typedef struct bd_repack_result {
    bd_manifest manifest;   // of the new dataset; owned
    bool already_finished;  // the folder held the whole dataset: nothing was done
    uint64_t n_bytes;       // of all shards that were read for it
    bool card_kept;         // its README.md is not the one that would have been written
} bd_repack_result;

// The held-out datasets, if there are any in job->from, are repacked in the same way, into job->to.
// An unfinished run is continued. A dataset with truncated documents is refused, and one with
// dropped documents unless they would be dropped again. Memory, for each thread: the tokens of a
// shard, and 120 bytes per segment. Release the result.
bd_status bd_repack(const bd_repack_job *job, bd_repack_result *result, bd_error *err);

// Safe on an empty struct and safe twice.
void bd_repack_result_release(bd_repack_result *result);

#endif
