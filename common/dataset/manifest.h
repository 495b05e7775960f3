// manifest.h - manifest.json: what a finished dataset consists of. Published last.
//
// The file is sealed (common/base/json.h): it ends with its own checksum.
#ifndef BINDERY_COMMON_DATASET_MANIFEST_H
#define BINDERY_COMMON_DATASET_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/dataset/config.h"
#include "common/dataset/figures.h"
#include "common/dataset/input_entry.h"
#include "common/dataset/passed_over.h"
#include "common/tokenizer/model/tokenizer_file.h"

#define BD_MANIFEST_NAME "manifest.json"
#define BD_PLAN_NAME     "plan.json"

typedef struct bd_shard_entry {
    bd_unit unit;  // names the file
    int64_t size_bytes;
    bd_digest digest;
    bd_digest records;    // over the records that became it; empty in format 1.0
    bd_digest positions;  // over where they lie; empty before format 1.2
    bd_figures figures;
    bd_file_mark mark;  // of the file when it was packed or found; not stored
} bd_shard_entry;

typedef struct bd_manifest {
    bd_dataset_config config;
    bd_digest plan_digest;
    bd_digest tokenizer_digest;
    bd_input_entry *inputs;  // [n_inputs], owned
    size_t n_inputs;
    bd_passed_over passed_over;  // owned
    bd_shard_entry *shards;      // [n_shards], owned; in the order of their units
    size_t n_shards;
    bd_figures totals;
} bd_manifest;

// Checks the totals (sums, ledger), then publishes <folder>/manifest.json.
bd_status bd_manifest_publish(const bd_manifest *manifest, const char *folder, bd_error *err);

// Reads and checks <folder>/manifest.json: its checksum, every range, the order of the units,
// totals that are the sums over the shards, and the ledger. Says nothing about the shards
// themselves. Damage is BD_ERR_FORMAT, a folder without one BD_ERR_ARGUMENT. Release what comes
// out.
bd_status bd_manifest_read(bd_manifest *manifest, const char *folder, bd_error *err);

// Copies <folder>/manifest.json unchanged to `out`, for --json.
bd_status bd_manifest_print(const char *folder, FILE *out, bd_error *err);

// Frees everything. Safe on an empty struct and safe twice.
void bd_manifest_release(bd_manifest *manifest);

// The metadata that a shard has of itself: `format`, `packing`, `unit`, `records`, `positions`,
// `figures`. The entry's size and digest are not part of it.
bd_json *bd_shard_metadata(const bd_dataset_config *config, const bd_shard_entry *entry);
// The inverse; size and digest of the entry, which are those of the file, become empty.
bd_status bd_shard_metadata_read(const bd_json *json, bd_dataset_config *config,
                                 bd_shard_entry *entry, bd_error *err);

enum { BD_MAX_SOURCES = 4096 };

// The sums over the shards of one source.
typedef struct bd_source_figures {
    const char *name;  // borrowed from the manifest's inputs
    int64_t n_inputs;
    bd_figures figures;
} bd_source_figures;

// Bytes of all shards.
uint64_t bd_manifest_bytes(const bd_manifest *manifest);

// Every source in the order of its first input. *sources is malloc'd, the caller's to free.
bd_status bd_manifest_sources(const bd_manifest *manifest, bd_source_figures **sources,
                              size_t *n, bd_error *err);

// The shard whose unit has the same input and slice; NULL if there is none.
const bd_shard_entry *bd_manifest_find_unit(const bd_manifest *manifest, const bd_unit *unit);

// Whether a file of this name, which programs that open *.arrow would take for a shard, is not
// one of the manifest's.
bool bd_manifest_is_stray(const bd_manifest *manifest, const char *name);

// The row that has number `row` in the whole dataset: its shard, and its number there.
// False if there is no such row.
bool bd_manifest_find_row(const bd_manifest *manifest, int64_t row, size_t *shard,
                          int64_t *row_in_shard);

#endif
