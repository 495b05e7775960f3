// spike_guard.h - decides whether a step is applied: it knows how large gradients usually are, and
// counts the steps that were not applied. Part of every checkpoint, so that a resumed run decides
// as if it had not been stopped.
#ifndef BINDERY_TRAINER_WEIGHTS_SPIKE_GUARD_H
#define BINDERY_TRAINER_WEIGHTS_SPIKE_GUARD_H

#include <stdint.h>

#include "common/base/enum_names.h"
#include "common/base/error.h"
#include "common/base/json.h"

#define BD_STEP_OUTCOMES(X)                                                               \
    X(BD_STEP_APPLIED, "applied")                                                         \
    X(BD_STEP_NO_TARGETS, "no targets") /* nothing to learn: no update, decay included */ \
    X(BD_STEP_SPIKE, "spike")           /* its gradient was far larger than usual: no update */
BD_ENUM(bd_step_outcome, BD_STEP_OUTCOMES);

// All zero at the beginning.
typedef struct bd_spike_guard {
    int64_t n_without_targets, n_spikes;  // steps that were not applied
    int64_t n_norms;                      // steps with targets
    double usual_norm;                    // of their gradients; 0 before the first
} bd_spike_guard;

enum { BD_SPIKE_FREE_STEPS = 20 };  // with targets, before a step can be a spike

// Decides whether a step is applied. It is a spike if its gradient's norm, which is finite, is
// more than `factor` times the usual one (0: no step is). The usual norm is a mean over the steps
// with targets, exponential (0.98) after the first 50. A spike counts as if it were at the limit,
// so that steps are soon applied again if gradients have become larger for good.
bd_step_outcome bd_spike_guard_add(bd_spike_guard *guard, int64_t n_targets, double norm,
                                   double factor);

bd_json *bd_spike_guard_to_json(const bd_spike_guard *guard);
// NULL, for checkpoints of older versions, gives a guard that is all zero.
bd_status bd_spike_guard_from_json(bd_spike_guard *guard, const bd_json *json, bd_error *err);

#endif
