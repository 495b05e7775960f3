#include "packer/input/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/size.h"
#include "packer/input/arrow_columns.h"
#include "packer/input/token_file.h"

struct bd_reader {
    const bd_input *input;  // borrowed
    bd_reading reading;     // its own; borrowed from the input and from what all have
    bd_slice slice;
    // One of these is in use.
    bd_records records;
    bd_columns *columns;
    bd_token_file *tokens;
    // Of a table:
    int64_t group;            // the next to be read
    bd_column_values values;  // of the group before it
    int64_t first_row;        // of the table that `values` begin with
    int64_t row;              // the next of `values`
    int64_t row_bytes,
        stored_bytes;  // of the slice's groups up to this one, in memory and in the file
};

static bd_record_kind kind_of(const bd_input *input, const bd_reading *reading)
{
    if (input->format == BD_INPUT_JSONL)
        return BD_RECORD_LINE;
    return reading->delimiter ? BD_RECORD_DELIMITED : BD_RECORD_FILE;
}

static bd_status fail_changed(const bd_input *input, bd_error *err)
{
    return bd_fail(err, BD_ERR_IO, "cannot read '%s': it changed while it was being packed",
                   input->path);
}

// What was planned for an input holds only as long as it stays as it was examined.
static bd_status check_unchanged(const bd_reader *reader, bd_error *err)
{
    const bd_input *input = reader->input;
    struct stat info;
    if (bd_input_is_stdin(input))
        return BD_OK;
    if (stat(input->path, &info) != 0 || info.st_size != input->entry.size_bytes)
        return fail_changed(input, err);
    if (reader->tokens && bd_token_file_extent(reader->tokens) != input->entry.extent)
        return fail_changed(input, err);
    int64_t n_rows = 0;
    for (int64_t g = 0; reader->columns && g < bd_columns_n_groups(reader->columns); g++)
        n_rows += bd_columns_group(reader->columns, g).n_rows;
    if (reader->columns && n_rows != input->entry.extent)
        return fail_changed(input, err);
    return BD_OK;
}

bd_status bd_reader_open(bd_reader **out, const bd_input *input, const bd_reading *of_all,
                         bd_error *err)
{
    *out = NULL;
    bd_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
    reader->input = input;
    reader->reading = bd_input_reading(input, of_all);
    const bd_reading *reading = &reader->reading;
    bd_status status;
    if (bd_input_is_bytes(input))
        status = bd_records_open(&reader->records, input, kind_of(input, reading),
                                 reading->delimiter, reading->max_document_bytes, err);
    else if (bd_input_is_table(input))
        status = bd_columns_open(&reader->columns, input->path, bd_input_columns_format(input),
                                 reading->text_field, bd_reading_table_bytes(reading), err);
    else
        status = bd_token_file_open(&reader->tokens, input->path, bd_input_token_layout(input),
                                    reading->raw_id_bytes, reading->end_of_text, err);
    if (status == BD_OK)
        status = check_unchanged(reader, err);
    if (status != BD_OK) {
        bd_reader_close(reader);
        return status;
    }
    *out = reader;
    return BD_OK;
}

void bd_reader_begin(bd_reader *reader, bd_slice slice)
{
    reader->slice = slice;
    reader->group = reader->row = 0;
    reader->values.n_rows = 0;
    reader->row_bytes = reader->stored_bytes = 0;
    if (reader->tokens)
        bd_token_file_begin(reader->tokens, slice.begin, slice.end);
    else if (!reader->columns)
        bd_records_begin(&reader->records, slice.begin);
}

// ---- Tables --------------------------------------------------------------------------------

// Counts a group that was read. A unit's documents are in memory together, so that a file of a
// few kilobytes must not be able to make gigabytes of them.
static bd_status count_group(bd_reader *reader, const bd_column_group *group, bd_error *err)
{
    int64_t bytes;
    if (!bd_int64_mul(group->n_rows, BD_COLUMN_ROW_BYTES, &bytes) ||
        !bd_int64_add(bytes, reader->values.size_bytes, &bytes) ||
        !bd_int64_add(bytes, reader->row_bytes, &reader->row_bytes))
        reader->row_bytes = INT64_MAX;
    if (!bd_int64_add(reader->stored_bytes, group->stored_bytes, &reader->stored_bytes))
        reader->stored_bytes = INT64_MAX;
    const int64_t allowed = bd_columns_allowed(reader->columns, reader->stored_bytes);
    if (reader->row_bytes <= allowed)
        return BD_OK;
    return bd_fail(err, BD_ERR_FORMAT,
                   "cannot read '%s': its rows up to %" PRId64 " take more than %" PRId64
                   " MiB in one unit, far more than in the file: write smaller row groups or "
                   "record batches, or allow more by --unit-size",
                   reader->input->path, group->first_row + group->n_rows, allowed >> 20);
}

// The next group that begins in the slice and has rows; *found is false if there is none.
static bd_status read_group(bd_reader *reader, bool *found, bd_error *err)
{
    *found = false;
    while (!*found && reader->group < bd_columns_n_groups(reader->columns)) {
        const bd_column_group group = bd_columns_group(reader->columns, reader->group);
        if (group.first_row >= reader->slice.end)
            return BD_OK;
        if (group.n_rows > 0 && group.first_row >= reader->slice.begin) {
            BD_TRY(bd_columns_read(reader->columns, reader->group, &reader->values, err));
            BD_TRY(count_group(reader, &group, err));
            reader->first_row = group.first_row;
            reader->row = 0;
            *found = true;
        }
        reader->group++;
    }
    return BD_OK;
}

static bd_status next_row(bd_reader *reader, bd_record *record, bool *found, bd_error *err)
{
    *found = reader->row < reader->values.n_rows;
    if (!*found)
        BD_TRY(read_group(reader, found, err));
    if (!*found)
        return BD_OK;
    const int64_t row = reader->row++;
    const bd_value value = reader->values.rows[row];
    *record = (bd_record){.data = value.data ? value.data : "",
                          .size_bytes = (size_t)value.size_bytes,
                          .position = reader->first_row + row};
    if (!value.data)
        record->bad = BD_BAD_MISSING_TEXT;
    return BD_OK;
}

// ---- All -----------------------------------------------------------------------------------

static bd_status next_document(bd_reader *reader, bd_record *record, bool *found, bd_error *err)
{
    bd_token_document document = {0};
    BD_TRY(bd_token_file_next(reader->tokens, &document, found, err));
    *record =
        (bd_record){.data = document.ids,
                    .size_bytes = (size_t)document.n_ids * (size_t)reader->input->id_bytes,
                    .position = document.position,
                    .headless = document.headless};
    return BD_OK;
}

bd_status bd_reader_next(bd_reader *reader, bd_record *record, bool *found, bd_error *err)
{
    *found = false;
    bd_status status = reader->columns  ? next_row(reader, record, found, err)
                       : reader->tokens ? next_document(reader, record, found, err)
                                        : bd_records_next(&reader->records, reader->slice.end,
                                                          record, found, err);
    if (status != BD_OK || !*found)  // of a damaged file the message says it already
        return status;
    if (record->size_bytes > (size_t)reader->reading.max_document_bytes)
        record->bad = BD_BAD_TOO_LARGE;
    if (record->bad == BD_BAD_NONE)
        return BD_OK;
    *record = (bd_record){.position = record->position, .bad = record->bad};
    if (reader->reading.bad_records == BD_BAD_SKIP)
        return BD_OK;
    status = bd_reader_fail_bad(&reader->reading, record, err);
    return bd_reader_blame(reader->input, record, status, err);
}

bd_status bd_reader_fail_bad(const bd_reading *reading, const bd_record *record, bd_error *err)
{
    if (record->bad == BD_BAD_MISSING_TEXT)
        return bd_fail(err, BD_ERR_FORMAT, "the column has no value");
    return bd_fail(err, BD_ERR_FORMAT, "a record larger than --max-document-bytes %" PRId64,
                   reading->max_document_bytes);
}

bd_status bd_reader_is_last(bd_reader *reader, bool *last, bd_error *err)
{
    const int64_t extent = reader->input->entry.extent;
    *last = extent == BD_UNKNOWN ? reader->slice.end == INT64_MAX : reader->slice.end >= extent;
    if (*last || extent != BD_UNKNOWN)
        return BD_OK;
    bool reaches;
    BD_TRY(bd_records_reach(&reader->records, reader->slice.end, &reaches, err));
    *last = !reaches;
    return BD_OK;
}

int64_t bd_reader_consumed(const bd_reader *reader)
{
    return bd_records_consumed(&reader->records);
}

void bd_reader_close(bd_reader *reader)
{
    if (!reader)
        return;
    bd_records_close(&reader->records);
    bd_columns_close(reader->columns);
    bd_token_file_close(reader->tokens);
    free(reader);
}

bd_status bd_reader_blame(const bd_input *input, const bd_record *record, bd_status status,
                          bd_error *err)
{
    if (bd_input_is_table(input))
        return bd_error_prefix(err, status, "'%s', row %" PRId64, input->path,
                               record->position);
    if (input->format == BD_INPUT_LLM_C)
        return bd_error_prefix(err, status, "'%s', document at token %" PRId64, input->path,
                               record->position);
    if (!bd_input_is_bytes(input))
        return bd_error_prefix(err, status, "'%s', document %" PRId64, input->path,
                               record->position);
    const int64_t line =
        input->format == BD_INPUT_JSONL ? bd_line_number(input, record->position) : 0;
    if (line > 0)
        return bd_error_prefix(err, status, "'%s', line %" PRId64 " (byte %" PRId64 ")",
                               input->path, line, record->position);
    return bd_error_prefix(err, status, "'%s', document at byte %" PRId64, input->path,
                           record->position);
}
