#include "packer/input/reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/interrupt.h"
#include "packer/input/kinds.h"

struct bd_reader {
    const bd_input *input;     // borrowed
    bd_input_options options;  // its own; borrowed from the input and from what all have
    bd_slice slice;
    void *source;  // owned; what the input's kind reads from
};

bd_status bd_reader_open(bd_reader **out, const bd_input *input, const bd_input_options *of_all,
                         bd_error *err)
{
    struct stat info;
    *out = NULL;
    bd_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
    reader->input = input;
    reader->options = bd_input_options_of(input, of_all);
    bd_status status = input->kind->open(&reader->source, input, &reader->options, err);
    // The plan holds only for the input as it was examined.
    if (status == BD_OK && !bd_input_is_stdin(input) &&
        (stat(input->path, &info) != 0 || info.st_size != input->entry.size_bytes))
        status = bd_input_fail_changed(input, err);
    if (status == BD_OK)
        *out = reader;
    else
        bd_reader_close(reader);
    return status;
}

bd_status bd_reader_open_slice(bd_reader **reader, const bd_input *input,
                               const bd_input_options *of_all, bd_slice slice, bd_error *err)
{
    if (!*reader || (*reader)->input != input) {
        bd_reader_close(*reader);
        BD_TRY(bd_reader_open(reader, input, of_all, err));
    }
    bd_reader_begin(*reader, slice);
    return BD_OK;
}

void bd_reader_begin(bd_reader *reader, bd_slice slice)
{
    reader->slice = slice;
    reader->input->kind->begin(reader->source, slice);
}

bd_status bd_reader_next(bd_reader *reader, bd_record *record, bool *found, bd_error *err)
{
    *found = false;
    BD_TRY(bd_interrupt_check(err));
    // If the file is damaged, the message says where already.
    BD_TRY(reader->input->kind->next(reader->source, reader->slice.end, record, found, err));
    if (!*found)
        return BD_OK;
    if (record->size_bytes > (size_t)reader->options.max_document_bytes)
        record->bad = BD_BAD_TOO_LARGE;
    if (record->bad == BD_BAD_NONE)
        return BD_OK;
    record->data = NULL;
    record->size_bytes = 0;
    if (reader->options.bad_records == BD_BAD_SKIP)
        return BD_OK;
    const bd_status status = bd_reader_fail_bad(&reader->options, record, err);
    return bd_reader_blame(reader->input, record, status, err);
}

bd_status bd_reader_fail_bad(const bd_input_options *options, const bd_record *record,
                             bd_error *err)
{
    if (record->problem)
        return bd_fail(err, BD_ERR_FORMAT, "%s", record->problem);
    if (record->bad == BD_BAD_MISSING_TEXT)
        return bd_fail(err, BD_ERR_FORMAT, "the column has no value");
    return bd_fail(err, BD_ERR_FORMAT, "a record larger than --max-document-bytes %" PRId64,
                   options->max_document_bytes);
}

bd_status bd_reader_is_last(bd_reader *reader, bool *last, bd_error *err)
{
    const int64_t extent = reader->input->entry.extent;
    *last = extent == BD_UNKNOWN ? reader->slice.end == INT64_MAX : reader->slice.end >= extent;
    if (*last || extent != BD_UNKNOWN)
        return BD_OK;
    bool reaches;
    BD_TRY(reader->input->kind->reaches(reader->source, reader->slice.end, &reaches, err));
    *last = !reaches;
    return BD_OK;
}

int64_t bd_reader_consumed(const bd_reader *reader)
{
    const bd_input_kind *kind = reader->input->kind;
    return kind->consumed ? kind->consumed(reader->source) : 0;
}

void bd_reader_close(bd_reader *reader)
{
    if (!reader)
        return;
    reader->input->kind->close(reader->source);
    free(reader);
}

bd_status bd_reader_blame(const bd_input *input, const bd_record *record, bd_status status,
                          bd_error *err)
{
    const int64_t line = input->kind->has_lines ? bd_line_number(input, record->position) : 0;
    if (line > 0)
        return bd_error_prefix(err, status, "'%s', line %" PRId64 " (byte %" PRId64 ")",
                               input->path, line, record->position);
    return bd_error_prefix(err, status, "'%s', %s %" PRId64, input->path, input->kind->place,
                           record->position);
}
