// slice_buffer.h - the records of one slice, copied into memory.
//
// A stream is read by one worker at a time: it copies a slice, lets the next worker read on, and
// packs its copy meanwhile.
#ifndef BINDERY_PACKER_INPUT_SLICE_BUFFER_H
#define BINDERY_PACKER_INPUT_SLICE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "packer/input/reader.h"
#include "packer/input/record_hashes.h"

typedef struct bd_slice_buffer {
    char *bytes;  // owned; all records end to end, padded
    size_t n_bytes, capacity;
    bd_record *records;  // [n], owned; `data` points into bytes
    size_t n, records_capacity;
    bool last;  // the input ends with this slice
} bd_slice_buffer;

// Gathers at most `limit` records of the slice that the reader was told to begin with; it is
// the last one if that many were met. What was gathered before is forgotten, its memory used
// again. Memory: the slice, its longest record, and 40 bytes per record. On failure release it
// all the same.
bd_status bd_slice_buffer_fill(bd_slice_buffer *buffer, bd_reader *reader, int64_t limit,
                               bd_error *err);

// The digests that a shard made from the first `n` records of the slice would have.
bd_status bd_slice_buffer_digests(const bd_slice_buffer *buffer, size_t n,
                                  bd_record_digests *digests, bd_error *err);

void bd_slice_buffer_release(
    bd_slice_buffer *buffer);  // safe on an empty struct and safe twice

#endif
