// records.h - the records of a slice of an input: whole files, lines, or delimited documents.
//
//   delimiter "%"    A A A \n B B \n % \n C C \n % \n
//   record           [------------)     [---)            "AAA\nBB" and "CC"
//
// Between neighbouring delimiter lines lies an empty record; before one that begins the file,
// or after one that ends it, lies none.
//
// Which bytes are record starts can be told locally (after a newline, after a delimiter
// line), so a slice is read without reading what comes before it.
#ifndef BINDERY_PACKER_RECORDS_H
#define BINDERY_PACKER_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "packer/inputs.h"
#include "packer/units.h"

typedef enum bd_record_kind {
    BD_RECORD_FILE,       // the whole file, even an empty one, is one record
    BD_RECORD_LINE,       // each line that is not blank
    BD_RECORD_DELIMITED,  // what lies between lines that equal the delimiter
} bd_record_kind;

// Bytes after a record's end that may be read (they are not part of it), for parsers that
// work on whole vectors.
enum { BD_RECORD_PADDING = 64 };

typedef struct bd_record {
    const char *data;  // borrowed until the next call
    size_t size_bytes;
    int64_t position;  // of its first byte in the input
} bd_record;

// A reader of records. Memory: a whole file as it is; otherwise three times the largest record
// while the window over the file grows, and two chunks.
typedef struct bd_records {
    const bd_input *input;  // borrowed
    bd_record_kind kind;
    const char *delimiter;  // borrowed; a line's content without its newline
    size_t max_bytes;       // a larger record is an error
    int fd;
    bd_slice slice;
    char *buffer;  // owned; holds the input's bytes [buffer_position, buffer_position +
                   // n_buffered)
    size_t capacity, n_buffered;
    int64_t buffer_position;
    int64_t next;  // where the next record begins, or where to look for it
    bool synchronised;
} bd_records;

// Opens the input, whose size must still be input->size_bytes. On failure *records is empty.
bd_status bd_records_open(bd_records *records, const bd_input *input, bd_slice slice,
                          bd_record_kind kind, const char *delimiter, int64_t max_bytes,
                          bd_error *err);

// The next record that begins in the slice; *found is false at the end. A record that is too
// large is BD_ERR_FORMAT, and record->position tells where it begins.
bd_status bd_records_next(bd_records *records, bd_record *record, bool *found, bd_error *err);

void bd_records_close(bd_records *records);  // safe on an empty struct and safe twice

// The number of the line, from 1, that holds byte `position`: for messages only, it reads
// the file from its start. 0 if it cannot be read any more.
int64_t bd_line_number(const char *path, int64_t position);

#endif
