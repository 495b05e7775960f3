#include "trainer/hyperparameters.h"

#include <math.h>

#include "trainer/model/backend_choice.h"

#define MOST_STEPS (INT64_C(1) << 40)
enum { DEFAULT_STEPS = 300 };

const char *const bd_learning_rate_schedules[] = {
    [BD_SCHEDULE_COSINE] = "cosine",
    [BD_SCHEDULE_LINEAR] = "linear",
    [BD_SCHEDULE_CONSTANT] = "constant",
    [BD_SCHEDULE_WSD] = "wsd",
    NULL,
};

static const char *const rate_factor_keys[BD_PARAMETER_KINDS] = {
    [BD_KIND_MATRIX] = "matrix_rate_factor",
    [BD_KIND_TABLE] = "table_rate_factor",
    [BD_KIND_VECTOR] = "vector_rate_factor",
};

bd_json *bd_hyperparameters_to_json(const bd_hyperparameters *h)
{
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "steps", h->n_steps);
    bd_json_set_integer(json, "batch_rows", h->batch_rows);
    bd_json_set_integer(json, "micro_batch_rows", h->micro_batch_rows);
    bd_json_set_integer(json, "warm_up_steps", h->warm_up_steps);
    bd_json_set_real(json, "learning_rate", h->learning_rate);
    bd_json_set_real(json, "min_learning_rate", h->min_learning_rate);
    bd_json_set_real(json, "beta1", h->beta1);
    bd_json_set_real(json, "beta2", h->beta2);
    bd_json_set_real(json, "epsilon", h->epsilon);
    bd_json_set_real(json, "weight_decay", h->weight_decay);
    bd_json_set_real(json, "clip_norm", h->clip_norm);
    bd_json_set_integer(json, "seed", h->seed);
    // Checkpoints of older versions have none of these: they are written only if they differ
    // from what those versions did.
    if (h->type != BD_FLOAT)
        bd_json_set_string(json, "precision", bd_precision_names[h->type]);
    if (h->optimizer != BD_OPTIMIZER_ADAMW)
        bd_json_set_string(json, "optimizer", bd_optimizer_kind_names[h->optimizer]);
    if (h->optimizer == BD_OPTIMIZER_MUON)
        bd_json_set_real(json, "momentum", h->momentum);
    for (int kind = 0; kind < BD_PARAMETER_KINDS; kind++)
        if (h->rate_factors[kind] != 1)
            bd_json_set_real(json, rate_factor_keys[kind], h->rate_factors[kind]);
    if (h->schedule != BD_SCHEDULE_COSINE)
        bd_json_set_string(json, "schedule", bd_learning_rate_schedules[h->schedule]);
    if (h->schedule == BD_SCHEDULE_WSD)
        bd_json_set_integer(json, "decay_steps", h->decay_steps);
    if (h->average > 0)
        bd_json_set_real(json, "average", h->average);
    if (h->loss != BD_LOSS_PER_TOKEN)
        bd_json_set_string(json, "loss", bd_loss_kind_names[h->loss]);
    if (h->z_loss > 0)
        bd_json_set_real(json, "z_loss", h->z_loss);
    if (h->skip_spikes > 0)
        bd_json_set_real(json, "skip_spikes", h->skip_spikes);
    return json;
}

double bd_learning_rate(const bd_hyperparameters *h, int64_t step)
{
    const double peak = h->learning_rate, floor = h->min_learning_rate;
    int64_t end_of_peak = h->warm_up_steps;
    if (step <= end_of_peak)
        return peak * (double)step / (double)h->warm_up_steps;
    if (h->schedule == BD_SCHEDULE_WSD && h->n_steps - h->decay_steps > end_of_peak)
        end_of_peak = h->n_steps - h->decay_steps;
    if (h->schedule == BD_SCHEDULE_CONSTANT || step <= end_of_peak)
        return peak;
    if (step >= h->n_steps)
        return floor;
    const double share = (double)(step - end_of_peak) / (double)(h->n_steps - end_of_peak);
    if (h->schedule == BD_SCHEDULE_COSINE)
        return floor + 0.5 * (peak - floor) * (1.0 + cos(M_PI * share));
    return floor + (peak - floor) * (1.0 - share);
}

double bd_average_rate(const bd_hyperparameters *h, int64_t step)
{
    // As in TensorFlow's ExponentialMovingAverage: about a mean over the last tenth of the
    // steps, until the decay is reached.
    const double early = (1.0 + (double)step) / (10.0 + (double)step);
    return 1.0 - (early < h->average ? early : h->average);
}

// Steps that take `n` things, `per_step` each; at least one.
static int64_t steps_of(int64_t n, int64_t per_step)
{
    return n > 0 ? (n - 1) / per_step + 1 : 1;
}

bd_status bd_count_steps(int64_t *n_steps, const bd_run_length *length, int64_t batch_rows,
                         const bd_rows *rows, bd_error *err)
{
    const int n_given = (length->n_steps > 0) + (length->n_epochs > 0) + (length->n_tokens > 0);
    if (n_given > 1)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--steps, --epochs and --tokens: only one can say how long the run is");
    *n_steps = n_given == 0 ? DEFAULT_STEPS : length->n_steps;
    if (length->n_epochs > 0) {
        const double places = round(length->n_epochs * (double)bd_rows_count(rows));
        *n_steps = places < 0x1p62 ? steps_of((int64_t)places, batch_rows) : INT64_MAX;
    }
    if (length->n_tokens > 0)
        *n_steps =
            steps_of(steps_of(length->n_tokens, bd_rows_config(rows)->seq_len), batch_rows);
    if (*n_steps > MOST_STEPS)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "the run would have more than 2^40 steps: give fewer --epochs or --tokens");
    return BD_OK;
}

bd_status bd_count_decay_steps(int64_t *decay_steps, double decay, int64_t n_steps,
                               bd_error *err)
{
    if (decay >= 1 && decay != floor(decay))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--decay: %g is neither a share below 1 nor a number of steps", decay);
    const double steps = decay < 1 ? round(decay * (double)n_steps) : decay;
    *decay_steps = steps < (double)n_steps ? (int64_t)steps : n_steps;
    return BD_OK;
}
