// unit_queue.h - hands the units of a dataset to workers: threads, and perhaps several processes.
//
// An item (units.h) is one unit, or a stream: an input that can only be read from front to back,
// and whose slices become units. One worker at a time reads from a stream. It gives the stream
// back as soon as it has read a slice, so that another can read on while it packs:
//
//   worker 1   | read slice 0 | pack slice 0            | read slice 2 | ...
//   worker 2                  | read slice 1 | pack slice 1            | ...
//
// Several processes may have a queue of the same units; then each item is claimed by one of them.
#ifndef BINDERY_PACKER_PACK_UNIT_QUEUE_H
#define BINDERY_PACKER_PACK_UNIT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/dataset/units.h"

typedef struct bd_unit_queue bd_unit_queue;

// `lock` is that of the folder, for claims (common/base/folder.h), or -1 if this process is alone.
// Items are handed out in order, beginning with number `first`. `units` must outlive the queue.
// Free with bd_unit_queue_free().
bd_status bd_unit_queue_new(bd_unit_queue **queue, const bd_units *units, int lock,
                            size_t first, bd_error *err);

// Takes the next item. Waits while other workers are reading all streams that are left. *found is
// false when nothing is left for this process, or after bd_unit_queue_stop(). The worker must
// give the item back: a unit when it is packed, a stream when a slice of it was read.
bd_status bd_unit_queue_take(bd_unit_queue *queue, size_t *item, bool *found, bd_error *err);

// Gives an item back; `done` if nothing of it is left to be read.
void bd_unit_queue_give_back(bd_unit_queue *queue, size_t item, bool done);

// Nothing more is handed out, and workers that wait are woken.
void bd_unit_queue_stop(bd_unit_queue *queue);

void bd_unit_queue_free(bd_unit_queue *queue);  // safe on NULL

#endif
