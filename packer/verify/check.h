// check.h - reads every row of a shard again and counts what the metadata claims.
//
// Rows are checked one by one (R1 to R9), then together: order, unit, pieces, figures (S2 to
// S7 of schemas/shard-v1.md). check.c has the rules of a dataset, check_shard.c those of a shard,
// check_documents.c those of its documents.
#ifndef BINDERY_PACKER_VERIFY_CHECK_H
#define BINDERY_PACKER_VERIFY_CHECK_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/threads.h"
#include "common/cli/progress.h"
#include "common/dataset/manifest.h"
#include "common/dataset/shard.h"
#include "packer/pack/pack_plan.h"

typedef struct bd_check {
    const char *folder;           // borrowed
    const bd_manifest *manifest;  // borrowed
    bd_pack_plan plan;            // owned
    bd_input_entry *inputs;       // [manifest->n_inputs], owned; the manifest's, cuts included
} bd_check;

// Reads the dataset's plan; `folder` and `manifest` must outlive the check.
bd_status bd_check_init(bd_check *check, const char *folder, const bd_manifest *manifest,
                        bd_error *err);

// D2: the manifest's shards are exactly the plan's units, or the first of them if there is a limit,
// and the folder holds no other .arrow file.
bd_status bd_check_units(const bd_check *check, bd_error *err);

typedef struct bd_check_options {
    bd_threads *threads;    // share the rows of the shard; NULL: the caller reads them alone
    bd_progress *progress;  // counts bytes of the file; may be NULL
    bool file;              // D1, too: the size of the file and its checksum
    // Called for each row once it is checked, by whichever thread reads it; may be NULL.
    void (*row)(void *context, const bd_row *row);
    void *context;
} bd_check_options;

// Opens shard `index` and checks all of it. *figures is what its rows hold; what rows cannot
// tell (dropped documents, invalid UTF-8) is taken over from the metadata. BD_ERR_FORMAT names
// the shard, the row and the rule. Memory: 16 bytes per segment of the shard and 96 more per
// piece of a split document, and all of the shard if it is compressed; what was read of an
// uncompressed one does not stay resident. Any number of threads may check different shards. If
// anything but damage ends it, progress is not complete.
bd_status bd_check_shard(const bd_check *check, size_t index, const bd_check_options *options,
                         bd_figures *figures, bd_error *err);

// The checksum of a shard's file, whose pages do not stay resident.
bd_status bd_check_hash_file(const bd_shard *shard, bd_digest *digest, bd_error *err);

// D1: BD_ERR_FORMAT names the file.
bd_status bd_check_file_digest(const char *path, const bd_digest *found,
                               const bd_digest *stated, bd_error *err);
bd_status bd_check_file_size(const char *path, int64_t found_bytes, int64_t stated_bytes,
                             bd_error *err);

void bd_check_release(bd_check *check);  // safe on an empty struct and safe twice

#endif
