// difference_json.h - what two datasets have in common, for scripts:
// schemas/difference-v1.schema.json.
#ifndef BINDERY_PACKER_INSPECT_DIFFERENCE_JSON_H
#define BINDERY_PACKER_INSPECT_DIFFERENCE_JSON_H

#include "common/base/json.h"
#include "packer/inspect/difference.h"

// Free with bd_json_free().
bd_json *bd_difference_to_json(const bd_difference *difference, const bd_inspection *a,
                               const bd_inspection *b);

#endif
