// checkpoint.h - a training run's state on disk, from which it continues bit for bit.
//
//   step-00000100.safetensors   weights NAME, moments adamw.m.NAME and adamw.v.NAME, momentum
//                               muon.m.NAME, averages average.NAME, all F32
//   step-00000100.json          published after it: the step exists once this file does
//
// Files are published whole (common/base/file.h). The .json is sealed (common/base/json.h) and
// holds size and checksum of the other file, so damage to either is noticed.
//
// Tensors are ours only if a .json says so: the published one, or one under a pending name that
// is about to be published or removed. There is one at every moment, so that a killed process
// leaves no doubt. Tensors without a .json belong to somebody else: nothing here removes or
// replaces them. The format is described in schemas/checkpoint-v1.md.
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
#include "trainer/weights/kept_state.h"
#include "trainer/weights/spike_guard.h"

#define BD_CHECKPOINT_FORMAT "1.3"

// The arrays of a run's state, [n_total] each but BD_STATE_V.
typedef enum bd_state_array {
    BD_STATE_WEIGHTS,
    BD_STATE_M,        // first moments, or Muon's momentum
    BD_STATE_V,        // second moments, see bd_second_moments_before()
    BD_STATE_AVERAGE,  // of the weights; only some runs have it
    BD_STATE_ARRAYS,
} bd_state_array;

// The state to save; all of it is borrowed for the call.
typedef struct bd_checkpoint_state {
    int64_t step;  // >= 0
    const bd_parameters *parameters;
    // By bd_state_array, in host memory. There is an average if `training` says so.
    const float *arrays[BD_STATE_ARRAYS];
    const bd_json *training;  // an object: settings that must be the same on resuming
    const bd_json *data;      // an object: which dataset, tokenizer and seq_len
    int64_t n_ranks;          // that trained together; the bits depend on their number
    const char *isa;          // and on the instruction set; may be NULL
    bd_spike_guard spike_guard;
} bd_checkpoint_state;

// Saves a step into `folder`, which must exist. An existing step of that number is replaced; a
// crash during this leaves the new one or none, never a mixture. Tensors of that name without a
// .json are BD_ERR_ARGUMENT.
bd_status bd_checkpoint_save(const char *folder, const bd_checkpoint_state *state,
                             bd_error *err);

// The highest step in `folder`; BD_ERR_ARGUMENT if there is none.
bd_status bd_checkpoint_find_latest(const char *folder, int64_t *step, bd_error *err);
// The highest step up to `last`, -1 if there is none.
bd_status bd_checkpoint_find_up_to(const char *folder, int64_t last, int64_t *step,
                                   bd_error *err);

// Removes all but the `n_kept` highest steps (0: removes none). A step whose .json is not ours,
// or cannot be read, stays.
bd_status bd_checkpoint_prune(const char *folder, int64_t n_kept, bd_error *err);
// Removes every step after `step`. If a step's .json is not ours, or cannot be read, its files
// are renamed instead: `.aside` is appended to their names.
bd_status bd_checkpoint_remove_after(const char *folder, int64_t step, bd_error *err);

// BD_ERR_ARGUMENT if the folder has tensors that are not ours; the message names them.
bd_status bd_checkpoint_refuse_unknown(const char *folder, bd_error *err);
// Removes the remains of a killed process: pending files, and tensors of ours whose .json was
// not published. The caller must hold the folder's lock.
bd_status bd_checkpoint_clear_away(const char *folder, bd_error *err);

// Whether `name` is one that the tensors of a step have.
bool bd_checkpoint_is_tensors_name(const char *name);

// The contents of a step's .json.
typedef struct bd_checkpoint {
    int64_t step;
    bd_model_config config;
    const bd_json *training, *data;  // borrowed from `document`
    bd_kept_state kept;              // follows from `training`
    int64_t n_ranks;                 // at least 1
    const char *isa;                 // borrowed likewise; NULL if it is unknown
    bd_spike_guard spike_guard;
    bd_json *document;   // owned
    char *tensors_path;  // owned
    int64_t size_bytes;  // of that file, as is the digest
    bd_digest digest;
} bd_checkpoint;

// Reads and checks the .json alone, so that the caller can compare settings and lay out the
// parameters. Release the result. On failure *checkpoint is empty.
bd_status bd_checkpoint_load(bd_checkpoint *checkpoint, const char *folder, int64_t step,
                             bd_error *err);
// Safe on an empty struct and safe twice.
void bd_checkpoint_release(bd_checkpoint *checkpoint);

// Where moments and average go: those of the parameters in the slice, in host memory.
typedef struct bd_moments {
    bd_rank_slice slice;
    // [slice.end - slice.begin], v only where there are second moments; NULL if not wanted
    float *m, *v, *average;
} bd_moments;

// Checks size and checksum, then that the file holds exactly the tensors of `parameters` and
// what else it keeps. Fills weights [n_total] in host memory and `moments`, which may be NULL,
// and checks that every number it copies is finite. What the run does not keep (second moments
// of Muon's matrices, an average) stays as it is. moments->average may be `weights`, which
// then end up as the average. On failure all contents are unspecified.
bd_status bd_checkpoint_load_tensors(const bd_checkpoint *checkpoint,
                                     const bd_parameters *parameters, float *weights,
                                     const bd_moments *moments, bd_error *err);

#endif
