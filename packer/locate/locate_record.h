// locate_record.h - the record in its source file that a located token came from.
#ifndef BINDERY_PACKER_LOCATE_LOCATE_RECORD_H
#define BINDERY_PACKER_LOCATE_LOCATE_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/locate/locate.h"
#include "packer/verify/corpus.h"

// BD_UNKNOWN where it is not known, or has no meaning for the format of the input.
typedef struct bd_record_place {
    char *path;            // owned; where the file lies now
    int64_t size_bytes;    // of the record
    int64_t begin, end;    // bytes of the (decompressed) text or JSONL
    int64_t line;          // from 1, on which it begins
    int64_t token_byte;    // of a text: the byte at which the token begins,
    int64_t token_line;    // and its line
    bd_text_part content;  // its first bytes as they are in the file; empty for token ids
} bd_record_place;

// Reads the record of `location`, which is not padding, and keeps up to `n_content` bytes of
// it. An input that is missing is BD_ERR_ARGUMENT; one that changed, or that has no such
// record, BD_ERR_FORMAT. Lines are counted from the file's start. Memory: that of a reader
// (reader.h). Release what comes out, also after a failure.
bd_status bd_record_find(bd_record_place *place, bd_corpus *corpus, const bd_location *location,
                         size_t n_content, bd_error *err);

void bd_record_place_release(bd_record_place *place);  // safe on an empty struct and safe twice

#endif
