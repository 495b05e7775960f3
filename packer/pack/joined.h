// joined.h - datasets that are packed again, taken as one.
//
//   dataset A   inputs 0 1 2    shards 0-0 1-0 1-1       those of all:  0 1 2   0-0 1-0 1-1
//   dataset B   inputs 0 1      shards 0-0 1-0                          3 4     3-0 4-0
//
// One dataset is the usual case, and joins nothing.
#ifndef BINDERY_PACKER_PACK_JOINED_H
#define BINDERY_PACKER_PACK_JOINED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/dataset/manifest.h"
#include "packer/pack/pack_plan.h"

typedef struct bd_joined_dataset {
    char *folder;          // owned
    bd_manifest manifest;  // owned; its inputs tell how they were cut, whatever its format
    bd_pack_plan plan;     // owned
    size_t first_input, first_shard;  // among those of all
} bd_joined_dataset;

typedef struct bd_joined {
    bd_joined_dataset *items;  // [n], owned
    size_t n;
    size_t n_inputs, n_shards;
    uint64_t n_bytes;  // of all shards
} bd_joined;

// Reads the manifest and the plan of each. Datasets that cannot become one are BD_ERR_ARGUMENT:
// they differ in tokenizer, in the ids of separator, BOS and padding, in --min-tokens, --holdout or
// the side of it; or the same dataset or the same records are given twice. On failure *joined is
// empty.
bd_status bd_joined_open(bd_joined *joined, const char *const *folders, size_t n,
                         bd_error *err);

// The held-out datasets inside of them: each has one, or none has, and then *holdouts is empty.
// Some with and some without is BD_ERR_ARGUMENT.
bd_status bd_joined_open_holdouts(bd_joined *holdouts, const bd_joined *around, bd_error *err);

// Whether what they become has loss masks: one of them has.
bool bd_joined_has_masks(const bd_joined *joined);

// The dataset that has shard `index` of all.
const bd_joined_dataset *bd_joined_find_shard(const bd_joined *joined, size_t index);

// The plan of what they become with `config`: their inputs as they were read. Free it with
// bd_json_free().
bd_status bd_joined_plan(const bd_joined *joined, const bd_dataset_config *config,
                         bd_json **plan, bd_error *err);

void bd_joined_release(bd_joined *joined);  // safe on an empty struct and safe twice

#endif
