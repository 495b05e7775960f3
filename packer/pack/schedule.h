// schedule.h - which worker does what next: units in order, and series that one reads at a
// time.
//
// An item (units.h) is a unit, or a series of them of which any number of workers pack while
// one reads. Several processes may work at the same schedule, each item claimed by one of them.
#ifndef BINDERY_PACKER_PACK_SCHEDULE_H
#define BINDERY_PACKER_PACK_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/units.h"

typedef struct bd_schedule bd_schedule;

// `lock` is the folder's, for claims (common/base/folder.h); -1 if this process is alone. Items are
// handed out in order, beginning with number `first`. `units` must outlive the schedule. Free
// with bd_schedule_free().
bd_status bd_schedule_new(bd_schedule **schedule, const bd_units *units, int lock, size_t first,
                          bd_error *err);

// The next item for the calling worker, which must say bd_schedule_return() when it can do
// without: when a unit is packed, when a slice of a series was read. Waits while all that is
// left is being read by others. *found is false when nothing is left, or after
// bd_schedule_stop(). Of an item that another process has, nothing is heard again.
bd_status bd_schedule_take(bd_schedule *schedule, size_t *item, bool *found, bd_error *err);

// Gives an item back; `done` if nothing of it is left to be read.
void bd_schedule_return(bd_schedule *schedule, size_t item, bool done);

// Nothing more is handed out.
void bd_schedule_stop(bd_schedule *schedule);

void bd_schedule_free(bd_schedule *schedule);  // safe on NULL

#endif
