// workers.h - packs units on all threads of this process.
#ifndef BINDERY_PACKER_PACK_WORKERS_H
#define BINDERY_PACKER_PACK_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/cli/progress.h"
#include "common/dataset/units.h"
#include "packer/pack/unit.h"

// What an item of the units became: one unit, or the slices of a series.
typedef struct bd_item_result {
    bd_packed_unit *units;  // [n], owned; by slice
    size_t n, capacity;
    bool complete;  // nothing of it is missing
} bd_item_result;

typedef struct bd_packing_run {
    const bd_pack_job *job;  // borrowed
    const bd_units *units;   // borrowed
    bd_item_result *items;   // [units->n], owned
    bd_progress *progress;   // counts bytes of the inputs; borrowed, may be NULL
    bool may_continue;       // shards may be there already
    int64_t n_packed, n_continued;
    bd_bad_places bad;  // owned; the first bad records of the units that were packed
} bd_packing_run;

bd_status bd_packing_run_init(bd_packing_run *run, const bd_pack_job *job,
                              const bd_units *units, bool may_continue, bd_error *err);

// Packs every item that is not complete and that no other process has; see schedule.h for
// `lock` and `first`. With a limit on documents one thread does it, in order, and the items
// after the limit become complete and empty.
bd_status bd_packing_run_pack(bd_packing_run *run, int n_threads, int lock, size_t first,
                              bd_error *err);

// Takes what is on disk, on all threads, without packing.
bd_status bd_packing_run_collect(bd_packing_run *run, int n_threads, bd_error *err);

void bd_packing_run_release(bd_packing_run *run);  // safe on an empty struct and safe twice

#endif
