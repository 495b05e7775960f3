// checkpoint_writer.h - saves the steps of a run while training goes on.
//
// A step's weights and moments are copied to host memory (12 bytes per parameter), and a thread
// of their own writes them, one step at a time. Where the copies are not wanted and the backend
// works on the host, they are written as they lie there, before training goes on.
#ifndef BINDERY_TRAINER_CHECKPOINT_WRITER_H
#define BINDERY_TRAINER_CHECKPOINT_WRITER_H

#include <stdint.h>

#include "common/error.h"
#include "kernels/backend.h"
#include "trainer/checkpoint.h"

typedef struct bd_checkpoint_writer bd_checkpoint_writer;

typedef struct bd_checkpoint_policy {
    const char *folder;      // borrowed
    int64_t n_kept;          // steps, the highest ones; 0: all
    int64_t max_copy_bytes;  // copies are made if they take no more; on a device, always
} bd_checkpoint_policy;

// For models of `parameters` on `backend`, both borrowed. Free what comes out.
bd_status bd_checkpoint_writer_new(bd_checkpoint_writer **writer,
                                   const bd_checkpoint_policy *policy,
                                   const bd_parameters *parameters, bd_backend *backend,
                                   bd_error *err);

// Saves a step; its arrays are the backend's memory, read when this returns. The JSON must
// not change while the step is being written. Older steps that are too many are removed after
// it. Waits for the step before it, whose failure it returns.
bd_status bd_checkpoint_writer_save(bd_checkpoint_writer *writer,
                                    const bd_checkpoint_state *state, bd_error *err);

// The failure of the last step, if it has failed by now. Cheap enough for every step.
bd_status bd_checkpoint_writer_check(bd_checkpoint_writer *writer, bd_error *err);
// The same after waiting for it.
bd_status bd_checkpoint_writer_finish(bd_checkpoint_writer *writer, bd_error *err);

// Waits for the step that is being written. Safe on NULL.
void bd_checkpoint_writer_free(bd_checkpoint_writer *writer);

#endif
