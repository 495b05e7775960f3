#include "trainer/training.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "trainer/step_work.h"

bd_status bd_check_fit(const bd_model_config *config, const bd_rows *rows, bd_error *err)
{
    const bd_packing *packing = bd_rows_packing(rows);
    const int64_t longest = bd_rows_longest_segment(rows);
    if (packing->vocab_size != config->n_vocabulary)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model has a vocabulary of %" PRId64
                       ", the dataset's tokenizer '%s' of %" PRId64,
                       config->n_vocabulary, packing->tokenizer, packing->vocab_size);
    if (longest > config->n_positions)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "the model has %" PRId64 " positions, the dataset a segment of %" PRId64
                       " tokens",
                       config->n_positions, longest);
    return BD_OK;
}

// ---- Beginning and end ------------------------------------------------------------------

// The backend's memory with what `from` holds, or zeros if that is NULL.
static bd_status new_block(bd_training *training, void **block, const void *from,
                           size_t size_bytes, bd_error *err)
{
    const bd_operations *operations = training->backend->operations;
    BD_TRY(operations->allocate(training->backend, size_bytes, block, err));
    return from ? operations->upload(training->backend, *block, from, size_bytes, err) : BD_OK;
}

static bd_status new_moment(bd_training *training, float **moment, const float *from,
                            bd_error *err)
{
    void *block = NULL;
    const bd_status status = new_block(
        training, &block, from, (size_t)training->parameters->n_total * sizeof **moment, err);
    *moment = block;
    return status;
}

// The parameters' own weight decays, for the optimizer.
static bd_status new_parts(bd_training *training, bd_error *err)
{
    const bd_parameters *parameters = training->parameters;
    bd_adamw_part *parts = calloc(parameters->n, sizeof *parts);
    if (!parts)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parameters", parameters->n);
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        parts[i].end = parameter->offset + parameter->n;
        if (bd_parameter_decays(parameter))
            parts[i].weight_decay = (float)training->settings.weight_decay;
    }
    void *block = NULL;
    const bd_status status =
        new_block(training, &block, parts, parameters->n * sizeof *parts, err);
    training->parts = block;
    free(parts);
    return status;
}

bd_status bd_training_init(bd_training *training, const bd_training_settings *settings,
                           const bd_rows *rows, const bd_parameters *parameters,
                           bd_backend *backend, int64_t step, const float *weights,
                           const float *m, const float *v, bd_error *err)
{
    *training = (bd_training){
        .settings = *settings,
        .rows = rows,
        .parameters = parameters,
        .backend = backend,
        .step = step,
    };
    int64_t first_place;
    bd_status status = bd_check_fit(&parameters->config, rows, err);
    if (status == BD_OK && !bd_int64_mul(step, settings->batch_rows, &first_place))
        status = bd_fail(err, BD_ERR_ARGUMENT, "step %" PRId64 " is too far", step);
    if (status == BD_OK)
        status = (settings->recomputes ? bd_model_init_recomputing : bd_model_init)(
            &training->model, backend, parameters, settings->type, settings->micro_batch_rows,
            bd_rows_packing(rows)->seq_len, err);
    if (status == BD_OK && weights)
        status = bd_model_set_weights(&training->model, weights, err);
    if (status == BD_OK)
        status = new_moment(training, &training->m, m, err);
    if (status == BD_OK)
        status = new_moment(training, &training->v, v, err);
    if (status == BD_OK)
        status = new_parts(training, err);
    if (status == BD_OK)
        status = bd_loader_new(&training->loader, rows, settings->seed, settings->batch_rows,
                               first_place, err);
    if (status != BD_OK)
        bd_training_release(training);
    return status;
}

void bd_training_release(bd_training *training)
{
    bd_loader_free(training->loader);
    if (training->backend) {
        training->backend->operations->release(training->backend, training->m);
        training->backend->operations->release(training->backend, training->v);
        training->backend->operations->release(training->backend, training->parts);
        bd_model_release(&training->model);
    }
    *training = (bd_training){0};
}

// ---- One step ---------------------------------------------------------------------------

bd_model_batch bd_batch_part(const bd_batch *batch, int64_t first, int64_t n)
{
    const bd_boundaries boundaries = {n, batch->boundaries.seq_len,
                                      batch->boundaries.offsets + first,
                                      batch->boundaries.values};
    return (bd_model_batch){
        .ids = (const char *)batch->ids + first * batch->boundaries.seq_len * batch->id_bytes,
        .id_bytes = batch->id_bytes,
        .attention = boundaries,
        .positions = boundaries,
        .targets = boundaries,
    };
}

// The micro-batch that begins with row `first` of the batch.
static bd_model_batch micro_batch(const bd_training *training, const bd_batch *batch,
                                  int64_t first)
{
    const int64_t left = batch->boundaries.n_rows - first;
    const int64_t most = training->settings.micro_batch_rows;
    return bd_batch_part(batch, first, left < most ? left : most);
}

// The micro-batch after the one that begins with row `first`, maybe of the next batch. Whether
// there is one to be had already: it travels ahead then.
static bool peek_micro_batch(bd_training *training, const bd_batch *batch, int64_t first,
                             bd_model_batch *next)
{
    first += training->settings.micro_batch_rows;
    if (first >= batch->boundaries.n_rows) {
        batch = bd_loader_peek(training->loader);
        first = 0;
    }
    if (!batch)
        return false;
    *next = micro_batch(training, batch, first);
    return true;
}

static bd_status compute_gradients(bd_training *training, const bd_batch *batch,
                                   double *loss_sum, bd_error *err)
{
    const double scale = batch->n_targets > 0 ? 1.0 / (double)batch->n_targets : 0.0;
    const int64_t n_rows = batch->boundaries.n_rows;
    BD_TRY(bd_model_zero_gradients(&training->model, err));
    *loss_sum = 0;
    for (int64_t first = 0; first < n_rows; first += training->settings.micro_batch_rows) {
        const bd_model_batch part = micro_batch(training, batch, first);
        bd_model_batch next;
        const bool has_next = peek_micro_batch(training, batch, first, &next);
        double part_sum;
        BD_TRY(bd_model_train(&training->model, &part, has_next ? &next : NULL, scale,
                              &part_sum, err));
        *loss_sum += part_sum;
    }
    return BD_OK;
}

static bd_status gradient_norm(bd_training *training, double *norm, bd_error *err)
{
    double sum;
    const bd_sum_of_squares_args args = {training->parameters->n_total,
                                         training->model.gradients, &sum};
    BD_TRY(training->backend->operations->sum_of_squares(training->backend, &args, err));
    *norm = sqrt(sum);
    return BD_OK;
}

static bd_status update_weights(bd_training *training, int64_t step, double learning_rate,
                                double gradient_scale, bd_error *err)
{
    const bd_training_settings *s = &training->settings;
    const bd_model *model = &training->model;
    const bd_adamw_args args = {
        .n = training->parameters->n_total,
        .step = step,
        .learning_rate = (float)learning_rate,
        .beta1 = (float)s->beta1,
        .beta2 = (float)s->beta2,
        .epsilon = (float)s->epsilon,
        .gradient_scale = (float)gradient_scale,
        .n_parts = (int64_t)training->parameters->n,
        .parts = training->parts,
        .gradient = model->gradients,
        .parameter = model->masters,
        .m = training->m,
        .v = training->v,
        .rounded = model->type == BD_BF16 ? model->weights : NULL,
    };
    return training->backend->operations->adamw(training->backend, &args, err);
}

static bd_status fail_not_a_number(const bd_batch *batch, const char *what, int64_t step,
                                   double value, bd_error *err)
{
    enum { LONGEST_ITEM = 24 };  // a row's number, or that there are more
    char rows[200] = "";
    const int64_t n = batch->boundaries.n_rows;
    for (int64_t i = 0; i < n; i++) {
        const size_t length = strlen(rows), left = sizeof rows - length;
        if (left < 2 * LONGEST_ITEM && n - i > 1) {
            snprintf(rows + length, left, " and %" PRId64 " more", n - i);
            break;
        }
        snprintf(rows + length, left, "%s%" PRId64, i > 0 ? ", " : "", batch->row_numbers[i]);
    }
    return bd_fail(err, BD_ERR_FORMAT, "the %s of step %" PRId64 " is %f, on rows %s", what,
                   step, value, rows);
}

bd_status bd_training_step(bd_training *training, bd_step_result *result, bd_error *err)
{
    const bd_training_settings *s = &training->settings;
    const int64_t step = training->step + 1;
    const bd_batch *batch;
    double loss_sum, norm;
    BD_TRY(bd_loader_next(training->loader, &batch, err));
    training->batch = batch;
    BD_TRY(compute_gradients(training, batch, &loss_sum, err));
    BD_TRY(gradient_norm(training, &norm, err));
    const double loss = batch->n_targets > 0 ? loss_sum / (double)batch->n_targets : 0.0;
    if (!isfinite(loss))
        return fail_not_a_number(batch, "loss", step, loss, err);
    if (!isfinite(norm))
        return fail_not_a_number(batch, "gradient's norm", step, norm, err);
    const double clip = s->clip_norm > 0 ? s->clip_norm / (norm + 1e-6) : 1.0;
    const double learning_rate = bd_learning_rate(s, step);
    const bd_step_outcome outcome =
        bd_history_add(&training->history, batch->n_targets, norm, s->skip_spikes);
    if (outcome == BD_STEP_APPLIED)
        BD_TRY(update_weights(training, step, learning_rate, clip < 1.0 ? clip : 1.0, err));
    training->step = step;
    *result = (bd_step_result){
        .step = step,
        .outcome = outcome,
        .loss = loss,
        .gradient_norm = norm,
        .learning_rate = learning_rate,
        .n_targets = batch->n_targets,
        .n_tokens = batch->boundaries.n_rows * batch->boundaries.seq_len,
    };
    bd_count_work(&batch->boundaries, &result->n_used, &result->n_pairs);
    return BD_OK;
}
