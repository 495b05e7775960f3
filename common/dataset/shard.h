// shard.h - reading a shard: mapped, zero-copy (a compressed one is decompressed, all of it
// when it is opened, or batch by batch), and every row checked before it is handed out.
#ifndef BINDERY_COMMON_DATASET_SHARD_H
#define BINDERY_COMMON_DATASET_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/mapped_file.h"
#include "common/dataset/arrow_io.h"
#include "common/dataset/manifest.h"
#include "common/dataset/row.h"

typedef struct bd_shard {
    bd_mapped_file file;       // owned
    bd_arrow_reader *reader;   // owned
    char *path;                // owned
    bd_dataset_config config;  // from its own metadata, and so is the entry
    bd_shard_entry entry;      // without size and digest of the file
    bool loads_later;          // bd_shard_load() comes before a batch is read
} bd_shard;

// Opens <folder>/<name> and checks it as S1 says: schema, metadata, batches of batch_rows rows,
// as many rows as the figures say. The rows themselves are checked when they are used. On
// failure *shard is empty.
bd_status bd_shard_open(bd_shard *shard, const char *folder, const char *name, bd_error *err);

// The same for shard `index` of a dataset, and compares its metadata with the manifest.
bd_status bd_shard_open_entry(bd_shard *shard, const char *folder, const bd_manifest *manifest,
                              size_t index, bd_error *err);

// The same, but a compressed shard (then `loads_later`) is decompressed batch by batch: a batch
// may be read from bd_shard_load(), which checks it as S1 says, until bd_shard_drop(). Loading
// a loaded batch and dropping one that is not loaded do nothing.
bd_status bd_shard_open_to_load(bd_shard *shard, const char *folder,
                                const bd_manifest *manifest, size_t index, bd_error *err);
bd_status bd_shard_load(bd_shard *shard, int64_t batch, bd_error *err);
void bd_shard_drop(bd_shard *shard, int64_t batch);

// Row `row` of the shard, checked by bd_row_check(). Its pointers are borrowed from the shard
// (for uncompressed shards they point into the mapping). `hasher` is scratch, one per thread;
// otherwise any number of threads may read one shard. The message names shard and row.
bd_status bd_shard_row(const bd_shard *shard, int64_t row, bd_hasher *hasher, bd_row *out,
                       bd_error *err);

// The same without a check, for callers that made it before or leave it to theirs.
bd_row bd_shard_unchecked_row(const bd_shard *shard, int64_t row);

// BD_ERR_FORMAT: names the shard, the row and the rule that it breaks.
bd_status bd_shard_fail_row(const bd_shard *shard, int64_t row, const char *rule,
                            bd_error *err);

// Tells the system that record batch `batch` is unlikely to be read again, so that its pages no
// longer count as this process's memory. It may still be read. Does nothing for a compressed
// shard, which is in memory of its own.
void bd_shard_forget_batch(const bd_shard *shard, int64_t batch);

// Safe on an empty struct and safe twice.
void bd_shard_close(bd_shard *shard);

#endif
