#include "packer/input/table.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "packer/input/examine.h"

// ---- Whether its rows are documents that training may take as they are ----------------------

// The first of the names, which NULL ends, that is a column beside the ids; NULL if none is.
static const char *first_beside(const bd_columns *columns, const char *const *names)
{
    while (*names && !bd_columns_has_beside(columns, *names))
        names++;
    return *names;
}

// Refuses Bindery's own shards, rows of packed sequences, and ids with a column beside them that
// says which tokens are to be learned: packing would lose that without a word.
static bd_status check_table(const bd_columns *columns, bd_error *err)
{
    static const char *const boundaries[] = {"seq_lengths", "position_ids", "cu_seqlens", NULL};
    static const char *const masks[] = {"labels", "loss_mask", "completion_mask",
                                        "assistant_masks", NULL};
    if (bd_columns_has_metadata(columns, "bindery"))
        return bd_fail(err, BD_ERR_FORMAT,
                       "it is a shard of a Bindery dataset: bindery repack packs those anew");
    if (bd_columns_id_bytes(columns) == 0)
        return BD_OK;
    const char *const name = bd_columns_name(columns);
    const char *beside = first_beside(columns, boundaries);
    if (beside)
        return bd_fail(
            err, BD_ERR_FORMAT,
            "its rows are packed sequences, not documents: column '%s' is beside '%s'; "
            "give the documents, or the dataset to bindery repack if it was exported "
            "from one (drop that column if every row is one document)",
            beside, name);
    beside = first_beside(columns, masks);
    if (beside)
        return bd_fail(
            err, BD_ERR_FORMAT,
            "column '%s' beside '%s' says which tokens are to be learned, and training "
            "would ignore it: drop that column if all of them are",
            beside, name);
    return BD_OK;
}

// ---- Slices ----------------------------------------------------------------------------------

static bd_status cut_groups(bd_input *input, const bd_columns *columns, int64_t unit_bytes,
                            bd_error *err)
{
    bd_input_entry *entry = &input->entry;
    size_t capacity = 0;
    int64_t slice_bytes = 0;
    entry->extent = entry->weight = 0;
    BD_TRY(bd_input_add_start(input, &capacity, 0, err));
    for (int64_t g = 0; g < bd_columns_n_groups(columns); g++) {
        const bd_column_group group = bd_columns_group(columns, g);
        if (group.n_rows == 0)
            continue;
        if (group.first_row > entry->starts[entry->n_starts - 1] &&
            group.weight_bytes > unit_bytes - slice_bytes) {
            BD_TRY(bd_input_add_start(input, &capacity, group.first_row, err));
            slice_bytes = 0;
        }
        if (!bd_int64_add(entry->weight, group.weight_bytes, &entry->weight) ||
            !bd_int64_add(entry->extent, group.n_rows, &entry->extent))
            return bd_fail(err, BD_ERR_FORMAT, "its row groups claim impossible sizes");
        slice_bytes += group.weight_bytes;  // at most the weight
    }
    return BD_OK;
}

static bd_status open_columns(bd_columns **columns, const bd_input *input,
                              const bd_input_options *options, bd_error *err)
{
    return bd_columns_open(columns, input->path, input->kind->columns, options->text_field,
                           bd_input_options_table_bytes(options), err);
}

bd_status bd_table_cut(bd_input *input, const bd_input_options *options, bd_error *err)
{
    bd_columns *columns;
    BD_TRY(bd_input_digest_edges(input, NULL, err));
    BD_TRY(open_columns(&columns, input, options, err));
    input->id_bytes = bd_columns_id_bytes(columns);
    bd_status status = check_table(columns, err);
    if (status == BD_OK)
        status = cut_groups(input, columns, options->unit_bytes, err);
    bd_columns_close(columns);
    return status == BD_ERR_FORMAT
               ? bd_error_prefix(err, status, "cannot read '%s'", input->path)
               : status;
}

// ---- Reading ---------------------------------------------------------------------------------

typedef struct table_source {
    const char *path;                 // borrowed
    bd_columns *columns;              // owned
    int64_t begin;                    // of the slice
    int64_t group;                    // the next to be read
    bd_column_values values;          // of the group before it
    int64_t first_row;                // of the table that `values` begin with
    int64_t row;                      // the next of `values`
    int64_t row_bytes, stored_bytes;  // of the slice's groups so far: in memory, in the file
} table_source;

bd_status bd_table_open(void **source, const bd_input *input, const bd_input_options *options,
                        bd_error *err)
{
    table_source *table = calloc(1, sizeof *table);
    if (!table)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
    *source = table;
    table->path = input->path;
    BD_TRY(open_columns(&table->columns, input, options, err));
    int64_t n_rows = 0;
    for (int64_t g = 0; g < bd_columns_n_groups(table->columns); g++)
        n_rows += bd_columns_group(table->columns, g).n_rows;
    return n_rows == input->entry.extent ? BD_OK : bd_input_fail_changed(input, err);
}

void bd_table_close(void *source)
{
    table_source *table = source;
    if (table)
        bd_columns_close(table->columns);
    free(table);
}

void bd_table_begin(void *source, bd_slice slice)
{
    table_source *table = source;
    table->begin = slice.begin;
    table->group = table->row = 0;
    table->values.n_rows = 0;
    table->row_bytes = table->stored_bytes = 0;
}

// Counts a group that was read. A unit's documents are in memory together, so that a file of a
// few kilobytes must not be able to make gigabytes of them.
static bd_status count_group(table_source *table, const bd_column_group *group, bd_error *err)
{
    int64_t bytes;
    if (!bd_int64_mul(group->n_rows, BD_COLUMN_ROW_BYTES, &bytes) ||
        !bd_int64_add(bytes, table->values.size_bytes, &bytes) ||
        !bd_int64_add(bytes, table->row_bytes, &table->row_bytes))
        table->row_bytes = INT64_MAX;
    if (!bd_int64_add(table->stored_bytes, group->stored_bytes, &table->stored_bytes))
        table->stored_bytes = INT64_MAX;
    const int64_t allowed = bd_columns_allowed(table->columns, table->stored_bytes);
    if (table->row_bytes <= allowed)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT,
                   "cannot read '%s': its rows up to %" PRId64 " take more than %" PRId64
                   " MiB in one unit, far more than in the file: write smaller row groups or "
                   "record batches, or allow more with --unit-size",
                   table->path, group->first_row + group->n_rows, allowed >> 20);
}

// The next group that begins in the slice and has rows; *found is false if there is none.
static bd_status read_table_group(table_source *table, int64_t end, bool *found, bd_error *err)
{
    *found = false;
    while (!*found && table->group < bd_columns_n_groups(table->columns)) {
        const bd_column_group group = bd_columns_group(table->columns, table->group);
        if (group.first_row >= end)
            return BD_OK;
        if (group.n_rows > 0 && group.first_row >= table->begin) {
            BD_TRY(bd_columns_read(table->columns, table->group, &table->values, err));
            BD_TRY(count_group(table, &group, err));
            table->first_row = group.first_row;
            table->row = 0;
            *found = true;
        }
        table->group++;
    }
    return BD_OK;
}

bd_status bd_table_next(void *source, int64_t end, bd_record *record, bool *found,
                        bd_error *err)
{
    table_source *table = source;
    *found = table->row < table->values.n_rows;
    if (!*found)
        BD_TRY(read_table_group(table, end, found, err));
    if (!*found)
        return BD_OK;
    const int64_t row = table->row++;
    const bd_value value = table->values.rows[row];
    *record = (bd_record){.data = value.data ? value.data : "",
                          .size_bytes = (size_t)value.size_bytes,
                          .position = table->first_row + row};
    if (!value.data)
        record->bad = BD_BAD_MISSING_TEXT;
    return BD_OK;
}
