#include "trainer/step.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/cli/human.h"
#include "trainer/data/balance.h"
#include "trainer/data/step_work.h"

// ---- Beginning and end ------------------------------------------------------------------

bd_status bd_training_measure(bd_training_size *size, const bd_hyperparameters *h,
                              const bd_parameters *parameters, int64_t seq_len,
                              const bd_group *group, bd_error *err)
{
    if (h->batch_rows < group->n_ranks)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "a batch of %" PRId64 " rows leaves some of %d ranks without a row: "
                       "--batch needs one for each",
                       h->batch_rows, (int)group->n_ranks);
    const int64_t n_micro_batches =
        bd_balance_micro_batches(h->batch_rows, h->micro_batch_rows, group->n_ranks);
    *size = (bd_training_size){
        .model = {.type = h->type,
                  .recomputes = h->recomputes,
                  .max_rows =
                      bd_balance_most_rows(h->batch_rows, group->n_ranks, n_micro_batches),
                  .seq_len = seq_len,
                  .z_loss = h->z_loss,
                  .loss = h->loss},
    };
    int64_t *bounds = calloc((size_t)group->n_ranks + 1, sizeof *bounds);
    if (!bounds)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the slices of %d ranks",
                       (int)group->n_ranks);
    bd_optimizer_divide(h->optimizer, parameters, group->n_ranks, bounds);
    size->optimizer_bytes = bd_optimizer_measure(
        h, parameters, bd_rank_slice_of(bounds, group->rank), group->n_ranks);
    free(bounds);
    BD_TRY(bd_model_measure(parameters, &size->model, &size->memory, err));
    size->total_bytes = size->memory.total + size->optimizer_bytes;
    return BD_OK;
}

// Fails if the backend has too little memory: a system that overcommits would grant it, and kill
// the process when it is used.
static bd_status check_trainer_memory(const bd_training_size *size, bd_backend *backend,
                                      bd_error *err)
{
    size_t free_bytes;
    BD_TRY(backend->operations->free_memory(backend, &free_bytes, err));
    if (size->total_bytes <= free_bytes)
        return BD_OK;
    return bd_fail(err, BD_ERR_MEMORY,
                   "training takes %s of the memory of %s, and %s are free: a smaller "
                   "--micro-batch (now %" PRId64 " rows of %" PRId64
                   " tokens)%s, a smaller --preset or shorter rows (bindery repack --seq-len) "
                   "take less; --dry-run says what takes how much",
                   bd_format_bytes(size->total_bytes).text, backend->operations->name,
                   bd_format_bytes(free_bytes).text, size->model.max_rows, size->model.seq_len,
                   size->model.recomputes ? "" : ", --recompute");
}

static bd_status divide_parameters(bd_trainer *trainer, bd_error *err)
{
    const bd_parameters *parameters = trainer->needs.parameters;
    const bd_optimizer_kind optimizer = trainer->hyperparameters.optimizer;
    const int32_t n_ranks = trainer->needs.group->n_ranks;
    trainer->bounds = calloc((size_t)n_ranks + 1, sizeof *trainer->bounds);
    trainer->v_bounds = calloc((size_t)n_ranks + 1, sizeof *trainer->v_bounds);
    if (!trainer->bounds || !trainer->v_bounds)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the slices of %d ranks",
                       (int)n_ranks);
    bd_optimizer_divide(optimizer, parameters, n_ranks, trainer->bounds);
    for (int32_t r = 0; r <= n_ranks; r++)
        trainer->v_bounds[r] =
            bd_second_moments_before(optimizer, parameters, trainer->bounds[r]);
    return BD_OK;
}

static bd_status fill_trainer(bd_trainer *trainer, bd_error *err)
{
    const bd_hyperparameters *h = &trainer->hyperparameters;
    const bd_trainer_needs *needs = &trainer->needs;
    const int32_t n_ranks = needs->group->n_ranks;
    bd_training_size size;
    BD_TRY(bd_check_fit(&needs->parameters->config, needs->rows, err));
    BD_TRY(bd_training_measure(&size, h, needs->parameters,
                               bd_rows_config(needs->rows)->seq_len, needs->group, err));
    BD_TRY(check_trainer_memory(&size, needs->backend, err));
    BD_TRY(divide_parameters(trainer, err));
    BD_TRY(bd_model_init(&trainer->model, needs->backend, needs->parameters, &size.model, err));
    trainer->trained_weights = trainer->model.weights;
    BD_TRY(bd_optimizer_init(&trainer->optimizer, h, needs->parameters, needs->backend,
                             bd_rank_slice_of(trainer->bounds, needs->group->rank), n_ranks,
                             err));
    bd_loader_order order = {
        .seed = (uint64_t)h->seed,
        .batch_rows = h->batch_rows,
        .n_ranks = n_ranks,
        .n_micro_batches = trainer->n_micro_batches,
    };
    if (!bd_int64_mul(trainer->step, h->batch_rows, &order.first_place))
        return bd_fail(err, BD_ERR_ARGUMENT, "step %" PRId64 " is too far", trainer->step);
    return bd_loader_new(&trainer->loader, needs->rows, &order, err);
}

bd_status bd_trainer_init(bd_trainer *trainer, const bd_hyperparameters *hyperparameters,
                          const bd_trainer_needs *needs, int64_t step, bd_error *err)
{
    const bd_group *group = needs->group;
    *trainer = (bd_trainer){
        .hyperparameters = *hyperparameters,
        .needs = *needs,
        .n_micro_batches = bd_balance_micro_batches(
            hyperparameters->batch_rows, hyperparameters->micro_batch_rows, group->n_ranks),
        .step = step,
    };
    const bd_status status = fill_trainer(trainer, err);
    if (status != BD_OK)
        bd_trainer_release(trainer);
    return status;
}

void bd_trainer_release(bd_trainer *trainer)
{
    bd_backend *backend = trainer->needs.backend;
    bd_loader_free(trainer->loader);
    bd_optimizer_release(&trainer->optimizer);
    free(trainer->bounds);
    free(trainer->v_bounds);
    if (backend)
        bd_model_release(&trainer->model);
    *trainer = (bd_trainer){0};
}

// ---- One step ---------------------------------------------------------------------------

// The rows [*first, *first + *n) of micro-batch `number` of this rank.
static void find_rows(const bd_trainer *trainer, const bd_balanced_batch *balanced,
                      int64_t number, int64_t *first, int64_t *n)
{
    const int64_t part = trainer->needs.group->rank * trainer->n_micro_batches + number;
    *first = part > 0 ? balanced->part_ends[part - 1] : 0;
    *n = balanced->part_ends[part] - *first;
}

static bd_model_batch micro_batch(const bd_trainer *trainer, const bd_balanced_batch *balanced,
                                  int64_t number)
{
    int64_t first, n;
    find_rows(trainer, balanced, number, &first, &n);
    return bd_batch_part(&balanced->batch, first, n);
}

// The micro-batch after `number`, which may be the first of the next batch; false if that is not
// loaded yet. (The last micro-batch of a batch may have no rows, the first one always has.)
static bool peek_micro_batch(bd_trainer *trainer, int64_t number, bd_model_batch *next)
{
    if (++number < trainer->n_micro_batches) {
        *next = micro_batch(trainer, trainer->balanced, number);
        if (next->attention.n_rows > 0)
            return true;
    }
    const bd_balanced_batch *balanced = bd_loader_peek(trainer->loader);
    if (!balanced)
        return false;
    *next = micro_batch(trainer, balanced, 0);
    return true;
}

// Adds up the gradients of this rank's rows. Each micro-batch is computed while the next one is
// on its way to the device.
static bd_status compute_gradients(bd_trainer *trainer, double *loss_sum, bd_error *err)
{
    const double scale =
        bd_loss_scale(trainer->balanced->batch.targets, trainer->hyperparameters.loss);
    BD_TRY(bd_model_zero_gradients(&trainer->model, err));
    *loss_sum = 0;
    for (int64_t i = 0; i < trainer->n_micro_batches; i++) {
        const bd_model_batch part = micro_batch(trainer, trainer->balanced, i);
        if (part.attention.n_rows == 0)
            break;
        bd_model_batch next;
        const bool has_next = peek_micro_batch(trainer, i, &next);
        double part_sum;
        if (!bd_is_sent(&trainer->sent))
            BD_TRY(bd_model_send(&trainer->model, &part, &trainer->sent, err));
        BD_TRY(bd_model_train_sent(&trainer->model, &trainer->sent, has_next ? &next : NULL,
                                   scale, &part_sum, err));
        *loss_sum += part_sum;
    }
    return BD_OK;
}

// Moves this rank's slice of the weights, and sends it to all ranks.
static bd_status update_weights(bd_trainer *trainer, int64_t step, double learning_rate,
                                double gradient_scale, bd_error *err)
{
    const bd_trainer_needs *needs = &trainer->needs;
    const bd_model *model = &trainer->model;
    BD_TRY(bd_optimizer_step(&trainer->optimizer, &trainer->hyperparameters, model, step,
                             learning_rate, gradient_scale, err));
    if (needs->group->n_ranks == 1)
        return BD_OK;
    return needs->collectives->operations->gather_slices(
        needs->collectives, model->weights, trainer->bounds, bd_type_bytes(model->type), err);
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

bd_status bd_trainer_step(bd_trainer *trainer, bd_step_result *result, bd_error *err)
{
    const bd_hyperparameters *h = &trainer->hyperparameters;
    const bd_trainer_needs *needs = &trainer->needs;
    bd_group *group = needs->group;
    const bd_rank_slice slice = trainer->optimizer.slice;
    const int64_t step = trainer->step + 1;

    // A damaged row is the same for all ranks: they agree to fail, and one of them reports it.
    const bd_status loaded = bd_loader_next(trainer->loader, &trainer->balanced, err);
    BD_TRY(bd_group_agree(group, loaded, err));
    const bd_batch *batch = &trainer->balanced->batch;
    double sums[] = {0, 0};  // of losses, and of squares of gradients
    BD_TRY(compute_gradients(trainer, &sums[0], err));

    // Each rank has gradients of its own rows. It gets the sum over all ranks for its own slice
    // of the parameters; loss and norm are sums over what the ranks have.
    const bd_sum_of_squares_args squares = {slice.end - slice.begin,
                                            trainer->model.gradients + slice.begin, &sums[1]};
    if (group->n_ranks > 1)
        BD_TRY(needs->collectives->operations->sum_slices(
            needs->collectives, trainer->model.gradients, trainer->bounds, err));
    BD_TRY(needs->backend->operations->sum_of_squares(needs->backend, &squares, err));
    BD_TRY(bd_group_sum(group, sums, 2, err));
    const int64_t n_targets = batch->targets.n_targets;
    const int64_t n_terms = bd_loss_terms(batch->targets, h->loss);
    const double loss = n_terms > 0 ? sums[0] / (double)n_terms : 0.0;
    const double norm = sqrt(sums[1]);
    if (!isfinite(loss))
        return bd_group_agree(group, fail_not_a_number(batch, "loss", step, loss, err), err);
    if (!isfinite(norm))
        return bd_group_agree(
            group, fail_not_a_number(batch, "gradient's norm", step, norm, err), err);

    const double clip = h->clip_norm > 0 ? h->clip_norm / (norm + 1e-6) : 1.0;
    const double learning_rate = bd_learning_rate(h, step);
    const bd_step_outcome outcome =
        bd_spike_guard_add(&trainer->spike_guard, n_targets, norm, h->skip_spikes);
    if (outcome == BD_STEP_APPLIED)
        BD_TRY(update_weights(trainer, step, learning_rate, clip < 1.0 ? clip : 1.0, err));
    trainer->step = step;
    *result = (bd_step_result){
        .step = step,
        .outcome = outcome,
        .loss = loss,
        .gradient_norm = norm,
        .learning_rate = learning_rate,
        .n_targets = n_targets,
        .n_tokens = batch->boundaries.n_rows * batch->boundaries.seq_len,
        .work = bd_count_work(&batch->boundaries, needs->parameters->config.window),
    };
    return BD_OK;
}

const bd_batch *bd_trainer_first_rows(const bd_trainer *trainer, int64_t *first, int64_t *n)
{
    find_rows(trainer, trainer->balanced, 0, first, n);
    return &trainer->balanced->batch;
}

// ---- The average ----------------------------------------------------------------------------

bd_status bd_trainer_show_average(bd_trainer *trainer, bd_error *err)
{
    const bd_trainer_needs *needs = &trainer->needs;
    const bd_optimizer *optimizer = &trainer->optimizer;
    const bd_rank_slice slice = optimizer->slice;
    bd_model *model = &trainer->model;
    const size_t number_bytes = bd_type_bytes(model->type);
    if (trainer->hyperparameters.average == 0)
        return BD_OK;
    if (!optimizer->averaged) {
        model->weights = optimizer->average;
        return BD_OK;
    }
    const bd_average_args copy = {
        .n = slice.end - slice.begin,
        .average = optimizer->average,
        .type = model->type,
        .copy = (char *)optimizer->averaged + (size_t)slice.begin * number_bytes,
    };
    BD_TRY(needs->backend->operations->average(needs->backend, &copy, err));
    if (needs->group->n_ranks > 1)
        BD_TRY(needs->collectives->operations->gather_slices(
            needs->collectives, optimizer->averaged, trainer->bounds, number_bytes, err));
    model->weights = optimizer->averaged;
    return BD_OK;
}

void bd_trainer_show_trained(bd_trainer *trainer)
{
    trainer->model.weights = trainer->trained_weights;
}

// ---- For checkpoints ------------------------------------------------------------------------

// Assembles on rank 0 an array whose slices lie in the memory of the ranks' backends.
static bd_status assemble_array(const bd_trainer *trainer, const int64_t *bounds,
                                const float *slice, float *whole, bd_error *err)
{
    bd_group *group = trainer->needs.group;
    bd_backend *backend = trainer->needs.backend;
    const bd_rank_slice own = bd_rank_slice_of(bounds, group->rank);
    const size_t size_bytes = (size_t)(own.end - own.begin) * sizeof *slice;
    if (group->n_ranks == 1)
        return backend->operations->download(backend, whole, slice, size_bytes, err);
    if (backend->operations->works_on_host)
        return group->operations->assemble(group, slice, whole, bounds, err);
    float *copy = malloc(size_bytes + 1);
    if (!copy)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu bytes of a checkpoint",
                       size_bytes);
    bd_status status = backend->operations->download(backend, copy, slice, size_bytes, err);
    if (status == BD_OK)
        status = group->operations->assemble(group, copy, whole, bounds, err);
    free(copy);
    return status;
}

bd_status bd_trainer_assemble(const bd_trainer *trainer, float *const arrays[BD_STATE_ARRAYS],
                              bd_error *err)
{
    const bd_optimizer *optimizer = &trainer->optimizer;
    const int64_t *bounds = trainer->bounds;
    const float *weights = trainer->model.masters + optimizer->slice.begin;
    BD_TRY(assemble_array(trainer, bounds, weights, arrays[BD_STATE_WEIGHTS], err));
    BD_TRY(assemble_array(trainer, bounds, optimizer->m, arrays[BD_STATE_M], err));
    BD_TRY(assemble_array(trainer, trainer->v_bounds, optimizer->v, arrays[BD_STATE_V], err));
    if (trainer->hyperparameters.average == 0)
        return BD_OK;
    return assemble_array(trainer, bounds, optimizer->average, arrays[BD_STATE_AVERAGE], err);
}
