// checkpoint_writer.h - saves the steps of a run while training goes on.
//
// A step's weights and moments are put into host memory of the writer's (12 bytes per
// parameter), from which a thread of its own writes them, one step at a time. A writer without
// such memory writes them from where they lie, before training goes on.
#ifndef BINDERY_TRAINER_WEIGHTS_CHECKPOINT_WRITER_H
#define BINDERY_TRAINER_WEIGHTS_CHECKPOINT_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "trainer/weights/checkpoint.h"

typedef struct bd_checkpoint_writer bd_checkpoint_writer;

typedef struct bd_checkpoint_policy {
    const char *folder;  // borrowed
    int64_t n_kept;      // steps, the highest ones; 0: all
    bool has_memory;     // of its own
} bd_checkpoint_policy;

// For models of n_total parameters. Free what comes out.
bd_status bd_checkpoint_writer_new(bd_checkpoint_writer **writer,
                                   const bd_checkpoint_policy *policy, int64_t n_total,
                                   bd_error *err);

// Where the next step's weights and moments are to be put, [n_total] each; NULL for a writer
// without memory. Waits for the step before it, whose failure it returns.
bd_status bd_checkpoint_writer_prepare(bd_checkpoint_writer *writer,
                                       float *arrays[BD_STATE_ARRAYS], bd_error *err);

// After that: saves the step. With memory of its own the arrays are that, and the JSON must not
// change while the step is being written; without, they are any of the host's, and it is
// written on return. Older steps that are too many are removed after it.
bd_status bd_checkpoint_writer_save(bd_checkpoint_writer *writer,
                                    const bd_checkpoint_state *state, bd_error *err);

// The failure of the last step, if it has failed by now. Cheap enough for every step.
bd_status bd_checkpoint_writer_check(bd_checkpoint_writer *writer, bd_error *err);
// The same after waiting for it.
bd_status bd_checkpoint_writer_finish(bd_checkpoint_writer *writer, bd_error *err);

// Waits for the step that is being written. Safe on NULL.
void bd_checkpoint_writer_free(bd_checkpoint_writer *writer);

#endif
