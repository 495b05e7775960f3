// workers.h - packs the units of a dataset on all threads of this process, and keeps what they
// became.
#ifndef BINDERY_PACKER_PACK_WORKERS_H
#define BINDERY_PACKER_PACK_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/cli/progress.h"
#include "common/dataset/units.h"
#include "packer/pack/unit.h"

// The shards of an item of the units: of one unit, or of the slices of a stream.
typedef struct bd_item_result {
    bd_packed_unit *units;  // [n], owned; by slice
    size_t n, capacity;
    bool complete;  // nothing of it is missing
} bd_item_result;

typedef struct bd_workers {
    const bd_pack_job *job;  // borrowed
    const bd_units *units;   // borrowed
    bd_item_result *items;   // [units->n], owned
    bd_progress *progress;   // counts bytes of the inputs; borrowed, may be NULL
    bool may_continue;       // shards may exist already
    int64_t n_packed, n_continued;
    bd_bad_places bad;  // owned; the first bad records of the units that were packed
} bd_workers;

bd_status bd_workers_init(bd_workers *workers, const bd_pack_job *job, const bd_units *units,
                          bool may_continue, bd_error *err);

// Packs every item that is not complete and that no other process has; see unit_queue.h for
// `lock` and `first`. With a limit on documents one thread does it, in order, and the items
// after the limit become complete and empty. If several units fail, the failure is that of the
// first of them, whatever the timing.
bd_status bd_workers_pack_units(bd_workers *workers, int n_threads, int lock, size_t first,
                                bd_error *err);

// Takes the shards that exist, on all threads, and packs nothing.
bd_status bd_workers_take_existing(bd_workers *workers, int n_threads, bd_error *err);

void bd_workers_release(bd_workers *workers);  // safe on an empty struct and safe twice

#endif
