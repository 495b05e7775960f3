#include "common/dataset/shard.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"

static bd_status read_metadata(bd_shard *shard, bd_error *err)
{
    const char *text = bd_arrow_reader_metadata(shard->reader);
    if (!text)
        return bd_fail(err, BD_ERR_FORMAT, "S1: an Arrow file, but not a shard of ours");
    bd_json *json = NULL;
    bd_status status = bd_json_parse(text, strlen(text), &json, err);
    if (status == BD_OK)
        status = bd_shard_metadata_read(json, &shard->config, &shard->entry, err);
    bd_json_free(json);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "S1: metadata");
}

static bd_status check_record_batch(const bd_shard *shard, int64_t i, bd_error *err)
{
    const int64_t n = bd_arrow_reader_n_batches(shard->reader);
    const int64_t n_rows = bd_arrow_reader_batch(shard->reader, i)->n_rows;
    if (i < n - 1 ? n_rows != shard->config.batch_rows : n_rows > shard->config.batch_rows)
        return bd_fail(err, BD_ERR_FORMAT,
                       "S1: record batch %" PRId64 " has %" PRId64
                       " rows, batch_rows is %" PRId64,
                       i, n_rows, shard->config.batch_rows);
    const bool compressed = bd_arrow_reader_is_compressed(shard->reader, i);
    if (compressed != (shard->config.codec == BD_SHARD_ZSTD))
        return bd_fail(err, BD_ERR_FORMAT,
                       "S1: record batch %" PRId64 " is %scompressed, codec is %s", i,
                       compressed ? "" : "not ", bd_shard_codec_names[shard->config.codec]);
    return BD_OK;
}

static bd_status fail_rows(const bd_shard *shard, int64_t found, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT,
                   "S5: it has %" PRId64 " rows, its metadata says %" PRId64, found,
                   shard->entry.figures.rows);
}

static bd_status load_all(bd_shard *shard, bd_error *err)
{
    int64_t rows = 0;
    const int64_t n = bd_arrow_reader_n_batches(shard->reader);
    for (int64_t i = 0; i < n; i++)
        BD_TRY(bd_arrow_reader_load(shard->reader, i, &shard->config, err));
    for (int64_t i = 0; i < n; i++) {
        BD_TRY(check_record_batch(shard, i, err));
        rows += bd_arrow_reader_batch(shard->reader, i)->n_rows;
    }
    return rows == shard->entry.figures.rows ? BD_OK : fail_rows(shard, rows, err);
}

// Checks that there are as many batches as the rows need. How many rows each batch has is
// checked when it is loaded.
static bd_status check_count(const bd_shard *shard, bd_error *err)
{
    const int64_t rows = shard->entry.figures.rows, most = shard->config.batch_rows;
    const int64_t n = bd_arrow_reader_n_batches(shard->reader);
    const int64_t needed = rows / most + (rows % most != 0);
    return n == needed ? BD_OK
                       : bd_fail(err, BD_ERR_FORMAT,
                                 "S5: it has %" PRId64 " record batches, its %" PRId64
                                 " rows need %" PRId64,
                                 n, rows, needed);
}

static bd_status open_file(bd_shard *shard, const char *folder, const char *name,
                           bool compressed_later, bd_error *err)
{
    *shard = (bd_shard){.file = {.slot = -1}};
    shard->path = bd_path_join(folder, name);
    if (!shard->path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of a shard");
    bd_status status = bd_mapped_file_open(&shard->file, shard->path, err);
    if (status != BD_OK)
        goto done;
    status =
        bd_arrow_reader_open(&shard->reader, shard->file.data, shard->file.size_bytes, err);
    if (status == BD_OK)
        status = read_metadata(shard, err);
    if (status == BD_OK)
        status = bd_arrow_reader_check_schema(shard->reader, &shard->config, err);
    shard->loads_later = compressed_later && shard->config.codec != BD_SHARD_UNCOMPRESSED;
    if (status == BD_OK)
        status = shard->loads_later ? check_count(shard, err) : load_all(shard, err);
    if (status != BD_OK)
        bd_error_prefix(err, status, "cannot use '%s'", shard->path);
done:
    if (status != BD_OK)
        bd_shard_close(shard);
    return status;
}

bd_status bd_shard_open(bd_shard *shard, const char *folder, const char *name, bd_error *err)
{
    return open_file(shard, folder, name, false, err);
}

static bd_status open_entry(bd_shard *shard, const char *folder, const bd_manifest *manifest,
                            size_t index, bool compressed_later, bd_error *err)
{
    const bd_shard_entry *entry = &manifest->shards[index];
    BD_TRY(
        open_file(shard, folder, bd_unit_shard_name(&entry->unit).text, compressed_later, err));
    bd_json *here = bd_shard_metadata(&shard->config, &shard->entry);
    bd_json *there = bd_shard_metadata(&manifest->config, entry);
    char where[256];
    bd_status status = BD_OK;
    if (bd_json_difference(here, there, where, sizeof where)) {
        status =
            bd_fail(err, BD_ERR_FORMAT, "cannot use '%s': S1: it differs from the manifest: %s",
                    shard->path, where);
        bd_shard_close(shard);
    }
    bd_json_free(here);
    bd_json_free(there);
    return status;
}

bd_status bd_shard_open_entry(bd_shard *shard, const char *folder, const bd_manifest *manifest,
                              size_t index, bd_error *err)
{
    return open_entry(shard, folder, manifest, index, false, err);
}

bd_status bd_shard_open_to_load(bd_shard *shard, const char *folder,
                                const bd_manifest *manifest, size_t index, bd_error *err)
{
    return open_entry(shard, folder, manifest, index, true, err);
}

bd_status bd_shard_load(bd_shard *shard, int64_t batch, bd_error *err)
{
    const int64_t rows = shard->entry.figures.rows, most = shard->config.batch_rows;
    bd_status status = bd_arrow_reader_load(shard->reader, batch, &shard->config, err);
    if (status == BD_OK)
        status = check_record_batch(shard, batch, err);
    if (status == BD_OK) {
        const int64_t n_rows = bd_arrow_reader_batch(shard->reader, batch)->n_rows;
        const int64_t left = rows - batch * most;  // in this batch and those after it
        if (n_rows == (left < most ? left : most))
            return BD_OK;
        status = fail_rows(shard, batch * most + n_rows, err);
    }
    bd_arrow_reader_drop(shard->reader, batch);
    return bd_error_prefix(err, status, "cannot use '%s'", shard->path);
}

void bd_shard_drop(bd_shard *shard, int64_t batch)
{
    bd_arrow_reader_drop(shard->reader, batch);
}

bd_row bd_shard_unchecked_row(const bd_shard *shard, int64_t row)
{
    const bd_dataset_config *config = &shard->config;
    assert(0 <= row && row < shard->entry.figures.rows);
    const bd_row_batch *batch = bd_arrow_reader_batch(shard->reader, row / config->batch_rows);
    return bd_row_of_batch(batch, config, row % config->batch_rows);
}

bd_status bd_shard_row(const bd_shard *shard, int64_t row, bd_hasher *hasher, bd_row *out,
                       bd_error *err)
{
    *out = bd_shard_unchecked_row(shard, row);
    const bd_status status = bd_row_check(out, &shard->config, hasher, err);
    return status == BD_OK
               ? BD_OK
               : bd_error_prefix(err, status, "'%s', row %" PRId64, shard->path, row);
}

bd_status bd_shard_fail_row(const bd_shard *shard, int64_t row, const char *rule, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "'%s', row %" PRId64 ": %s", shard->path, row, rule);
}

void bd_shard_forget_batch(const bd_shard *shard, int64_t batch)
{
    const bd_row_batch *rows = bd_arrow_reader_batch(shard->reader, batch);
    const int32_t first = rows->segment_offsets[0];
    const size_t n_segments = bd_row_batch_n_segments(rows);
    const int64_t n_tokens = rows->n_rows * shard->config.seq_len;
    const size_t n_bounds =
        (size_t)(rows->bound_offsets[rows->n_rows] - rows->bound_offsets[0]);
    const struct {
        const void *data;
        size_t size_bytes;
    } others[] = {
        {rows->bounds + rows->bound_offsets[0], n_bounds * sizeof *rows->bounds},
        {rows->segments.input + first, n_segments * sizeof *rows->segments.input},
        {rows->segments.position + first, n_segments * sizeof *rows->segments.position},
        {rows->segments.offset + first, n_segments * sizeof *rows->segments.offset},
        {rows->segments.length + first, n_segments * sizeof *rows->segments.length},
    };
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        const int bits = bd_token_bits(&shard->config, c);
        if (bits > 0)
            bd_mapped_file_forget(&shard->file, rows->columns[c],
                                  bd_column_bytes(n_tokens, bits));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        bd_mapped_file_forget(&shard->file, others[i].data, others[i].size_bytes);
}

void bd_shard_close(bd_shard *shard)
{
    bd_arrow_reader_free(shard->reader);
    bd_mapped_file_close(&shard->file);
    free(shard->path);
    *shard = (bd_shard){.file = {.slot = -1}};
}
