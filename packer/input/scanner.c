#include "packer/input/scanner.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "packer/input/reader.h"

enum { CHUNK_BYTES = 1 << 16 };

bd_status bd_scanner_open(bd_scanner *scanner, const bd_input *input, int64_t max_bytes,
                          bd_error *err)
{
    *scanner = (bd_scanner){.input = input, .max_bytes = (size_t)max_bytes};
    scanner->chunk = malloc(CHUNK_BYTES);
    if (!scanner->chunk)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to read '%s'", input->path);
    BD_TRY(bd_byte_stream_open(&scanner->stream, input->path, err));
    BD_TRY(bd_scanner_fill(scanner, err));
    if (scanner->n >= 3 && memcmp(scanner->chunk, "\xEF\xBB\xBF", 3) == 0)
        scanner->at = 3;
    return BD_OK;
}

void bd_scanner_release(bd_scanner *scanner)
{
    bd_byte_stream_close(scanner->stream);
    free(scanner->chunk);
    free(scanner->record);
    *scanner = (bd_scanner){0};
}

bd_status bd_scanner_fill(bd_scanner *scanner, bd_error *err)
{
    scanner->chunk_position += (int64_t)scanner->n;
    scanner->at = scanner->n = 0;
    return bd_byte_stream_read(scanner->stream, scanner->chunk, CHUNK_BYTES, &scanner->n, err);
}

bd_status bd_scanner_keep(bd_scanner *scanner, const char *bytes, size_t n, bd_error *err)
{
    scanner->is_too_large |= n > scanner->max_bytes - scanner->n_record;
    if (scanner->is_too_large || n == 0)
        return BD_OK;
    BD_TRY(bd_array_reserve((void **)&scanner->record, &scanner->capacity,
                            scanner->n_record + n + BD_RECORD_PADDING, 1, err));
    memcpy(scanner->record + scanner->n_record, bytes, n);
    scanner->n_record += n;
    memset(scanner->record + scanner->n_record, 0, BD_RECORD_PADDING);
    return BD_OK;
}

void bd_scanner_forget(bd_scanner *scanner)
{
    scanner->n_record = 0;
    scanner->is_too_large = false;
}

bd_record bd_scanner_record(const bd_scanner *scanner, int64_t position)
{
    return (bd_record){
        .data = scanner->n_record > 0 ? scanner->record : "",
        .size_bytes = scanner->n_record,
        .position = position,
        .stored_bytes = (size_t)(bd_scanner_position(scanner) - position),
        .bad = scanner->is_too_large ? BD_BAD_TOO_LARGE : BD_BAD_NONE,
    };
}

bd_status bd_scanner_fail(const bd_scanner *scanner, const char *reason, bd_error *err)
{
    const bd_record here = {.position = bd_scanner_position(scanner)};
    return bd_reader_blame(scanner->input, &here, bd_fail(err, BD_ERR_FORMAT, "%s", reason),
                           err);
}

// It goes on where it is.
void bd_scanner_begin(void *source, bd_slice slice)
{
    (void)source;
    (void)slice;
}

// After the last record of a slice the place is at the first byte of the next record, which lies
// at or after the slice's end, or at the end of the text.
bd_status bd_scanner_reaches(void *source, int64_t position, bool *reaches, bd_error *err)
{
    bd_scanner *scanner = source;
    int c;
    BD_TRY(bd_scanner_peek(scanner, &c, err));
    *reaches = c != BD_SCAN_END || bd_scanner_position(scanner) > position;
    return BD_OK;
}

int64_t bd_scanner_consumed(const void *source)
{
    const bd_scanner *scanner = source;
    return bd_byte_stream_consumed(scanner->stream);
}

void bd_scanner_close(void *source)
{
    if (source)
        bd_scanner_release(source);
    free(source);
}
