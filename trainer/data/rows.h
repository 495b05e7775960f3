// rows.h - the rows of one dataset or several, opened for reading by their numbers.
#ifndef BINDERY_TRAINER_DATA_ROWS_H
#define BINDERY_TRAINER_DATA_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/manifest.h"
#include "common/dataset/shard.h"
#include "trainer/data/block_window.h"

// Every shard is mapped. Rows are numbered through, dataset after dataset. One thread at a time
// may read them, because compressed shards are decompressed into a cache: of each dataset the
// BD_WINDOW_BLOCKS record batches that were read last.
typedef struct bd_rows {
    bd_manifest *manifests;  // [n_datasets], owned
    int64_t *first_rows;  // [n_datasets + 1], owned: of each dataset; the last is their number
    int64_t *shares;      // [n_datasets], owned: rows of each in a block of mixture.h
    size_t n_datasets;
    bd_shard *shards;  // [n_shards], owned
    int64_t *begins;   // [n_shards + 1], owned: first row of each shard
    size_t n_shards;
    bd_block_window *window;  // owned: the loaded batches of shards that load later
} bd_rows;

enum { BD_WINDOW_BLOCKS = 32 };

// Opens `n` datasets, at least 1, to be mixed by weights that are more than 0. They must have
// the tokenizer, its separator and BOS, and the length of rows in common; BD_ERR_ARGUMENT names
// two that differ, and in what.
bd_status bd_rows_open_all(bd_rows *rows, const char *const *folders, const double *weights,
                           size_t n, bd_error *err);
bd_status bd_rows_open(bd_rows *rows, const char *folder, bd_error *err);  // one
void bd_rows_close(bd_rows *rows);  // safe on an empty struct and safe twice

// The config of the first dataset, for what all have in common.
static inline const bd_dataset_config *bd_rows_config(const bd_rows *rows)
{
    return &rows->manifests[0].config;
}

static inline int64_t bd_rows_count(const bd_rows *rows)
{
    return rows->first_rows[rows->n_datasets];
}

int64_t bd_rows_longest_segment(const bd_rows *rows);

// BD_ERR_ARGUMENT, which names the folder, if one of the datasets has no target at all.
bd_status bd_rows_check_targets(const bd_rows *rows, const char *const *folders, bd_error *err);

// The shard of a row, and the row's number in it.
bd_shard *bd_rows_shard(const bd_rows *rows, int64_t number, int64_t *row_in_shard);

// Row `number`, checked by bd_row_check(). Its pointers are borrowed; if its shard loads later,
// only until the next call. `hasher` is scratch. The message names shard and row.
bd_status bd_rows_row(const bd_rows *rows, int64_t number, bd_hasher *hasher, bd_row *row,
                      bd_error *err);

#endif
