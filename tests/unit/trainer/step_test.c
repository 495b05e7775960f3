#include "trainer/step.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"
#include "trainer/data/row_order.h"

static const bd_hyperparameters SETTINGS = {
    .n_steps = 100,
    .batch_rows = 4,
    .micro_batch_rows = 4,
    .warm_up_steps = 10,
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

// ---- The learning rate ----------------------------------------------------------------------

static void assert_rate(int64_t n_steps, int64_t warm_up, int64_t step, double expected)
{
    bd_hyperparameters settings = SETTINGS;
    settings.n_steps = n_steps;
    settings.warm_up_steps = warm_up;
    const double rate = bd_learning_rate(&settings, step);
    if (!(fabs(rate - expected) <= 1e-15))
        fail_msg("step %d of %d, warm-up %d: %.17g instead of %.17g", (int)step, (int)n_steps,
                 (int)warm_up, rate, expected);
}

static void learning_rate_rises_then_falls_to_its_minimum(void **state)
{
    (void)state;
    assert_rate(100, 10, 1, 1e-4);
    assert_rate(100, 10, 5, 5e-4);
    assert_rate(100, 10, 10, 1e-3);
    assert_rate(100, 10, 55, 5.5e-4);                   // half of the cosine
    assert_rate(100, 10, 40, 1e-4 + 0.5 * 9e-4 * 1.5);  // cos(60 degrees)
    assert_rate(100, 10, 100, 1e-4);
}

static void learning_rate_without_a_warm_up_begins_near_its_peak(void **state)
{
    (void)state;
    assert_rate(2, 0, 1, 5.5e-4);
    assert_rate(3, 0, 1, 1e-4 + 0.5 * 9e-4 * 1.5);
    assert_rate(3, 0, 3, 1e-4);
    assert_rate(1, 0, 1, 1e-4);  // the only step is the last
}

static void learning_rate_only_rises_if_the_warm_up_never_ends(void **state)
{
    (void)state;
    assert_rate(10, 10, 10, 1e-3);
    assert_rate(10, 40, 1, 2.5e-5);
    assert_rate(10, 40, 10, 2.5e-4);
}

static void settings_are_kept_in_full(void **state)
{
    (void)state;
    char *text;
    bd_error err;
    bd_hyperparameters settings = SETTINGS;
    settings.micro_batch_rows = 2;
    bd_json *json = bd_hyperparameters_to_json(&settings);
    check(bd_json_print(json, BD_JSON_COMPACT, &text, &err), &err);
    static const char *const keys[] = {
        "\"steps\":100",  "\"batch_rows\":4",      "\"micro_batch_rows\":2",
        "\"beta1\":",     "\"warm_up_steps\":10",  "\"learning_rate\":",
        "\"beta2\":",     "\"min_learning_rate\"", "\"epsilon\":",
        "\"clip_norm\":", "\"weight_decay\":",     "\"seed\":1234"};
    assert_int_equal(sizeof keys / sizeof keys[0], 12);
    for (size_t i = 0; i < 12; i++)
        assert_non_null(strstr(text, keys[i]));
    free(text);
    bd_json_free(json);
}

// ---- Runs -----------------------------------------------------------------------------------

// Weights and moments as they are now, [3][n_total].
static float *snapshot(const bd_trainer *trainer)
{
    bd_error err;
    const size_t n = (size_t)trainer->needs.parameters->n_total;
    const float *const from[] = {trainer->model.weights, trainer->optimizer.m,
                                 trainer->optimizer.v};
    float *to = malloc(3 * n * sizeof *to);
    assert_non_null(to);
    const size_t sizes[] = {n, n, (size_t)trainer->optimizer.n_v};
    memset(to, 0, 3 * n * sizeof *to);
    for (size_t i = 0; i < 3; i++)
        check(trainer->needs.backend->operations->download(
                  trainer->needs.backend, to + i * n, from[i], sizes[i] * sizeof *to, &err),
              &err);
    return to;
}

static void begin(bd_trainer *trainer, const subject *s, bd_hyperparameters settings)
{
    bd_error err;
    const bd_trainer_needs needs = needs_of(s);
    check(bd_trainer_init(trainer, &settings, &needs, 0, &err), &err);
    check(bd_model_set_weights(&trainer->model, s->weights, &err), &err);
}

// Runs `n_steps` steps from the subject's weights; returns the last one's result.
static bd_step_result run(const subject *s, bd_hyperparameters settings, int n_steps,
                          float **end)
{
    bd_error err;
    bd_step_result result = {0};
    bd_trainer trainer;
    begin(&trainer, s, settings);
    for (int i = 0; i < n_steps; i++)
        check(bd_trainer_step(&trainer, &result, &err), &err);
    *end = snapshot(&trainer);
    bd_trainer_release(&trainer);
    bd_trainer_release(&trainer);
    return result;
}

// ---- Decay and clipping ---------------------------------------------------------------------

static bd_status no_linear_backward(bd_backend *backend, const bd_linear_backward_args *args,
                                    bd_error *err)
{
    (void)backend, (void)args, (void)err;
    return BD_OK;
}

static bd_status no_norm_backward(bd_backend *backend, const bd_layer_norm_backward_args *args,
                                  bd_error *err)
{
    (void)backend, (void)args, (void)err;
    return BD_OK;
}

static bd_status no_embedding_backward(bd_backend *backend,
                                       const bd_embedding_backward_args *args, bd_error *err)
{
    (void)backend, (void)args, (void)err;
    return BD_OK;
}

// A backend without backward passes: every gradient is 0, and only decay changes weights.
static void decay_is_for_matrices_alone(void **state)
{
    (void)state;
    subject s;
    float *end;
    open_subject(&s, "opt");
    s.operations.linear_backward = no_linear_backward;
    s.operations.layer_norm_backward = no_norm_backward;
    s.operations.embedding_backward = no_embedding_backward;
    for (int64_t i = 0; i < s.parameters.n_total; i++)
        s.weights[i] += 1.0f;  // no bias is 0, which would not decay in any case
    const bd_step_result result = run(&s, SETTINGS, 1, &end);
    assert_true(result.gradient_norm == 0.0);
    const double kept = 1.0 - result.learning_rate * SETTINGS.weight_decay;
    for (size_t i = 0; i < s.parameters.n; i++) {
        const bd_parameter *p = &s.parameters.items[i];
        for (int64_t j = p->offset; j < p->offset + p->n; j++) {
            const double before = s.weights[j], after = end[j];
            if (p->n_dimensions == 1)
                assert_true(after == before);
            else
                assert_true(fabs(after - kept * before) <= 2e-7 * fabs(before) &&
                            after != before);
        }
    }
    free(end);
    close_subject(&s);
}

static void the_gradient_is_clipped_to_the_norm(void **state)
{
    (void)state;
    subject s;
    float *free_end, *clipped_end, *wide_end;
    bd_hyperparameters settings = SETTINGS;
    open_subject(&s, "gpt2");
    const int64_t n = s.parameters.n_total;
    settings.clip_norm = 0;
    const bd_step_result whole = run(&s, settings, 1, &free_end);
    settings.clip_norm = whole.gradient_norm / 4;
    const bd_step_result clipped = run(&s, settings, 1, &clipped_end);
    settings.clip_norm = whole.gradient_norm * 2;
    run(&s, settings, 1, &wide_end);
    assert_true(whole.gradient_norm > 0);
    assert_true(whole.gradient_norm == clipped.gradient_norm);  // reported before clipping
    assert_memory_equal(free_end, wide_end, (size_t)(3 * n) * sizeof *free_end);
    double squares = 0;
    for (int64_t i = n; i < 2 * n; i++) {  // m = (1 - beta1) * gradient after one step
        assert_true(fabs(clipped_end[i] - 0.25 * free_end[i]) <= 1e-5 * fabs(free_end[i]));
        squares += (double)clipped_end[i] * clipped_end[i];
    }
    assert_true(fabs(sqrt(squares) / (1 - settings.beta1) - whole.gradient_norm / 4) <=
                1e-5 * whole.gradient_norm);
    free(free_end);
    free(clipped_end);
    free(wide_end);
    close_subject(&s);
}

// ---- Muon -----------------------------------------------------------------------------------

// out [rows][columns] = a [rows][k] * b [k][columns]
static void multiply(int64_t rows, int64_t k, int64_t columns, const double *a, const double *b,
                     double *out)
{
    memset(out, 0, (size_t)(rows * columns) * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < columns; j++)
                out[i * columns + j] += a[i * k + l] * b[l * columns + j];
}

// The definition in double: the direction divided by its norm, then five times
// X = a X + (b A + c A A) X with A = X X^T.
static void make_orthogonal(int64_t rows, int64_t columns, double *x)
{
    const size_t n = (size_t)(rows * columns), n_square = (size_t)(rows * rows);
    double *transposed = calloc(n, sizeof *x), *product = calloc(n, sizeof *x);
    double *gram = calloc(n_square, sizeof *x), *square = calloc(n_square, sizeof *x);
    double squares = 0;
    assert_true(transposed && product && gram && square);
    for (size_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (size_t i = 0; i < n; i++)
        x[i] /= sqrt(squares);
    for (int iteration = 0; iteration < 5; iteration++) {
        for (int64_t i = 0; i < rows * columns; i++)
            transposed[i % columns * rows + i / columns] = x[i];
        multiply(rows, columns, rows, x, transposed, gram);
        multiply(rows, rows, rows, gram, gram, square);
        for (size_t i = 0; i < n_square; i++)
            gram[i] = -4.7750 * gram[i] + 2.0315 * square[i];
        multiply(rows, rows, columns, gram, x, product);
        for (size_t i = 0; i < n; i++)
            x[i] = 3.4445 * x[i] + product[i];
    }
    free(transposed);
    free(product);
    free(gram);
    free(square);
}

// The parameters that Muon must move: those with two dimensions inside a layer.
static bool is_layer_matrix(const bd_parameter *p)
{
    return p->n_dimensions == 2 && (strstr(p->name, ".layers.") || strstr(p->name, ".h."));
}

// One step in double on state [3][n_total], with the gradients [n_total] of the model.
static void reference_step(const bd_parameters *parameters, const bd_hyperparameters *h,
                           const bd_step_result *result, const float *gradients, double *state)
{
    const int64_t n_total = parameters->n_total;
    const double clip = fmin(1.0, h->clip_norm / (result->gradient_norm + 1e-6));
    const double step = (double)result->step;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *p = &parameters->items[i];
        const double rate = result->learning_rate * h->rate_factors[p->n_dimensions == 1 ? 2
                                                                    : is_layer_matrix(p) ? 0
                                                                                         : 1];
        double *weight = state + p->offset, *m = weight + n_total, *v = m + n_total;
        double *x = calloc((size_t)p->n, sizeof *x);
        const double decay = p->n_dimensions == 2 ? 1.0 - rate * h->weight_decay : 1.0;
        const double scale =
            0.2 * sqrt((double)(p->shape[0] > p->shape[1] ? p->shape[0] : p->shape[1]));
        assert_non_null(x);
        for (int64_t j = 0; j < p->n; j++) {
            const double g = clip * (double)gradients[p->offset + j];
            if (is_layer_matrix(p)) {
                m[j] = h->momentum * m[j] + g;
                x[j] = g + h->momentum * m[j];
            } else {
                m[j] = h->beta1 * m[j] + (1 - h->beta1) * g;
                v[j] = h->beta2 * v[j] + (1 - h->beta2) * g * g;
                x[j] = m[j] / (1 - pow(h->beta1, step)) /
                       (sqrt(v[j] / (1 - pow(h->beta2, step))) + h->epsilon);
            }
        }
        if (is_layer_matrix(p))
            make_orthogonal(p->shape[0], p->shape[1], x);
        for (int64_t j = 0; j < p->n; j++)
            weight[j] = decay * weight[j] - rate * (is_layer_matrix(p) ? scale : 1.0) * x[j];
        free(x);
    }
}

// Weights and moments of parameters that have a gradient to speak of: AdamW divides a gradient
// that is nothing but rounding by itself. Of second moments there are only AdamW's, without
// gaps.
static void expect_same_state(const bd_parameters *parameters, const float *got,
                              const double *wanted)
{
    const int64_t n_total = parameters->n_total;
    int64_t n_v = 0;
    for (size_t i = 0; i < parameters->n; i++) {
        const bd_parameter *p = &parameters->items[i];
        const float *arrays[] = {got + p->offset, got + n_total + p->offset,
                                 got + 2 * n_total + n_v};
        const int n_arrays = is_layer_matrix(p) ? 2 : 3;
        for (int array = 0; array < n_arrays && p->role != BD_ROLE_KEY_BIAS; array++) {
            const double *expected = wanted + array * n_total + p->offset;
            double largest = 0, worst = 0;
            for (int64_t j = 0; j < p->n; j++) {
                largest = fmax(largest, fabs(expected[j]));
                worst = fmax(worst, fabs((double)arrays[array][j] - expected[j]));
            }
            if (!(worst <= 1e-5 * largest))
                fail_msg("array %d of %s differs by %g of %g", array, p->name, worst, largest);
        }
        if (!is_layer_matrix(p))
            n_v += p->n;
    }
}

static void muon_moves_matrices_and_adamw_the_rest(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2"};
    bd_hyperparameters settings = SETTINGS;
    settings.optimizer = BD_OPTIMIZER_MUON;
    settings.momentum = 0.9;
    settings.warm_up_steps = 0;
    settings.learning_rate = 0.02;  // a step that is large beside the initial weights
    settings.rate_factors[0] = 0.75;
    settings.rate_factors[1] = 2;
    settings.rate_factors[2] = 0.5;
    for (int model = 0; model < 2; model++) {
        subject s;
        bd_error err;
        bd_trainer trainer;
        open_subject(&s, models[model]);
        const int64_t n = s.parameters.n_total;
        double *wanted = calloc(3 * (size_t)n, sizeof *wanted);
        float *gradients = calloc((size_t)n, sizeof *gradients);
        assert_true(wanted && gradients);
        for (int64_t i = 0; i < n; i++)
            wanted[i] = (double)s.weights[i];
        begin(&trainer, &s, settings);
        for (int step = 0; step < 3; step++) {
            bd_step_result result;
            check(bd_trainer_step(&trainer, &result, &err), &err);
            check(bd_model_get_gradients(&trainer.model, gradients, &err), &err);
            reference_step(&s.parameters, &settings, &result, gradients, wanted);
        }
        int64_t n_v = 0;
        for (size_t i = 0; i < s.parameters.n; i++)
            n_v += is_layer_matrix(&s.parameters.items[i]) ? 0 : s.parameters.items[i].n;
        assert_int_equal(trainer.optimizer.n_v, n_v);
        float *got = snapshot(&trainer);
        expect_same_state(&s.parameters, got, wanted);
        free(got);
        free(wanted);
        free(gradients);
        bd_trainer_release(&trainer);
        close_subject(&s);
    }
}

// ---- The average ----------------------------------------------------------------------------

static void download(const bd_trainer *trainer, const float *from, float *to)
{
    bd_error err;
    bd_backend *backend = trainer->needs.backend;
    const size_t n = (size_t)trainer->needs.parameters->n_total;
    check(backend->operations->download(backend, to, from, n * sizeof *to, &err), &err);
}

// The losses of the first rows of the dataset, by the weights that the model shows.
static float *losses_of(bd_model *model, const subject *s)
{
    static const int64_t numbers[] = {0, 1, 2};
    bd_error err;
    bd_batch batch = load_batch(&s->rows, numbers, 3);
    const bd_model_batch part = bd_batch_part(&batch, 0, 3);
    float *losses = calloc((size_t)(3 * batch.boundaries.seq_len), sizeof *losses);
    assert_non_null(losses);
    check(bd_model_losses(model, &part, losses, &err), &err);
    bd_batch_release(&batch);
    return losses;
}

// 1 - decay, but (10 - 1) / (10 + step) while that is more.
static void the_average_follows_the_weights(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    bd_trainer trainer;
    bd_hyperparameters settings = SETTINGS;
    settings.average = 0.25;
    open_subject(&s, "opt");
    const int64_t n = s.parameters.n_total;
    float *weights = calloc((size_t)n, sizeof *weights), *got = calloc((size_t)n, sizeof *got);
    double *wanted = calloc((size_t)n, sizeof *wanted);
    float *zeros = calloc((size_t)n, sizeof *zeros);
    assert_true(weights && got && wanted && zeros);
    begin(&trainer, &s, settings);
    set_state(&trainer, s.weights, zeros, zeros, s.weights);
    for (int64_t i = 0; i < n; i++)
        wanted[i] = (double)s.weights[i];
    for (int step = 1; step <= 6; step++) {
        bd_step_result result;
        check(bd_trainer_step(&trainer, &result, &err), &err);
        download(&trainer, trainer.model.masters, weights);
        const double rate = fmax(0.75, 9.0 / (10.0 + step));
        for (int64_t i = 0; i < n; i++)
            wanted[i] += rate * ((double)weights[i] - wanted[i]);
    }
    download(&trainer, trainer.optimizer.average, got);
    // Each of the six steps rounds three times, by 2^-24 at most. What ends near 0 has the errors
    // of the larger numbers that it was.
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs((double)got[i] - wanted[i]) <= 1e-6 * fmax(1e-3, fabs(wanted[i])));
    bd_trainer_release(&trainer);
    free(weights);
    free(got);
    free(wanted);
    free(zeros);
    close_subject(&s);
}

// A model that has the average's numbers as its weights computes the same, and showing the
// average changes nothing of the training.
static void showing_the_average_changes_no_training(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    bd_trainer trainer;
    bd_step_result result;
    float *whole;
    bd_hyperparameters settings = SETTINGS;
    settings.average = 0.5;
    open_subject(&s, "gpt2");
    const size_t n = (size_t)s.parameters.n_total;
    run(&s, settings, 4, &whole);
    begin(&trainer, &s, settings);
    float *average = calloc(n, sizeof *average);
    assert_non_null(average);
    for (int step = 0; step < 4; step++) {
        check(bd_trainer_step(&trainer, &result, &err), &err);
        float *trained = losses_of(&trainer.model, &s);
        check(bd_trainer_show_average(&trainer, &err), &err);
        float *shown = losses_of(&trainer.model, &s);
        bd_trainer_show_trained(&trainer);
        float *again = losses_of(&trainer.model, &s);
        const size_t losses_bytes = 3 * (size_t)trainer.model.seq_len * sizeof *shown;
        assert_memory_equal(again, trained, losses_bytes);
        assert_memory_not_equal(shown, trained, losses_bytes);

        bd_trainer other;
        begin(&other, &s, settings);
        download(&trainer, trainer.optimizer.average, average);
        check(bd_model_set_weights(&other.model, average, &err), &err);
        float *expected = losses_of(&other.model, &s);
        assert_memory_equal(shown, expected, losses_bytes);
        bd_trainer_release(&other);
        free(trained);
        free(shown);
        free(again);
        free(expected);
    }
    float *end = snapshot(&trainer);
    assert_memory_equal(end, whole, 3 * n * sizeof *end);
    bd_trainer_release(&trainer);
    free(average);
    free(whole);
    free(end);
    close_subject(&s);
}

// ---- Steps ----------------------------------------------------------------------------------

static void a_batch_without_targets_changes_nothing(void **state)
{
    (void)state;
    static const int empty[200] = {0};
    const packed_as how = {
        .seq_len = 16, .batch_rows = 8, .unit_bytes = 1 << 20, .vocab_size = 257};
    subject s;
    bd_error err;
    bd_trainer trainer;
    open_subject(&s, "opt");
    bd_rows_close(&s.rows);
    pack_documents(&s.rows, "dataset", empty, 200, how);
    begin(&trainer, &s, SETTINGS);
    float *before = snapshot(&trainer);
    for (int64_t step = 1; step <= 3; step++) {
        bd_step_result result;
        check(bd_trainer_step(&trainer, &result, &err), &err);
        assert_int_equal(result.step, step);
        assert_int_equal(result.outcome, BD_STEP_NO_TARGETS);
        assert_int_equal(result.n_targets, 0);
        assert_int_equal(result.n_tokens, 4 * 16);
        assert_true(result.loss == 0.0 && result.gradient_norm == 0.0);
    }
    float *after = snapshot(&trainer);
    assert_memory_equal(before, after, 3 * (size_t)s.parameters.n_total * sizeof *before);
    free(before);
    free(after);
    bd_trainer_release(&trainer);
    close_subject(&s);
}

static void expect_micro_batches_add_up(const subject *s, bd_loss_kind loss)
{
    float *whole_end, *parts_end;
    bd_hyperparameters settings = SETTINGS;
    settings.loss = loss;
    const bd_step_result whole = run(s, settings, 2, &whole_end);
    for (int64_t micro = 1; micro <= 5; micro++) {
        settings.micro_batch_rows = micro;  // 3: parts of 3 and 1; 5: more parts than rows
        const bd_step_result parts = run(s, settings, 2, &parts_end);
        assert_int_equal(whole.n_targets, parts.n_targets);
        assert_int_equal(whole.n_tokens, parts.n_tokens);
        // Floats are summed in another order.
        assert_true(fabs(whole.loss - parts.loss) <= 1e-5 * whole.loss);
        assert_true(fabs(whole.gradient_norm - parts.gradient_norm) <=
                    1e-4 * whole.gradient_norm);
        free(parts_end);
    }
    free(whole_end);
}

static void micro_batches_add_up_to_the_batch(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "opt");
    expect_micro_batches_add_up(&s, BD_LOSS_PER_TOKEN);
    expect_micro_batches_add_up(&s, BD_LOSS_PER_DOCUMENT);
    give_masked_rows(&s);
    expect_micro_batches_add_up(&s, BD_LOSS_PER_TOKEN);
    expect_micro_batches_add_up(&s, BD_LOSS_PER_DOCUMENT);
    close_subject(&s);
}

// The loss of the trainer's last batch at the subject's weights, from the losses of its tokens and
// from the bits of its rows, one by one.
static double mean_loss(const subject *s, const bd_batch *batch, bd_loss_kind kind)
{
    bd_error err;
    bd_model model;
    const int64_t n_rows = batch->boundaries.n_rows, seq_len = batch->boundaries.seq_len;
    const bd_model_options options = {.max_rows = n_rows, .seq_len = seq_len, .loss = kind};
    float *losses = malloc((size_t)(n_rows * seq_len) * sizeof *losses);
    check(bd_model_init(&model, s->backend, &s->parameters, &options, &err), &err);
    check(bd_model_set_weights(&model, s->weights, &err), &err);
    const bd_model_batch all = bd_batch_part(batch, 0, n_rows);
    check(bd_model_losses(&model, &all, losses, &err), &err);
    bd_hasher *hasher = bd_hasher_new();
    double sum = 0, sum_of_means = 0, n_targets = 0, n_documents = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        bd_row row;
        check(bd_rows_row(&s->rows, batch->row_numbers[r], hasher, &row, &err), &err);
        for (int64_t k = 0; k < row.n_segments; k++) {
            double own_sum = 0, n_own = 0;
            for (int64_t t = row.bounds[k] + 1; t < row.bounds[k + 1]; t++)
                if (!row.loss_mask || bd_bit_at(row.loss_mask, row.mask_bit + t)) {
                    own_sum += (double)losses[r * seq_len + t - 1];
                    n_own++;
                }
            sum += own_sum;
            n_targets += n_own;
            sum_of_means += n_own > 0 ? own_sum / n_own : 0;
            n_documents += n_own > 0;
        }
    }
    bd_hasher_free(hasher);
    bd_model_release(&model);
    free(losses);
    return kind == BD_LOSS_PER_TOKEN ? sum / n_targets : sum_of_means / n_documents;
}

static void the_loss_is_the_mean_that_was_asked_for(void **state)
{
    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        subject s;
        double losses[2];
        open_subject(&s, "gpt2");
        if (masked)
            give_masked_rows(&s);
        for (int kind = 0; kind < 2; kind++) {
            bd_error err;
            bd_trainer trainer;
            bd_step_result result;
            bd_hyperparameters settings = SETTINGS;
            settings.loss = (bd_loss_kind)kind;
            settings.micro_batch_rows = 3;
            begin(&trainer, &s, settings);
            check(bd_trainer_step(&trainer, &result, &err), &err);
            losses[kind] = mean_loss(&s, &trainer.balanced->batch, settings.loss);
            assert_true(fabs(result.loss - losses[kind]) <= 1e-6 * losses[kind]);
            bd_trainer_release(&trainer);
        }
        assert_true(fabs(losses[0] - losses[1]) > 1e-4 * losses[0]);
        close_subject(&s);
    }
}

static void a_resumed_training_is_the_one_that_did_not_stop(void **state)
{
    (void)state;
    subject s;
    bd_error err;
    bd_trainer trainer;
    float *whole, *half, *end;
    bd_step_result expected, result;
    open_subject(&s, "gpt2");
    expected = run(&s, SETTINGS, 8, &whole);
    run(&s, SETTINGS, 5, &half);
    const int64_t n = s.parameters.n_total;
    const bd_trainer_needs needs = needs_of(&s);
    check(bd_trainer_init(&trainer, &SETTINGS, &needs, 5, &err), &err);
    set_state(&trainer, half, half + n, half + 2 * n, NULL);
    for (int i = 0; i < 3; i++)
        check(bd_trainer_step(&trainer, &result, &err), &err);
    end = snapshot(&trainer);
    assert_int_equal(result.step, expected.step);
    assert_int_equal(result.outcome, expected.outcome);
    assert_true(result.loss == expected.loss);
    assert_true(result.gradient_norm == expected.gradient_norm);
    assert_true(result.learning_rate == expected.learning_rate);
    assert_int_equal(result.n_targets, expected.n_targets);
    assert_int_equal(result.n_tokens, expected.n_tokens);
    assert_memory_equal(end, whole, (size_t)(3 * n) * sizeof *end);
    bd_trainer_release(&trainer);
    free(whole);
    free(half);
    free(end);
    close_subject(&s);
}

// ---- Values that are not numbers ------------------------------------------------------------

// "on rows 10, 4, …" as the order has them for step 1.
static void list_first_rows(const subject *s, char *text, size_t size)
{
    bd_error err;
    bd_row_order order;
    check(bd_row_order_init(&order, &s->rows.manifests[0], SETTINGS.seed, &err), &err);
    snprintf(text, size, "on rows");
    for (int64_t g = 0; g < SETTINGS.batch_rows; g++) {
        int64_t row;
        check(bd_row_order_at(&order, g, &row, &err), &err);
        const size_t length = strlen(text);
        snprintf(text + length, size - length, "%s %d", g > 0 ? "," : "", (int)row);
    }
    bd_row_order_release(&order);
}

static void assert_step_fails_and_changes_nothing(const subject *s, bd_hyperparameters settings,
                                                  bd_error *err)
{
    bd_trainer trainer;
    bd_step_result result;
    begin(&trainer, s, settings);
    float *before = snapshot(&trainer);
    assert_int_equal(bd_trainer_step(&trainer, &result, err), BD_ERR_FORMAT);
    assert_int_equal(trainer.step, 0);
    float *after = snapshot(&trainer);
    assert_memory_equal(before, after, 3 * (size_t)s->parameters.n_total * sizeof *before);
    free(before);
    free(after);
    bd_trainer_release(&trainer);
}

static void a_loss_that_is_no_number_names_step_and_rows(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    char rows[100];
    open_subject(&s, "opt");
    s.weights[s.parameters.final_norm.gain] = NAN;
    assert_step_fails_and_changes_nothing(&s, SETTINGS, &err);
    list_first_rows(&s, rows, sizeof rows);
    assert_mentions(&err, "the loss of step 1 is ");
    assert_mentions(&err, "nan");
    assert_mentions(&err, rows);
    close_subject(&s);
}

static void many_rows_are_counted_where_they_cannot_be_listed(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_hyperparameters settings = SETTINGS;
    open_subject(&s, "opt");
    s.weights[s.parameters.final_norm.gain] = NAN;
    settings.batch_rows = 300;
    settings.micro_batch_rows = 10;
    assert_step_fails_and_changes_nothing(&s, settings, &err);
    const char *more = strstr(err.message, " and ");
    assert_non_null(more);
    int listed = 1, left = 0;
    for (const char *c = strstr(err.message, "rows"); c < more; c++)
        listed += *c == ',';
    assert_int_equal(sscanf(more, " and %d more", &left), 1);
    assert_int_equal(listed + left, 300);
    assert_string_equal(err.message + strlen(err.message) - 5, " more");
    close_subject(&s);
}

static const bd_operations *honest;
static float seen_z_loss;

static bd_status seen_cross_entropy(bd_backend *backend, const bd_cross_entropy_args *args,
                                    bd_error *err)
{
    seen_z_loss = args->z_loss;
    return honest->cross_entropy(backend, args, err);
}

static void z_loss_reaches_the_loss(void **state)
{
    (void)state;
    subject s;
    float *end;
    bd_hyperparameters settings = SETTINGS;
    settings.z_loss = 1e-4;
    open_subject(&s, "opt");
    honest = s.honest;
    s.operations.cross_entropy = seen_cross_entropy;
    run(&s, settings, 1, &end);
    free(end);
    assert_true(seen_z_loss == 1e-4f);
    run(&s, SETTINGS, 1, &end);
    free(end);
    assert_true(seen_z_loss == 0.0f);
    close_subject(&s);
}

static bd_status infinite_embedding_backward(bd_backend *backend,
                                             const bd_embedding_backward_args *args,
                                             bd_error *err)
{
    BD_TRY(honest->embedding_backward(backend, args, err));
    args->d_position_table[0] = INFINITY;
    return BD_OK;
}

static void a_gradient_that_is_no_number_is_named_as_such(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    char rows[100];
    open_subject(&s, "gpt2");
    honest = s.honest;
    s.operations.embedding_backward = infinite_embedding_backward;
    assert_step_fails_and_changes_nothing(&s, SETTINGS, &err);
    list_first_rows(&s, rows, sizeof rows);
    assert_mentions(&err, "the gradient's norm of step 1 is inf, ");
    assert_mentions(&err, rows);
    close_subject(&s);
}

// ---- Refusals -------------------------------------------------------------------------------

static void a_model_that_does_not_fit_the_data_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_trainer trainer;
    open_subject(&s, "opt");
    s.rows.manifests[0].config.vocab_size = 258;
    const bd_trainer_needs needs = needs_of(&s);
    assert_int_equal(bd_trainer_init(&trainer, &SETTINGS, &needs, 0, &err), BD_ERR_ARGUMENT);
    assert_string_equal(
        err.message,
        "the model has a vocabulary of 257, the dataset's tokenizer (bytes) of 258: a new "
        "model takes --vocab-size 258");
    bd_trainer_release(&trainer);
    s.rows.manifests[0].config.vocab_size = 257;
    s.rows.manifests[0].totals.longest_segment = 65;
    assert_int_equal(bd_check_fit(&s.parameters.config, &s.rows, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message,
                        "the model has 64 positions, the dataset a segment of 65 tokens: "
                        "bindery repack --seq-len 64 makes shorter ones");
    s.rows.manifests[0].totals.longest_segment = 64;
    check(bd_check_fit(&s.parameters.config, &s.rows, &err), &err);
    s.rows.manifests[0].config.vocab_size = 256;  // the model's table has a row to spare
    check(bd_check_fit(&s.parameters.config, &s.rows, &err), &err);
    close_subject(&s);
}

static void a_step_beyond_all_counting_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_trainer trainer;
    open_subject(&s, "opt");
    const bd_trainer_needs needs = needs_of(&s);
    assert_int_equal(bd_trainer_init(&trainer, &SETTINGS, &needs, INT64_MAX / 2, &err),
                     BD_ERR_ARGUMENT);
    assert_mentions(&err, "too far");
    bd_trainer_release(&trainer);
    close_subject(&s);
}

static void a_damaged_row_ends_the_training(void **state)
{
    (void)state;
    static const int lengths[] = {40, 3, 9, 14, 31, 1, 60, 5, 22, 8, 17, 29, 2, 6, 12, 40};
    const packed_as how = {
        .seq_len = 32, .batch_rows = 8, .unit_bytes = 1 << 20, .vocab_size = 257};
    subject s;
    bd_error err = {0};
    bd_trainer trainer;
    bd_step_result result;
    open_subject(&s, "opt");
    bd_rows_close(&s.rows);
    pack_documents(&s.rows, "dataset", lengths, sizeof lengths / sizeof lengths[0], how);
    damage_row(&s.rows, "dataset", 0);
    begin(&trainer, &s, SETTINGS);
    bd_status status = BD_OK;
    for (int i = 0; status == BD_OK && i < 10; i++)
        status = bd_trainer_step(&trainer, &result, &err);
    assert_int_equal(status, BD_ERR_FORMAT);
    assert_mentions(&err, "row 0");
    bd_trainer_release(&trainer);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learning_rate_rises_then_falls_to_its_minimum),
        cmocka_unit_test(learning_rate_without_a_warm_up_begins_near_its_peak),
        cmocka_unit_test(learning_rate_only_rises_if_the_warm_up_never_ends),
        cmocka_unit_test(settings_are_kept_in_full),
        cmocka_unit_test(decay_is_for_matrices_alone),
        cmocka_unit_test(the_gradient_is_clipped_to_the_norm),
        test_inside_folder(z_loss_reaches_the_loss),
        test_inside_folder(the_average_follows_the_weights),
        test_inside_folder(showing_the_average_changes_no_training),
        test_inside_folder(muon_moves_matrices_and_adamw_the_rest),
        test_inside_folder(a_batch_without_targets_changes_nothing),
        test_inside_folder(micro_batches_add_up_to_the_batch),
        test_inside_folder(the_loss_is_the_mean_that_was_asked_for),
        cmocka_unit_test(a_resumed_training_is_the_one_that_did_not_stop),
        cmocka_unit_test(a_loss_that_is_no_number_names_step_and_rows),
        cmocka_unit_test(many_rows_are_counted_where_they_cannot_be_listed),
        cmocka_unit_test(a_gradient_that_is_no_number_is_named_as_such),
        cmocka_unit_test(a_model_that_does_not_fit_the_data_is_refused),
        cmocka_unit_test(a_step_beyond_all_counting_is_refused),
        test_inside_folder(a_damaged_row_ends_the_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
