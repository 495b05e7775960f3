// Training by several ranks, which are threads here: each with its own rows, model and backend.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/module.h"
#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/thread_group.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/step.h"

enum { MAX_STEPS = 20 };

static int n_steps = MAX_STEPS;
static const char *module_path;  // of the CUDA backend, if the ranks use it

static const bd_hyperparameters SETTINGS = {
    .n_steps = 100,
    .batch_rows = 7,
    .micro_batch_rows = 7,
    .warm_up_steps = 5,
    .rate_factors = {1, 1, 1},
    .learning_rate = 1e-3,
    .min_learning_rate = 1e-4,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .epsilon = 1e-8,
    .weight_decay = 0.1,
    .clip_norm = 1.0,
    .seed = 1234,
};

static bd_hyperparameters settings_of(bd_optimizer_kind optimizer)
{
    bd_hyperparameters settings = SETTINGS;
    settings.optimizer = optimizer;
    settings.momentum = 0.95;
    settings.average = optimizer == BD_OPTIMIZER_MUON ? 0.5 : 0;
    return settings;
}

// The result of a run of several ranks. Arrays are [n_total], owned.
typedef struct outcome {
    const char *model;
    bd_hyperparameters settings;
    int64_t first_step, end_step;  // first step and last step
    float *const *start;           // [BD_STATE_ARRAYS], borrowed; NULL: from the beginning
    int64_t n_total;
    bd_step_result steps[MAX_STEPS];          // those of rank 0
    float *state[BD_STATE_ARRAYS];            // at the end, put together
    float *weights[MAX_THREAD_RANKS];         // those of each rank at the end
    float *shown;                             // rank 0's, while it shows the average; or NULL
    int64_t n_moments[MAX_THREAD_RANKS];      // by rank
    bd_step_result others[MAX_THREAD_RANKS];  // of the last step
} outcome;

// Opens each rank's own device, and the collectives of all.
static void open_device(bd_group *group, bd_trainer_needs *needs)
{
    bd_error err;
    bd_collectives_id id = {{0}};
    const bd_cuda_settings settings = {.device = group->rank};
    bd_backend *backend;
    check(bd_backend_open_module(&backend, module_path, &settings, &err), &err);
    if (group->rank == 0)
        check(backend->operations->make_collectives_id(backend, &id, &err), &err);
    check(bd_group_follow(group, &id, sizeof id, &err), &err);
    needs->backend = backend;
    check(backend->operations->open_collectives(backend, &id, group->rank, group->n_ranks,
                                                &needs->collectives, &err),
          &err);
}

static void close_device(bd_trainer_needs *needs)
{
    needs->collectives->operations->close(needs->collectives);
    needs->backend->operations->close(needs->backend);
}

static void train(bd_group *group, void *context)
{
    outcome *o = context;
    subject s;
    bd_error err;
    bd_trainer trainer;
    open_subject(&s, o->model);
    bd_trainer_needs needs = needs_of(&s);
    needs.group = group;
    needs.collectives = group->collectives;
    if (module_path)
        open_device(group, &needs);
    const int64_t n = s.parameters.n_total;
    check(bd_trainer_init(&trainer, &o->settings, &needs, o->first_step, &err), &err);
    const bd_rank_slice slice = trainer.optimizer.slice;
    const bool has_average = o->settings.average > 0;
    if (o->first_step > 0)
        set_state(&trainer, o->start[0], o->start[1] + slice.begin,
                  o->start[2] + trainer.v_bounds[group->rank],
                  has_average ? o->start[3] + slice.begin : NULL);
    else
        check(bd_model_set_weights(&trainer.model, s.weights, &err), &err);
    for (int64_t i = o->first_step; i < o->end_step; i++) {
        bd_step_result result;
        check(bd_trainer_step(&trainer, &result, &err), &err);
        o->others[group->rank] = result;
        if (group->rank == 0)
            o->steps[i] = result;
    }
    float *whole[BD_STATE_ARRAYS] = {NULL};  // stays NULL except on rank 0
    for (int i = 0; group->rank == 0 && i < BD_STATE_ARRAYS; i++)
        whole[i] = o->state[i] = calloc((size_t)n, sizeof(float));
    check(bd_trainer_assemble(&trainer, whole, &err), &err);
    o->weights[group->rank] = malloc((size_t)n * sizeof(float));
    check(bd_model_download(&trainer.model, o->weights[group->rank], trainer.model.masters, n,
                            &err),
          &err);
    if (has_average) {
        check(bd_trainer_show_average(&trainer, &err), &err);
        if (group->rank == 0) {
            o->shown = malloc((size_t)n * sizeof(float));
            check(bd_model_download(&trainer.model, o->shown, trainer.model.weights, n, &err),
                  &err);
        }
        bd_trainer_show_trained(&trainer);
    }
    o->n_moments[group->rank] = slice.end - slice.begin;
    if (group->rank == 0)
        o->n_total = n;
    bd_trainer_release(&trainer);
    if (module_path)
        close_device(&needs);
    close_subject(&s);
}

static outcome train_part(int32_t n_ranks, const outcome *from, int64_t end_step)
{
    outcome o = {.model = from->model,
                 .settings = from->settings,
                 .first_step = from->end_step,
                 .end_step = end_step,
                 .start = from->state};
    run_ranks(n_ranks, train, &o);
    return o;
}

static outcome train_with(int32_t n_ranks, const char *model, bd_hyperparameters settings)
{
    const outcome beginning = {.model = model, .settings = settings};
    return train_part(n_ranks, &beginning, n_steps);
}

static void release(outcome *o)
{
    for (int i = 0; i < BD_STATE_ARRAYS; i++)
        free(o->state[i]);
    for (int r = 0; r < MAX_THREAD_RANKS; r++)
        free(o->weights[r]);
    free(o->shown);
}

// Floats are summed in another order; steps increase the difference.
static void assert_same_losses(const outcome *one, const outcome *several)
{
    for (int i = 0; i < n_steps; i++) {
        const bd_step_result *a = &one->steps[i], *b = &several->steps[i];
        assert_int_equal(a->n_targets, b->n_targets);
        assert_int_equal(a->work.n_used, b->work.n_used);
        assert_int_equal(a->work.n_pairs, b->work.n_pairs);
        if (!(fabs(a->loss - b->loss) <= 1e-6))
            fail_msg("step %d: loss %.9f by one rank, %.9f by several", i + 1, a->loss,
                     b->loss);
    }
}

// The model of rank 0 has the averages of all ranks while it shows them.
static void assert_shows_the_average(const outcome *o)
{
    if (o->settings.average > 0)
        assert_memory_equal(o->shown, o->state[BD_STATE_AVERAGE],
                            (size_t)o->n_total * sizeof(float));
}

static void several_ranks_train_as_one_does(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2"};
    for (int m = 0; m < 4; m++) {
        bd_hyperparameters settings =
            settings_of(m / 2 ? BD_OPTIMIZER_MUON : BD_OPTIMIZER_ADAMW);
        outcome one = train_with(1, models[m % 2], settings);
        for (int32_t n_ranks = 2; n_ranks <= MAX_THREAD_RANKS; n_ranks++) {
            settings.micro_batch_rows = n_ranks == 3 ? 1 : 7;  // the last rank then has no row
            outcome several = train_with(n_ranks, models[m % 2], settings);
            assert_same_losses(&one, &several);
            assert_shows_the_average(&several);
            release(&several);
        }
        release(&one);
    }
}

static void assert_same_result(const bd_step_result *a, const bd_step_result *b)
{
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->outcome, b->outcome);
    assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
    assert_memory_equal(&a->gradient_norm, &b->gradient_norm, sizeof a->gradient_norm);
    assert_memory_equal(&a->learning_rate, &b->learning_rate, sizeof a->learning_rate);
    assert_int_equal(a->n_targets, b->n_targets);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(&a->work, &b->work, sizeof a->work);
}

// All ranks make the same decision; and the weights have the same bits everywhere, though each
// rank changed only its own slice of them.
static void ranks_have_the_same_weights_and_share_the_moments(void **state)
{
    (void)state;
    outcome o = train_with(3, "opt", SETTINGS);
    int64_t n_moments = 0;
    for (int r = 0; r < 3; r++) {
        assert_memory_equal(o.weights[r], o.state[0], (size_t)o.n_total * sizeof(float));
        assert_same_result(&o.others[r], &o.others[0]);
        n_moments += o.n_moments[r];
    }
    assert_int_equal(n_moments, o.n_total);
    assert_true(o.n_moments[0] <= o.n_total / 3 && o.n_moments[0] > 0);
    release(&o);
}

static void the_same_number_of_ranks_gives_the_same_bits(void **state)
{
    (void)state;
    for (int optimizer = 0; optimizer < BD_ENUM_COUNT(BD_OPTIMIZERS); optimizer++) {
        const bd_hyperparameters settings = settings_of((bd_optimizer_kind)optimizer);
        outcome first = train_with(3, "gpt2", settings);
        outcome second = train_with(3, "gpt2", settings);
        for (int i = 0; i < BD_STATE_ARRAYS; i++)
            assert_memory_equal(first.state[i], second.state[i],
                                (size_t)first.n_total * sizeof(float));
        release(&first);
        release(&second);
    }
}

// With Muon every parameter has one owner, and nobody has much more than a fair share and the
// largest parameter.
static void muons_slices_end_between_parameters(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2"};
    for (int m = 0; m < 2; m++) {
        subject s;
        open_subject(&s, models[m]);
        const bd_parameters *p = &s.parameters;
        for (int32_t n_ranks = 1; n_ranks <= 40; n_ranks++) {
            int64_t bounds[41], largest = 0;
            size_t edges = 0;
            bd_optimizer_divide(BD_OPTIMIZER_MUON, p, n_ranks, bounds);
            assert_int_equal(bounds[0], 0);
            assert_int_equal(bounds[n_ranks], p->n_total);
            for (size_t i = 0; i < p->n; i++)
                largest = p->items[i].n > largest ? p->items[i].n : largest;
            for (int32_t r = 0; r < n_ranks; r++) {
                const int64_t n = bounds[r + 1] - bounds[r];
                assert_true(n > 0 || bounds[r] == p->n_total);
                assert_true(n <= p->n_total / n_ranks + largest);
                while (edges < p->n && p->items[edges].offset < bounds[r])
                    edges++;
                assert_true(edges == p->n || p->items[edges].offset == bounds[r]);
            }
        }
        close_subject(&s);
    }
}

// Continues from a checkpoint's contents: with as many ranks bit for bit, with another number
// within the bound of losses.
static void ranks_resume_what_other_ranks_have_saved(void **state)
{
    (void)state;
    const int64_t n_half = n_steps * 3 / 5;
    const bd_hyperparameters settings = settings_of(BD_OPTIMIZER_MUON);
    const outcome beginning = {.model = "opt", .settings = settings};
    outcome whole = train_with(2, "opt", settings), half = train_part(2, &beginning, n_half);
    for (int32_t n_ranks = 1; n_ranks <= 3; n_ranks++) {
        outcome rest = train_part(n_ranks, &half, n_steps);
        memcpy(rest.steps, half.steps, (size_t)n_half * sizeof *half.steps);
        assert_same_losses(&whole, &rest);
        for (int i = 0; n_ranks == 2 && i < BD_STATE_ARRAYS; i++)
            assert_memory_equal(rest.state[i], whole.state[i],
                                (size_t)whole.n_total * sizeof(float));
        release(&rest);
    }
    release(&half);
    release(&whole);
}

static void a_batch_without_a_row_for_every_rank_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_trainer trainer;
    bd_group group = {.n_ranks = 8};
    open_subject(&s, "opt");
    bd_trainer_needs needs = needs_of(&s);
    needs.group = &group;
    assert_int_equal(bd_trainer_init(&trainer, &SETTINGS, &needs, 0, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "a batch of 7 rows leaves some of 8 ranks without a row: "
                                     "--batch needs one for each");
    close_subject(&s);
}

// ---- On devices -----------------------------------------------------------------------------

static void ranks_on_devices_train_as_one_on_the_cpu_does(void **state)
{
    (void)state;
    const char *const module = module_path;
    for (int optimizer = 0; optimizer < BD_ENUM_COUNT(BD_OPTIMIZERS); optimizer++) {
        const bd_hyperparameters settings = settings_of((bd_optimizer_kind)optimizer);
        module_path = NULL;
        outcome one = train_with(1, "gpt2", settings);
        module_path = module;
        outcome several = train_with(3, "gpt2", settings);
        assert_same_losses(&one, &several);
        assert_shows_the_average(&several);
        for (int r = 0; r < 3; r++)
            assert_memory_equal(several.weights[r], several.state[0],
                                (size_t)several.n_total * sizeof(float));
        release(&one);
        release(&several);
    }
}

// With the CUDA backend's module as an argument, the ranks use that.
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(several_ranks_train_as_one_does),
        test_inside_folder(ranks_have_the_same_weights_and_share_the_moments),
        test_inside_folder(the_same_number_of_ranks_gives_the_same_bits),
        test_inside_folder(muons_slices_end_between_parameters),
        test_inside_folder(ranks_resume_what_other_ranks_have_saved),
        test_inside_folder(a_batch_without_a_row_for_every_rank_is_refused),
    };
    const struct CMUnitTest on_devices[] = {
        test_inside_folder(ranks_on_devices_train_as_one_on_the_cpu_does),
    };
    if (getenv("BINDERY_TEST_BRIEF"))
        n_steps = 5;
    if (argc < 2)
        return cmocka_run_group_tests(tests, NULL, NULL);
    module_path = argv[1];
    n_steps = 3;
    return cmocka_run_group_tests(on_devices, NULL, NULL);
}
