// event_file.h - what TensorBoard reads: scalars and texts over steps.
//
// A file is a sequence of TFRecords, each an Event message of protocol buffers:
//
//   uint64 length | uint32 masked CRC-32C of it | the message | uint32 masked CRC-32C of that
//
// all little-endian. It begins with the version "brain.Event:2" and a session's START: at that
// TensorBoard forgets every event of that step or a later one that it has read from the files
// before, in the order of their names. So a resumed run begins a new file, with a name that is
// the last, and leaves the older ones alone.
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

// Gathers values for the next event. Running out of memory is remembered and reported by
// bd_event_file_write(). A scalar is stored as a float. Tags and texts may be any bytes: what
// is not UTF-8 becomes U+FFFD.
void bd_event_file_add_scalar(bd_event_file *file, const char *tag, double value);
void bd_event_file_add_text(bd_event_file *file, const char *tag, const char *text);

// Appends an event with what was gathered and hands it to the system; not synced.
bd_status bd_event_file_write(bd_event_file *file, int64_t step, bd_error *err);

#endif
