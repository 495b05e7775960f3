#include "packer/input/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "packer/input/examine.h"
#include "packer/input/reader.h"

// ---- Whether its rows are documents that training may take as they are ----------------------

// The first of the names, which NULL ends, that is a column beside the ids; NULL if none is.
static const char *first_beside(const bd_columns *columns, const char *const *names)
{
    while (*names && !bd_columns_has_beside(columns, *names))
        names++;
    return *names;
}

// Refuses Bindery's own shards, and rows of packed sequences. *mask becomes the name of the column
// beside the ids that says which of them are trained; NULL if none does.
static bd_status check_table(const bd_columns *columns, const char **mask, bd_error *err)
{
    static const char *const boundaries[] = {"seq_lengths", "position_ids", "cu_seqlens", NULL};
    *mask = NULL;
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
    for (const char *const *column = bd_mask_column_names; *column; column++) {
        if (!bd_columns_has_beside(columns, *column))
            continue;
        if (*mask)
            return bd_fail(err, BD_ERR_FORMAT,
                           "columns '%s' and '%s' beside '%s' both say which tokens are "
                           "trained: drop one of them",
                           *mask, *column, name);
        *mask = *column;
    }
    return BD_OK;
}

// Opens the column of masks, if the input has one: now, because a table whose column has another type
// should not be found out when half of the corpus is packed.
static bd_status open_mask(bd_columns **mask, const bd_columns *columns, const char *name,
                           bd_error *err)
{
    *mask = NULL;
    return name ? bd_columns_open_mask(mask, columns, name, err) : BD_OK;
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
    const int64_t allowance_bytes = bd_input_options_table_bytes(options);
    const bool is_text = options->form == BD_FORM_TEXT;
    return (is_text ? bd_columns_open : bd_columns_open_json)(
        columns, input->path, input->kind->columns, bd_input_options_field(options),
        allowance_bytes, err);
}

// Opens the second column of records that have two; *columns is NULL for all others.
static bd_status open_second(bd_columns **columns, const bd_input *input,
                             const bd_input_options *options, bd_error *err)
{
    *columns = NULL;
    return options->form != BD_FORM_COMPLETION
               ? BD_OK
               : bd_columns_open_json(columns, input->path, input->kind->columns,
                                      options->fields[1], bd_input_options_table_bytes(options),
                                      err);
}

bd_status bd_table_cut(bd_input *input, const bd_input_options *options, bd_error *err)
{
    bd_columns *columns, *mask = NULL, *second = NULL;
    BD_TRY(bd_input_digest_edges(input, NULL, err));
    BD_TRY(open_columns(&columns, input, options, err));
    input->id_bytes = bd_columns_id_bytes(columns);
    bd_status status = check_table(columns, &input->mask_column, err);
    input->has_masks = input->mask_column != NULL;
    if (status == BD_OK)
        status = cut_groups(input, columns, options->unit_bytes, err);
    if (status == BD_ERR_FORMAT)
        bd_error_prefix(err, status, "cannot read '%s'", input->path);
    if (status == BD_OK)
        status = open_mask(&mask, columns, input->mask_column, err);
    bd_columns_close(mask);
    bd_columns_close(columns);
    if (status == BD_OK)  // it must be there
        status = open_second(&second, input, options, err);
    bd_columns_close(second);
    return status;
}

// ---- Reading ---------------------------------------------------------------------------------

typedef struct table_source {
    const bd_input *input;         // borrowed
    bd_columns *columns;           // owned
    bd_columns *mask;              // owned; NULL: it has none
    bd_column_values mask_values;  // of the same group as `values`
    uint8_t *trained;              // owned; of the last record
    size_t trained_capacity;
    bool as_json;        // records are JSON, made of
    bd_columns *second;  // `columns` and this one, owned; NULL: of one column
    bd_column_values second_values;
    char *text;  // owned; the record at hand, if it is JSON
    size_t text_capacity;
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
    table->input = input;
    table->as_json = options->form != BD_FORM_TEXT;
    BD_TRY(open_columns(&table->columns, input, options, err));
    BD_TRY(open_mask(&table->mask, table->columns, input->mask_column, err));
    BD_TRY(open_second(&table->second, input, options, err));
    int64_t n_rows = 0;
    for (int64_t g = 0; g < bd_columns_n_groups(table->columns); g++)
        n_rows += bd_columns_group(table->columns, g).n_rows;
    return n_rows == input->entry.extent ? BD_OK : bd_input_fail_changed(input, err);
}

void bd_table_close(void *source)
{
    table_source *table = source;
    if (!table)
        return;
    bd_columns_close(table->columns);
    bd_columns_close(table->mask);
    free(table->trained);
    bd_columns_close(table->second);
    free(table->text);
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
        !bd_int64_add(bytes, table->second_values.size_bytes, &bytes) ||
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
                   table->input->path, group->first_row + group->n_rows, allowed >> 20);
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
            if (table->second)
                BD_TRY(
                    bd_columns_read(table->second, table->group, &table->second_values, err));
            BD_TRY(count_group(table, &group, err));
            if (table->mask)  // of as many rows, by the metadata that both share
                BD_TRY(bd_columns_read(table->mask, table->group, &table->mask_values, err));
            table->first_row = group.first_row;
            table->row = 0;
            *found = true;
        }
        table->group++;
    }
    return BD_OK;
}

// A number as a mask has it, little-endian.
static int64_t number_at(const char *items, int64_t i, int item_bytes, bool is_signed)
{
    const int spare_bits = 64 - 8 * item_bytes;
    uint64_t bits = 0;
    memcpy(&bits, items + i * item_bytes, (size_t)item_bytes);
    return is_signed ? (int64_t)(bits << spare_bits) >> spare_bits : (int64_t)bits;
}

// Finds which ids of the record are trained.
static bd_status read_mask(table_source *table, const bd_value *mask, bd_record *record,
                           bd_error *err)
{
    enum { IGNORED = -100 };  // a label that PyTorch's cross-entropy leaves out
    const char *const name = table->input->mask_column;
    const bool are_labels = strcmp(name, bd_mask_column_names[BD_MASK_LABELS]) == 0;
    const int id_bytes = bd_columns_id_bytes(table->columns);
    const int item_bytes = bd_columns_id_bytes(table->mask);
    const bool ids_are_signed = bd_columns_is_signed(table->columns);
    const bool is_signed = bd_columns_is_signed(table->mask);
    const int64_t n = (int64_t)record->size_bytes / id_bytes;
    if (!mask->data)
        return bd_fail(err, BD_ERR_FORMAT, "column '%s' has no value", name);
    if (mask->size_bytes / item_bytes != n)
        return bd_fail(err, BD_ERR_FORMAT,
                       "%" PRId64 " items in column '%s' for %" PRId64 " tokens",
                       mask->size_bytes / item_bytes, name, n);
    BD_TRY(bd_array_reserve((void **)&table->trained, &table->trained_capacity, (size_t)n + 1,
                            1, err));
    for (int64_t t = 0; t < n; t++) {
        const int64_t item = number_at(mask->data, t, item_bytes, is_signed);
        const int64_t id = number_at(record->data, t, id_bytes, ids_are_signed);
        table->trained[t] = are_labels ? item != IGNORED : item != 0;
        if (are_labels ? item != IGNORED && item != id : item != 0 && item != 1)
            return bd_fail(err, BD_ERR_FORMAT,
                           are_labels
                               ? "token %" PRId64 " has %" PRId64
                                 " in column '%s', which is neither -100 nor its id %" PRId64
                               : "token %" PRId64 " has %" PRId64
                                 " in column '%s', which is neither 0 nor 1",
                           t, item, name, id);
    }
    record->trained = table->trained;
    record->n_trained = (size_t)n;
    return BD_OK;
}

// The record of a row whose columns are JSON: an array of their values, with the padding that a
// parser may read.
static bd_status make_json_record(table_source *table, int64_t row, bd_record *record,
                                  bd_error *err)
{
    static const bd_value nothing = {"", 0};
    const bd_value first = table->values.rows[row];
    const bd_value second = table->second ? table->second_values.rows[row] : nothing;
    const size_t n_first = (size_t)first.size_bytes, n_second = (size_t)second.size_bytes;
    const size_t n = 1 + n_first + (table->second ? 1 + n_second : 0) + 1;
    BD_TRY(bd_array_reserve((void **)&table->text, &table->text_capacity, n + BD_RECORD_PADDING,
                            1, err));
    char *end = table->text;
    *end++ = '[';
    end = mempcpy(end, first.data, n_first);
    if (table->second) {
        *end++ = ',';
        end = mempcpy(end, second.data, n_second);
    }
    *end++ = ']';
    memset(end, 0, BD_RECORD_PADDING);
    *record =
        (bd_record){.data = table->text, .size_bytes = n, .position = table->first_row + row};
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
    if (table->as_json)
        return make_json_record(table, row, record, err);
    const bd_value value = table->values.rows[row];
    *record = (bd_record){.data = value.data ? value.data : "",
                          .size_bytes = (size_t)value.size_bytes,
                          .position = table->first_row + row};
    if (!value.data)
        record->bad = BD_BAD_MISSING_TEXT;
    if (!value.data || !table->mask)
        return BD_OK;
    const bd_status status = read_mask(table, &table->mask_values.rows[row], record, err);
    return status == BD_ERR_FORMAT ? bd_reader_blame(table->input, record, status, err)
                                   : status;
}
