#include "packer/input/records.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/interrupt.h"
#include "packer/input/examine.h"

enum { CHUNK_BYTES = 1 << 18 };

static const char byte_order_mark[] = "\xEF\xBB\xBF";

bd_status bd_records_open(bd_records *records, const bd_input *input, bd_record_kind kind,
                          const char *delimiter, int64_t max_bytes, bd_error *err)
{
    *records = (bd_records){
        .input = input,
        .kind = kind,
        .delimiter = delimiter,
        .max_bytes = (size_t)max_bytes,
        .fd = -1,
        .size = INT64_MAX,
    };
    bd_status status;
    if (input->compression || bd_input_is_stdin(input)) {
        status = bd_byte_stream_open(&records->stream, input->path, err);
    } else {
        int64_t size_bytes;
        records->size = input->entry.size_bytes;
        status = bd_file_open(input->path, &records->fd, &size_bytes, err);
    }
    if (status != BD_OK)
        bd_records_close(records);
    return status;
}

bd_status bd_records_new(void **source, const bd_input *input, bd_record_kind kind,
                         const bd_input_options *options, bd_error *err)
{
    bd_records *records = *source = calloc(1, sizeof *records);
    return records ? bd_records_open(records, input, kind, options->delimiter,
                                     options->max_document_bytes, err)
                   : bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
}

void bd_records_free(void *source)
{
    if (source)
        bd_records_close(source);
    free(source);
}

void bd_records_begin(void *source, bd_slice slice)
{
    bd_records *records = source;
    const int64_t begin = slice.begin;
    if (records->stream)
        return;
    const bool is_after_end = begin > 0 && begin >= records->size;
    records->next = is_after_end ? INT64_MAX : begin;
    records->buffer_position = is_after_end ? records->size : begin;
    records->n_buffered = 0;
    records->synchronised = is_after_end;
    records->passes_over = false;
}

int64_t bd_records_consumed(const void *source)
{
    const bd_records *records = source;
    return records->stream ? bd_byte_stream_consumed(records->stream) : 0;
}

void bd_records_close(bd_records *records)
{
    if (!records->input)
        return;
    if (records->fd >= 0)
        close(records->fd);
    bd_byte_stream_close(records->stream);
    free(records->buffer);
    *records = (bd_records){0};
}

bd_status bd_records_cut(bd_input *input, const bd_input_options *options, bd_error *err)
{
    bd_input_entry *entry = &input->entry;
    if (bd_input_is_stdin(input)) {
        entry->size_bytes = entry->extent = BD_UNKNOWN;
    } else {
        BD_TRY(bd_input_digest_edges(input, NULL, err));
        entry->extent = entry->size_bytes;
        if (bd_input_is_stream(input))
            BD_TRY(
                bd_byte_stream_measure(input->path, options->unit_bytes, &entry->extent, err));
    }
    entry->weight = entry->extent;
    entry->stride = options->unit_bytes;
    return BD_OK;
}

// ---- The window over the text ------------------------------------------------------

static int64_t buffer_end(const bd_records *records)
{
    return records->buffer_position + (int64_t)records->n_buffered;
}

static const char *at(const bd_records *records, int64_t position)
{
    return records->buffer + (position - records->buffer_position);
}

// Not a failure of the file: bd_records_next() makes a bad record of it.
static bd_status note_too_large(bd_records *records)
{
    records->is_too_large = true;
    return BD_ERR_FORMAT;
}

// Reads what comes after the window, up to `n` bytes; at the end of the text it becomes known.
static bd_status read_chunk(bd_records *records, size_t n, bd_error *err)
{
    char *to = records->buffer + records->n_buffered;
    size_t n_read = n;
    if (records->stream) {
        BD_TRY(bd_byte_stream_read(records->stream, to, n, &n_read, err));
        if (n_read < n)
            records->size = buffer_end(records) + (int64_t)n_read;
    } else {
        const int64_t left = records->size - buffer_end(records);
        n_read = left < (int64_t)n ? (size_t)left : n;
        BD_TRY(bd_file_read_at(records->fd, records->input->path, to, n_read,
                               buffer_end(records), err));
    }
    records->n_buffered += n_read;
    memset(records->buffer + records->n_buffered, 0, BD_RECORD_PADDING);
    return BD_OK;
}

// Forgets what lies before `position` and moves the rest to the front of a window that has room
// for `capacity` bytes.
static bd_status move_window(bd_records *records, int64_t position, size_t capacity,
                             bd_error *err)
{
    const size_t kept = (size_t)(buffer_end(records) - position);
    if (capacity > records->capacity) {
        char *buffer = malloc(capacity + BD_RECORD_PADDING);
        if (!buffer)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a record of '%s'",
                           records->input->path);
        if (kept > 0)
            memcpy(buffer, at(records, position), kept);
        free(records->buffer);
        records->buffer = buffer;
        records->capacity = capacity;
    } else if (kept > 0) {
        memmove(records->buffer, at(records, position), kept);
    }
    records->buffer_position = position;
    records->n_buffered = kept;
    return BD_OK;
}

// Forgets what lies before `position` and reads a chunk more. The window grows when what is
// kept fills it.
static bd_status read_more(bd_records *records, int64_t position, bd_error *err)
{
    const size_t kept = (size_t)(buffer_end(records) - position);
    // The window may also hold what surrounds a record: a byte order mark, a newline, perhaps a
    // delimiter line.
    const size_t n_around =
        strlen(byte_order_mark) + 2 + (records->delimiter ? strlen(records->delimiter) : 0);
    if (kept > records->max_bytes + n_around)
        return note_too_large(records);
    const bool fits = kept + CHUNK_BYTES <= records->capacity;
    BD_TRY(move_window(records, position, fits ? 0 : 2 * kept + CHUNK_BYTES, err));
    return read_chunk(records, CHUNK_BYTES, err);
}

// The end of the line that begins at `from`: the position of its newline, or the end of the
// file. Everything from `keep` on stays in the window.
static bd_status find_line_end(bd_records *records, int64_t keep, int64_t from, int64_t *end,
                               bd_error *err)
{
    int64_t searched = from;
    for (;;) {
        if (searched < buffer_end(records)) {
            const char *newline =
                memchr(at(records, searched), '\n', (size_t)(buffer_end(records) - searched));
            if (newline) {
                *end = records->buffer_position + (newline - records->buffer);
                return BD_OK;
            }
            searched = buffer_end(records);
        }
        if (buffer_end(records) == records->size) {
            *end = records->size;
            return BD_OK;
        }
        BD_TRY(read_more(records, keep, err));
    }
}

static bool is_delimiter(const bd_records *records, int64_t begin, int64_t end)
{
    const size_t n = strlen(records->delimiter);
    return (size_t)(end - begin) == n &&
           (n == 0 || memcmp(at(records, begin), records->delimiter, n) == 0);
}

// The end of the line that begins at `line`, or any place from `stop` on if it lies there, and
// whether the line is a delimiter. The window keeps no more of it than that takes.
static bd_status pass_line(bd_records *records, int64_t line, int64_t stop, int64_t *end,
                           bool *delimiter, bd_error *err)
{
    const bool delimited = records->kind == BD_RECORD_DELIMITED;
    const int64_t longest = delimited ? (int64_t)strlen(records->delimiter) : -1;
    int64_t searched = line;
    for (;;) {
        const char *newline =
            searched < buffer_end(records)
                ? memchr(at(records, searched), '\n', (size_t)(buffer_end(records) - searched))
                : NULL;
        if (newline || buffer_end(records) == records->size) {
            *end = newline ? records->buffer_position + (newline - records->buffer)
                           : records->size;
            *delimiter = *end - line == longest && is_delimiter(records, line, *end);
            return BD_OK;
        }
        searched = buffer_end(records);
        const bool may_be_delimiter = searched - line <= longest;
        if (!may_be_delimiter && searched >= stop) {
            *end = searched;
            *delimiter = false;
            return BD_OK;
        }
        BD_TRY(bd_interrupt_check(err));
        BD_TRY(read_more(records, may_be_delimiter ? line : searched, err));
    }
}

// ---- Where the slice's first record begins ------------------------------------------

// The first line start at or after `position` > 0, seen from the byte before it; `stop` if it
// is not before that.
static bd_status next_line_start(bd_records *records, int64_t position, int64_t stop,
                                 int64_t *start, bd_error *err)
{
    records->buffer_position = position - 1;
    records->n_buffered = 0;
    // A line is not a record here, so nothing of it is kept: it may be longer than memory.
    for (int64_t from = position - 1; from < stop; from = buffer_end(records)) {
        BD_TRY(read_more(records, from, err));
        const char *newline = memchr(records->buffer, '\n', records->n_buffered);
        if (newline) {
            *start = records->buffer_position + (newline - records->buffer) + 1;
            return BD_OK;
        }
    }
    *start = stop;
    return BD_OK;
}

// Goes to the first record of a slice in the middle of the file, which is a plain one, so that
// its size is known. A delimited record begins after a delimiter line; the first line to look at
// is the one that, if it is a delimiter, ends just before the slice.
static bd_status synchronise(bd_records *records, int64_t end, bd_error *err)
{
    const int64_t stop = end < records->size ? end : records->size;
    records->synchronised = true;
    if (records->next == 0)
        return BD_OK;
    if (records->kind != BD_RECORD_DELIMITED)
        return next_line_start(records, records->next, stop, &records->next, err);
    const int64_t n_line = (int64_t)strlen(records->delimiter) + 1;
    int64_t line = 0;
    if (records->next > n_line)
        BD_TRY(next_line_start(records, records->next - n_line, stop, &line, err));
    else
        records->buffer_position = 0;
    for (bool delimiter = false; line < stop && !delimiter;) {
        int64_t line_end;
        BD_TRY(pass_line(records, line, stop, &line_end, &delimiter, err));
        line = line_end + 1;
    }
    records->next = line;
    return BD_OK;
}

// ---- One record ---------------------------------------------------------------------

static bd_status next_file(bd_records *records, bd_record *record, bool *found, bd_error *err)
{
    *found = records->next == 0;
    if (!*found)
        return BD_OK;
    if (records->size != INT64_MAX) {
        if ((uint64_t)records->size > records->max_bytes)
            return note_too_large(records);
        BD_TRY(move_window(records, 0, (size_t)records->size + CHUNK_BYTES, err));
    }
    do
        BD_TRY(read_more(records, 0, err));
    while (buffer_end(records) < records->size);
    *record = (bd_record){.data = records->buffer, .size_bytes = records->n_buffered};
    records->next = INT64_MAX;
    return BD_OK;
}

static bool is_blank(const char *data, size_t n)
{
    while (n > 0 && strchr(" \t\r", data[n - 1]) && data[n - 1] != '\0')
        n--;
    return n == 0;
}

static bd_status next_line(bd_records *records, int64_t stop, bd_record *record, bool *found,
                           bd_error *err)
{
    *found = false;
    while (!*found && records->next < stop && records->next < records->size) {
        const int64_t begin = records->next;
        int64_t end;
        record->position = records->line = begin;
        BD_TRY(find_line_end(records, begin, begin, &end, err));
        *record = (bd_record){
            .data = at(records, begin), .size_bytes = (size_t)(end - begin), .position = begin};
        const size_t n_mark = strlen(byte_order_mark);
        if (begin == 0 && record->size_bytes >= n_mark &&
            memcmp(record->data, byte_order_mark, n_mark) == 0) {
            record->data += n_mark;
            record->size_bytes -= n_mark;
        }
        // A line that is too large may not be in memory as a whole: it is not asked whether it
        // is blank.
        *found = record->size_bytes > records->max_bytes ||
                 !is_blank(record->data, record->size_bytes);
        records->next = end + 1;
    }
    return BD_OK;
}

// The record runs to the next delimiter line or the end. If the file begins with a delimiter
// line, no document lies before it, and none after a delimiter line that ends the file.
static bd_status next_delimited(bd_records *records, int64_t end, bd_record *record,
                                bool *found, bd_error *err)
{
    const int64_t n_delimiter = (int64_t)strlen(records->delimiter);
    if (records->next == 0) {
        bool goes_on;
        BD_TRY(bd_records_reach(records, n_delimiter, &goes_on, err));
        const bool ends_line =
            goes_on ? *at(records, n_delimiter) == '\n' : records->size == n_delimiter;
        if (ends_line && is_delimiter(records, 0, n_delimiter))
            records->next = n_delimiter + 1;
    }
    const int64_t begin = record->position = records->next;
    *found = false;
    if (begin < end)
        BD_TRY(bd_records_reach(records, begin, found, err));
    if (!*found)
        return BD_OK;
    int64_t line = begin, stop = INT64_MAX;
    while (line < records->size && stop == INT64_MAX) {
        int64_t line_end;
        records->line = line;
        BD_TRY(find_line_end(records, begin, line, &line_end, err));
        if (is_delimiter(records, line, line_end))
            stop = line;
        line = line_end + 1;
    }
    records->next = line;
    const char *data = at(records, begin);
    size_t n = (size_t)((stop < records->size ? stop : records->size) - begin);
    if (n > 0 && data[n - 1] == '\n')
        n--;
    *record = (bd_record){.data = data, .size_bytes = n, .position = begin};
    return BD_OK;
}

// Goes to the end of a record that is too large, without keeping it in the window.
static bd_status pass_over_record(bd_records *records, bd_error *err)
{
    bool delimiter = false;
    int64_t end = INT64_MAX - 1;
    if (records->kind == BD_RECORD_FILE) {
        // A compressed file has to be read to its end: damage may come later.
        while (records->stream && buffer_end(records) < records->size)
            BD_TRY(pass_line(records, buffer_end(records), INT64_MAX, &end, &delimiter, err));
        records->next = INT64_MAX;
    } else {
        int64_t line = records->line;
        do {
            BD_TRY(pass_line(records, line, INT64_MAX, &end, &delimiter, err));
            line = end + 1;
        } while (records->kind == BD_RECORD_DELIMITED && !delimiter && line < records->size);
        records->next = line;
    }
    records->passes_over = false;
    return BD_OK;
}

bd_status bd_records_next(void *source, int64_t end, bd_record *record, bool *found,
                          bd_error *err)
{
    bd_records *records = source;
    *found = records->is_too_large = false;
    if (records->passes_over)
        BD_TRY(pass_over_record(records, err));
    if (!records->synchronised)
        BD_TRY(synchronise(records, end, err));
    record->position = records->next;  // for the message, should it fail
    bd_status status = BD_OK;
    switch (records->kind) {
    case BD_RECORD_FILE:
        status = next_file(records, record, found, err);
        break;
    case BD_RECORD_LINE:
        status = next_line(records, end, record, found, err);
        break;
    case BD_RECORD_DELIMITED:
        status = next_delimited(records, end, record, found, err);
        break;
    }
    records->passes_over = records->is_too_large;
    if (status == BD_OK && *found && record->size_bytes > records->max_bytes)
        records->is_too_large = true;
    if (!records->is_too_large)
        return status;
    *record = (bd_record){.position = record->position, .bad = BD_BAD_TOO_LARGE};
    *found = true;
    return BD_OK;
}

bd_status bd_records_reach(void *source, int64_t position, bool *reaches, bd_error *err)
{
    bd_records *records = source;
    if (records->passes_over)
        BD_TRY(pass_over_record(records, err));
    while (buffer_end(records) <= position && buffer_end(records) < records->size) {
        const int64_t kept =
            records->next < buffer_end(records) ? records->next : buffer_end(records);
        BD_TRY(read_more(records, kept, err));
    }
    *reaches = position < records->size;
    return BD_OK;
}

int64_t bd_line_number(const bd_input *input, int64_t position)
{
    char chunk[1 << 16];
    bd_byte_stream *stream;
    if (bd_input_is_stdin(input) || bd_byte_stream_open(&stream, input->path, NULL) != BD_OK)
        return 0;
    int64_t line = 1, left = position;
    while (left > 0) {
        const size_t wanted = left < (int64_t)sizeof chunk ? (size_t)left : sizeof chunk;
        size_t n = 0;
        if (bd_byte_stream_read(stream, chunk, wanted, &n, NULL) != BD_OK || n == 0) {
            line = 0;
            break;
        }
        for (size_t i = 0; i < n; i++)
            line += chunk[i] == '\n';
        left -= (int64_t)n;
    }
    bd_byte_stream_close(stream);
    return line;
}
