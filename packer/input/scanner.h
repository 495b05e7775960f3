// scanner.h - a text that is read from front to back, and the record that is taken from it.
//
// For kinds of which only the beginning of the text tells where records begin: a newline of a
// CSV file may lie in quotes, a bracket of a JSON array in a string. What is kept in memory is
// a chunk of the text and the record at hand, whatever lies around it.
#ifndef BINDERY_PACKER_INPUT_SCANNER_H
#define BINDERY_PACKER_INPUT_SCANNER_H

#include "packer/input/kinds.h"

enum { BD_SCAN_END = -1 };

typedef struct bd_scanner {
    const bd_input *input;   // borrowed
    bd_byte_stream *stream;  // owned
    char *chunk;             // owned; bytes [at, n) are still to be used
    size_t at, n;
    int64_t chunk_position;  // in the text
    char *record;            // owned; [n_record], padded
    size_t n_record, capacity, max_bytes;
    bool is_too_large;  // the record has more than max_bytes, which were not kept
} bd_scanner;

// Opens the input and passes over a byte order mark. Release it also after a failure.
bd_status bd_scanner_open(bd_scanner *scanner, const bd_input *input, int64_t max_bytes,
                          bd_error *err);
void bd_scanner_release(bd_scanner *scanner);

static inline int64_t bd_scanner_position(const bd_scanner *scanner)
{
    return scanner->chunk_position + (int64_t)scanner->at;
}

bd_status bd_scanner_fill(bd_scanner *scanner, bd_error *err);  // reads the next chunk

// The next byte, which stays the next; BD_SCAN_END after the last.
static inline bd_status bd_scanner_peek(bd_scanner *scanner, int *c, bd_error *err)
{
    if (scanner->at == scanner->n)
        BD_TRY(bd_scanner_fill(scanner, err));
    *c = scanner->at < scanner->n ? (unsigned char)scanner->chunk[scanner->at] : BD_SCAN_END;
    return BD_OK;
}

// Adds bytes to the record, as far as it may have that many.
bd_status bd_scanner_keep(bd_scanner *scanner, const char *bytes, size_t n, bd_error *err);
void bd_scanner_forget(bd_scanner *scanner);  // what was kept

// The record that was kept; it began at `position` and ends here.
bd_record bd_scanner_record(const bd_scanner *scanner, int64_t position);

// BD_ERR_FORMAT, saying where: no record can be read after it.
bd_status bd_scanner_fail(const bd_scanner *scanner, const char *reason, bd_error *err);

// As functions of a kind (kinds.h), whose source begins with a bd_scanner.
void bd_scanner_begin(void *source, bd_slice slice);
bd_status bd_scanner_reaches(void *source, int64_t position, bool *reaches, bd_error *err);
int64_t bd_scanner_consumed(const void *source);
void bd_scanner_close(void *source);

#endif
