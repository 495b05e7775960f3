// inspection.h - everything that `bindery inspect` says about a dataset or a shard, in one
// place: the screen, the JSON and the page are made from it.
//
// Figures of the manifest are exact and cost nothing. Figures that only rows can give come from a
// sample of the rows, or from all of them.
#ifndef BINDERY_PACKER_INSPECT_INSPECTION_H
#define BINDERY_PACKER_INSPECT_INSPECTION_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "common/dataset/shard.h"
#include "common/tokenizer/tokenizer.h"
#include "packer/inspect/duplicates.h"
#include "packer/inspect/statistics.h"

enum {
    BD_SAMPLED_SHARDS = 64,  // most that a sample opens; 1 if they are compressed
    BD_SAMPLED_ROWS = 256,   // most that it reads, and most tokens unless one row has more
    BD_SAMPLED_TOKENS = 1 << 22,
    BD_FREQUENT_TOKENS = 10,
};

// How the statistics were obtained.
typedef enum bd_rows_read {
    BD_ROWS_SAMPLED,  // some rows, spread over the dataset
    BD_ROWS_ALL,      // so few rows that the sample was all of them
    BD_ROWS_SCANNED,  // all rows, which were counted and agreed with the figures
} bd_rows_read;

typedef struct bd_frequent_token {
    uint32_t id;
    int64_t count;  // in the rows that were read
} bd_frequent_token;

typedef struct bd_inspection {
    const char *path;            // what was given, borrowed
    char *folder;                // that the shards lie in, owned
    bool is_shard;               // one shard alone: no inputs, no sources, no checksum
    bd_manifest manifest;        // owned; of a shard alone made up from its metadata
    bd_source_figures *sources;  // [n_sources], owned
    size_t n_sources;
    const bd_tokenizer *tokenizer;  // owned; NULL if it cannot be opened: ids have no text then
    char *tokenizer_file;           // owned; that it was read from; NULL if nothing tells

    bd_rows_read rows_read;
    int64_t shards_read;
    bd_statistics statistics;  // of the rows that were read: statistics.figures.rows of them
    bd_quantiles lengths;      // of all documents
    int64_t tiles[BD_N_TILE_SIZES];                  // in the whole dataset
    int64_t causal_tiles[BD_N_TILE_SIZES];           // the same for a plain causal mask
    bd_frequent_token frequent[BD_FREQUENT_TOKENS];  // the most frequent first
    size_t n_frequent;
    int64_t tokens_counted;  // of which those are shares

    bool has_duplicates;
    bd_duplicates duplicates;
} bd_inspection;

// Opens a dataset's manifest, or a shard if `path` is a file. Nothing else is read. `path` must
// outlive the inspection. On failure *inspection is empty.
bd_status bd_inspection_open(bd_inspection *inspection, const char *path, bd_error *err);

// Fills the statistics from a sample, or from all rows, which must agree with the figures
// (BD_ERR_FORMAT if not; of a dataset everything that bd_check_shard() checks). Memory: that of
// bd_statistics_init() for each thread, and that of bd_check_shard().
bd_status bd_inspection_sample(bd_inspection *inspection, bd_error *err);
bd_status bd_inspection_scan(bd_inspection *inspection, int n_threads, bool quiet,
                             bd_error *err);

// Counts repeated documents: exactly if 16 bytes for each document stay within `memory_bytes`,
// else by a sketch of 64 KiB. More memory: that of bd_document_hashes_visit() for each thread.
// Damage is BD_ERR_FORMAT.
bd_status bd_inspection_count_duplicates(bd_inspection *inspection, int64_t memory_bytes,
                                         int n_threads, bool quiet, bd_error *err);

// Whether all rows were read, and not only a sample.
bool bd_inspection_is_exact(const bd_inspection *inspection);

// Attention pairs of a plain causal mask over whole rows.
double bd_inspection_causal_pairs(const bd_inspection *inspection);

// Opens shard `index` and compares it with the manifest, if there is one.
bd_status bd_inspection_open_shard(const bd_inspection *inspection, size_t index,
                                   bd_shard *shard, bd_error *err);

// The name of shard `index` in its folder; of a shard alone it is the file's, which may be
// another than that of its unit (and is cut if it is very long).
bd_shard_name bd_inspection_shard_name(const bd_inspection *inspection, size_t index);

void bd_inspection_release(bd_inspection *inspection);  // safe when empty and safe twice

#endif
