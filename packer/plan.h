// plan.h - plan.json: what is to be packed and how. Published first, compared by whoever
// continues.
#ifndef BINDERY_PACKER_PLAN_H
#define BINDERY_PACKER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/json.h"
#include "packer/pack_unit.h"

enum { BD_MAX_PLAN_BYTES = 1 << 30 };

// The job as JSON (schemas/plan-v1.schema.json): every option that changes a byte of the
// dataset, and every input with its size and edges. Free with bd_json_free().
bd_json *bd_plan_to_json(const bd_pack_job *job);

// The same as text, as it stands in the file; malloc'd, the caller's to free.
bd_status bd_plan_print(const bd_json *plan, char **text, bd_error *err);

// How a plan cuts its inputs into units.
typedef struct bd_plan_cuts {
    int64_t unit_bytes;
    bool text_is_whole;
} bd_plan_cuts;

// Reads <folder>/plan.json as far as that.
bd_status bd_plan_read_cuts(bd_plan_cuts *cuts, const char *folder, bd_error *err);

#endif
