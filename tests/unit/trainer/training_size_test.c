// What a training is said to take is what it takes: for every family, both optimizers, with and
// without an average, on one rank and on several.
#include "kernels/cpu/cpu.h"
#include "kernels/muon.h"
#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/awkward_models.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/step.h"
#include "trainer/weights/kept_state.h"

enum { N_POSITIONS = 64, N_VOCABULARY = 257 };

static const bd_operations *honest;
static size_t n_allocated_bytes;

static bd_status counting_allocate(bd_backend *backend, size_t size_bytes, void **memory,
                                   bd_error *err)
{
    n_allocated_bytes += size_bytes;
    return honest->allocate(backend, size_bytes, memory, err);
}

static void open_counted(subject *s, int number)
{
    open_random_subject(s, awkward_model(number, N_POSITIONS, N_VOCABULARY));
    honest = s->honest;
    s->operations.allocate = counting_allocate;
    n_allocated_bytes = 0;
}

// Hyperparameters of both optimizers, with and without an average, recomputing and not.
static bd_hyperparameters variant(int number)
{
    return (bd_hyperparameters){
        .n_steps = 10,
        .batch_rows = 4,
        .micro_batch_rows = 2,
        .optimizer = number & 1 ? BD_OPTIMIZER_MUON : BD_OPTIMIZER_ADAMW,
        .average = number & 2 ? 0.9 : 0,
        .recomputes = number & 4,
        .rate_factors = {1, 1, 1},
        .learning_rate = 1e-3,
        .momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
    };
}

enum { N_VARIANTS = 8 };

// The scratch memory of the slice's largest matrix, which Muon takes while it works.
static size_t muon_scratch(const bd_hyperparameters *h, const bd_parameters *parameters,
                           bd_rank_slice slice)
{
    size_t most = 0;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *p = &parameters->items[i];
        if (!bd_moved_by_muon(h->optimizer, p) || p->offset < slice.begin ||
            p->offset >= slice.end)
            continue;
        const size_t rows = (size_t)p->shape[0], columns = (size_t)p->shape[1];
        const size_t side = rows < columns ? rows : columns;
        const size_t floats = 2 * (rows * columns + side * side);
        if (floats * sizeof(float) > most)
            most = floats * sizeof(float);
    }
    return most;
}

// A few bytes that are not measured: AdamW's table of parts.
static size_t parts_bytes(const bd_optimizer *optimizer)
{
    size_t n = 0;
    for (size_t i = 0; i < optimizer->n_stretches; i++)
        n += (size_t)optimizer->stretches[i].n_parts;
    return n * sizeof(bd_adamw_part);
}

static void a_training_takes_what_was_measured(void **state)
{
    (void)state;
    bd_error err;
    for (int number = 0; number < N_AWKWARD_MODELS; number++)
        for (int v = 0; v < N_VARIANTS; v++) {
            subject s;
            bd_trainer trainer;
            bd_training_size size;
            const bd_hyperparameters h = variant(v);
            open_counted(&s, number);
            const bd_trainer_needs needs = needs_of(&s);
            check(bd_training_measure(&size, &h, &s.parameters,
                                      bd_rows_config(&s.rows)->seq_len, s.group, &err),
                  &err);
            check(bd_trainer_init(&trainer, &h, &needs, 0, &err), &err);
            const size_t scratch = muon_scratch(&h, &s.parameters, trainer.optimizer.slice);
            assert_int_equal(scratch > 0, h.optimizer == BD_OPTIMIZER_MUON);
            assert_int_equal(size.total_bytes - scratch,
                             n_allocated_bytes - parts_bytes(&trainer.optimizer));
            // A step takes no more, except for the lists of small operations.
            bd_step_result result;
            check(bd_model_set_weights(&trainer.model, s.weights, &err), &err);
            check(bd_trainer_step(&trainer, &result, &err), &err);
            assert_true(((bd_cpu_backend *)s.backend)->scratch_bytes >= scratch);
            bd_trainer_release(&trainer);
            close_subject(&s);
        }
}

static void every_ranks_optimizer_takes_what_was_measured(void **state)
{
    (void)state;
    bd_error err;
    for (int number = 0; number < N_AWKWARD_MODELS; number++)
        for (int v = 0; v < 4; v++)
            for (int32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
                subject s;
                int64_t bounds[4];
                const bd_hyperparameters h = variant(v);
                open_counted(&s, number);
                bd_optimizer_divide(h.optimizer, &s.parameters, n_ranks, bounds);
                for (int32_t r = 0; r < n_ranks; r++) {
                    bd_optimizer optimizer;
                    const bd_rank_slice slice = bd_rank_slice_of(bounds, r);
                    n_allocated_bytes = 0;
                    check(bd_optimizer_init(&optimizer, &h, &s.parameters, s.backend, slice,
                                            n_ranks, &err),
                          &err);
                    assert_int_equal(bd_optimizer_measure(&h, &s.parameters, slice, n_ranks) -
                                         muon_scratch(&h, &s.parameters, slice),
                                     n_allocated_bytes - parts_bytes(&optimizer));
                    bd_optimizer_release(&optimizer);
                }
                close_subject(&s);
            }
}

static void a_batch_without_a_row_for_every_rank_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    bd_training_size size;
    const bd_hyperparameters h = variant(0);
    open_counted(&s, 0);
    bd_group group = *s.group;
    group.n_ranks = 5;
    assert_int_equal(bd_training_measure(&size, &h, &s.parameters, 64, &group, &err),
                     BD_ERR_ARGUMENT);
    assert_mentions(&err, "a batch of 4 rows leaves some of 5 ranks without a row");
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_takes_what_was_measured),
        cmocka_unit_test(every_ranks_optimizer_takes_what_was_measured),
        cmocka_unit_test(a_batch_without_a_row_for_every_rank_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
