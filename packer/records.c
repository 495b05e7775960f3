#include "packer/records.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"

enum { CHUNK_BYTES = 1 << 18 };

bd_status bd_records_open(bd_records *records, const bd_input *input, bd_slice slice,
                          bd_record_kind kind, const char *delimiter, int64_t max_bytes,
                          bd_error *err)
{
    *records = (bd_records){
        .input = input,
        .kind = kind,
        .delimiter = delimiter,
        .max_bytes = (size_t)max_bytes,
        .slice = slice,
        .next = slice.begin,
        .buffer_position = slice.begin,
    };
    records->fd = open(input->path, O_RDONLY | O_CLOEXEC);
    if (records->fd < 0) {
        const bd_status status = bd_fail_errno(err, "cannot open '%s'", input->path);
        bd_records_close(records);
        return status;
    }
    struct stat info;
    if (fstat(records->fd, &info) != 0 || info.st_size != input->size_bytes) {
        bd_records_close(records);
        return bd_fail(err, BD_ERR_IO, "cannot read '%s': it changed while it was being packed",
                       input->path);
    }
    return BD_OK;
}

void bd_records_close(bd_records *records)
{
    if (!records->input)
        return;
    if (records->fd >= 0)
        close(records->fd);
    free(records->buffer);
    *records = (bd_records){0};
}

// ---- The window over the file ------------------------------------------------------

static int64_t buffer_end(const bd_records *records)
{
    return records->buffer_position + (int64_t)records->n_buffered;
}

static const char *at(const bd_records *records, int64_t position)
{
    return records->buffer + (position - records->buffer_position);
}

static bd_status fail_too_large(const bd_records *records, bd_error *err)
{
    return bd_fail(err, BD_ERR_FORMAT, "a record larger than --max-document-bytes %zu",
                   records->max_bytes);
}

// Forgets what lies before `position`, moves the rest to the front, and reads a chunk more.
// The window grows when what is kept fills it.
static bd_status read_more(bd_records *records, int64_t position, bd_error *err)
{
    const size_t kept = (size_t)(buffer_end(records) - position);
    // What ends a record is not part of it: a newline, perhaps a delimiter line.
    const size_t n_ending = 2 + (records->delimiter ? strlen(records->delimiter) : 0);
    if (kept > records->max_bytes + n_ending)
        return fail_too_large(records, err);
    const int64_t left = records->input->size_bytes - buffer_end(records);
    const size_t n = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    if (kept + n > records->capacity) {
        const size_t capacity = 2 * kept + n;
        char *buffer = malloc(capacity + BD_RECORD_PADDING);
        if (!buffer)
            return bd_fail(err, BD_ERR_MEMORY, "no memory for a record of '%s'",
                           records->input->path);
        if (kept > 0)
            memcpy(buffer, at(records, position), kept);
        free(records->buffer);
        records->buffer = buffer;
        records->capacity = capacity;
    } else {
        memmove(records->buffer, at(records, position), kept);
    }
    records->buffer_position = position;
    records->n_buffered = kept;
    BD_TRY(bd_file_read_at(records->fd, records->input->path, records->buffer + kept, n,
                           buffer_end(records), err));
    records->n_buffered += n;
    memset(records->buffer + records->n_buffered, 0, BD_RECORD_PADDING);
    return BD_OK;
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
        if (buffer_end(records) == records->input->size_bytes) {
            *end = records->input->size_bytes;
            return BD_OK;
        }
        BD_TRY(read_more(records, keep, err));
    }
}

static bool is_delimiter(const bd_records *records, int64_t begin, int64_t end)
{
    const size_t n = strlen(records->delimiter);
    return (size_t)(end - begin) == n && memcmp(at(records, begin), records->delimiter, n) == 0;
}

// ---- Where the slice's first record begins ------------------------------------------

// The first line start at or after `position` > 0, seen from the byte before it; the slice's
// end if it is not before that.
static bd_status next_line_start(bd_records *records, int64_t position, int64_t *start,
                                 bd_error *err)
{
    records->buffer_position = position - 1;
    records->n_buffered = 0;
    // A line is not a record here, so nothing of it is kept: it may be longer than memory.
    for (int64_t from = position - 1; from < records->slice.end; from = buffer_end(records)) {
        BD_TRY(read_more(records, from, err));
        const char *newline = memchr(records->buffer, '\n', records->n_buffered);
        if (newline) {
            *start = records->buffer_position + (newline - records->buffer) + 1;
            return BD_OK;
        }
    }
    *start = records->slice.end;
    return BD_OK;
}

// A delimited record begins after a delimiter line. The first line to look at is the one
// that, if it is a delimiter, ends just before the slice.
static bd_status synchronise_delimited(bd_records *records, bd_error *err)
{
    const int64_t n_line = (int64_t)strlen(records->delimiter) + 1;
    int64_t line = 0;
    if (records->slice.begin > n_line)
        BD_TRY(next_line_start(records, records->slice.begin - n_line, &line, err));
    else
        records->buffer_position = 0;
    while (line < records->slice.end) {
        int64_t end;
        BD_TRY(find_line_end(records, line, line, &end, err));
        const bool delimiter = is_delimiter(records, line, end);
        line = end + 1;
        if (delimiter)
            break;
    }
    records->next = line;
    return BD_OK;
}

static bd_status synchronise(bd_records *records, bd_error *err)
{
    records->synchronised = true;
    if (records->slice.begin == 0)
        return BD_OK;
    if (records->kind == BD_RECORD_DELIMITED)
        return synchronise_delimited(records, err);
    return next_line_start(records, records->slice.begin, &records->next, err);
}

// ---- One record ---------------------------------------------------------------------

static bd_status next_file(bd_records *records, bd_record *record, bool *found, bd_error *err)
{
    const bd_input *input = records->input;
    const size_t n = (size_t)input->size_bytes;
    *found = records->next == 0;
    if (!*found)
        return BD_OK;
    if (n > records->max_bytes)
        return fail_too_large(records, err);
    free(records->buffer);
    records->buffer = malloc(n + BD_RECORD_PADDING);
    if (!records->buffer)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for '%s'", input->path);
    BD_TRY(bd_file_read_at(records->fd, input->path, records->buffer, n, 0, err));
    memset(records->buffer + n, 0, BD_RECORD_PADDING);
    *record = (bd_record){records->buffer, n, 0};
    records->next = INT64_MAX;
    return BD_OK;
}

static bool is_blank(const char *data, size_t n)
{
    while (n > 0 && strchr(" \t\r", data[n - 1]) && data[n - 1] != '\0')
        n--;
    return n == 0;
}

static bd_status next_line(bd_records *records, bd_record *record, bool *found, bd_error *err)
{
    *found = false;
    while (!*found && records->next < records->slice.end) {
        const int64_t begin = records->next;
        int64_t end;
        record->position = begin;
        BD_TRY(find_line_end(records, begin, begin, &end, err));
        *record = (bd_record){at(records, begin), (size_t)(end - begin), begin};
        *found = !is_blank(record->data, record->size_bytes);
        records->next = end + 1;
    }
    return BD_OK;
}

// The record begins at records->next and runs to the next delimiter line or the end.
static bd_status read_delimited(bd_records *records, bd_record *record, bd_error *err)
{
    const int64_t begin = records->next, size = records->input->size_bytes;
    int64_t line = begin, stop = size;
    while (line < size) {
        int64_t end;
        BD_TRY(find_line_end(records, begin, line, &end, err));
        const bool delimiter = is_delimiter(records, line, end);
        if (delimiter)
            stop = line;
        line = end + 1;
        if (delimiter)
            break;
    }
    records->next = line;
    const char *data = at(records, begin);
    size_t n = (size_t)(stop - begin);
    if (n > 0 && data[n - 1] == '\n')
        n--;
    *record = (bd_record){data, n, begin};
    return BD_OK;
}

// Nothing before a delimiter line that begins the file is no document, as is nothing after
// one that ends it.
static bd_status skip_leading_delimiter(bd_records *records, bd_error *err)
{
    int64_t end;
    BD_TRY(find_line_end(records, 0, 0, &end, err));
    if (is_delimiter(records, 0, end))
        records->next = end + 1;
    return BD_OK;
}

static bd_status next_delimited(bd_records *records, bd_record *record, bool *found,
                                bd_error *err)
{
    if (records->next == 0 && records->slice.end > 0)
        BD_TRY(skip_leading_delimiter(records, err));
    record->position = records->next;
    *found = records->next < records->slice.end;
    return *found ? read_delimited(records, record, err) : BD_OK;
}

bd_status bd_records_next(bd_records *records, bd_record *record, bool *found, bd_error *err)
{
    if (!records->synchronised)
        BD_TRY(synchronise(records, err));
    record->position = records->next;  // for the message, should it fail
    switch (records->kind) {
    case BD_RECORD_FILE:
        BD_TRY(next_file(records, record, found, err));
        break;
    case BD_RECORD_LINE:
        BD_TRY(next_line(records, record, found, err));
        break;
    case BD_RECORD_DELIMITED:
        BD_TRY(next_delimited(records, record, found, err));
        break;
    }
    if (*found && record->size_bytes > records->max_bytes)
        return fail_too_large(records, err);
    return BD_OK;
}

int64_t bd_line_number(const char *path, int64_t position)
{
    char chunk[1 << 16];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int64_t line = 1, left = position;
    while (left > 0) {
        const size_t wanted = left < (int64_t)sizeof chunk ? (size_t)left : sizeof chunk;
        const ssize_t n = read(fd, chunk, wanted);
        if (n <= 0) {
            line = 0;
            break;
        }
        for (ssize_t i = 0; i < n; i++)
            line += chunk[i] == '\n';
        left -= n;
    }
    close(fd);
    return line;
}
