#include "packer/input/examine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/array.h"
#include "common/base/file.h"
#include "common/base/size.h"
#include "packer/input/arrow_columns.h"
#include "packer/input/recognise.h"
#include "packer/input/table_check.h"
#include "packer/input/token_file.h"

enum { EDGE_BYTES = 1 << 20 };

// ---- Edges ---------------------------------------------------------------------------------

// Adds the first and the last MiB of a file that has `mark` then.
static bd_status hash_edges(bd_hasher *hasher, const char *path, bd_file_mark *mark,
                            bd_error *err)
{
    bd_status status = BD_OK;
    char *buffer = malloc(EDGE_BYTES);
    int fd = -1;
    if (!buffer) {
        status = bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", path);
        goto done;
    }
    int64_t size_bytes;
    status = bd_file_open(path, &fd, &size_bytes, err);
    if (status == BD_OK)
        status = bd_file_mark_of_open(fd, path, mark, err);
    if (status != BD_OK)
        goto done;
    size_bytes = mark->size_bytes;
    const size_t edge = size_bytes < EDGE_BYTES ? (size_t)size_bytes : EDGE_BYTES;
    const int64_t offsets[] = {0, size_bytes - (int64_t)edge};
    for (int i = 0; status == BD_OK && i < 2; i++) {
        status = bd_file_read_at(fd, path, buffer, edge, offsets[i], err);
        if (status == BD_OK)
            bd_hasher_add(hasher, buffer, edge);
    }
done:
    if (fd >= 0)
        close(fd);
    free(buffer);
    return status;
}

static bd_status digest_edges(bd_input *input, const char *sidecar, bd_error *err)
{
    bd_hasher *hasher = bd_hasher_new();
    if (!hasher)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    bd_status status = hash_edges(hasher, input->path, &input->mark, err);
    input->entry.size_bytes = input->mark.size_bytes;
    if (status == BD_OK && sidecar)
        status = hash_edges(hasher, sidecar, &input->index_mark, err);
    if (status == BD_OK && sidecar && !(input->index = strdup(sidecar)))
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", sidecar);
    if (status == BD_OK)
        input->edges = bd_hasher_take128(hasher);
    bd_hasher_free(hasher);
    return status;
}

// ---- Cuts ----------------------------------------------------------------------------------

// A pair of files may be given by its index; it is called after the file that holds the ids.
static bd_status use_ids_path(bd_input *input, const char *path, bd_error *err)
{
    const size_t n = strlen(input->entry.name), n_ending = strlen(".idx");
    if (strcmp(path, input->path) == 0)
        return BD_OK;
    char *ids_path = strdup(path);
    if (!ids_path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the name of '%s'", path);
    free(input->path);
    input->path = ids_path;
    if (n > n_ending)
        memcpy(input->entry.name + n - n_ending, ".bin", n_ending);
    return BD_OK;
}

static bd_status add_start(bd_input_entry *entry, size_t *capacity, int64_t start,
                           bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&entry->starts, capacity, entry->n_starts + 1,
                            sizeof *entry->starts, err));
    entry->starts[entry->n_starts++] = start;
    return BD_OK;
}

static bd_status cut_bytes(bd_input *input, const bd_reading *reading, bd_error *err)
{
    bd_input_entry *entry = &input->entry;
    size_t capacity = 0;
    if (bd_input_is_stdin(input))
        entry->size_bytes = entry->extent = BD_UNKNOWN;
    else
        BD_TRY(digest_edges(input, NULL, err));
    if (input->compression != BD_PLAIN)
        BD_TRY(bd_byte_stream_measure(input->path, reading->unit_bytes, &entry->extent, err));
    else if (!bd_input_is_stdin(input))
        entry->extent = entry->size_bytes;
    entry->weight = entry->extent;
    if (input->format == BD_INPUT_TEXT && !reading->delimiter)
        return add_start(entry, &capacity, 0, err);  // one document cannot be cut
    entry->stride = reading->unit_bytes;
    return BD_OK;
}

static bd_status cut_groups(bd_input_entry *entry, const bd_columns *columns,
                            int64_t unit_bytes, bd_error *err)
{
    size_t capacity = 0;
    int64_t slice_bytes = 0;
    entry->extent = entry->weight = 0;
    BD_TRY(add_start(entry, &capacity, 0, err));
    for (int64_t g = 0; g < bd_columns_n_groups(columns); g++) {
        const bd_column_group group = bd_columns_group(columns, g);
        if (group.n_rows == 0)
            continue;
        if (group.first_row > entry->starts[entry->n_starts - 1] &&
            group.weight_bytes > unit_bytes - slice_bytes) {
            BD_TRY(add_start(entry, &capacity, group.first_row, err));
            slice_bytes = 0;
        }
        if (!bd_int64_add(entry->weight, group.weight_bytes, &entry->weight) ||
            !bd_int64_add(entry->extent, group.n_rows, &entry->extent))
            return bd_fail(err, BD_ERR_FORMAT, "its row groups claim impossible sizes");
        slice_bytes += group.weight_bytes;  // at most the weight
    }
    return BD_OK;
}

static bd_status cut_table(bd_input *input, const bd_reading *reading, bd_error *err)
{
    bd_columns *columns;
    BD_TRY(digest_edges(input, NULL, err));
    BD_TRY(bd_columns_open(&columns, input->path, bd_input_columns_format(input),
                           reading->text_field, bd_reading_table_bytes(reading), err));
    input->id_bytes = bd_columns_id_bytes(columns);
    bd_status status = bd_table_check(columns, err);
    if (status == BD_OK)
        status = cut_groups(&input->entry, columns, reading->unit_bytes, err);
    bd_columns_close(columns);
    return status == BD_ERR_FORMAT
               ? bd_error_prefix(err, status, "cannot read '%s'", input->path)
               : status;
}

// Between documents, which join a slice while they stay within the unit's size together.
static bd_status cut_indexed(bd_input_entry *entry, const bd_token_file *file, int64_t per_unit,
                             bd_error *err)
{
    size_t capacity = 0;
    int64_t slice_begin = 0;  // token
    BD_TRY(add_start(entry, &capacity, 0, err));
    for (int64_t d = 1; d < entry->extent; d++) {
        const int64_t end = bd_token_file_document_begin(file, d + 1);
        if (end - slice_begin > per_unit) {
            BD_TRY(add_start(entry, &capacity, d, err));
            slice_begin = bd_token_file_document_begin(file, d);
        }
    }
    return BD_OK;
}

static bd_status cut_tokens(bd_input *input, const bd_reading *reading, bd_error *err)
{
    bd_token_file *file;
    bd_input_entry *entry = &input->entry;
    BD_TRY(bd_token_file_open(&file, input->path, bd_input_token_layout(input),
                              reading->raw_id_bytes, reading->end_of_text, err));
    input->id_bytes = bd_token_file_id_bytes(file);
    input->has_signed_ids = bd_token_file_is_signed(file);
    entry->extent = bd_token_file_extent(file);
    entry->weight = bd_token_file_n_tokens(file) * input->id_bytes;
    const int64_t per_unit = reading->unit_bytes / input->id_bytes;
    bd_status status = BD_OK;
    if (bd_token_file_is_indexed(file))
        status = cut_indexed(entry, file, per_unit, err);
    else
        entry->stride = per_unit > 0 ? per_unit : 1;
    if (status == BD_OK)
        status = use_ids_path(input, bd_token_file_path(file), err);
    if (status == BD_OK)
        status = digest_edges(input, bd_token_file_sidecar(file), err);
    bd_token_file_close(file);
    return status;
}

bd_status bd_input_cut(bd_input *input, const bd_reading *reading, bd_error *err)
{
    bd_input_entry *entry = &input->entry;
    const bd_reading own = bd_input_reading(input, reading);
    entry->format = strdup(bd_input_format_words[input->format]);
    entry->compression = strdup(bd_compression_words[input->compression]);
    if (!entry->format || !entry->compression)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the inputs");
    if (bd_input_is_bytes(input))
        return cut_bytes(input, &own, err);
    if (bd_input_is_table(input))
        return cut_table(input, &own, err);
    return cut_tokens(input, &own, err);
}

bd_status bd_input_examine(bd_input *input, const bd_reading *reading, bd_error *err)
{
    const bd_reading own = bd_input_reading(input, reading);
    BD_TRY(bd_input_recognise(input, &own, err));
    return input->passed == BD_PASS_NOT ? bd_input_cut(input, reading, err)
                                        : bd_input_refuse(input, err);
}
