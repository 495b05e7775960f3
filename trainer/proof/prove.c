#include "trainer/proof/prove.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/free_memory.h"
#include "common/base/random.h"
#include "common/base/threads.h"
#include "common/cli/human.h"
#include "trainer/model/model.h"
#include "trainer/proof/reference.h"
#include "trainer/proof/tolerance.h"

BD_ENUM_NAMES(bd_sabotage, BD_SABOTAGES);
BD_ENUM_NAMES(bd_proof_verdict, BD_PROOF_VERDICTS);

// ---- The rows ---------------------------------------------------------------------------

// Loads successive rows, the first one after the last, until they have enough segments. Each
// row is first loaded alone to count its segments.
static bd_status load_proof_rows(bd_batch *batch, const bd_experiment *e, bd_error *err)
{
    const int64_t n_all = e->rows->manifests[0].totals.rows;
    const int64_t first =
        e->seed == 0 ? 0 : (int64_t)(bd_random_mix(e->seed) % (uint64_t)n_all);
    int64_t n = 0, n_segments = 0;
    int64_t *numbers = malloc((size_t)n_all * sizeof *numbers);
    bd_hasher *hasher = bd_hasher_new();
    bd_status status = BD_OK;
    if (!hasher || !numbers)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " rows", n_all);
    for (; status == BD_OK && n_segments < e->n_documents && n < n_all; n++) {
        numbers[n] = (first + n) % n_all;
        status = bd_batch_load(batch, e->rows, &numbers[n], 1, hasher, err);
        n_segments += status == BD_OK ? bd_count_segments(&batch->boundaries) : 0;
    }
    if (status == BD_OK)
        status = bd_batch_load(batch, e->rows, numbers, n, hasher, err);
    free(numbers);
    bd_hasher_free(hasher);
    return status;
}

// The rows and a model with the weights, on which the experiments are made.
typedef struct bench {
    bd_batch batch;
    bd_model model;
} bench;

static bd_status set_up(bench *b, const bd_experiment *e, bd_error *err)
{
    BD_TRY(bd_check_fit(&e->parameters->config, e->rows, err));
    if (e->rows->manifests[0].totals.targets == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "nothing to prove: no token has a target");
    BD_TRY(load_proof_rows(&b->batch, e, err));
    if (b->batch.targets.n_targets == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "nothing to prove: no token has a target");
    const bd_model_options options = {.type = e->type,
                                      .max_rows = b->batch.boundaries.n_rows,
                                      .seq_len = b->batch.boundaries.seq_len,
                                      .loss = e->loss};
    BD_TRY(bd_model_init(&b->model, e->backend, e->parameters, &options, err));
    return bd_model_set_weights(&b->model, e->weights, err);
}

// Fails before memory is allocated that the host does not have. The proof takes, for every
// parameter, the gradient of each run of the reference, its weight and its magnitude as
// doubles, and the gradients P and A as floats; the longest sequence's memory for each run at
// the same time; and the pages of the model's buffers that are not in use yet, which are all
// but the weights.
static bd_status check_proof_memory(const bench *b, const bd_experiment *e, bd_error *err)
{
    const size_t n = (size_t)e->parameters->n_total, free_bytes = bd_free_memory();
    const size_t n_threads = (size_t)bd_threads_size(e->threads), n_runs = 1 + BD_NOISE_RUNS;
    const size_t of_sequence =
        bd_reference_bytes(&e->parameters->config, bd_rows_longest_segment(e->rows));
    const size_t of_model =
        e->backend->operations->works_on_host ? b->model.memory.total - n * sizeof(float) : 0;
    const size_t needed = of_model + n * ((n_runs + 2) * sizeof(double) + 2 * sizeof(float)) +
                          (n_threads < n_runs ? n_threads : n_runs) * of_sequence;
    if (needed <= free_bytes)
        return BD_OK;
    return bd_fail(err, BD_ERR_MEMORY,
                   "the proof takes %s of memory for %s parameters, and %s are free: --probe "
                   "takes less, and so do a smaller model, fewer --threads and shorter rows",
                   bd_format_bytes(needed).text, bd_format_count(n).text,
                   bd_format_bytes(free_bytes).text);
}

static double loss_scale(const bench *b)
{
    return bd_loss_scale(b->batch.targets, b->model.loss);
}

static void tear_down(bench *b)
{
    bd_model_release(&b->model);
    bd_batch_release(&b->batch);
}

// ---- Masks of rows that are not the dataset's ---------------------------------------------

// The masks of rows, each in bytes of its own.
typedef struct mask_copies {
    uint8_t *bits;     // [max][row_bytes], owned; NULL if the batch has no mask
    int64_t *offsets;  // [max], owned, as in loss_mask.h
    int64_t row_bytes;
} mask_copies;

static bd_status new_mask_copies(mask_copies *copies, const bd_batch *batch, bd_error *err)
{
    if (!batch->mask.bits)
        return BD_OK;
    const size_t max = (size_t)batch->boundaries.n_rows;
    copies->row_bytes = (batch->boundaries.seq_len + 14) / 8;  // it may begin inside a byte
    copies->bits = calloc(max, (size_t)copies->row_bytes);
    copies->offsets = calloc(max, sizeof *copies->offsets);
    if (!copies->bits || !copies->offsets)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the masks of %zu rows", max);
    return BD_OK;
}

static void release_mask_copies(mask_copies *copies)
{
    free(copies->bits);
    free(copies->offsets);
}

static bd_loss_mask mask_of_copies(const mask_copies *copies)
{
    return (bd_loss_mask){copies->bits, copies->offsets};
}

// Makes tokens [begin, end) of the batch's row r the first of row `to`.
static void copy_mask(const mask_copies *copies, int64_t to, const bd_loss_mask *mask,
                      int64_t r, int64_t begin, int64_t end)
{
    if (!copies->bits)
        return;
    copies->offsets[to] = BD_ALL_TRAINED;
    if (!bd_row_has_mask(mask, r))
        return;
    const int64_t at = to * copies->row_bytes, first = mask->offsets[r] + begin;
    memcpy(copies->bits + at, mask->bits + first / 8,
           bd_column_bytes(first % 8 + end - begin, 1));
    copies->offsets[to] = 8 * at + first % 8;
}

// ---- Sabotage ---------------------------------------------------------------------------

// Boundaries {0, used} for every row: what a system without document boundaries has. There the
// first token of a document is a target like any other.
typedef struct whole_rows {
    int32_t *offsets, *values;  // owned
    mask_copies mask;           // owned
} whole_rows;

static bd_status make_whole_rows(whole_rows *whole, const bd_batch *batch, bd_error *err)
{
    const bd_boundaries *boundaries = &batch->boundaries;
    const int64_t n = boundaries->n_rows;
    whole->offsets = malloc((size_t)(n + 1) * sizeof *whole->offsets);
    whole->values = malloc((size_t)(2 * n) * sizeof *whole->values);
    if (!whole->offsets || !whole->values)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " rows", n);
    BD_TRY(new_mask_copies(&whole->mask, batch, err));
    for (int64_t r = 0; r <= n; r++)
        whole->offsets[r] = (int32_t)(2 * r);
    for (int64_t r = 0; r < n; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
        whole->values[2 * r] = 0;
        whole->values[2 * r + 1] = bounds[n_segments];
        copy_mask(&whole->mask, r, &batch->mask, r, 0, boundaries->seq_len);
        for (int64_t k = 0; bd_row_has_mask(&batch->mask, r) && k < n_segments; k++) {
            const int64_t bit = whole->mask.offsets[r] + bounds[k];
            whole->mask.bits[bit / 8] |= (uint8_t)(1u << bit % 8);
        }
    }
    return BD_OK;
}

static void release_whole_rows(whole_rows *whole)
{
    free(whole->offsets);
    free(whole->values);
    release_mask_copies(&whole->mask);
}

static bool has_rotated_layer(const bd_model_config *c)
{
    for (int64_t l = 0; !c->family->position_table && l < c->n_layers; l++)
        if (!bd_layer_set_has(&c->unrotated, l))
            return true;
    return false;
}

// Fails if the sabotage would change nothing by mathematics, or is impossible.
static bd_status check_sabotage(const bd_experiment *e, bd_sabotage sabotage, bd_error *err)
{
    const bd_model_config *c = &e->parameters->config;
    const int64_t seq_len = bd_rows_config(e->rows)->seq_len;
    const bool is_learned = c->family->position_table;
    if (sabotage == BD_SABOTAGE_POSITIONS && !is_learned)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "--sabotage positions changes nothing in '%s': a rotation is relative, so "
            "that only differences of positions count; --sabotage rotation breaks them",
            c->family->name);
    if (sabotage == BD_SABOTAGE_POSITIONS && seq_len > c->n_positions)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "positions cannot be sabotaged: rows have %" PRId64
                       " tokens, the model %" PRId64 " positions",
                       seq_len, c->n_positions);
    if (sabotage == BD_SABOTAGE_ROTATION && is_learned)
        return bd_fail(
            err, BD_ERR_ARGUMENT,
            "'%s' has no rotation that could be sabotaged, its positions are learned: "
            "--sabotage positions breaks them",
            c->family->name);
    if (sabotage == BD_SABOTAGE_ROTATION && !has_rotated_layer(c))
        return bd_fail(err, BD_ERR_ARGUMENT, "no layer of the model is rotated");
    if (sabotage == BD_SABOTAGE_MASK_LOSS && !bd_rows_config(e->rows)->loss_mask)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--sabotage mask-loss changes nothing in a dataset without loss masks: "
                       "all of its tokens are trained; --sabotage targets breaks its loss");
    return BD_OK;
}

// The same for a sabotage of the mask, if no token of these rows is masked.
static bd_status check_masked(const bench *b, bd_sabotage sabotage, bd_error *err)
{
    const bd_target_count all = bd_count_row_targets(&b->batch.boundaries, &(bd_loss_mask){0});
    if (sabotage != BD_SABOTAGE_MASK_LOSS || b->batch.targets.n_targets < all.n_targets)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "--sabotage mask-loss changes nothing: all tokens of these %" PRId64
                   " rows are trained; take more --documents, or others by --seed",
                   b->batch.boundaries.n_rows);
}

static bd_status sabotage_batch(bd_model_batch *batch, const bd_batch *rows,
                                bd_sabotage sabotage, whole_rows *whole, bd_error *err)
{
    if (sabotage == BD_SABOTAGE_NONE)
        return BD_OK;
    BD_TRY(make_whole_rows(whole, rows, err));
    const bd_boundaries broken = {batch->attention.n_rows, batch->attention.seq_len,
                                  whole->offsets, whole->values};
    if (sabotage == BD_SABOTAGE_MASK)
        batch->attention = broken;
    if (sabotage == BD_SABOTAGE_POSITIONS)
        batch->positions = broken;
    if (sabotage == BD_SABOTAGE_ROTATION)
        batch->query_positions = broken;
    if (sabotage == BD_SABOTAGE_TARGETS) {
        batch->targets = broken;
        batch->mask = mask_of_copies(&whole->mask);
    }
    if (sabotage == BD_SABOTAGE_MASK_LOSS)
        batch->mask = (bd_loss_mask){0};
    return BD_OK;
}

// ---- Results of the ReLUs ---------------------------------------------------------------

// [n_layers] arrays [n_tokens][n_feed_forward], owned. Empty for models without ReLU.
typedef struct relu_results {
    float **layers;
    int64_t n_layers, n_tokens, width;
} relu_results;

static bd_status new_relu_results(relu_results *results, const bench *b, bd_error *err)
{
    const bd_model_config *c = &b->model.parameters->config;
    *results =
        (relu_results){.n_layers = c->n_layers,
                       .n_tokens = b->batch.boundaries.n_rows * b->batch.boundaries.seq_len,
                       .width = c->n_feed_forward};
    if (c->family->activation != BD_ACTIVATION_RELU)
        return BD_OK;
    results->layers = calloc((size_t)c->n_layers, sizeof *results->layers);
    bool complete = results->layers;
    for (int64_t l = 0; complete && l < c->n_layers; l++) {
        results->layers[l] =
            calloc((size_t)(results->n_tokens * results->width), sizeof(float));
        complete = results->layers[l];
    }
    return complete ? BD_OK : bd_fail(err, BD_ERR_MEMORY, "no memory for the activations");
}

static void release_relu_results(relu_results *results)
{
    for (int64_t l = 0; results->layers && l < results->n_layers; l++)
        free(results->layers[l]);
    free(results->layers);
    *results = (relu_results){0};
}

// Whether every ReLU was on the same side of 0 in both.
static bool same_sides(const relu_results *a, const relu_results *b)
{
    for (int64_t l = 0; a->layers && l < a->n_layers; l++)
        for (int64_t i = 0; i < a->n_tokens * a->width; i++)
            if ((a->layers[l][i] > 0) != (b->layers[l][i] > 0))
                return false;
    return true;
}

// ---- Packed -----------------------------------------------------------------------------

// The results of the kernels for all rows.
typedef struct computed {
    float *gradients;  // [n_total], owned
    double loss_sum;
    relu_results relu;  // owned
} computed;

static bd_status new_computed(computed *c, bench *b, bd_error *err)
{
    const int64_t n = b->model.parameters->n_total;
    c->gradients = malloc((size_t)n * sizeof *c->gradients);
    if (!c->gradients)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " gradients", n);
    BD_TRY(new_relu_results(&c->relu, b, err));
    return bd_model_zero_gradients(&b->model, err);
}

static void release_computed(computed *c)
{
    free(c->gradients);
    release_relu_results(&c->relu);
}

static bd_status compute_packed(computed *c, bench *b, bd_sabotage sabotage, bd_error *err)
{
    whole_rows whole = {0};
    bd_model_batch batch = bd_batch_part(&b->batch, 0, b->batch.boundaries.n_rows);
    bd_status status = new_computed(c, b, err);
    if (status == BD_OK)
        status = sabotage_batch(&batch, &b->batch, sabotage, &whole, err);
    if (status == BD_OK)
        status = bd_model_train(&b->model, &batch, loss_scale(b), &c->loss_sum, err);
    if (status == BD_OK)
        status = bd_model_get_gradients(&b->model, c->gradients, err);
    for (int64_t l = 0; status == BD_OK && c->relu.layers && l < c->relu.n_layers; l++)
        status = bd_model_download(&b->model, c->relu.layers[l], b->model.layers[l].activated,
                                   c->relu.n_tokens * c->relu.width, err);
    release_whole_rows(&whole);
    return status;
}

// ---- Alone, by the same kernels ---------------------------------------------------------

// Segments of the batch, each at the beginning of a row of its own; at most as many at a time
// as the batch has rows, which is the size of the model's buffers.
typedef struct lone_rows {
    int64_t n;         // rows in use
    int64_t *from;     // [max], the token of the batch at which the segment begins
    int32_t *offsets;  // [max + 1], as in boundaries.h
    int32_t *values;   // [2 max]
    char *ids;         // [max][seq_len] of id_bytes
    mask_copies mask;
    float *activations;  // [max][seq_len][n_feed_forward]: scratch, NULL without ReLU
} lone_rows;

static bd_status new_lone_rows(lone_rows *lone, const bench *b, const relu_results *relu,
                               bd_error *err)
{
    const size_t max = (size_t)b->batch.boundaries.n_rows;
    lone->from = malloc(max * sizeof *lone->from);
    lone->offsets = calloc(max + 1, sizeof *lone->offsets);
    lone->values = calloc(2 * max, sizeof *lone->values);
    lone->ids = calloc((size_t)relu->n_tokens, (size_t)b->batch.id_bytes);
    if (relu->layers)
        lone->activations = malloc((size_t)(relu->n_tokens * relu->width) * sizeof(float));
    if (!lone->from || !lone->offsets || !lone->values || !lone->ids ||
        (relu->layers && !lone->activations))
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu rows", max);
    return new_mask_copies(&lone->mask, &b->batch, err);
}

static void release_lone_rows(lone_rows *lone)
{
    free(lone->from);
    free(lone->offsets);
    free(lone->values);
    free(lone->ids);
    free(lone->activations);
    release_mask_copies(&lone->mask);
}

// Adds segment [begin, end) of row r.
static void add_lone_row(lone_rows *lone, const bd_batch *batch, int64_t r, int64_t begin,
                         int64_t end)
{
    const int64_t at = lone->n * batch->boundaries.seq_len, length = end - begin;
    const int64_t from = r * batch->boundaries.seq_len + begin;
    copy_mask(&lone->mask, lone->n, &batch->mask, r, begin, end);
    memcpy(lone->ids + at * batch->id_bytes, (const char *)batch->ids + from * batch->id_bytes,
           (size_t)(length * batch->id_bytes));
    lone->from[lone->n] = from;
    lone->values[2 * lone->n + 1] = (int32_t)length;
    lone->n++;
    lone->offsets[lone->n] = (int32_t)(2 * lone->n);
}

// Copies the activations of each segment to the places of its tokens in the batch, as if
// packed.
static bd_status gather_activations(relu_results *relu, bench *b, const lone_rows *lone,
                                    bd_error *err)
{
    const int64_t seq_len = b->batch.boundaries.seq_len, width = relu->width;
    for (int64_t l = 0; relu->layers && l < relu->n_layers; l++) {
        BD_TRY(bd_model_download(&b->model, lone->activations, b->model.layers[l].activated,
                                 lone->n * seq_len * width, err));
        for (int64_t r = 0; r < lone->n; r++)
            memcpy(relu->layers[l] + lone->from[r] * width,
                   lone->activations + r * seq_len * width,
                   (size_t)(lone->values[2 * r + 1] * width) * sizeof(float));
    }
    return BD_OK;
}

// Runs the collected rows and empties the collection.
static bd_status compute_lone_rows(computed *c, bench *b, lone_rows *lone, bd_error *err)
{
    const bd_boundaries boundaries = {lone->n, b->batch.boundaries.seq_len, lone->offsets,
                                      lone->values};
    bd_model_batch batch = bd_model_batch_of(lone->ids, b->batch.id_bytes, boundaries);
    batch.mask = mask_of_copies(&lone->mask);
    double loss_sum = 0;
    BD_TRY(bd_model_train(&b->model, &batch, loss_scale(b), &loss_sum, err));
    c->loss_sum += loss_sum;
    BD_TRY(gather_activations(&c->relu, b, lone, err));
    lone->n = 0;
    return BD_OK;
}

static bd_status compute_alone(computed *c, bench *b, bd_error *err)
{
    const bd_boundaries *boundaries = &b->batch.boundaries;
    lone_rows lone = {0};
    bd_status status = new_computed(c, b, err);
    if (status == BD_OK)
        status = new_lone_rows(&lone, b, &c->relu, err);
    for (int64_t r = 0; status == BD_OK && r < boundaries->n_rows; r++) {
        int64_t n_segments;
        const int32_t *bounds = bd_row_bounds(boundaries, r, &n_segments);
        for (int64_t k = 0; status == BD_OK && k < n_segments; k++) {
            add_lone_row(&lone, &b->batch, r, bounds[k], bounds[k + 1]);
            if (lone.n == boundaries->n_rows)
                status = compute_lone_rows(c, b, &lone, err);
        }
    }
    if (status == BD_OK && lone.n > 0)
        status = compute_lone_rows(c, b, &lone, err);
    if (status == BD_OK)
        status = bd_model_get_gradients(&b->model, c->gradients, err);
    release_lone_rows(&lone);
    return status;
}

// ---- Exact ------------------------------------------------------------------------------

// D, computed with the sides that the kernels' ReLUs took alone, and with those they took
// packed. `packed` is empty if the sides are the same, as they mostly are.
typedef struct expected {
    bd_exact alone, packed;  // owned
    bd_uncertainty own;      // owned, unless the experiment keeps it
    const bd_uncertainty *uncertainty;
} expected;

static bd_status compute_expected(expected *x, const bd_experiment *e, const bench *b,
                                  const computed *alone, const computed *packed,
                                  bd_sabotage sabotage, bd_error *err)
{
    const int64_t n = e->parameters->n_total;
    double *weights = malloc((size_t)n * sizeof *weights);  // as the kernels use them
    if (!weights)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the weights");
    for (int64_t i = 0; i < n; i++)
        weights[i] = e->type == BD_BF16 ? bd_float_of_bf16(bd_bf16_of_float(e->weights[i]))
                                        : e->weights[i];
    const bd_reference_task task = {.parameters = e->parameters,
                                    .weights = weights,
                                    .type = e->type,
                                    .loss = e->loss,
                                    .batch = &b->batch,
                                    .threads = e->threads};
    bd_uncertainty *kept = e->uncertainty ? e->uncertainty : &x->own;
    bd_status status = kept->noise ? bd_exact_init(&x->alone, &task, alone->relu.layers, err)
                                   : bd_exact_init_with_uncertainty(&x->alone, kept, &task,
                                                                    alone->relu.layers, err);
    x->uncertainty = kept;
    // With a sabotage other sides are its effect, not rounding.
    if (status == BD_OK && sabotage == BD_SABOTAGE_NONE &&
        !same_sides(&alone->relu, &packed->relu))
        status = bd_exact_init(&x->packed, &task, packed->relu.layers, err);
    free(weights);
    return status;
}

static void release_expected(expected *x)
{
    bd_exact_release(&x->alone);
    bd_exact_release(&x->packed);
    bd_uncertainty_release(&x->own);
}

// ---- The comparison ---------------------------------------------------------------------

static double ratio_of(double difference, double bound)
{
    if (difference == 0.0 && bound >= 0.0)
        return 0.0;
    // Infinite differences and bounds never agree, not even with each other.
    return isfinite(difference) && isfinite(bound) && bound > 0.0 ? difference / bound
                                                                  : INFINITY;
}

// Compares element i of the flat arrays.
static bd_proof_line compare_element(int64_t i, const computed *packed, const computed *alone,
                                     const expected *x, double sum_rounding)
{
    const double exact = x->alone.gradients[i];
    const double exact_packed = x->packed.gradients ? x->packed.gradients[i] : exact;
    const double p = packed->gradients[i], a = alone->gradients[i];
    bd_proof_line line = {
        .gradient = exact,
        .packed_difference = fabs(p - exact_packed),
        .alone_difference = fabs(a - exact),
        .packed_to_alone = fabs(p - a),
        .noise = x->uncertainty->noise[i],
        .magnitude = x->uncertainty->magnitudes[i],
        .bound =
            bd_tolerance(x->uncertainty->noise[i], x->uncertainty->magnitudes[i], sum_rounding),
    };
    const double of_alone = ratio_of(line.alone_difference, line.bound);
    line.ratio = fmax(ratio_of(line.packed_difference, line.bound), of_alone);
    if (line.ratio <= 1.0)
        line.verdict = BD_PROOF_AGREES;
    else if (line.ratio < BD_PROOF_ROUNDING_RATIO)
        line.verdict = BD_PROOF_ROUNDING;
    else
        line.verdict = of_alone > 1.0 ? BD_PROOF_KERNEL : BD_PROOF_LEAK;
    return line;
}

static bd_status compare_gradients(bd_proof *proof, const bd_parameters *parameters,
                                   bd_type type, const computed *packed, const computed *alone,
                                   const expected *x, bd_error *err)
{
    proof->lines = calloc(parameters->n, sizeof *proof->lines);
    if (!proof->lines)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parameters", parameters->n);
    proof->n_lines = parameters->n;
    const double sum_rounding = bd_sum_rounding(proof->longest_sum, type);
    for (size_t l = 0; l < parameters->n; l++) {
        const bd_parameter *parameter = &parameters->items[l];
        bd_proof_line *line = &proof->lines[l];
        line->ratio = -1.0;
        for (int64_t i = 0; i < parameter->n; i++) {
            bd_proof_line element =
                compare_element(parameter->offset + i, packed, alone, x, sum_rounding);
            element.element = i;
            if (element.ratio > line->ratio)
                *line = element;
        }
        line->parameter = parameter;
        line->zero_by_mathematics = parameter->role == BD_ROLE_KEY_BIAS;
        proof->n_disagree += line->verdict != BD_PROOF_AGREES;
        proof->worst_ratio = fmax(proof->worst_ratio, line->ratio);
    }
    return BD_OK;
}

static void describe_proof(bd_proof *proof, const bench *b, const computed *packed,
                           const computed *alone, const expected *x)
{
    const double n_terms = (double)bd_loss_terms(b->batch.targets, b->model.loss);
    proof->n_rows = b->batch.boundaries.n_rows;
    proof->n_segments = bd_count_segments(&b->batch.boundaries);
    proof->n_targets = b->batch.targets.n_targets;
    proof->loss_packed = packed->loss_sum / n_terms;
    proof->loss_alone = alone->loss_sum / n_terms;
    proof->loss_exact = x->alone.loss_sum / n_terms;
    proof->n_kinks = x->alone.n_kinks;
    // Alone, every segment is a row, and the head adds its gradients row by row.
    proof->longest_sum = BD_LONGEST_SUM + proof->n_segments * (1 + b->batch.boundaries.seq_len /
                                                                       BD_LONGEST_SUM_GROUP);
}

static bd_status probe_bench(bd_probe *probe, bench *b, bd_error *err)
{
    return bd_probe_batch(probe, &b->model, &b->batch, 0, b->batch.boundaries.n_rows,
                          BD_PROBED_DOCUMENTS, err);
}

bd_status bd_prove(bd_proof *proof, const bd_experiment *experiment, bd_sabotage sabotage,
                   bd_error *err)
{
    *proof = (bd_proof){0};
    bench b = {0};
    computed packed = {0}, alone = {0};
    expected x = {0};
    bd_status status = check_sabotage(experiment, sabotage, err);
    if (status == BD_OK)
        status = set_up(&b, experiment, err);
    if (status == BD_OK)
        status = check_masked(&b, sabotage, err);
    if (status == BD_OK)
        status = check_proof_memory(&b, experiment, err);
    if (status == BD_OK)
        status = compute_packed(&packed, &b, sabotage, err);
    if (status == BD_OK)
        status = compute_alone(&alone, &b, err);
    if (status == BD_OK)
        status = compute_expected(&x, experiment, &b, &alone, &packed, sabotage, err);
    if (status == BD_OK) {
        describe_proof(proof, &b, &packed, &alone, &x);
        status = compare_gradients(proof, experiment->parameters, experiment->type, &packed,
                                   &alone, &x, err);
    }
    if (status == BD_OK && sabotage == BD_SABOTAGE_NONE) {
        status = probe_bench(&proof->probe, &b, err);
        proof->proved = proof->n_disagree == 0 && bd_probe_is_clean(&proof->probe);
    }
    release_expected(&x);
    release_computed(&packed);
    release_computed(&alone);
    tear_down(&b);
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
        status = probe_bench(probe, &b, err);
    tear_down(&b);
    return status;
}
