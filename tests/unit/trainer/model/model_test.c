#include "trainer/model/model.h"

#include <math.h>
#include <stdatomic.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/step.h"

// The results of one pass.
typedef struct outcome {
    double loss_sum;
    float *losses;     // [n_tokens]
    float *gradients;  // [n_total]
} outcome;

static void release(outcome *o)
{
    free(o->losses);
    free(o->gradients);
}

static bd_model make_model(const subject *s, int64_t max_rows, int64_t seq_len)
{
    bd_error err;
    bd_model model;
    const bd_model_options options = {.max_rows = max_rows, .seq_len = seq_len};
    check(bd_model_init(&model, s->backend, &s->parameters, &options, &err), &err);
    check(bd_model_set_weights(&model, s->weights, &err), &err);
    return model;
}

static outcome train(bd_model *model, const bd_model_batch *batch)
{
    bd_error err;
    outcome o;
    const size_t n_tokens = (size_t)(batch->attention.n_rows * batch->attention.seq_len);
    o.losses = malloc(n_tokens * sizeof *o.losses);
    o.gradients = malloc((size_t)model->parameters->n_total * sizeof *o.gradients);
    assert_true(o.losses && o.gradients);
    check(bd_model_train(model, batch, 1e-3, &o.loss_sum, &err), &err);
    check(model->backend->operations->download(model->backend, o.losses, model->losses,
                                               n_tokens * sizeof *o.losses, &err),
          &err);
    check(bd_model_get_gradients(model, o.gradients, &err), &err);
    return o;
}

// Runs rows `numbers` once through a new model.
static outcome train_rows(const subject *s, const int64_t *numbers, int64_t n)
{
    bd_batch batch = load_batch(&s->rows, numbers, n);
    bd_model model = make_model(s, n, batch.boundaries.seq_len);
    const bd_model_batch all = bd_batch_part(&batch, 0, n);
    outcome o = train(&model, &all);
    bd_model_release(&model);
    bd_model_release(&model);
    bd_batch_release(&batch);
    return o;
}

static double largest(const float *values, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)values[i]));
    return most;
}

// ---- Rows -----------------------------------------------------------------------------------

// Finds rows that have padding; at most `max` of them.
static int64_t padded_rows(const bd_rows *rows, int64_t *numbers, int64_t max)
{
    int64_t n = 0;
    for (int64_t r = 0; r < rows->manifests[0].totals.rows && n < max; r++) {
        bd_batch batch = load_batch(rows, &r, 1);
        if (bd_row_used(&batch.boundaries, 0) < batch.boundaries.seq_len)
            numbers[n++] = r;
        bd_batch_release(&batch);
    }
    return n;
}

static void losses_are_zero_where_there_is_no_target(const char *model)
{
    subject s;
    open_subject(&s, model);
    int64_t numbers[3] = {0, 1, 2}, n_zero = 0;
    assert_true(padded_rows(&s.rows, numbers + 1, 1) == 1);
    outcome o = train_rows(&s, numbers, 3);
    bd_batch batch = load_batch(&s.rows, numbers, 3);
    for (int64_t r = 0; r < 3; r++) {
        int64_t n_segments, k = 0;
        const int32_t *bounds = bd_row_bounds(&batch.boundaries, r, &n_segments);
        for (int64_t t = 0; t < batch.boundaries.seq_len; t++) {
            while (k < n_segments && t >= bounds[k + 1])
                k++;
            const bool has_target = k < n_segments && t + 1 < bounds[k + 1];
            const float loss = o.losses[r * batch.boundaries.seq_len + t];
            assert_true(has_target ? loss > 0 : loss == 0);
            n_zero += !has_target;
        }
    }
    assert_int_equal(3 * batch.boundaries.seq_len - n_zero, batch.targets.n_targets);
    bd_batch_release(&batch);
    release(&o);
    close_subject(&s);
}

static void only_targets_have_a_loss(void **state)
{
    (void)state;
    losses_are_zero_where_there_is_no_target("opt");
    losses_are_zero_where_there_is_no_target("gpt2");
}

static void two_rows_are_the_two_rows_alone(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2"};
    for (int i = 0; i < 2; i++) {
        subject s;
        open_subject(&s, models[i]);
        const int64_t seq_len = s.rows.manifests[0].config.seq_len, n = s.parameters.n_total;
        outcome both = train_rows(&s, (const int64_t[]){3, 20}, 2);
        outcome one = train_rows(&s, (const int64_t[]){3}, 1);
        outcome other = train_rows(&s, (const int64_t[]){20}, 1);
        for (int64_t t = 0; t < seq_len; t++) {
            assert_true(fabs(both.losses[t] - one.losses[t]) <= 1e-5);
            assert_true(fabs(both.losses[seq_len + t] - other.losses[t]) <= 1e-5);
        }
        assert_true(fabs(both.loss_sum - one.loss_sum - other.loss_sum) <=
                    1e-6 * both.loss_sum);
        const double bound = 1e-5 * largest(both.gradients, n);
        for (int64_t j = 0; j < n; j++)
            assert_true(fabs(both.gradients[j] - one.gradients[j] - other.gradients[j]) <=
                        bound);
        release(&both);
        release(&one);
        release(&other);
        close_subject(&s);
    }
}

static void the_value_of_padding_never_matters(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    int64_t numbers[27];
    open_subject(&s, "opt");
    const int64_t n = padded_rows(&s.rows, numbers, 27);
    assert_true(n > 0);
    bd_batch batch = load_batch(&s.rows, numbers, n);
    const int64_t seq_len = batch.boundaries.seq_len;
    uint16_t *ids = malloc((size_t)(n * seq_len) * sizeof *ids);
    memcpy(ids, batch.ids, (size_t)(n * seq_len) * sizeof *ids);
    for (int64_t r = 0; r < n; r++)
        for (int64_t t = bd_row_used(&batch.boundaries, r); t < seq_len; t++)
            ids[r * seq_len + t] = (uint16_t)(7 * t % 257);
    bd_model model = make_model(&s, n, seq_len);
    bd_model_batch part = bd_batch_part(&batch, 0, n);
    outcome before = train(&model, &part);
    check(bd_model_zero_gradients(&model, &err), &err);
    part.ids = ids;
    outcome after = train(&model, &part);
    assert_memory_equal(before.losses, after.losses, (size_t)(n * seq_len) * sizeof(float));
    assert_memory_equal(before.gradients, after.gradients,
                        (size_t)s.parameters.n_total * sizeof(float));
    release(&before);
    release(&after);
    free(ids);
    bd_model_release(&model);
    bd_batch_release(&batch);
    close_subject(&s);
}

// ---- Gradients and logits -------------------------------------------------------------------

static void gradients_add_up_until_they_are_cleared(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    open_subject(&s, "gpt2");
    const int64_t numbers[] = {5, 6}, n = s.parameters.n_total;
    bd_batch batch = load_batch(&s.rows, numbers, 2);
    bd_model model = make_model(&s, 2, batch.boundaries.seq_len);
    const bd_model_batch part = bd_batch_part(&batch, 0, 2);
    outcome once = train(&model, &part), twice = train(&model, &part);
    assert_true(once.loss_sum == twice.loss_sum);
    const double bound = 1e-6 * largest(once.gradients, n);
    for (int64_t j = 0; j < n; j++)
        assert_true(fabs(twice.gradients[j] - 2.0 * once.gradients[j]) <= bound);
    check(bd_model_zero_gradients(&model, &err), &err);
    outcome again = train(&model, &part);
    assert_memory_equal(once.gradients, again.gradients, (size_t)n * sizeof(float));
    release(&once);
    release(&twice);
    release(&again);
    bd_model_release(&model);
    bd_batch_release(&batch);
    close_subject(&s);
}

static double loss_of(const float *logits, int64_t n, uint32_t target)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(logits[i]);
    return log(sum) - logits[target];
}

static void a_rows_logits_are_those_of_its_losses(void **state)
{
    (void)state;
    enum { N_VOCABULARY = 257 };
    subject s;
    bd_error err;
    open_subject(&s, "opt");
    const int64_t numbers[] = {9, 2, 17};
    bd_batch batch = load_batch(&s.rows, numbers, 3);
    const int64_t seq_len = batch.boundaries.seq_len;
    bd_model model = make_model(&s, 3, seq_len);
    const bd_model_batch part = bd_batch_part(&batch, 0, 3);
    outcome o = train(&model, &part);
    float *logits = malloc((size_t)(seq_len * N_VOCABULARY) * sizeof *logits);
    check(bd_model_forward(&model, &part, &err), &err);
    for (int64_t r = 2; r >= 0; r--) {
        check(bd_model_row_logits(&model, &part, r, logits, &err), &err);
        for (int64_t t = 0; t < seq_len; t++) {
            const float loss = o.losses[r * seq_len + t];
            if (loss == 0)
                continue;
            const uint32_t target = bd_id_at(batch.ids, batch.id_bytes, r * seq_len + t + 1);
            assert_true(fabs(loss_of(logits + t * N_VOCABULARY, N_VOCABULARY, target) - loss) <=
                        1e-5 * loss);
        }
    }
    free(logits);
    release(&o);
    bd_model_release(&model);
    bd_batch_release(&batch);
    close_subject(&s);
}

static void weights_come_back_as_they_went(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    open_subject(&s, "opt");
    bd_model model = make_model(&s, 1, 8);
    const size_t size_bytes = (size_t)s.parameters.n_total * sizeof(float);
    float *back = malloc(size_bytes);
    check(bd_model_download(&model, back, model.masters, s.parameters.n_total, &err), &err);
    assert_memory_equal(back, s.weights, size_bytes);
    check(bd_model_get_gradients(&model, back, &err), &err);
    for (int64_t i = 0; i < s.parameters.n_total; i++)
        assert_true(back[i] == 0);
    free(back);
    bd_model_release(&model);
    close_subject(&s);
}

// ---- Memory ---------------------------------------------------------------------------------

static void a_batch_that_is_too_large_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    double loss_sum;
    open_subject(&s, "opt");
    const int64_t numbers[] = {0, 1, 2};
    bd_batch batch = load_batch(&s.rows, numbers, 3);
    const int64_t seq_len = batch.boundaries.seq_len;
    const bd_model_batch two = bd_batch_part(&batch, 0, 2), three = bd_batch_part(&batch, 0, 3);
    bd_model model = make_model(&s, 2, seq_len);
    check(bd_model_train(&model, &two, 1, &loss_sum, &err), &err);
    assert_int_equal(bd_model_train(&model, &three, 1, &loss_sum, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, "the batch is larger than the model's buffers");
    assert_int_equal(bd_model_forward(&model, &three, &err), BD_ERR_ARGUMENT);
    bd_model_release(&model);
    model = make_model(&s, 6, seq_len / 2);  // as many tokens, but logits of one row
    assert_int_equal(bd_model_train(&model, &three, 1, &loss_sum, &err), BD_ERR_ARGUMENT);
    bd_model_release(&model);
    bd_batch_release(&batch);
    close_subject(&s);
}

// Rows 0 and 1, then 5, so that gradients add up over two passes.
static outcome train_twice(bd_model *model, const subject *s)
{
    bd_error err;
    double loss_sum;
    const int64_t first[] = {0, 1}, second[] = {5};
    bd_batch two = load_batch(&s->rows, first, 2), one = load_batch(&s->rows, second, 1);
    const bd_model_batch part = bd_batch_part(&two, 0, 2), last = bd_batch_part(&one, 0, 1);
    check(bd_model_set_weights(model, s->weights, &err), &err);
    check(bd_model_train(model, &part, 1e-3, &loss_sum, &err), &err);
    outcome o = train(model, &last);
    o.loss_sum += loss_sum;
    bd_batch_release(&two);
    bd_batch_release(&one);
    return o;
}

static void recomputing_changes_no_bit(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2"};
    for (size_t i = 0; i < 2; i++) {
        subject s;
        bd_error err;
        bd_model keeps, recomputes;
        open_subject(&s, models[i]);
        bd_model_options options = {.max_rows = 2, .seq_len = 64};
        check(bd_model_init(&keeps, s.backend, &s.parameters, &options, &err), &err);
        options.recomputes = true;
        check(bd_model_init(&recomputes, s.backend, &s.parameters, &options, &err), &err);
        outcome one = train_twice(&keeps, &s), other = train_twice(&recomputes, &s);
        assert_true(one.loss_sum == other.loss_sum);
        assert_true(largest(one.gradients, s.parameters.n_total) > 0);
        assert_memory_equal(one.gradients, other.gradients,
                            (size_t)s.parameters.n_total * sizeof *one.gradients);
        release(&one);
        release(&other);
        bd_model_release(&keeps);
        bd_model_release(&recomputes);
        close_subject(&s);
    }
}

static void losses_forward_only_are_those_of_training(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    float losses[3 * 64];
    open_subject(&s, "gpt2");
    const int64_t numbers[] = {3, 26, 0};
    bd_batch batch = load_batch(&s.rows, numbers, 3);
    const bd_model_batch all = bd_batch_part(&batch, 0, 3);
    bd_model model = make_model(&s, 3, 64);
    check(bd_model_losses(&model, &all, losses, &err), &err);
    float *untouched = calloc((size_t)s.parameters.n_total, sizeof *untouched);
    float *gradients = malloc((size_t)s.parameters.n_total * sizeof *gradients);
    assert_true(untouched && gradients);
    check(bd_model_get_gradients(&model, gradients, &err), &err);
    assert_memory_equal(gradients, untouched, (size_t)s.parameters.n_total * sizeof *gradients);
    outcome o = train(&model, &all);
    assert_memory_equal(losses, o.losses, sizeof losses);
    free(untouched);
    free(gradients);
    release(&o);
    bd_model_release(&model);
    bd_batch_release(&batch);
    close_subject(&s);
}

static const bd_operations *honest;
static size_t n_allocated_bytes;
static int n_blocks, fail_at_block;

static bd_status counting_allocate(bd_backend *backend, size_t size_bytes, void **memory,
                                   bd_error *err)
{
    if (++n_blocks == fail_at_block)
        return bd_fail(err, BD_ERR_MEMORY, "block %d", n_blocks);
    n_allocated_bytes += size_bytes;
    return honest->allocate(backend, size_bytes, memory, err);
}

// The memory that model.h promises for a model is the memory that it uses.
static void memory_is_what_the_header_says(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "gpt2");
    honest = s.honest;
    s.operations.allocate = counting_allocate;
    n_allocated_bytes = 0;
    n_blocks = fail_at_block = 0;
    const bd_model_config *c = &s.parameters.config;
    const int64_t max_rows = 5, seq_len = 64, n = max_rows * seq_len;
    const int64_t wide =
        c->n_feed_forward > 3 * c->n_channels ? c->n_feed_forward : 3 * c->n_channels;
    bd_model model = make_model(&s, max_rows, seq_len);
    const int64_t per_layer = 8 * c->n_channels + 2 * c->n_feed_forward + c->n_heads + 4;
    const int64_t stated = 2 * s.parameters.n_total + c->n_layers * n * per_layer +
                           n * (5 * c->n_channels + wide) +
                           seq_len * ((c->n_vocabulary + 63) / 64 * 64);
    const int64_t taken = (int64_t)(n_allocated_bytes / sizeof(float));
    assert_int_equal(taken - stated, 3 * n);  // "about": mean, rstd and losses
    bd_model_release(&model);

    bd_error err;
    bd_model_memory measured;
    bd_model_options options = {.max_rows = max_rows, .seq_len = seq_len};
    check(bd_model_measure(&s.parameters, &options, &measured, &err), &err);
    assert_int_equal(measured.total, n_allocated_bytes);
    n_allocated_bytes = 0;
    options.recomputes = true;
    check(bd_model_init(&model, s.backend, &s.parameters, &options, &err), &err);
    check(bd_model_measure(&s.parameters, &options, &measured, &err), &err);
    assert_int_equal(measured.total, n_allocated_bytes);
    const int64_t saved = (c->n_layers - 1) * n * (per_layer - c->n_channels);
    assert_int_equal((int64_t)(n_allocated_bytes / sizeof(float)), taken - saved);
    bd_model_release(&model);
    close_subject(&s);
}

static void running_out_of_memory_anywhere_leaves_nothing(void **state)
{
    (void)state;
    subject s;
    bd_model model;
    open_subject(&s, "opt");
    honest = s.honest;
    s.operations.allocate = counting_allocate;
    bd_model_options options = {.max_rows = 2, .seq_len = 16};
    const int n_all = 12 + 2 * 12;
    for (fail_at_block = 1; fail_at_block <= n_all; fail_at_block++) {
        bd_error err = {0};
        n_blocks = 0;
        assert_int_equal(bd_model_init(&model, s.backend, &s.parameters, &options, &err),
                         BD_ERR_MEMORY);
        assert_null(model.allocated);
    }
    bd_error err = {0};
    n_blocks = 0;
    check(bd_model_init(&model, s.backend, &s.parameters, &options, &err), &err);
    bd_model_release(&model);
    options.max_rows = INT64_MAX / 2;
    assert_int_equal(bd_model_init(&model, s.backend, &s.parameters, &options, &err),
                     BD_ERR_MEMORY);
    bd_model_release(&model);
    close_subject(&s);
}

// ---- Allocations of a step ------------------------------------------------------------------

// The linker replaces the functions that our own code calls by these (--wrap in
// CMakeLists.txt).
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **memory, size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);

static atomic_int n_allocations;

void *__wrap_malloc(size_t size)
{
    n_allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    n_allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    n_allocations++;
    return __real_realloc(memory, size);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t size)
{
    n_allocations++;
    return __real_posix_memalign(memory, alignment, size);
}

// From the second step on; the first one may learn how many segments a batch has.
static void a_step_allocates_nothing(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "gpt2");
    const int64_t numbers[] = {0, 1, 2};
    bd_batch rows = load_batch(&s.rows, numbers, 3);
    const bd_model_batch batch = bd_batch_part(&rows, 0, 3);
    const int before_model = n_allocations;
    bd_model model = make_model(&s, 3, batch.attention.seq_len);
    assert_true(n_allocations > before_model);  // otherwise nothing is counted
    bd_error err;
    bd_sent_batch sent;
    check(bd_model_send(&model, &batch, &sent, &err), &err);
    for (int step = 0; step < 2; step++) {
        double loss_sum;
        const int before = n_allocations;
        check(bd_model_zero_gradients(&model, &err), &err);
        check(bd_model_train_sent(&model, &sent, &batch, 1.0, &loss_sum, &err), &err);
        if (step > 0)
            assert_int_equal(n_allocations, before);
    }
    bd_model_release(&model);
    bd_batch_release(&rows);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_targets_have_a_loss),
        cmocka_unit_test(two_rows_are_the_two_rows_alone),
        cmocka_unit_test(the_value_of_padding_never_matters),
        cmocka_unit_test(gradients_add_up_until_they_are_cleared),
        cmocka_unit_test(a_rows_logits_are_those_of_its_losses),
        cmocka_unit_test(weights_come_back_as_they_went),
        cmocka_unit_test(a_batch_that_is_too_large_is_refused),
        cmocka_unit_test(recomputing_changes_no_bit),
        cmocka_unit_test(losses_forward_only_are_those_of_training),
        cmocka_unit_test(memory_is_what_the_header_says),
        cmocka_unit_test(running_out_of_memory_anywhere_leaves_nothing),
        cmocka_unit_test(a_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
