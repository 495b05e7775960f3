// records.h - the records of a text: the whole of it, lines, or delimited documents.
//
//   delimiter "%"    A A A \n B B \n % \n C C \n % \n
//   record           [------------)     [---)            "AAA\nBB" and "CC"
//
// Between neighbouring delimiter lines lies an empty record; before one that begins the text,
// or after one that ends it, lies none.
//
// Which bytes are record starts can be told locally (after a newline, after a delimiter
// line), so a slice of a plain file is read without reading what comes before it. Compressed
// inputs and standard input are read from front to back, slice after slice.
#ifndef BINDERY_PACKER_INPUT_RECORDS_H
#define BINDERY_PACKER_INPUT_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/bad_records.h"
#include "packer/input/inputs.h"

typedef enum bd_record_kind {
    BD_RECORD_FILE,       // the whole text, even an empty one, is one record
    BD_RECORD_LINE,       // each line that is not blank; a byte order mark is no part of it
    BD_RECORD_DELIMITED,  // what lies between lines that equal the delimiter
} bd_record_kind;

// Bytes after a record's end that may be read (they are not part of it), for parsers that
// work on whole vectors.
enum { BD_RECORD_PADDING = 64 };

typedef struct bd_record {
    const char *data;  // borrowed until the next call
    size_t size_bytes;
    int64_t position;        // at which it begins in the input
    size_t stored_bytes;     // of the input that it was made from; 0: as many as it has itself
    bool headless;           // its beginning is not in the input
    const uint8_t *trained;  // [n_trained], of ids: 1 or 0 for each, whether it is trained,
    size_t n_trained;        // borrowed likewise; NULL: all are
    bd_bad_kind bad;         // if it is bad already, it has no bytes
    const char *problem;     // why it is bad; static; NULL: the kind says it all
} bd_record;

// A reader of records. Memory: three times the largest record while the window over the text
// grows, and two chunks.
typedef struct bd_records {
    const bd_input *input;  // borrowed
    bd_record_kind kind;
    const char *delimiter;   // borrowed; a line's content without its newline
    size_t max_bytes;        // of a record
    int fd;                  // of a plain file, -1 otherwise
    bd_byte_stream *stream;  // of any other, owned
    int64_t size;            // of the text; INT64_MAX until its end was met
    char *buffer;  // owned; holds the text's bytes [buffer_position, buffer_position +
                   // n_buffered)
    size_t capacity, n_buffered;
    int64_t buffer_position;
    int64_t next;  // where the next record begins, or where to look for it
    bool synchronised;
    int64_t line;       // where the line begins that was looked at last
    bool is_too_large;  // the record at hand
    bool passes_over;   // the rest of it, which begins with that line, must be passed over
} bd_records;

// Opens the input; a plain file is read as far as its entry says that it goes. On failure
// *records is empty.
bd_status bd_records_open(bd_records *records, const bd_input *input, bd_record_kind kind,
                          const char *delimiter, int64_t max_bytes, bd_error *err);

// Goes to the beginning of the slice, at or after which the next record begins; after the end of the
// input there is none. Inputs that are read from front to back go on where they are.
void bd_records_begin(void *records, bd_slice slice);

// The next record, if it begins before `end`; *found is false otherwise. One that is too large
// is found without its bytes, which are passed over before the next one is looked for, in
// little memory. A failure is the file's, and the message names it.
bd_status bd_records_next(void *records, int64_t end, bd_record *record, bool *found,
                          bd_error *err);

// Whether the text has a byte at `position`, which must not lie before what was read last.
bd_status bd_records_reach(void *records, int64_t position, bool *reaches, bd_error *err);

// Bytes of the file that were taken in so far, for progress; 0 for plain files.
int64_t bd_records_consumed(const void *records);

// The same as functions of a kind (kinds.h), which is why some of the others take a void *. An
// input is cut at multiples of a unit's bytes.
bd_status bd_records_cut(bd_input *input, const bd_input_options *options, bd_error *err);
bd_status bd_records_new(void **source, const bd_input *input, bd_record_kind kind,
                         const bd_input_options *options, bd_error *err);
void bd_records_free(void *source);

void bd_records_close(bd_records *records);  // safe on an empty struct and safe twice

// The number of the line, from 1, that holds byte `position` of the text: for messages only, it
// reads the file from its start. 0 if it cannot be read (any more).
int64_t bd_line_number(const bd_input *input, int64_t position);

#endif
