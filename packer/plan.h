// plan.h - plan.json: what is to be packed and how. Published first, compared by whoever
// continues.
#ifndef BINDERY_PACKER_PLAN_H
#define BINDERY_PACKER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/json.h"
#include "common/manifest.h"
#include "packer/pack_unit.h"

enum { BD_MAX_PLAN_BYTES = 1 << 30 };

// A job as JSON (schemas/plan-v1.schema.json) for a dataset of `packing`: every option that
// changes a byte of the dataset, and every input with its size and edges. Free with
// bd_json_free().
bd_json *bd_plan_to_json(const bd_pack_job *job, const bd_packing *packing);

// The same as text, as it stands in the file; malloc'd, the caller's to free.
bd_status bd_plan_print(const bd_json *plan, char **text, bd_error *err);

// Reads <folder>/plan.json and checks that it is a plan of ours.
bd_status bd_plan_read(const char *folder, bd_json **plan, bd_error *err);

// How a plan cuts its inputs into units.
typedef struct bd_plan_cuts {
    int64_t unit_bytes;
    bool text_is_whole;  // a text file is one document
    int64_t limit;       // documents, or BD_NO_LIMIT
} bd_plan_cuts;

bd_status bd_plan_read_cuts(bd_plan_cuts *cuts, const char *folder, bd_error *err);

// Tells an input of format 1.0, whose entry does not say it, how it was cut.
bd_status bd_plan_complete_entry(const bd_plan_cuts *cuts, bd_input_entry *entry,
                                 bd_error *err);

#endif
