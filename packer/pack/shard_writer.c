#include "packer/pack/shard_writer.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/size.h"
#include "common/dataset/arrow_io.h"

// One record batch under construction: the owner of what a bd_row_batch points to.
typedef struct batch_buffers {
    char *ids;
    int32_t *bound_offsets, *bounds, *segment_offsets;
    uint32_t *input, *offset, *length;
    uint64_t *position, *checksums;
} batch_buffers;

static void release_buffers(batch_buffers *buffers)
{
    free(buffers->ids);
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

static bd_status allocate_buffers(batch_buffers *buffers, const bd_packing *packing,
                                  size_t n_rows, size_t n_pieces, bd_error *err)
{
    size_t ids_bytes;
    const size_t row_bytes = (size_t)(packing->seq_len * bd_packing_id_bytes(packing));
    *buffers = (batch_buffers){0};
    // List offsets are 32 bits, so a batch with more boundaries than that cannot be written.
    if (!bd_size_mul(n_rows, row_bytes, &ids_bytes) || n_pieces + n_rows > INT32_MAX)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "a record batch is too large");
    buffers->ids = malloc(ids_bytes);
    buffers->bound_offsets = malloc((n_rows + 1) * sizeof *buffers->bound_offsets);
    buffers->bounds = malloc((n_pieces + n_rows) * sizeof *buffers->bounds);
    buffers->segment_offsets = malloc((n_rows + 1) * sizeof *buffers->segment_offsets);
    buffers->input = malloc(n_pieces * sizeof *buffers->input);
    buffers->offset = malloc(n_pieces * sizeof *buffers->offset);
    buffers->length = malloc(n_pieces * sizeof *buffers->length);
    buffers->position = malloc(n_pieces * sizeof *buffers->position);
    buffers->checksums = malloc(n_rows * sizeof *buffers->checksums);
    if (!buffers->ids || !buffers->bound_offsets || !buffers->bounds ||
        !buffers->segment_offsets || !buffers->input || !buffers->offset || !buffers->length ||
        !buffers->position || !buffers->checksums) {
        release_buffers(buffers);
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a record batch of %zu rows", n_rows);
    }
    return BD_OK;
}

static void pad(char *ids, int id_bytes, int64_t from, int64_t to, uint32_t padding)
{
    for (int64_t t = from; t < to; t++) {
        if (id_bytes == 2)
            ((uint16_t *)ids)[t] = (uint16_t)padding;
        else
            ((uint32_t *)ids)[t] = padding;
    }
}

// Copies the pieces of one row into the buffers; `bound` and `segment` are where its entries
// go.
static void fill_row(batch_buffers *buffers, const bd_documents *documents,
                     const bd_piece *pieces, int64_t n_pieces, int64_t row, int64_t bound,
                     int64_t segment)
{
    const bd_packing *packing = documents->packing;
    const int id_bytes = bd_packing_id_bytes(packing);
    char *ids = buffers->ids + row * packing->seq_len * id_bytes;
    int64_t used = 0;
    buffers->bounds[bound] = 0;
    for (int64_t s = 0; s < n_pieces; s++) {
        const bd_piece *piece = &pieces[s];
        const bd_document *document = &documents->items[piece->document];
        memcpy(ids + used * id_bytes,
               (const char *)documents->ids + (document->begin + piece->offset) * id_bytes,
               (size_t)(piece->length * (int64_t)id_bytes));
        used += piece->length;
        buffers->bounds[bound + s + 1] = (int32_t)used;
        buffers->input[segment + s] = document->input;
        buffers->position[segment + s] = document->position;
        buffers->offset[segment + s] = piece->offset;
        buffers->length[segment + s] = document->length;
    }
    pad(ids, id_bytes, used, packing->seq_len, (uint32_t)packing->padding);
}

// Rows `first` to `first + n_rows - 1` of the layout as one record batch.
static bd_status write_batch(bd_arrow_writer *writer, const bd_documents *documents,
                             const bd_layout *layout, int64_t first, int64_t n_rows,
                             bd_hasher *hasher, bd_error *err)
{
    const bd_packing *packing = documents->packing;
    const int64_t *begins = layout->row_begins + first;
    batch_buffers buffers;
    BD_TRY(allocate_buffers(&buffers, packing, (size_t)n_rows,
                            (size_t)(begins[n_rows] - begins[0]), err));
    const bd_row_batch batch = {
        .n_rows = n_rows,
        .ids = buffers.ids,
        .bound_offsets = buffers.bound_offsets,
        .bounds = buffers.bounds,
        .segment_offsets = buffers.segment_offsets,
        .segments = {buffers.input, buffers.position, buffers.offset, buffers.length},
        .checksums = buffers.checksums,
    };
    buffers.bound_offsets[0] = buffers.segment_offsets[0] = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t segment = begins[r] - begins[0], bound = segment + r;
        const int64_t n_pieces = begins[r + 1] - begins[r];
        fill_row(&buffers, documents, layout->pieces + begins[r], n_pieces, r, bound, segment);
        buffers.bound_offsets[r + 1] = (int32_t)(bound + n_pieces + 1);
        buffers.segment_offsets[r + 1] = (int32_t)(segment + n_pieces);
        const bd_row row = bd_row_of_batch(&batch, packing, r);
        buffers.checksums[r] = bd_row_checksum(&row, packing, hasher);
    }
    const bd_status status = bd_arrow_writer_write(writer, &batch, err);
    release_buffers(&buffers);
    return status;
}

static bd_status write_file(const char *path, const char *metadata,
                            const bd_documents *documents, const bd_layout *layout,
                            bd_error *err)
{
    const int64_t batch_rows = documents->packing->batch_rows;
    bd_arrow_writer *writer = NULL;
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    const bool compressed = documents->packing->codec == BD_SHARD_ZSTD;
    bd_status status =
        bd_arrow_writer_open(&writer, path, documents->packing, metadata, compressed, err);
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
    bd_json *json = bd_shard_metadata(documents->packing, entry);
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
