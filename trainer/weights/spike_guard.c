#include "trainer/weights/spike_guard.h"

#include <float.h>
#include <math.h>

enum { REMEMBERED_STEPS = 50 };        // the newest weighs 1/50
#define MOST_STEPS (INT64_C(1) << 53)  // in a file, so that sums cannot overflow

BD_ENUM_NAMES(bd_step_outcome, BD_STEP_OUTCOMES);

bd_step_outcome bd_spike_guard_add(bd_spike_guard *guard, int64_t n_targets, double norm,
                                   double factor)
{
    if (n_targets == 0) {
        guard->n_without_targets++;
        return BD_STEP_NO_TARGETS;
    }
    const double limit = factor * guard->usual_norm;
    const bool is_spike = factor > 0 && guard->n_norms >= BD_SPIKE_FREE_STEPS && norm > limit;
    guard->n_spikes += is_spike;
    guard->n_norms++;
    const double n =
        (double)(guard->n_norms < REMEMBERED_STEPS ? guard->n_norms : REMEMBERED_STEPS);
    guard->usual_norm += ((is_spike ? limit : norm) - guard->usual_norm) / n;
    return is_spike ? BD_STEP_SPIKE : BD_STEP_APPLIED;
}

bd_json *bd_spike_guard_to_json(const bd_spike_guard *guard)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "steps_without_targets", guard->n_without_targets);
    bd_json_set_integer(json, "skipped_spikes", guard->n_spikes);
    bd_json_set_integer(json, "gradient_norms", guard->n_norms);
    bd_json_set_real(json, "usual_gradient_norm", guard->usual_norm);
    return json;
}

bd_status bd_spike_guard_from_json(bd_spike_guard *guard, const bd_json *json, bd_error *err)
{
    *guard = (bd_spike_guard){0};
    if (!json)
        return BD_OK;
    BD_TRY(bd_json_get_integer(json, "steps_without_targets", 0, MOST_STEPS,
                               &guard->n_without_targets, err));
    BD_TRY(bd_json_get_integer(json, "skipped_spikes", 0, MOST_STEPS, &guard->n_spikes, err));
    BD_TRY(bd_json_get_integer(json, "gradient_norms", 0, MOST_STEPS, &guard->n_norms, err));
    return bd_json_get_real(json, "usual_gradient_norm", 0, DBL_MAX, &guard->usual_norm, err);
}
