// event_file.h - writes scalars and texts over steps for TensorBoard.
//
// A file is a sequence of TFRecords, each an Event message of protocol buffers:
//
//   uint64 length | uint32 masked CRC-32C of it | the message | uint32 masked CRC-32C of that
//
// all little-endian. The first events are the version, "brain.Event:2", and the START of a
// session. TensorBoard reads the files in the order of their names, and at a START it forgets
// every event of that step or a later one. So a resumed run begins a new file whose name comes
// last, and leaves the older files alone.
#ifndef BINDERY_TRAINER_METRICS_EVENT_FILE_H
#define BINDERY_TRAINER_METRICS_EVENT_FILE_H

#include <stdint.h>

#include "common/base/error.h"

#define BD_EVENT_FILE_PREFIX "events.out.tfevents."

typedef struct bd_event_file bd_event_file;

// Begins <folder>/events.out.tfevents.<seconds since 1970>.bindery, whose first step will be
// `first_step`. On failure *file is NULL.
bd_status bd_event_file_new(bd_event_file **file, const char *folder, int64_t first_step,
                            bd_error *err);
void bd_event_file_free(bd_event_file *file);  // closes; safe on NULL

// Add a value to the next event. If memory runs out, bd_event_file_write() fails. A scalar is
// stored as a float. Tags and texts may be any bytes; those that are not UTF-8 become U+FFFD.
void bd_event_file_add_scalar(bd_event_file *file, const char *tag, double value);
void bd_event_file_add_text(bd_event_file *file, const char *tag, const char *text);

// Appends the event with the values that were added, and flushes it without fsync().
bd_status bd_event_file_write(bd_event_file *file, int64_t step, bd_error *err);

#endif
