// pack_plan.h - plan.json: what is to be packed and how. Published first, compared by whoever
// continues.
#ifndef BINDERY_PACKER_PACK_PACK_PLAN_H
#define BINDERY_PACKER_PACK_PACK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/dataset/manifest.h"
#include "packer/pack/unit.h"

enum { BD_MAX_PLAN_BYTES = 1 << 30 };

// A job as JSON (schemas/plan-v1.schema.json) for a dataset of `packing`: every option that
// changes a byte of the dataset, and every input with its size and edges. Free with
// bd_json_free().
bd_json *bd_plan_to_json(const bd_pack_job *job, const bd_packing *packing);

// The same as text, as it stands in the file; malloc'd, the caller's to free.
bd_status bd_plan_print(const bd_json *plan, char **text, bd_error *err);

// Reads <folder>/plan.json and checks that it is a plan of ours.
bd_status bd_plan_read(const char *folder, bd_json **plan, bd_error *err);

// How inputs are cut into units.
typedef struct bd_plan_cuts {
    int64_t unit_bytes;
    bool text_is_whole;  // a text file is one document
    int64_t limit;       // documents, or BD_NO_LIMIT
} bd_plan_cuts;

// Inputs that were packed together: all of a plan's or, where datasets were joined, those of
// one of them. No unit spans two parts, and a limit is that of its part.
typedef struct bd_plan_part {
    size_t first_input, n_inputs;
    const bd_json *reading;  // how they were read; borrowed from the plan
    bd_plan_cuts cuts;
} bd_plan_part;

typedef struct bd_plan_parts {
    bd_json *plan;        // owned
    bd_plan_part *items;  // [n], owned; at least one, in the order of the inputs
    size_t n;
} bd_plan_parts;

// Reads <folder>/plan.json, of which the manifest says that it has `n_inputs` inputs. On
// failure *parts is empty.
bd_status bd_plan_read_parts(bd_plan_parts *parts, const char *folder, size_t n_inputs,
                             bd_error *err);

// The part that an input belongs to.
size_t bd_plan_find_part(const bd_plan_parts *parts, size_t input);

void bd_plan_parts_release(bd_plan_parts *parts);  // safe on an empty struct and safe twice

// Tells an input of format 1.0, whose entry does not say it, how it was cut.
bd_status bd_plan_complete_entry(const bd_plan_cuts *cuts, bd_input_entry *entry,
                                 bd_error *err);

#endif
