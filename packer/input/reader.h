// reader.h - the records of an input, whatever its format.
//
// A record is text (a JSON line is still JSON) or, if input->id_bytes is not 0, token ids.
#ifndef BINDERY_PACKER_INPUT_READER_H
#define BINDERY_PACKER_INPUT_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/input_options.h"
#include "packer/input/inputs.h"
#include "packer/input/records.h"

typedef struct bd_reader bd_reader;

// An input that has changed since it was examined is BD_ERR_IO. Options of the input's own replace
// those of all inputs. Input and options must outlive the reader. Close with bd_reader_close().
// Memory: see records.h for texts; one row group of a table; files of tokens are mapped.
bd_status bd_reader_open(bd_reader **reader, const bd_input *input,
                         const bd_input_options *of_all, bd_error *err);

// The same, and begins with `slice`. A reader of that very input, which *reader may be already, is
// used again: neighbouring slices are read one after the other. *reader is NULL or open before,
// and NULL after a failure.
bd_status bd_reader_open_slice(bd_reader **reader, const bd_input *input,
                               const bd_input_options *of_all, bd_slice slice, bd_error *err);

// From now on the records that begin in `slice`, in order. Compressed inputs and standard input
// are read from front to back: their slices must come in order, from the first, each once.
void bd_reader_begin(bd_reader *reader, bd_slice slice);

// The next of them; its bytes are borrowed until the next call. *found is false after the last.
// A bad record or a damaged file is BD_ERR_FORMAT, and the message says where. But with
// BD_BAD_SKIP a bad record is found like any other. It is also where an interrupt is noticed.
bd_status bd_reader_next(bd_reader *reader, bd_record *record, bool *found, bd_error *err);

// Says what is wrong with a bad record.
bd_status bd_reader_fail_bad(const bd_input_options *options, const bd_record *record,
                             bd_error *err);

// After the last record: whether the input ends with this slice.
bd_status bd_reader_is_last(bd_reader *reader, bool *last, bd_error *err);

// Bytes of a file of unknown extent that were taken in so far, for progress.
int64_t bd_reader_consumed(const bd_reader *reader);

void bd_reader_close(bd_reader *reader);  // safe on NULL

// Says where a bad record lies: "'a.jsonl', line 3 (byte 120): <message>".
bd_status bd_reader_blame(const bd_input *input, const bd_record *record, bd_status status,
                          bd_error *err);

#endif
