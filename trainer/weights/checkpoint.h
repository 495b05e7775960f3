// checkpoint.h - a training run's state on disk, from which it continues bit for bit.
//
//   step-00000100.safetensors   weights NAME, moments adamw.m.NAME and adamw.v.NAME, all F32
//   step-00000100.json          published after it: the step exists once this file does
//
// Files are published whole (common/base/file.h), the .json is sealed (common/base/json.h), and it holds
// size and checksum of the other, so damage to either is noticed.
//
// At every moment a .json says of tensors that they are ours: a published one, or one that is
// about to be published or removed, under a pending name. Tensors without any are somebody's:
// nothing here removes or replaces them.
// Described in schemas/checkpoint-v1.md.
#ifndef BINDERY_TRAINER_WEIGHTS_CHECKPOINT_H
#define BINDERY_TRAINER_WEIGHTS_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/checksum.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "kernels/collectives.h"
#include "trainer/model/model_config.h"
#include "trainer/model/parameters.h"
#include "trainer/weights/spike_guard.h"

#define BD_CHECKPOINT_FORMAT "1.2"

enum { BD_STATE_ARRAYS = 3 };  // of [n_total] each: weights, first moments, second moments

// What is saved; all of it borrowed for the call.
typedef struct bd_checkpoint_state {
    int64_t step;  // >= 0
    const bd_parameters *parameters;
    const float *weights, *m, *v;  // [n_total], host memory
    const bd_json *training;       // an object: settings that must be the same on resuming
    const bd_json *data;           // an object: which dataset, tokenizer and seq_len
    int64_t n_ranks;               // that trained it together, which decide its bits
    const char *isa;               // so does the instruction set; may be NULL
    bd_spike_guard spike_guard;
} bd_checkpoint_state;

// Saves a step into `folder`, which exists. A step that is there already is replaced: a crash
// meanwhile leaves the new one or none, never a mixture. Tensors of that name without a .json
// are BD_ERR_ARGUMENT.
bd_status bd_checkpoint_save(const char *folder, const bd_checkpoint_state *state,
                             bd_error *err);

// The highest step in `folder`. None is BD_ERR_ARGUMENT.
bd_status bd_checkpoint_find_latest(const char *folder, int64_t *step, bd_error *err);
// The highest step up to `last`, -1 if there is none.
bd_status bd_checkpoint_find_up_to(const char *folder, int64_t last, int64_t *step,
                                   bd_error *err);

// Removes all but the `n_kept` highest steps (0: removes none). One whose .json is not ours, or
// cannot be read, stays.
bd_status bd_checkpoint_prune(const char *folder, int64_t n_kept, bd_error *err);
// Removes every step after `step`. The files of one whose .json is not ours, or cannot be read,
// are set aside: `.aside` is put behind their names.
bd_status bd_checkpoint_remove_after(const char *folder, int64_t step, bd_error *err);

// BD_ERR_ARGUMENT, which names them, if there are tensors that no .json says to be ours.
bd_status bd_checkpoint_refuse_unknown(const char *folder, bd_error *err);
// Removes what a killed process left of steps: pending files, and tensors of ours whose .json is
// not published. For whoever holds the folder's lock.
bd_status bd_checkpoint_clear_away(const char *folder, bd_error *err);

// Whether a step's tensors have such a name.
bool bd_checkpoint_is_tensors_name(const char *name);

// What a step's .json says.
typedef struct bd_checkpoint {
    int64_t step;
    bd_model_config config;
    const bd_json *training, *data;  // borrowed from `document`
    int64_t n_ranks;                 // at least 1
    const char *isa;  // borrowed likewise; NULL if there was none, or none is known
    bd_spike_guard spike_guard;
    bd_json *document;   // owned
    char *tensors_path;  // owned
    int64_t size_bytes;  // of that file, and so is digest
    bd_digest digest;
} bd_checkpoint;

// Reads and checks the .json alone, so that the caller can compare settings and lay out the
// parameters. Release what comes out. On failure *checkpoint is empty.
bd_status bd_checkpoint_load(bd_checkpoint *checkpoint, const char *folder, int64_t step,
                             bd_error *err);
// Safe on an empty struct and safe twice.
void bd_checkpoint_release(bd_checkpoint *checkpoint);

// Where moments go: those of the parameters in the slice, in host memory.
typedef struct bd_moments {
    bd_rank_slice slice;
    float *m, *v;  // [slice.end - slice.begin]
} bd_moments;

// Checks size and checksum, then that the file holds exactly the tensors of `parameters` and
// their moments, of which all that is taken is finite, and fills weights [n_total] in host memory and `moments`, which may be NULL.
// On failure their contents are unspecified.
bd_status bd_checkpoint_load_tensors(const bd_checkpoint *checkpoint,
                                     const bd_parameters *parameters, float *weights,
                                     const bd_moments *moments, bd_error *err);

#endif
