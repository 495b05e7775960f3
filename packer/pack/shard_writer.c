#include "packer/pack/shard_writer.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/dataset/arrow_io.h"

// One record batch under construction: the owner of what a bd_row_batch points to.
typedef struct batch_buffers {
    BD_WRITABLE_TOKENS;
    int32_t *bound_offsets, *bounds, *segment_offsets;
    uint32_t *input, *offset, *length;
    uint64_t *position, *checksums;
} batch_buffers;

static void release_buffers(batch_buffers *buffers)
{
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        free(buffers->columns[c]);
    free(buffers->bound_offsets);
    free(buffers->bounds);
    free(buffers->segment_offsets);
    free(buffers->input);
    free(buffers->offset);
    free(buffers->length);
    free(buffers->position);
    free(buffers->checksums);
    *buffers = (batch_buffers){0};
}

static bd_status allocate_buffers(batch_buffers *buffers, const bd_dataset_config *config,
                                  int64_t n_rows, int64_t n_pieces, bd_error *err)
{
    const size_t rows = (size_t)n_rows, pieces = (size_t)n_pieces;
    const int64_t n_tokens = n_rows * config->seq_len;
    *buffers = (batch_buffers){0};
    // List offsets are 32 bits, so a batch with more boundaries than that cannot be written.
    if (n_tokens > INT64_MAX / 64 || n_pieces + n_rows > INT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "a record batch is too large");
    bool complete = true;
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        const size_t n_bytes = bd_column_bytes(n_tokens, bd_token_bits(config, c));
        if (n_bytes == 0)
            continue;
        char *column = buffers->columns[c] = malloc(n_bytes);
        complete = complete && column;
        if (column)
            column[n_bytes - 1] = 0;  // tokens of a few bits may not fill it
    }
    buffers->bound_offsets = malloc((rows + 1) * sizeof *buffers->bound_offsets);
    buffers->bounds = malloc((pieces + rows) * sizeof *buffers->bounds);
    buffers->segment_offsets = malloc((rows + 1) * sizeof *buffers->segment_offsets);
    buffers->input = malloc(pieces * sizeof *buffers->input);
    buffers->offset = malloc(pieces * sizeof *buffers->offset);
    buffers->length = malloc(pieces * sizeof *buffers->length);
    buffers->position = malloc(pieces * sizeof *buffers->position);
    buffers->checksums = malloc(rows * sizeof *buffers->checksums);
    if (complete && buffers->bound_offsets && buffers->bounds && buffers->segment_offsets &&
        buffers->input && buffers->offset && buffers->length && buffers->position &&
        buffers->checksums)
        return BD_OK;
    release_buffers(buffers);
    return bd_fail(err, BD_ERR_MEMORY, "no memory for a record batch of %zu rows", rows);
}

// Copies the tokens of the pieces of one row, end to end, and pads the rest of the row.
static void fill_tokens(batch_buffers *buffers, const bd_documents *documents,
                        const bd_piece *pieces, int64_t n_pieces, int64_t row)
{
    const bd_dataset_config *config = documents->config;
    const int64_t begin = row * config->seq_len, end = begin + config->seq_len;
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++) {
        const int bits = bd_token_bits(config, c);
        int64_t at = begin;
        for (const bd_piece *piece = pieces; piece < pieces + n_pieces; piece++) {
            const int64_t from = documents->items[piece->document].begin + piece->offset;
            bd_column_copy(buffers->columns[c], at, documents->columns[c], from, piece->length,
                           bits);
            if (c == BD_COLUMN_loss_mask)  // what begins a segment has nothing to follow from
                bd_column_fill(buffers->columns[c], at, at + 1, bits, 0);
            at += piece->length;
        }
        bd_column_fill(buffers->columns[c], at, end, bits, bd_token_fill(c, config));
    }
}

// Writes rows `first` to `first + n_rows - 1` of the layout as one record batch.
static bd_status write_batch(bd_arrow_writer *writer, const bd_documents *documents,
                             const bd_layout *layout, int64_t first, int64_t n_rows,
                             bd_hasher *hasher, bd_error *err)
{
    const bd_dataset_config *config = documents->config;
    const int64_t *begins = layout->row_begins + first;
    batch_buffers buffers;
    BD_TRY(allocate_buffers(&buffers, config, n_rows, begins[n_rows] - begins[0], err));
    bd_row_batch batch = {
        .n_rows = n_rows,
        .bound_offsets = buffers.bound_offsets,
        .bounds = buffers.bounds,
        .segment_offsets = buffers.segment_offsets,
        .segments = {buffers.input, buffers.position, buffers.offset, buffers.length},
        .checksums = buffers.checksums,
    };
    for (int c = 0; c < BD_N_TOKEN_COLUMNS; c++)
        batch.columns[c] = buffers.columns[c];
    int64_t bound = 0, segment = 0;
    buffers.bound_offsets[0] = buffers.segment_offsets[0] = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        const bd_piece *pieces = layout->pieces + begins[r];
        const int64_t n_pieces = begins[r + 1] - begins[r];
        fill_tokens(&buffers, documents, pieces, n_pieces, r);
        buffers.bounds[bound++] = 0;
        for (int64_t s = 0; s < n_pieces; s++, bound++, segment++) {
            const bd_document *document = &documents->items[pieces[s].document];
            buffers.bounds[bound] = buffers.bounds[bound - 1] + pieces[s].length;
            buffers.input[segment] = document->input;
            buffers.position[segment] = document->position;
            buffers.offset[segment] = pieces[s].offset;
            buffers.length[segment] = document->length;
        }
        buffers.bound_offsets[r + 1] = (int32_t)bound;
        buffers.segment_offsets[r + 1] = (int32_t)segment;
        const bd_row row = bd_row_of_batch(&batch, config, r);
        buffers.checksums[r] = bd_row_checksum(&row, config, hasher);
    }
    const bd_status status = bd_arrow_writer_write(writer, &batch, err);
    release_buffers(&buffers);
    return status;
}

static bd_status write_file(const char *path, const char *metadata,
                            const bd_documents *documents, const bd_layout *layout,
                            bd_error *err)
{
    const int64_t batch_rows = documents->config->batch_rows;
    bd_arrow_writer *writer = NULL;
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    const bool compressed = documents->config->codec == BD_SHARD_ZSTD;
    bd_status status =
        bd_arrow_writer_open(&writer, path, documents->config, metadata, compressed, err);
    for (int64_t row = 0; status == BD_OK && row < layout->n_rows; row += batch_rows) {
        const int64_t left = layout->n_rows - row;
        status = write_batch(writer, documents, layout, row,
                             left < batch_rows ? left : batch_rows, hasher, err);
    }
    if (status == BD_OK)
        status = bd_arrow_writer_close(writer, err);
    bd_arrow_writer_free(writer);
    bd_hasher_free(hasher);
    return status;
}

bd_status bd_shard_write(const char *folder, const bd_documents *documents,
                         const bd_layout *layout, bd_shard_entry *entry, bd_error *err)
{
    const bd_shard_name name = bd_unit_shard_name(&entry->unit);
    char *metadata = NULL;
    bd_pending pending = {0};
    bd_json *json = bd_shard_metadata(documents->config, entry);
    bd_status status = bd_json_print(json, BD_JSON_COMPACT, &metadata, err);
    if (status != BD_OK)
        goto done;
    status = bd_pending_begin(&pending, folder, name.text, err);
    if (status != BD_OK)
        goto done;
    status = write_file(pending.temporary, metadata, documents, layout, err);
    if (status != BD_OK) {
        bd_error_prefix(err, status, "cannot write '%s'", pending.final);
        goto done;
    }
    status = bd_digest_file(pending.temporary, &entry->digest, &entry->size_bytes, err);
    if (status == BD_OK)
        status = bd_file_mark_of(pending.temporary, &entry->mark, err);
    if (status == BD_OK)
        status = bd_pending_publish(&pending, err);
done:
    bd_pending_discard(&pending);
    free(metadata);
    bd_json_free(json);
    return status;
}
