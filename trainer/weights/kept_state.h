// kept_state.h - which optimizer moves which parameter, and what a run keeps of it.
#ifndef BINDERY_TRAINER_WEIGHTS_KEPT_STATE_H
#define BINDERY_TRAINER_WEIGHTS_KEPT_STATE_H

#include <stdbool.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "trainer/model/parameters.h"

#define BD_OPTIMIZERS(X)           \
    X(BD_OPTIMIZER_ADAMW, "adamw") \
    X(BD_OPTIMIZER_MUON, "muon") /* for the matrices of linear layers, AdamW for the rest */
BD_ENUM(bd_optimizer_kind, BD_OPTIMIZERS);

// Whether it is Muon that moves the parameter: it has a momentum, but no second moment.
static inline bool bd_moved_by_muon(bd_optimizer_kind kind, const bd_parameter *parameter)
{
    return kind == BD_OPTIMIZER_MUON && bd_parameter_kind_of(parameter) == BD_KIND_MATRIX;
}

// How many of the parameters' numbers before `offset` have a second moment. All second moments
// together are an array without gaps, so this is the place of those of the parameter at
// `offset`.
int64_t bd_second_moments_before(bd_optimizer_kind kind, const bd_parameters *parameters,
                                 int64_t offset);

// Which numbers a run keeps besides its weights.
typedef struct bd_kept_state {
    bd_optimizer_kind optimizer;
    bool has_average;  // of the weights
} bd_kept_state;

// Follows from a run's training settings, which have "optimizer" unless it is AdamW, and
// "average" if there is one.
bd_status bd_kept_state_from_json(bd_kept_state *kept, const bd_json *training, bd_error *err);

#endif
