#include "trainer/optimizer.h"

#include <stdlib.h>

// ---- Dividing the parameters ----------------------------------------------------------------

// The first parameter that does not belong to the rank that begins with `first`: the slice ends
// where it comes closest to `share` numbers, but has a parameter if one is left.
static size_t end_of_share(const bd_parameters *parameters, size_t first, int64_t share)
{
    size_t end = first;
    int64_t taken = 0;
    while (end < parameters->n) {
        const int64_t more = taken + parameters->items[end].n;
        if (end > first && more - share > share - taken)
            break;
        taken = more;
        end++;
    }
    return end;
}

void bd_optimizer_divide(bd_optimizer_kind kind, const bd_parameters *parameters,
                         int32_t n_ranks, int64_t *bounds)
{
    const int64_t n_total = parameters->n_total;
    if (kind == BD_OPTIMIZER_ADAMW) {
        bd_divide_equally(n_total, n_ranks, bounds);
        return;
    }
    size_t first = 0;
    bounds[0] = 0;
    for (int32_t r = 0; r < n_ranks; r++) {
        first = end_of_share(parameters, first, (n_total - bounds[r]) / (n_ranks - r));
        bounds[r + 1] = first < parameters->n ? parameters->items[first].offset : n_total;
    }
}

// ---- Beginning and end ----------------------------------------------------------------------

static bd_muon_args muon_of(const bd_parameter *matrix, bd_type type)
{
    return (bd_muon_args){
        .n_rows = matrix->shape[0], .n_columns = matrix->shape[1], .type = type};
}

// Whether the averages need memory of their own to be evaluated.
static bool copies_average(const bd_hyperparameters *h, int32_t n_ranks)
{
    return h->average > 0 && (h->type != BD_FLOAT || n_ranks > 1);
}

size_t bd_optimizer_measure(const bd_hyperparameters *h, const bd_parameters *parameters,
                            bd_rank_slice slice, int32_t n_ranks)
{
    size_t scratch_bytes = 0;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *parameter = &parameters->items[i];
        if (parameter->offset < slice.begin || parameter->offset >= slice.end ||
            !bd_moved_by_muon(h->optimizer, parameter))
            continue;
        const bd_muon_args muon = muon_of(parameter, h->type);
        if (bd_muon_matrix_bytes(&muon) > scratch_bytes)
            scratch_bytes = bd_muon_matrix_bytes(&muon);
    }
    const int64_t n = slice.end - slice.begin;
    const int64_t n_v = bd_second_moments_before(h->optimizer, parameters, slice.end) -
                        bd_second_moments_before(h->optimizer, parameters, slice.begin);
    const int64_t n_kept = n_v + (h->average > 0 ? 2 * n : n);
    if (copies_average(h, n_ranks))
        scratch_bytes += (size_t)parameters->n_total * bd_type_bytes(h->type);
    return (size_t)n_kept * sizeof(float) + scratch_bytes;
}

// Appends what of a parameter lies in the slice: to the last stretch if AdamW moves both.
static void add_parameter(bd_optimizer *optimizer, const bd_hyperparameters *h,
                          const bd_parameter *parameter, bd_adamw_part *parts, int64_t *n_parts)
{
    const bd_rank_slice slice = optimizer->slice;
    const int64_t parameter_end = parameter->offset + parameter->n;
    if (parameter_end <= slice.begin || parameter->offset >= slice.end)
        return;
    const int64_t end = (parameter_end < slice.end ? parameter_end : slice.end) - slice.begin;
    const bool by_muon = bd_moved_by_muon(h->optimizer, parameter);
    const size_t n = optimizer->n_stretches;
    bd_optimizer_stretch *last = n > 0 ? &optimizer->stretches[n - 1] : NULL;
    if (!last || last->matrix || by_muon) {
        const int64_t begin = last ? last->end : 0;
        last = &optimizer->stretches[optimizer->n_stretches++];
        *last = (bd_optimizer_stretch){
            .begin = begin,
            .matrix = by_muon ? parameter : NULL,
            .first_part = *n_parts,
            .first_v = optimizer->n_v,
        };
    }
    const int64_t n_more = end - (last->n_parts > 0 ? last->end : last->begin);
    last->end = end;
    if (by_muon)
        return;
    optimizer->n_v += n_more;
    last->n_parts++;
    parts[(*n_parts)++] = (bd_adamw_part){
        .end = end - last->begin,
        .weight_decay = bd_parameter_decays(parameter) ? (float)h->weight_decay : 0.0f,
        .rate_factor = (float)h->rate_factors[bd_parameter_kind_of(parameter)],
    };
}

static bd_status fill_optimizer(bd_optimizer *optimizer, const bd_hyperparameters *h,
                                const bd_parameters *parameters, int32_t n_ranks,
                                bd_adamw_part *parts, bd_error *err)
{
    bd_backend *backend = optimizer->backend;
    const bd_operations *operations = backend->operations;
    const bd_rank_slice slice = optimizer->slice;
    const size_t moment_bytes = (size_t)(slice.end - slice.begin) * sizeof(float);
    int64_t n_parts = 0;
    optimizer->stretches = calloc(parameters->n + 1, sizeof *optimizer->stretches);
    if (!parts || !optimizer->stretches)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parameters", parameters->n);
    for (size_t i = 0; i < parameters->n; i++)
        add_parameter(optimizer, h, &parameters->items[i], parts, &n_parts);
    const size_t parts_bytes = (size_t)n_parts * sizeof *parts;
    BD_TRY(operations->allocate(backend, moment_bytes, (void **)&optimizer->m, err));
    BD_TRY(operations->allocate(backend, (size_t)optimizer->n_v * sizeof(float),
                                (void **)&optimizer->v, err));
    if (h->average > 0)
        BD_TRY(operations->allocate(backend, moment_bytes, (void **)&optimizer->average, err));
    if (copies_average(h, n_ranks))
        BD_TRY(operations->allocate(backend,
                                    (size_t)parameters->n_total * bd_type_bytes(h->type),
                                    &optimizer->averaged, err));
    BD_TRY(operations->allocate(backend, parts_bytes, (void **)&optimizer->parts, err));
    return operations->upload(backend, optimizer->parts, parts, parts_bytes, err);
}

bd_status bd_optimizer_init(bd_optimizer *optimizer, const bd_hyperparameters *h,
                            const bd_parameters *parameters, bd_backend *backend,
                            bd_rank_slice slice, int32_t n_ranks, bd_error *err)
{
    *optimizer = (bd_optimizer){.backend = backend, .slice = slice};
    bd_adamw_part *parts = calloc(parameters->n + 1, sizeof *parts);
    const bd_status status = fill_optimizer(optimizer, h, parameters, n_ranks, parts, err);
    free(parts);
    if (status != BD_OK)
        bd_optimizer_release(optimizer);
    return status;
}

void bd_optimizer_release(bd_optimizer *optimizer)
{
    bd_backend *backend = optimizer->backend;
    if (backend) {
        backend->operations->release(backend, optimizer->m);
        backend->operations->release(backend, optimizer->v);
        backend->operations->release(backend, optimizer->average);
        backend->operations->release(backend, optimizer->averaged);
        backend->operations->release(backend, optimizer->parts);
    }
    free(optimizer->stretches);
    *optimizer = (bd_optimizer){0};
}

// ---- One step -------------------------------------------------------------------------------

bd_status bd_optimizer_step(bd_optimizer *optimizer, const bd_hyperparameters *h,
                            const bd_model *model, int64_t step, double learning_rate,
                            double gradient_scale, bd_error *err)
{
    bd_backend *backend = optimizer->backend;
    uint16_t *rounded = model->type == BD_BF16 ? model->weights : NULL;
    for (size_t i = 0; i < optimizer->n_stretches; i++) {
        const bd_optimizer_stretch *stretch = &optimizer->stretches[i];
        const int64_t begin = optimizer->slice.begin + stretch->begin;
        if (stretch->matrix) {
            bd_muon_args muon = muon_of(stretch->matrix, model->type);
            muon.learning_rate = (float)(learning_rate * h->rate_factors[BD_KIND_MATRIX]);
            muon.momentum = (float)h->momentum;
            muon.weight_decay = (float)h->weight_decay;
            muon.gradient_scale = (float)gradient_scale;
            muon.gradient = model->gradients + begin;
            muon.parameter = model->masters + begin;
            muon.m = optimizer->m + stretch->begin;
            muon.rounded = rounded ? rounded + begin : NULL;
            BD_TRY(backend->operations->muon(backend, &muon, err));
            continue;
        }
        const bd_adamw_args adamw = {
            .n = stretch->end - stretch->begin,
            .step = step,
            .learning_rate = (float)learning_rate,
            .beta1 = (float)h->beta1,
            .beta2 = (float)h->beta2,
            .epsilon = (float)h->epsilon,
            .gradient_scale = (float)gradient_scale,
            .n_parts = stretch->n_parts,
            .parts = optimizer->parts + stretch->first_part,
            .gradient = model->gradients + begin,
            .parameter = model->masters + begin,
            .m = optimizer->m + stretch->begin,
            .v = optimizer->v + stretch->first_v,
            .rounded = rounded ? rounded + begin : NULL,
        };
        BD_TRY(backend->operations->adamw(backend, &adamw, err));
    }
    if (h->average == 0)
        return BD_OK;
    const bd_average_args average = {
        .n = optimizer->slice.end - optimizer->slice.begin,
        .rate = (float)bd_average_rate(h, step),
        .parameter = model->masters + optimizer->slice.begin,
        .average = optimizer->average,
    };
    return backend->operations->average(backend, &average, err);
}
