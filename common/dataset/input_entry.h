// input_entry.h - what plan and manifest say of an input: its name, its size, and how it is
// cut.
//
// Positions count bytes of the decompressed text, rows of a table, or tokens. Slices begin at
// `starts`, or at multiples of `stride`:
//
//   stride 4, extent 10      | 0 1 2 3 | 4 5 6 7 | 8 9 |      3 slices
//   starts 0 5, extent 10    | 0 1 2 3 4 | 5 6 7 8 9 |        2 slices
#ifndef BINDERY_COMMON_DATASET_INPUT_ENTRY_H
#define BINDERY_COMMON_DATASET_INPUT_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"

enum { BD_UNKNOWN = -1 };  // a size that is found only by reading the input

typedef struct bd_input_entry {
    char *name;          // owned; relative to what was given on the command line
    char *source;        // owned; the label under which shares are reported
    char *format;        // owned; "text", "jsonl", …
    char *compression;   // owned; "none", "gzip", …
    int64_t size_bytes;  // of the file, or BD_UNKNOWN
    int64_t weight;   // bytes that it counts for when small inputs are grouped, or BD_UNKNOWN
    int64_t extent;   // how many positions it has, or BD_UNKNOWN
    int64_t stride;   // positions in a slice; 0 if `starts` is used instead
    int64_t *starts;  // [n_starts], owned; position at which each slice begins, from 0 on
    size_t n_starts;
} bd_input_entry;

// How many slices it has; BD_UNKNOWN if its extent is. An empty input has one.
int64_t bd_input_entry_n_slices(const bd_input_entry *entry);

// The positions [begin, end) at which the records of a slice begin. The end is INT64_MAX if
// only reading finds it. A slice that the input does not have is empty: damaged files may name
// one.
typedef struct bd_slice {
    int64_t begin, end;
} bd_slice;
bd_slice bd_input_entry_slice(const bd_input_entry *entry, int64_t slice);

// Adds the members of a plan's or a manifest's input to `json`.
void bd_input_entry_to_json(const bd_input_entry *entry, bd_json *json);

// Every number is checked against its range. An entry of format 1.0 does not say how the input
// is cut: then weight and extent are its bytes, and the caller fills in the stride, which is 0
// without any starts. On failure *entry is empty.
bd_status bd_input_entry_from_json(bd_input_entry *entry, const bd_json *json, bd_error *err);

// Copies everything. On failure *copy is empty.
bd_status bd_input_entry_copy(bd_input_entry *copy, const bd_input_entry *entry, bd_error *err);

// Frees everything. Safe on an empty struct and safe twice.
void bd_input_entry_release(bd_input_entry *entry);

#endif
