// checkpoint_writer.h - saves the steps of a run while training goes on.
//
// A step's weights and moments are copied into host memory that the writer owns (12 bytes per
// parameter, 4 more with an average, less with Muon), and a background thread writes them from
// there, one step at a time. A writer without such memory writes them from the caller's memory
// before training goes on.
#ifndef BINDERY_TRAINER_WEIGHTS_CHECKPOINT_WRITER_H
#define BINDERY_TRAINER_WEIGHTS_CHECKPOINT_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "trainer/weights/checkpoint.h"

typedef struct bd_checkpoint_writer bd_checkpoint_writer;

typedef struct bd_checkpoint_policy {
    const char *folder;                  // borrowed
    int64_t n_kept;                      // steps, the highest ones; 0: all
    bool has_memory;                     // writes in the background from memory of its own
    int64_t n_numbers[BD_STATE_ARRAYS];  // of each array; 0: there is no such array
} bd_checkpoint_policy;

// Free the result.
bd_status bd_checkpoint_writer_new(bd_checkpoint_writer **writer,
                                   const bd_checkpoint_policy *policy, bd_error *err);

// Waits for the previous step, whose failure it returns, and says where to copy the next step's
// weights and moments; NULL for a writer without memory, and for an array that the run does not
// have.
bd_status bd_checkpoint_writer_prepare(bd_checkpoint_writer *writer,
                                       float *arrays[BD_STATE_ARRAYS], bd_error *err);

// Saves the step; call it after _prepare(). A writer with memory expects the arrays there and
// returns before the step is written, so the JSON must not change until it is. A writer without
// memory takes any arrays of the host and has written the step on return. Then it removes the
// oldest steps beyond n_kept.
bd_status bd_checkpoint_writer_save(bd_checkpoint_writer *writer,
                                    const bd_checkpoint_state *state, bd_error *err);

// Returns the failure of the last step if it has failed by now. Cheap enough for every step.
bd_status bd_checkpoint_writer_check(bd_checkpoint_writer *writer, bd_error *err);
// Waits for the last step and returns its failure.
bd_status bd_checkpoint_writer_finish(bd_checkpoint_writer *writer, bd_error *err);

// Waits for the step that is being written. Safe on NULL.
void bd_checkpoint_writer_free(bd_checkpoint_writer *writer);

#endif
