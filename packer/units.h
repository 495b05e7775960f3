// units.h - how the inputs are cut into units, each of which becomes one shard.
//
//   input 0 (large)      | slice 0 | slice 1 | slice 2 |    3 units
//   inputs 1 … 4 (small) | 1 | 2 | 3 4 |                    1 unit
//
// Cuts lie at multiples of the unit size; a record belongs to the unit in which its first
// byte lies, so a unit may read past its end and another may have no record at all.
#ifndef BINDERY_PACKER_UNITS_H
#define BINDERY_PACKER_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/packing.h"
#include "packer/inputs.h"

// The manifest lists every shard and stays below a GiB, so more could not be published.
enum { BD_MAX_UNITS = 1 << 19 };

typedef struct bd_units {
    bd_unit *items;  // [n], owned; in the order of the inputs
    size_t n, capacity;
} bd_units;

// An input of at most `unit_bytes` joins the group before it while their total stays within
// `unit_bytes`; a larger one is sliced, unless `text_is_whole` and it is text: a file that is
// one document cannot be cut and is one unit of any size. Depends on nothing but its arguments.
// More than BD_MAX_UNITS is BD_ERR_UNSUPPORTED. On failure *units is empty.
bd_status bd_units_plan(bd_units *units, const bd_inputs *inputs, int64_t unit_bytes,
                        bool text_is_whole, bd_error *err);

// The bytes [begin, end) of input `input` in which the unit's records begin; none for a slice
// that lies past the input's end, as a damaged file may have it.
typedef struct bd_slice {
    int64_t begin, end;
} bd_slice;
bd_slice bd_unit_slice(const bd_unit *unit, const bd_input *input, int64_t unit_bytes,
                       bool text_is_whole);

void bd_units_release(bd_units *units);  // safe on an empty struct and safe twice

#endif
