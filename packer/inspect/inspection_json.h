// inspection_json.h - an inspection for scripts: schemas/inspection-v1.schema.json.
#ifndef BINDERY_PACKER_INSPECT_INSPECTION_JSON_H
#define BINDERY_PACKER_INSPECT_INSPECTION_JSON_H

#include "common/base/json.h"
#include "packer/inspect/inspection.h"

// Free with bd_json_free().
bd_json *bd_inspection_to_json(const bd_inspection *inspection);

// The same with bounds on what grows with the dataset: at most so many entries of these lists,
// the first ones, and names cut as bd_json_set_short_name() does.
typedef struct bd_inspection_limits {
    size_t sources, inputs, shards;
    size_t name_bytes;
} bd_inspection_limits;
bd_json *bd_inspection_to_short_json(const bd_inspection *inspection,
                                     bd_inspection_limits limits);

// Sets a name; of one with more than `most_bytes` the end, which tells more of a path than its
// beginning, after an ellipsis.
void bd_json_set_short_name(bd_json *object, const char *key, const char *name,
                            size_t most_bytes);

// The text of a token; malloc'd, NULL if it has none, or half a character, or a NUL.
char *bd_inspection_token_text(const bd_inspection *inspection, uint32_t id);

#endif
