#include "trainer/weights/spike_guard.h"

#include <float.h>
#include <math.h>

enum { REMEMBERED_STEPS = 50 };        // each weighs 1/50, those before accordingly less
#define MOST_STEPS (INT64_C(1) << 53)  // of a file: more can be added

const char *const bd_step_outcome_words[] = {"applied", "no targets", "spike", NULL};

bd_step_outcome bd_history_add(bd_history *history, int64_t n_targets, double norm,
                               double factor)
{
    if (n_targets == 0) {
        history->n_without_targets++;
        return BD_STEP_NO_TARGETS;
    }
    const double limit = factor * history->usual_norm;
    const bool is_spike = factor > 0 && history->n_norms >= BD_SPIKE_FREE_STEPS && norm > limit;
    history->n_spikes += is_spike;
    history->n_norms++;
    const double n =
        (double)(history->n_norms < REMEMBERED_STEPS ? history->n_norms : REMEMBERED_STEPS);
    history->usual_norm += ((is_spike ? limit : norm) - history->usual_norm) / n;
    return is_spike ? BD_STEP_SPIKE : BD_STEP_APPLIED;
}

bd_json *bd_history_to_json(const bd_history *history)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "steps_without_targets", history->n_without_targets);
    bd_json_set_integer(json, "skipped_spikes", history->n_spikes);
    bd_json_set_integer(json, "gradient_norms", history->n_norms);
    bd_json_set_real(json, "usual_gradient_norm", history->usual_norm);
    return json;
}

bd_status bd_history_from_json(bd_history *history, const bd_json *json, bd_error *err)
{
    *history = (bd_history){0};
    if (!json)
        return BD_OK;
    BD_TRY(bd_json_get_integer(json, "steps_without_targets", 0, MOST_STEPS,
                               &history->n_without_targets, err));
    BD_TRY(bd_json_get_integer(json, "skipped_spikes", 0, MOST_STEPS, &history->n_spikes, err));
    BD_TRY(bd_json_get_integer(json, "gradient_norms", 0, MOST_STEPS, &history->n_norms, err));
    return bd_json_get_real(json, "usual_gradient_norm", 0, DBL_MAX, &history->usual_norm, err);
}
