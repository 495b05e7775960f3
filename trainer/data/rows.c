#include "trainer/data/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/mixture.h"

// ---- Opening -------------------------------------------------------------------------------

static bd_status check_like_first(const bd_rows *rows, const char *const *folders, size_t i,
                                  bd_error *err)
{
    const bd_dataset_config *first = bd_rows_config(rows), *other = &rows->manifests[i].config;
    char what[200] = "";
    if (first->seq_len != other->seq_len)
        snprintf(what, sizeof what,
                 "rows of %" PRId64 " and of %" PRId64
                 " tokens; bindery repack --seq-len makes one like the other",
                 first->seq_len, other->seq_len);
    else if (strcmp(first->fingerprint.hex, other->fingerprint.hex) != 0)
        snprintf(what, sizeof what,
                 "different tokenizers, '%s' and '%s'; pack both with one --tokenizer",
                 first->tokenizer, other->tokenizer);
    else if (first->vocab_size != other->vocab_size)
        snprintf(what, sizeof what,
                 "vocabularies of %" PRId64 " and of %" PRId64
                 " tokens; pack both with one --tokenizer",
                 first->vocab_size, other->vocab_size);
    else if (first->separator != other->separator)
        snprintf(what, sizeof what,
                 "separators %" PRId64 " and %" PRId64 "; pack both with one --separator-id",
                 (int64_t)first->separator, (int64_t)other->separator);
    else if (first->bos != other->bos)
        strcpy(what, "different tokens before documents; pack both with one --bos");
    return what[0] ? bd_fail(err, BD_ERR_ARGUMENT, "'%s' and '%s' cannot be mixed: %s",
                             folders[0], folders[i], what)
                   : BD_OK;
}

static bd_status read_manifests(bd_rows *rows, const char *const *folders, size_t n,
                                bd_error *err)
{
    rows->manifests = calloc(n, sizeof *rows->manifests);
    rows->first_rows = calloc(n + 1, sizeof *rows->first_rows);
    rows->shares = calloc(n, sizeof *rows->shares);
    if (!rows->manifests || !rows->first_rows || !rows->shares)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu datasets", n);
    for (size_t i = 0; i < n; i++) {
        BD_TRY(bd_manifest_read(&rows->manifests[i], folders[i], err));
        rows->n_datasets++;
        rows->n_shards += rows->manifests[i].n_shards;
        rows->first_rows[i + 1] = rows->first_rows[i] + rows->manifests[i].totals.rows;
        BD_TRY(check_like_first(rows, folders, i, err));
    }
    return BD_OK;
}

static bd_status open_shards(bd_rows *rows, const char *const *folders, bd_error *err)
{
    rows->shards = calloc(rows->n_shards, sizeof *rows->shards);
    rows->begins = calloc(rows->n_shards + 1, sizeof *rows->begins);
    if (!rows->shards || !rows->begins)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu shards", rows->n_shards);
    rows->window = calloc(1, sizeof *rows->window);
    if (!rows->window)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a window of blocks");
    BD_TRY(bd_block_window_init(rows->window, BD_WINDOW_BLOCKS * rows->n_datasets, err));
    size_t next = 0;
    for (size_t d = 0; d < rows->n_datasets; d++)
        for (size_t s = 0; s < rows->manifests[d].n_shards; s++, next++) {
            const bd_manifest *manifest = &rows->manifests[d];
            BD_TRY(bd_shard_open_to_load(&rows->shards[next], folders[d], manifest, s, err));
            rows->begins[next + 1] = rows->begins[next] + manifest->shards[s].figures.rows;
        }
    return BD_OK;
}

bd_status bd_rows_open_all(bd_rows *rows, const char *const *folders, const double *weights,
                           size_t n, bd_error *err)
{
    *rows = (bd_rows){0};
    bd_status status = read_manifests(rows, folders, n, err);
    if (status == BD_OK)
        status = bd_mixture_shares(weights, n, rows->shares, err);
    if (status == BD_OK)
        status = open_shards(rows, folders, err);
    if (status != BD_OK)
        bd_rows_close(rows);
    return status;
}

bd_status bd_rows_open(bd_rows *rows, const char *folder, bd_error *err)
{
    return bd_rows_open_all(rows, &folder, &(double){1}, 1, err);
}

void bd_rows_close(bd_rows *rows)
{
    if (rows->window)
        bd_block_window_release(rows->window);
    free(rows->window);
    for (size_t s = 0; rows->shards && s < rows->n_shards; s++)
        bd_shard_close(&rows->shards[s]);
    for (size_t d = 0; d < rows->n_datasets; d++)
        bd_manifest_release(&rows->manifests[d]);
    free(rows->shards);
    free(rows->begins);
    free(rows->manifests);
    free(rows->first_rows);
    free(rows->shares);
    *rows = (bd_rows){0};
}

// ---- Reading -------------------------------------------------------------------------------

int64_t bd_rows_longest_segment(const bd_rows *rows)
{
    int64_t longest = 0;
    for (size_t d = 0; d < rows->n_datasets; d++)
        if (rows->manifests[d].totals.longest_segment > longest)
            longest = rows->manifests[d].totals.longest_segment;
    return longest;
}

bd_status bd_rows_check_targets(const bd_rows *rows, const char *const *folders, bd_error *err)
{
    for (size_t d = 0; d < rows->n_datasets; d++) {
        const bd_figures *totals = &rows->manifests[d].totals;
        if (totals->targets == 0)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "nothing in '%s' can be predicted: its %" PRId64
                           " documents have no token that another one follows; leave it out, "
                           "or pack documents that are not empty",
                           folders[d], totals->documents);
    }
    return BD_OK;
}

bd_shard *bd_rows_shard(const bd_rows *rows, int64_t number, int64_t *row_in_shard)
{
    size_t low = 0, high = rows->n_shards;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (rows->begins[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    *row_in_shard = number - rows->begins[low];
    return &rows->shards[low];
}

bd_status bd_rows_row(const bd_rows *rows, int64_t number, bd_hasher *hasher, bd_row *row,
                      bd_error *err)
{
    int64_t row_in_shard;
    bd_shard *shard = bd_rows_shard(rows, number, &row_in_shard);
    if (shard->loads_later)
        BD_TRY(bd_block_window_load(rows->window, shard,
                                    row_in_shard / shard->config.batch_rows, err));
    return bd_shard_row(shard, row_in_shard, hasher, row, err);
}
