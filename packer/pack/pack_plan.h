// pack_plan.h - plan.json: what is to be packed and how. It is published before the first shard,
// and a run that continues compares its own plan with it. All that is known about the fields of
// plan.json is in pack_plan.c: how they are written, read, joined and compared.
#ifndef BINDERY_PACKER_PACK_PACK_PLAN_H
#define BINDERY_PACKER_PACK_PACK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/dataset/manifest.h"
#include "packer/pack/job.h"

enum { BD_MAX_PLAN_BYTES = 1 << 30 };

// ---- Writing -------------------------------------------------------------------------------

// A job as JSON (schemas/plan-v1.schema.json) for a dataset of `config`: every option that
// changes a byte of the dataset, and every input with its size and edges. Free with
// bd_json_free().
bd_json *bd_pack_plan_to_json(const bd_pack_job *job, const bd_dataset_config *config);

// The plan as the text of the file; malloc'd, the caller's to free.
bd_status bd_pack_plan_print(const bd_json *plan, char **text, bd_error *err);

// ---- Reading -------------------------------------------------------------------------------

// Loads <folder>/plan.json and checks that this version can use it. Free with bd_json_free().
bd_status bd_pack_plan_load(const char *folder, bd_json **plan, bd_error *err);

// The entries of a plan's inputs, and the size of its units. *entries is malloc'd: release each
// entry and free the array, also after a failure.
bd_status bd_pack_plan_entries(const bd_json *plan, bd_input_entry **entries, size_t *n,
                               int64_t *unit_bytes, bd_error *err);

// Inputs that were packed together: all of a plan's or, where datasets were joined, those of
// one of them. No unit spans two parts, and a limit is that of its part.
typedef struct bd_pack_plan_part {
    size_t first_input, n_inputs;
    const bd_json *json;       // `reading` as it is stored; borrowed from the plan
    bd_input_options reading;  // its texts are borrowed from the plan
    bd_chat_format *chat;      // owned; that of `reading`, without its tokens' ids; or NULL
    bool has_id_bytes;  // the plan says reading.raw_id_bytes; else it follows from the config
    int64_t limit;      // documents, or BD_NO_LIMIT
} bd_pack_plan_part;

typedef struct bd_pack_plan {
    const char *folder;        // that it was read from; borrowed
    bd_json *json;             // owned
    bd_pack_plan_part *parts;  // [n_parts], owned; at least one, in the order of the inputs
    size_t n_parts;
} bd_pack_plan;

// Reads <folder>/plan.json of a dataset whose manifest has `config` and `n_inputs` inputs.
// `folder` must outlive the plan. On failure *plan is empty.
bd_status bd_pack_plan_read(bd_pack_plan *plan, const char *folder,
                            const bd_dataset_config *config, size_t n_inputs, bd_error *err);

// The index of the part that an input belongs to.
size_t bd_pack_plan_find_part(const bd_pack_plan *plan, size_t input);

// The fields of one input in the plan that its entry does not have. The texts are borrowed from the
// plan; each is NULL where the plan has none.
typedef struct bd_planned_input {
    const char *edges;
    const char *text_field, *delimiter;  // where it was read otherwise than its part
    const char *mask_column;             // of a table; NULL: all of its tokens are trained
} bd_planned_input;

bd_status bd_pack_plan_input(const bd_pack_plan *plan, size_t index, bd_planned_input *input,
                             bd_error *err);

// Completes the entry of an input of format 1.0, which does not say how the input was cut.
bd_status bd_pack_plan_complete_entry(const bd_pack_plan_part *part, bd_input_entry *entry,
                                      bd_error *err);

void bd_pack_plan_release(bd_pack_plan *plan);  // safe on an empty struct and safe twice

// ---- Joining -------------------------------------------------------------------------------

// The plan of the datasets with plans[n], packed again into one with `config`: their inputs in
// order, each as it was read. Free *joined with bd_json_free().
bd_status bd_pack_plan_join(const bd_pack_plan *const *plans, size_t n,
                            const bd_dataset_config *config, bd_json **joined, bd_error *err);

// ---- Comparing -----------------------------------------------------------------------------

typedef enum bd_plan_difference {
    BD_PLANS_ARE_SAME,
    BD_PLANS_ALLOW_OTHERS,  // only in how many records may be bad, which no shard depends on
    BD_PLANS_READ_CHANGED,  // also in what inputs of the same names and formats hold
    BD_PLANS_DIFFER,        // in anything else
} bd_plan_difference;

// The least of these that is true. `where` names the difference that matters most, as
// bd_json_difference() does; it is empty if there is none. A plan of an older format is compared
// as it is read. The versions themselves are no difference: if such a dataset is continued,
// shards of an older version are packed again (existing_shards.h).
bd_plan_difference bd_pack_plan_compare(const bd_json *here, const bd_json *there, char *where,
                                        size_t where_size);

#endif
