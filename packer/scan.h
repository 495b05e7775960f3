// scan.h - reads every row of a shard again and counts what the metadata claims.
//
// Rows are checked one by one (R1 to R9), then together: order, unit, pieces, figures (S2 to
// S7 of schemas/shard-v1.md).
#ifndef BINDERY_PACKER_SCAN_H
#define BINDERY_PACKER_SCAN_H

#include "common/error.h"
#include "common/manifest.h"
#include "packer/plan.h"

typedef struct bd_scan {
    const char *folder;           // borrowed
    const bd_manifest *manifest;  // borrowed
    bd_plan_cuts cuts;
    bd_input_entry *inputs;  // [manifest->n_inputs], owned; the manifest's, cuts included
} bd_scan;

// Reads the dataset's plan; `folder` and `manifest` must outlive the scan.
bd_status bd_scan_init(bd_scan *scan, const char *folder, const bd_manifest *manifest,
                       bd_error *err);

// D2: the manifest's shards are exactly the plan's units, as far as a limit lets them be, and
// no other .arrow file is there.
bd_status bd_scan_check_units(const bd_scan *scan, bd_error *err);

// Opens shard `index` and checks all of it. *figures is what its rows hold; what rows cannot
// tell (dropped documents, invalid UTF-8) is taken over from the metadata. BD_ERR_FORMAT names
// the shard, the row and the rule. Memory: at most 100 bytes per segment of the shard, which
// are kept in an array that doubles and sorted. Any number of threads may scan different
// shards.
bd_status bd_scan_shard(const bd_scan *scan, size_t index, bd_figures *figures, bd_error *err);

void bd_scan_release(bd_scan *scan);  // safe on an empty struct and safe twice

#endif
