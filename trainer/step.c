#include "trainer/step.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/size.h"
#include "common/cli/human.h"
#include "trainer/data/balance.h"
#include "trainer/data/step_work.h"

// ---- Beginning and end ------------------------------------------------------------------

// The backend's memory with what `from` holds, or zeros if that is NULL.
static bd_status new_block(bd_training *training, void **block, const void *from,
                           size_t size_bytes, bd_error *err)
{
    bd_backend *backend = training->needs.backend;
    BD_TRY(backend->operations->allocate(backend, size_bytes, block, err));
    return from ? backend->operations->upload(backend, *block, from, size_bytes, err) : BD_OK;
}

static bd_status new_moment(bd_training *training, float **moment, const float *from,
                            bd_error *err)
{
    void *block = NULL;
    const int64_t n = training->slice.end - training->slice.begin;
    const bd_status status =
        new_block(training, &block, from, (size_t)n * sizeof **moment, err);
    *moment = block;
    return status;
}

// The weight decays of the parameters in the slice, which may begin and end inside of them.
static int64_t fill_parts(const bd_training *training, bd_adamw_part *parts)
{
    const bd_parameters *parameters = training->needs.parameters;
    const bd_rank_slice slice = training->slice;
    int64_t n = 0;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        const int64_t end = parameter->offset + parameter->n;
        if (end <= slice.begin || parameter->offset >= slice.end)
            continue;
        parts[n++] = (bd_adamw_part){
            .end = (end < slice.end ? end : slice.end) - slice.begin,
            .weight_decay =
                bd_parameter_decays(parameter) ? (float)training->settings.weight_decay : 0.0f,
        };
    }
    return n;
}

static bd_status new_parts(bd_training *training, bd_error *err)
{
    const size_t n = training->needs.parameters->n;
    bd_adamw_part *parts = calloc(n, sizeof *parts);
    if (!parts)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parameters", n);
    void *block = NULL;
    training->n_parts = fill_parts(training, parts);
    const bd_status status =
        new_block(training, &block, parts, (size_t)training->n_parts * sizeof *parts, err);
    training->parts = block;
    free(parts);
    return status;
}

static bd_status new_loader(bd_training *training, bd_error *err)
{
    const bd_training_settings *s = &training->settings;
    bd_loader_order order = {
        .seed = s->seed,
        .batch_rows = s->batch_rows,
        .n_ranks = training->needs.group->n_ranks,
        .n_micro_batches = training->n_micro_batches,
    };
    if (!bd_int64_mul(training->step, s->batch_rows, &order.first_place))
        return bd_fail(err, BD_ERR_ARGUMENT, "step %" PRId64 " is too far", training->step);
    return bd_loader_new(&training->loader, training->needs.rows, &order, err);
}

static bd_status check_ranks(const bd_training_settings *settings, const bd_group *group,
                             bd_error *err)
{
    if (settings->batch_rows >= group->n_ranks)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "a batch of %" PRId64
                   " rows leaves some of %d ranks without a row: --batch needs one for each",
                   settings->batch_rows, (int)group->n_ranks);
}

// Before memory is asked for that the system would give, and then end us for taking it.
static bd_status check_memory(const bd_training *training, int64_t most_rows, bd_error *err)
{
    const bd_training_settings *s = &training->settings;
    const bd_training_needs *needs = &training->needs;
    const int64_t seq_len = bd_rows_packing(needs->rows)->seq_len;
    size_t needed, free_bytes;
    BD_TRY(bd_model_measure(needs->parameters, s->type, s->recomputes, most_rows, seq_len,
                            &needed, err));
    needed += 2 * (size_t)(training->slice.end - training->slice.begin) * sizeof(float);
    BD_TRY(needs->backend->operations->free_memory(needs->backend, &free_bytes, err));
    if (needed <= free_bytes)
        return BD_OK;
    return bd_fail(err, BD_ERR_MEMORY,
                   "training takes %s of the memory of %s, and %s are free: a smaller "
                   "--micro-batch (now %" PRId64 " rows of %" PRId64
                   " tokens)%s, a smaller --preset or shorter rows (bindery repack --seq-len) "
                   "take less",
                   bd_format_bytes(needed).text, needs->backend->operations->name,
                   bd_format_bytes(free_bytes).text, most_rows, seq_len,
                   s->recomputes ? "" : ", --recompute");
}

static bd_status new_model(bd_training *training, bd_error *err)
{
    const bd_training_settings *s = &training->settings;
    const bd_training_needs *needs = &training->needs;
    const int64_t most_rows =
        bd_deal_most_rows(s->batch_rows, needs->group->n_ranks, training->n_micro_batches);
    BD_TRY(check_memory(training, most_rows, err));
    return (s->recomputes ? bd_model_init_recomputing : bd_model_init)(
        &training->model, needs->backend, needs->parameters, s->type, most_rows,
        bd_rows_packing(needs->rows)->seq_len, err);
}

bd_status bd_training_init(bd_training *training, const bd_training_settings *settings,
                           const bd_training_needs *needs, const bd_training_start *start,
                           bd_error *err)
{
    const bd_group *group = needs->group;
    *training = (bd_training){
        .settings = *settings,
        .needs = *needs,
        .slice = bd_rank_slice_of(needs->parameters->n_total, group->rank, group->n_ranks),
        .n_micro_batches = bd_deal_micro_batches(settings->batch_rows,
                                                 settings->micro_batch_rows, group->n_ranks),
        .step = start->step,
    };
    bd_status status = bd_check_fit(&needs->parameters->config, needs->rows, err);
    if (status == BD_OK)
        status = check_ranks(settings, group, err);
    if (status == BD_OK)
        status = new_model(training, err);
    if (status == BD_OK && start->weights)
        status = bd_model_set_weights(&training->model, start->weights, err);
    if (status == BD_OK)
        status = new_moment(training, &training->m, start->m, err);
    if (status == BD_OK)
        status = new_moment(training, &training->v, start->v, err);
    if (status == BD_OK)
        status = new_parts(training, err);
    if (status == BD_OK)
        status = new_loader(training, err);
    if (status != BD_OK)
        bd_training_release(training);
    return status;
}

void bd_training_release(bd_training *training)
{
    bd_backend *backend = training->needs.backend;
    bd_loader_free(training->loader);
    if (backend) {
        backend->operations->release(backend, training->m);
        backend->operations->release(backend, training->v);
        backend->operations->release(backend, training->parts);
        bd_model_release(&training->model);
    }
    *training = (bd_training){0};
}

// ---- One step ---------------------------------------------------------------------------

// The rows [*first, *first + *n) of micro-batch `number` of this rank.
static void find_rows(const bd_training *training, const bd_dealt_batch *dealt, int64_t number,
                      int64_t *first, int64_t *n)
{
    const int64_t part = training->needs.group->rank * training->n_micro_batches + number;
    *first = part > 0 ? dealt->part_ends[part - 1] : 0;
    *n = dealt->part_ends[part] - *first;
}

static bd_model_batch micro_batch(const bd_training *training, const bd_dealt_batch *dealt,
                                  int64_t number)
{
    int64_t first, n;
    find_rows(training, dealt, number, &first, &n);
    return bd_batch_part(&dealt->batch, first, n);
}

// The micro-batch after that one, maybe of the next batch. Whether there is one to be had
// already: it travels ahead then. (The last of a batch may be without a row; the first is not.)
static bool peek_micro_batch(bd_training *training, const bd_dealt_batch *dealt, int64_t number,
                             bd_model_batch *next)
{
    if (++number < training->n_micro_batches) {
        *next = micro_batch(training, dealt, number);
        if (next->attention.n_rows > 0)
            return true;
    }
    dealt = bd_loader_peek(training->loader);
    if (!dealt)
        return false;
    *next = micro_batch(training, dealt, 0);
    return true;
}

// Of this rank's rows.
static bd_status compute_gradients(bd_training *training, const bd_dealt_batch *dealt,
                                   double *loss_sum, bd_error *err)
{
    const int64_t n_targets = dealt->batch.n_targets;
    const double scale = n_targets > 0 ? 1.0 / (double)n_targets : 0.0;
    BD_TRY(bd_model_zero_gradients(&training->model, err));
    *loss_sum = 0;
    for (int64_t i = 0; i < training->n_micro_batches; i++) {
        const bd_model_batch part = micro_batch(training, dealt, i);
        if (part.attention.n_rows == 0)
            break;
        bd_model_batch next;
        const bool has_next = peek_micro_batch(training, dealt, i, &next);
        double part_sum;
        if (!bd_is_sent(&training->sent))
            BD_TRY(bd_model_send(&training->model, &part, &training->sent, err));
        BD_TRY(bd_model_train_sent(&training->model, &training->sent, has_next ? &next : NULL,
                                   scale, &part_sum, err));
        *loss_sum += part_sum;
    }
    return BD_OK;
}

// This rank's slice of the gradients becomes the sum over all ranks.
static bd_status sum_gradients(bd_training *training, bd_error *err)
{
    bd_collectives *collectives = training->needs.collectives;
    if (training->needs.group->n_ranks == 1)
        return BD_OK;
    return collectives->operations->sum_slices(collectives, training->model.gradients,
                                               training->needs.parameters->n_total, err);
}

// The slices of the weights, each moved by its rank, reach all ranks.
static bd_status gather_weights(bd_training *training, bd_error *err)
{
    bd_collectives *collectives = training->needs.collectives;
    if (training->needs.group->n_ranks == 1)
        return BD_OK;
    return collectives->operations->gather_slices(collectives, training->model.weights,
                                                  training->needs.parameters->n_total,
                                                  bd_type_bytes(training->model.type), err);
}

// Loss and gradients of the whole batch: *loss_sum of all ranks, the norm of the summed
// gradients.
static bd_status join_gradients(bd_training *training, double *loss_sum, double *norm,
                                bd_error *err)
{
    bd_backend *backend = training->needs.backend;
    const bd_rank_slice slice = training->slice;
    double sums[] = {*loss_sum, 0};
    const bd_sum_of_squares_args args = {slice.end - slice.begin,
                                         training->model.gradients + slice.begin, &sums[1]};
    BD_TRY(sum_gradients(training, err));
    BD_TRY(backend->operations->sum_of_squares(backend, &args, err));
    BD_TRY(bd_group_sum(training->needs.group, sums, 2, err));
    *loss_sum = sums[0];
    *norm = sqrt(sums[1]);
    return BD_OK;
}

static bd_status update_weights(bd_training *training, int64_t step, double learning_rate,
                                double gradient_scale, bd_error *err)
{
    const bd_training_settings *s = &training->settings;
    const bd_model *model = &training->model;
    const bd_rank_slice slice = training->slice;
    uint16_t *rounded = model->type == BD_BF16 ? model->weights : NULL;
    const bd_adamw_args args = {
        .n = slice.end - slice.begin,
        .step = step,
        .learning_rate = (float)learning_rate,
        .beta1 = (float)s->beta1,
        .beta2 = (float)s->beta2,
        .epsilon = (float)s->epsilon,
        .gradient_scale = (float)gradient_scale,
        .n_parts = training->n_parts,
        .parts = training->parts,
        .gradient = model->gradients + slice.begin,
        .parameter = model->masters + slice.begin,
        .m = training->m,
        .v = training->v,
        .rounded = rounded ? rounded + slice.begin : NULL,
    };
    bd_backend *backend = training->needs.backend;
    BD_TRY(backend->operations->adamw(backend, &args, err));
    return gather_weights(training, err);
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
    double loss_sum, norm;
    bd_group *group = training->needs.group;
    // What all ranks meet, they agree upon: one of them speaks.
    const bd_status loaded = bd_loader_next(training->loader, &training->dealt, err);
    BD_TRY(bd_group_agree(group, loaded, err));
    const bd_batch *batch = &training->dealt->batch;
    BD_TRY(compute_gradients(training, training->dealt, &loss_sum, err));
    BD_TRY(join_gradients(training, &loss_sum, &norm, err));
    const double loss = batch->n_targets > 0 ? loss_sum / (double)batch->n_targets : 0.0;
    if (!isfinite(loss))
        return bd_group_agree(group, fail_not_a_number(batch, "loss", step, loss, err), err);
    if (!isfinite(norm))
        return bd_group_agree(
            group, fail_not_a_number(batch, "gradient's norm", step, norm, err), err);
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

const bd_batch *bd_training_first_rows(const bd_training *training, int64_t *first, int64_t *n)
{
    find_rows(training, training->dealt, 0, first, n);
    return &training->dealt->batch;
}

// ---- For checkpoints ------------------------------------------------------------------------

// Of an array whose slices lie on the ranks, each in its backend's memory.
static bd_status assemble(const bd_training *training, const float *slice, float *whole,
                          bd_error *err)
{
    bd_group *group = training->needs.group;
    bd_backend *backend = training->needs.backend;
    const int64_t n_total = training->needs.parameters->n_total;
    const size_t size_bytes =
        (size_t)(training->slice.end - training->slice.begin) * sizeof *slice;
    if (group->n_ranks == 1)
        return backend->operations->download(backend, whole, slice, size_bytes, err);
    if (backend->operations->works_on_host)
        return group->operations->assemble(group, slice, whole, n_total, err);
    float *copy = malloc(size_bytes + 1);
    if (!copy)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes of a checkpoint",
                       size_bytes);
    bd_status status = backend->operations->download(backend, copy, slice, size_bytes, err);
    if (status == BD_OK)
        status = group->operations->assemble(group, copy, whole, n_total, err);
    free(copy);
    return status;
}

bd_status bd_training_assemble(const bd_training *training,
                               float *const arrays[BD_STATE_ARRAYS], bd_error *err)
{
    const float *const slices[BD_STATE_ARRAYS] = {
        training->model.masters + training->slice.begin, training->m, training->v};
    for (int i = 0; i < BD_STATE_ARRAYS; i++)
        BD_TRY(assemble(training, slices[i], arrays[i], err));
    return BD_OK;
}
