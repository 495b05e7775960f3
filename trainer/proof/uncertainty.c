#include "trainer/proof/uncertainty.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "trainer/proof/reference.h"
#include "trainer/proof/tolerance.h"

// ---- One run of the reference ---------------------------------------------------------------

// The memory for one sequence.
typedef struct sequence_memory {
    uint32_t *ids;            // [seq_len], owned
    bool *is_target;          // [seq_len], owned
    const float **relu_part;  // [n_layers], owned
} sequence_memory;

// Runs segment [begin, end) of row r as a sequence of its own.
static bd_status add_segment(bd_reference *reference, const bd_reference_task *task, int64_t r,
                             int64_t begin, int64_t end, bd_relu_results relu,
                             const sequence_memory *memory, bd_error *err)
{
    const bd_model_config *c = &reference->parameters->config;
    const bd_batch *batch = task->batch;
    const int64_t from = r * batch->boundaries.seq_len + begin, n = end - begin;
    int64_t n_targets = 0;
    for (int64_t t = 0; t < n; t++) {
        memory->ids[t] = bd_id_at(batch->ids, batch->id_bytes, from + t);
        memory->is_target[t] =
            t > 0 && (!bd_row_has_mask(&batch->mask, r) ||
                      bd_bit_at(batch->mask.bits, batch->mask.offsets[r] + begin + t));
        n_targets += memory->is_target[t];
    }
    for (int64_t l = 0; relu && l < c->n_layers; l++)
        memory->relu_part[l] = relu[l] + from * c->n_feed_forward;
    const bool is_mean = task->loss == BD_LOSS_PER_DOCUMENT && n_targets > 0;
    const bd_reference_sequence sequence = {
        .ids = memory->ids,
        .n = n,
        .is_target = memory->is_target,
        .weight = is_mean ? 1.0 / (double)n_targets : 1.0,
        .loss_scale = bd_loss_scale(batch->targets, task->loss),
        .relu_results = relu ? memory->relu_part : NULL,
    };
    return bd_reference_add(reference, &sequence, err);
}

static bd_status add_batch_segments(bd_reference *reference, const bd_reference_task *task,
                                    bd_relu_results relu, bd_error *err)
{
    const bd_boundaries *boundaries = &task->batch->boundaries;
    const int64_t n_layers = reference->parameters->config.n_layers;
    const sequence_memory memory = {
        .ids = malloc((size_t)boundaries->seq_len * sizeof *memory.ids),
        .is_target = malloc((size_t)boundaries->seq_len * sizeof *memory.is_target),
        .relu_part = malloc((size_t)n_layers * sizeof *memory.relu_part),
    };
    bd_status status = BD_OK;
    if (!memory.ids || !memory.is_target || !memory.relu_part)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a sequence");
    for (int64_t r = 0; status == BD_OK && r < boundaries->n_rows; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
        for (int64_t k = 0; status == BD_OK && k < n_segments; k++)
            status =
                add_segment(reference, task, r, bounds[k], bounds[k + 1], relu, &memory, err);
    }
    free(memory.ids);
    free(memory.is_target);
    free(memory.relu_part);
    return status;
}

// ---- Several at once ------------------------------------------------------------------------

enum { MOST_RUNS = 1 + BD_NOISE_RUNS };

typedef struct runs {
    const bd_reference_task *task;
    bd_relu_results relu;
    bd_reference references[MOST_RUNS];  // the first is exact, the others round
    int64_t n;
} runs;

static bd_status run_reference(void *context, int64_t index, bd_error *err)
{
    runs *r = context;
    return add_batch_segments(&r->references[index], r->task, r->relu, err);
}

// Run 0 is exact. If others follow, it adds up the magnitudes, too.
static bd_status init_runs(runs *r, bd_error *err)
{
    const bd_reference_task *task = r->task;
    for (int64_t i = 0; i < r->n; i++) {
        bd_reference *reference = &r->references[i];
        BD_TRY(bd_reference_init(reference, task->parameters, task->weights,
                                 bd_nearly_zero(task->type), err));
        if (i > 0)
            reference->rounding = (bd_rounding){
                .sum = bd_rounding_unit(BD_FLOAT),
                .stored = bd_rounding_unit(task->type),
                .random = {bd_random_mix((uint64_t)i)},
            };
        else if (r->n > 1)
            BD_TRY(bd_reference_measure(reference, err));
    }
    return BD_OK;
}

static void release_runs(runs *r)
{
    for (int64_t i = 0; i < r->n; i++)
        bd_reference_release(&r->references[i]);
}

static void take_exact(bd_exact *exact, bd_reference *reference)
{
    *exact = (bd_exact){reference->gradients, reference->loss_sum, reference->n_kinks};
    reference->gradients = NULL;
}

bd_status bd_exact_init(bd_exact *exact, const bd_reference_task *task, bd_relu_results relu,
                        bd_error *err)
{
    *exact = (bd_exact){0};
    runs r = {.task = task, .relu = relu, .n = 1};
    bd_status status = init_runs(&r, err);
    if (status == BD_OK)
        status = run_reference(&r, 0, err);
    if (status == BD_OK)
        take_exact(exact, &r.references[0]);
    release_runs(&r);
    return status;
}

// ---- Noise ----------------------------------------------------------------------------------

// Raises every element that has a term to at least the root mean square of its row of the matrix
// (a vector is one row).
static void smooth(double *noise, const double *magnitudes, const bd_parameter *parameter)
{
    const int64_t width = parameter->shape[parameter->n_dimensions - 1];
    for (int64_t first = 0; first < parameter->n; first += width) {
        double squares = 0.0;
        for (int64_t i = first; i < first + width; i++)
            squares += noise[i] * noise[i];
        const double typical = sqrt(squares / (double)width);
        for (int64_t i = first; i < first + width; i++) {
            const bool has_term = magnitudes[i] != 0.0 || noise[i] != 0.0;
            if (has_term && !(noise[i] >= typical))  // NaN stays NaN
                noise[i] = typical;
        }
    }
}

// fmax() would ignore NaN, and then a NaN difference would pass for a small one.
static double larger_or_nan(double a, double b)
{
    return a < b || isnan(b) ? b : a;
}

// The gradients of run 1, which rounds, are replaced by the noise, so that no memory is needed.
static void take_uncertainty(bd_uncertainty *uncertainty, runs *r)
{
    const bd_parameters *parameters = r->task->parameters;
    const double *exact = r->references[0].gradients;
    double *noise = r->references[1].gradients;
    for (int64_t i = 0; i < parameters->n_total; i++) {
        double largest = 0.0;
        for (int64_t run = 1; run < r->n; run++)
            largest = larger_or_nan(largest, fabs(r->references[run].gradients[i] - exact[i]));
        noise[i] = largest;
    }
    for (size_t i = 0; i < parameters->n; i++) {
        const int64_t at = parameters->items[i].offset;
        smooth(noise + at, r->references[0].magnitudes + at, &parameters->items[i]);
    }
    *uncertainty = (bd_uncertainty){r->references[0].magnitudes, noise};
    r->references[0].magnitudes = NULL;
    r->references[1].gradients = NULL;
}

bd_status bd_exact_init_with_uncertainty(bd_exact *exact, bd_uncertainty *uncertainty,
                                         const bd_reference_task *task, bd_relu_results relu,
                                         bd_error *err)
{
    *exact = (bd_exact){0};
    *uncertainty = (bd_uncertainty){0};
    runs r = {.task = task, .relu = relu, .n = MOST_RUNS};
    bd_status status = init_runs(&r, err);
    if (status == BD_OK)
        status = bd_threads_run(task->threads, run_reference, &r, r.n, err);
    if (status == BD_OK) {
        take_uncertainty(uncertainty, &r);
        take_exact(exact, &r.references[0]);
    }
    release_runs(&r);
    return status;
}

void bd_exact_release(bd_exact *exact)
{
    free(exact->gradients);
    *exact = (bd_exact){0};
}

void bd_uncertainty_release(bd_uncertainty *uncertainty)
{
    free(uncertainty->magnitudes);
    free(uncertainty->noise);
    *uncertainty = (bd_uncertainty){0};
}
