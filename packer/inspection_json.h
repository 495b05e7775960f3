// inspection_json.h - an inspection for scripts: schemas/inspection-v1.schema.json.
#ifndef BINDERY_PACKER_INSPECTION_JSON_H
#define BINDERY_PACKER_INSPECTION_JSON_H

#include "common/json.h"
#include "packer/inspection.h"

// Free with bd_json_free().
bd_json *bd_inspection_to_json(const bd_inspection *inspection);

#endif
