// difference.h - what two datasets have in common: packing, inputs, figures, documents.
//
// Documents are known by the name of their input and their position in it, so that datasets
// packed or repacked in another way can be compared.
#ifndef BINDERY_PACKER_INSPECT_DIFFERENCE_H
#define BINDERY_PACKER_INSPECT_DIFFERENCE_H

#include <stdbool.h>

#include "packer/inspect/inspection.h"

typedef struct bd_difference {
    bool config_is_same;
    int64_t inputs_in_both, inputs_only[2];  // by name
    bool figures_are_same;
    bool files_are_same;      // by the manifests' checksums: no row had to be read
    bool documents_are_same;  // the same places with the same tokens
    bool counted;             // the four below are known
    int64_t documents_in_both, documents_changed;  // same place; same tokens, other tokens
    int64_t documents_only[2];
} bd_difference;

// Reads all rows of both unless their files are the same. Counts documents if 16 bytes for each
// of both stay within `memory_bytes`, else tells only whether they are the same. A shard alone
// is BD_ERR_ARGUMENT: it does not know its inputs' names.
bd_status bd_difference_find(bd_difference *difference, const bd_inspection *a,
                             const bd_inspection *b, int64_t memory_bytes, int n_threads,
                             bool quiet, bd_error *err);

bool bd_difference_is_none(const bd_difference *difference);

#endif
