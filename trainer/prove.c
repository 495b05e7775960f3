#include "trainer/prove.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/model.h"
#include "trainer/reference.h"
#include "trainer/training.h"

const char *const bd_sabotage_words[] = {"none", "mask", "positions", "targets", NULL};

// ---- The rows that are looked at --------------------------------------------------------

static int64_t count_segments(const bd_batch *batch)
{
    int64_t total = 0;
    for (int64_t r = 0; r < batch->boundaries.n_rows; r++) {
        int64_t n;
        bd_row_bounds(&batch->boundaries, r, &n);
        total += n;
    }
    return total;
}

// Rows 0, 1, … until they have enough segments, row by row first to count them.
static bd_status load_rows(bd_batch *batch, const bd_rows *rows, int64_t n_documents,
                           bd_error *err)
{
    int64_t n = 0, n_segments = 0;
    bd_status status = BD_OK;
    bd_hasher *hasher = bd_hasher_new();
    int64_t *numbers = NULL;
    if (!hasher)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    for (; status == BD_OK && n_segments < n_documents && n < rows->manifests[0].totals.rows;
         n++) {
        status = bd_batch_load(batch, rows, &n, 1, hasher, err);
        n_segments += status == BD_OK ? count_segments(batch) : 0;
    }
    if (status == BD_OK && !(numbers = malloc((size_t)n * sizeof *numbers)))
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " rows", n);
    for (int64_t i = 0; status == BD_OK && i < n; i++)
        numbers[i] = i;
    if (status == BD_OK)
        status = bd_batch_load(batch, rows, numbers, n, hasher, err);
    free(numbers);
    bd_hasher_free(hasher);
    return status;
}

// Everything that the experiments need: rows and a model with the weights.
typedef struct bench {
    bd_batch batch;
    bd_model model;
} bench;

static bd_status set_up(bench *b, const bd_experiment *e, bd_error *err)
{
    BD_TRY(bd_check_fit(&e->parameters->config, e->rows, err));
    if (e->rows->manifests[0].totals.targets == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "nothing to prove: no token has a target");
    BD_TRY(load_rows(&b->batch, e->rows, e->n_documents, err));
    if (b->batch.n_targets == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "nothing to prove: no token has a target");
    BD_TRY(bd_model_init(&b->model, e->backend, e->parameters, e->type,
                         b->batch.boundaries.n_rows, b->batch.boundaries.seq_len, err));
    return bd_model_set_weights(&b->model, e->weights, err);
}

static void tear_down(bench *b)
{
    bd_model_release(&b->model);
    bd_batch_release(&b->batch);
}

// ---- Packed -----------------------------------------------------------------------------

// Boundaries {0, used} for every row: what a system without document boundaries has.
typedef struct whole_rows {
    int32_t *offsets, *values;  // owned
} whole_rows;

static bd_status make_whole_rows(whole_rows *whole, const bd_boundaries *boundaries,
                                 bd_error *err)
{
    const size_t n = (size_t)boundaries->n_rows;
    whole->offsets = malloc((n + 1) * sizeof *whole->offsets);
    whole->values = malloc(2 * n * sizeof *whole->values);
    if (!whole->offsets || !whole->values)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu rows", n);
    for (size_t r = 0; r <= n; r++)
        whole->offsets[r] = (int32_t)(2 * r);
    for (size_t r = 0; r < n; r++) {
        whole->values[2 * r] = 0;
        whole->values[2 * r + 1] = (int32_t)bd_row_used(boundaries, (int64_t)r);
    }
    return BD_OK;
}

static bd_status sabotage_batch(bd_model_batch *batch, bd_sabotage sabotage, whole_rows *whole,
                                const bd_parameters *parameters, bd_error *err)
{
    if (sabotage == BD_SABOTAGE_NONE)
        return BD_OK;
    BD_TRY(make_whole_rows(whole, &batch->attention, err));
    const bd_boundaries broken = {batch->attention.n_rows, batch->attention.seq_len,
                                  whole->offsets, whole->values};
    if (sabotage == BD_SABOTAGE_MASK)
        batch->attention = broken;
    if (sabotage == BD_SABOTAGE_TARGETS)
        batch->targets = broken;
    if (sabotage == BD_SABOTAGE_POSITIONS) {
        if (broken.seq_len > parameters->config.n_positions)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "positions cannot be sabotaged: rows have %" PRId64
                           " tokens, the model %" PRId64 " positions",
                           broken.seq_len, parameters->config.n_positions);
        batch->positions = broken;
    }
    return BD_OK;
}

static bd_status run_packed(bench *b, bd_sabotage sabotage, float *gradients, double *loss_sum,
                            bd_error *err)
{
    whole_rows whole = {0};
    bd_model_batch batch = bd_batch_part(&b->batch, 0, b->batch.boundaries.n_rows);
    bd_status status = sabotage_batch(&batch, sabotage, &whole, b->model.parameters, err);
    if (status == BD_OK)
        status = bd_model_train(&b->model, &batch, NULL, 1.0 / (double)b->batch.n_targets,
                                loss_sum, err);
    if (status == BD_OK)
        status = bd_model_get_gradients(&b->model, gradients, err);
    free(whole.offsets);
    free(whole.values);
    return status;
}

// ---- Alone ------------------------------------------------------------------------------

// What the ReLUs of a packed run gave, for what reference.h says of kinks.
typedef struct relu_results {
    float **layers;      // [n_layers] of [n_tokens][n_feed_forward], owned
    const float **part;  // [n_layers], owned: where one segment's begin
    int64_t n_layers;
} relu_results;

static bd_status get_relu_results(relu_results *results, bd_model *model, int64_t n_tokens,
                                  bd_error *err)
{
    const bd_model_config *c = &model->parameters->config;
    const int64_t n = n_tokens * c->n_feed_forward;
    results->n_layers = c->n_layers;
    results->layers = calloc((size_t)c->n_layers, sizeof *results->layers);
    results->part = calloc((size_t)c->n_layers, sizeof *results->part);
    if (!results->layers || !results->part)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the activations");
    for (int64_t l = 0; l < c->n_layers; l++) {
        results->layers[l] = malloc((size_t)n * sizeof **results->layers);
        if (!results->layers[l])
            return bd_fail(err, BD_ERR_MEMORY, "no memory for the activations");
        BD_TRY(
            bd_model_download(model, results->layers[l], model->layers[l].activated, n, err));
    }
    return BD_OK;
}

static void release_relu_results(relu_results *results)
{
    for (int64_t l = 0; results->layers && l < results->n_layers; l++)
        free(results->layers[l]);
    free(results->layers);
    free(results->part);
}

// One segment, tokens [from, to) of the batch, as a sequence of its own.
static bd_status add_segment(bd_reference *reference, const bd_batch *batch, int64_t from,
                             int64_t to, uint32_t *ids, const relu_results *results,
                             bd_error *err)
{
    for (int64_t t = from; t < to; t++)
        ids[t - from] = bd_id_at(batch->ids, batch->id_bytes, t);
    for (int64_t l = 0; l < results->n_layers; l++)
        results->part[l] =
            results->layers[l] + from * reference->parameters->config.n_feed_forward;
    return bd_reference_add(reference, ids, to - from, 1.0 / (double)batch->n_targets,
                            results->part, err);
}

static bd_status run_alone(bd_reference *reference, const bd_batch *batch,
                           const relu_results *results, bd_error *err)
{
    const bd_boundaries *boundaries = &batch->boundaries;
    uint32_t *ids = malloc((size_t)boundaries->seq_len * sizeof *ids);
    if (!ids)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a sequence");
    bd_status status = BD_OK;
    for (int64_t r = 0; status == BD_OK && r < boundaries->n_rows; r++) {
        int64_t n_segments;
        const int64_t row = r * boundaries->seq_len;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
        for (int64_t k = 0; status == BD_OK && k < n_segments; k++)
            status = add_segment(reference, batch, row + bounds[k], row + bounds[k + 1], ids,
                                 results, err);
    }
    free(ids);
    return status;
}

// ---- The comparison ---------------------------------------------------------------------

static double largest(const double *values, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

// A difference that is not a number must not pass for a small one, as it would with fmax().
static double largest_difference(const float *packed, const double *alone, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)packed[i] - alone[i]);
        if (!(difference <= most))
            most = difference;
        if (isnan(most))
            break;
    }
    return most;
}

// By bd_type.
static const struct {
    double of_own, of_any;  // shares of the largest gradients that make a bound
    double nearly_zero;     // for reference.h
} precisions[] = {
    [BD_FLOAT] = {1e-5, 1e-7, 1e-5},
    // Activations and gradients are rounded to 2^-9 at each of some twenty steps of a layer's
    // way there and back; single weights were seen 0.0125 off, and whatever is broken on
    // purpose 0.2 and more.
    [BD_BF16] = {0x1p-5, 1e-5, 0x1p-7},
};

static bd_status compare(bd_proof *proof, const bd_parameters *parameters, bd_type type,
                         const float *packed, const double *alone, bd_error *err)
{
    const double overall = largest(alone, parameters->n_total);
    proof->lines = calloc(parameters->n, sizeof *proof->lines);
    if (!proof->lines)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parameters", parameters->n);
    proof->n_lines = parameters->n;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        const double *own = alone + parameter->offset;
        bd_proof_line *line = &proof->lines[i];
        line->parameter = parameter;
        line->largest_gradient = largest(own, parameter->n);
        line->largest_difference =
            largest_difference(packed + parameter->offset, own, parameter->n);
        line->bound = precisions[type].of_own * line->largest_gradient +
                      precisions[type].of_any * overall;
        // Not even infinity agrees with infinity.
        line->agrees = isfinite(line->bound) && line->largest_difference <= line->bound;
        line->zero_by_mathematics = strstr(parameter->name, ".k_proj.bias") != NULL;
        proof->n_disagree += !line->agrees;
    }
    return BD_OK;
}

// The weights that the kernels use: [n], to be freed.
static float *weights_used(const bd_experiment *e)
{
    const int64_t n = e->parameters->n_total;
    float *weights = malloc((size_t)n * sizeof *weights);
    for (int64_t i = 0; weights && i < n; i++)
        weights[i] = e->type == BD_BF16 ? bd_float_of_bf16(bd_bf16_of_float(e->weights[i]))
                                        : e->weights[i];
    return weights;
}

static bd_status init_reference(bd_reference *reference, const bd_experiment *e, bd_error *err)
{
    float *weights = weights_used(e);
    if (!weights)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the weights");
    const bd_status status = bd_reference_init(reference, e->parameters, weights,
                                               precisions[e->type].nearly_zero, err);
    free(weights);
    return status;
}

bd_status bd_prove(bd_proof *proof, const bd_experiment *experiment, bd_sabotage sabotage,
                   bd_error *err)
{
    const bd_parameters *parameters = experiment->parameters;
    *proof = (bd_proof){0};
    bench b = {0};
    bd_reference reference = {0};
    relu_results results = {0};
    double loss_sum = 0;
    float *packed = malloc((size_t)parameters->n_total * sizeof *packed);
    bd_status status = packed ? set_up(&b, experiment, err)
                              : bd_fail(err, BD_ERR_MEMORY, "no memory for the gradients");
    if (status == BD_OK)
        status = run_packed(&b, sabotage, packed, &loss_sum, err);
    if (status == BD_OK)
        status = init_reference(&reference, experiment, err);
    if (status == BD_OK)
        status = get_relu_results(&results, &b.model,
                                  b.batch.boundaries.n_rows * b.batch.boundaries.seq_len, err);
    if (status == BD_OK)
        status = run_alone(&reference, &b.batch, &results, err);
    if (status == BD_OK)
        status = compare(proof, parameters, experiment->type, packed, reference.gradients, err);
    if (status == BD_OK) {
        proof->n_rows = b.batch.boundaries.n_rows;
        proof->n_segments = count_segments(&b.batch);
        proof->n_targets = b.batch.n_targets;
        proof->loss_packed = loss_sum / (double)b.batch.n_targets;
        proof->n_kinks = reference.n_kinks;
        proof->loss_alone = reference.loss_sum / (double)b.batch.n_targets;
    }
    release_relu_results(&results);
    bd_reference_release(&reference);
    tear_down(&b);
    free(packed);
    return status;
}

void bd_proof_release(bd_proof *proof)
{
    free(proof->lines);
    *proof = (bd_proof){0};
}

bd_status bd_probe_run(bd_probe *probe, const bd_experiment *experiment, bd_error *err)
{
    *probe = (bd_probe){0};
    bench b = {0};
    bd_status status = set_up(&b, experiment, err);
    if (status == BD_OK)
        status = bd_probe_batch(probe, &b.model, &b.batch, 0, b.batch.boundaries.n_rows, err);
    tear_down(&b);
    return status;
}
