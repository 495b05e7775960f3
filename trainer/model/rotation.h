// rotation.h - rotary positions: how far each pair of channels of a head turns from one position
// to the next.
//
// Without scaling pair i of a head turns by theta^(-2i / head_size) radians. Models that were
// extended to longer documents turn slower, in one of three ways:
//
//   linear   all pairs by 1 / factor
//   llama3   pairs whose wavelength is above original_positions / low_frequency_factor by
//            1 / factor, those below original_positions / high_frequency_factor as before, and
//            those between by a mean that moves from one to the other with the inverse wavelength
//   yarn     pairs that turn more than beta_fast times over original_positions as before, those
//            that turn less than beta_slow times by 1 / factor, and those between by a mean that
//            moves with i; queries and keys also grow by a factor (bd_rotation_scale)
//
// kernels/rotary.h says how a pair is turned.
#ifndef BINDERY_TRAINER_MODEL_ROTATION_H
#define BINDERY_TRAINER_MODEL_ROTATION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/json.h"

// The names are those of "rope_type" in config.json.
#define BD_ROTATION_SCALINGS(X)    \
    X(BD_SCALING_NONE, "default")  \
    X(BD_SCALING_LINEAR, "linear") \
    X(BD_SCALING_LLAMA3, "llama3") \
    X(BD_SCALING_YARN, "yarn")
BD_ENUM(bd_rotation_scaling, BD_ROTATION_SCALINGS);

typedef struct bd_rotation {
    double theta;
    bd_rotation_scaling scaling;
    double factor;                 // of every scaling
    double original_positions;     // llama3, yarn: before the extension
    double low_frequency_factor;   // llama3
    double high_frequency_factor;  // llama3
    double beta_fast, beta_slow;   // yarn
    double attention_factor;  // yarn: bd_rotation_scale() itself; 0: it follows from factor
    bool truncates;           // yarn: the first and the last pair of the mean are whole
} bd_rotation;

// The radians by which pair `i` turns from one position to the next.
double bd_rotation_frequency(const bd_rotation *rotation, int64_t head_size, int64_t i);

// The same as a fraction of a turn in 64-bit fixed point, for all pairs: turns [head_size / 2].
void bd_rotation_turns(const bd_rotation *rotation, int64_t head_size, uint64_t *turns);

// The factor by which rotated queries and keys grow: 1 without YaRN.
double bd_rotation_scale(const bd_rotation *rotation);

// Reads the scaling from config.json's "rope_scaling" or "rope_parameters", which may also hold
// theta. original_positions is n_positions where the file does not say. A scaling or a member
// that is not known is BD_ERR_UNSUPPORTED.
bd_status bd_rotation_read_scaling(bd_rotation *rotation, const bd_json *scaling,
                                   int64_t n_positions, bd_error *err);
// The value of "rope_scaling"; NULL if there is none.
bd_json *bd_rotation_scaling_json(const bd_rotation *rotation);

#endif
