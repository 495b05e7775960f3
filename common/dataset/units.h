// units.h - how the inputs are cut into units, each of which becomes one shard.
//
//   input 0 (large)      | slice 0 | slice 1 | slice 2 |    3 units
//   inputs 1 … 4 (small) | 1 | 2 | 3 4 |                    1 unit
//   input 5 (compressed) | slice 0 | slice 1 | …            a stream: reading will tell
//
// A record belongs to the unit in which it begins, so a unit may read past its end and another
// may have no record at all. Units never span sources.
#ifndef BINDERY_COMMON_DATASET_UNITS_H
#define BINDERY_COMMON_DATASET_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/config.h"
#include "common/dataset/input_entry.h"

// The manifest lists every shard and stays below a GiB, so more could not be published.
enum { BD_MAX_UNITS = 1 << 19 };

// How many units of `unit_bytes` may be packed. The limit is lower for tiny units, with which a
// corpus would become hundreds of thousands of files.
int64_t bd_units_most(int64_t unit_bytes);

// Fails because there are more; `path` is the input that makes them, or NULL for all inputs.
bd_status bd_units_fail_many(const char *path, int64_t unit_bytes, bd_error *err);

// One unit, or all units of an input whose extent is not known: then `unit` is the first.
typedef struct bd_planned {
    bd_unit unit;
    bool is_stream;
} bd_planned;

typedef struct bd_units {
    bd_planned *items;  // [n], owned; in the order of the inputs
    size_t n, capacity;
    int64_t n_inputs;     // added so far
    bool is_group;        // the last item is a group that may still grow,
    int64_t group_bytes;  // which has this weight
    const char *source;   // of the last input, borrowed
} bd_units;

// Adds the next input; the first call is on an empty struct. An input of at most `unit_bytes`
// joins the group before it while their total stays within `unit_bytes` and they are of one
// source. The entry must outlive the planning. More than BD_MAX_UNITS is BD_ERR_UNSUPPORTED.
// Depends on nothing but its arguments.
bd_status bd_units_add(bd_units *units, const bd_input_entry *entry, int64_t unit_bytes,
                       bd_error *err);

void bd_units_release(bd_units *units);  // safe on an empty struct and safe twice

#endif
