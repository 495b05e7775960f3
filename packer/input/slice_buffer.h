// slice_buffer.h - the records of one slice, copied into memory.
//
// An input that can only be read from front to back is read by one worker at a time. It gathers
// a slice, lets the next worker go on reading, and packs what it has gathered meanwhile.
#ifndef BINDERY_PACKER_INPUT_SLICE_BUFFER_H
#define BINDERY_PACKER_INPUT_SLICE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/reader.h"
#include "packer/input/record_hashes.h"

typedef struct bd_gathered {
    char *bytes;  // owned; all records end to end, padded
    size_t n_bytes, capacity;
    bd_record *records;  // [n], owned; `data` points into bytes
    size_t n, records_capacity;
    bool last;  // the input ends with this slice
} bd_gathered;

// Gathers at most `limit` records of the slice that the reader was told to begin with; it is
// the last one if that many were met. What was gathered before is forgotten, its memory used
// again. Memory: the slice, its longest record, and 40 bytes per record. On failure release it
// all the same.
bd_status bd_gather(bd_gathered *gathered, bd_reader *reader, int64_t limit, bd_error *err);

// What the digests of the slice's shard would be, if it were made from the first `n` records.
bd_status bd_gathered_digests(const bd_gathered *gathered, size_t n, bd_record_digests *digests,
                              bd_error *err);

void bd_gathered_release(bd_gathered *gathered);  // safe on an empty struct and safe twice

#endif
