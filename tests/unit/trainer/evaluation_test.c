#include "trainer/evaluation.h"

#include <math.h>

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"

static bd_evaluation evaluate(const subject *s, int64_t batch_rows, int64_t max_rows)
{
    bd_error err;
    bd_model model;
    bd_evaluation evaluation;
    const bd_model_options options = {.max_rows = batch_rows,
                                      .seq_len = s->rows.manifests[0].config.seq_len};
    check(bd_model_init(&model, s->backend, &s->parameters, &options, &err), &err);
    check(bd_model_set_weights(&model, s->weights, &err), &err);
    check(bd_evaluate(&evaluation, &model, &s->rows, bd_tokenizer_bytes(), max_rows, &err),
          &err);
    bd_model_release(&model);
    return evaluation;
}

static double golden_loss(const char *path)
{
    bd_error err;
    double value;
    const bd_json *loss, *packed;
    bd_json *json = read_golden(path);
    check(bd_json_get_object(json, "loss", &loss, &err), &err);
    check(bd_json_get_object(loss, "packed", &packed, &err), &err);
    check(bd_json_get_real(packed, "double", 0, 1000, &value, &err), &err);
    bd_json_free(json);
    return value;
}

static void the_loss_is_pytorchs(void **state)
{
    (void)state;
    static const char *const models[] = {"opt", "gpt2"};
    static const char *const paths[] = {"opt/expected.json", "gpt2/expected.json"};
    static const int64_t batches[] = {1, 4, 27, 40};
    for (size_t m = 0; m < 2; m++) {
        subject s;
        open_subject(&s, models[m]);
        const double expected = golden_loss(paths[m]);
        for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
            bd_evaluation e = evaluate(&s, batches[i], 0);
            assert_int_equal(e.n_rows, 27);
            assert_int_equal(e.total.n_targets, 1637);
            assert_true(fabs(bd_evaluation_mean(&e.total) - expected) < 1e-6);
            assert_int_equal(e.n_sources, 1);
            assert_memory_equal(&e.sources[0].sum, &e.total, sizeof e.total);
            bd_evaluation_release(&e);
            bd_evaluation_release(&e);
        }
        close_subject(&s);
    }
}

// What is not trained is not evaluated, and the mean is over the targets whatever the model's loss.
static void only_trained_tokens_count(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "opt");
    give_masked_rows(&s);
    const bd_figures *totals = &s.rows.manifests[0].totals;
    bd_evaluation all = evaluate(&s, 4, 0);
    assert_int_equal(all.total.n_targets, totals->targets);
    assert_true(totals->targets < totals->packed - totals->segments);
    assert_true(bd_evaluation_mean(&all.total) > 1 && bd_evaluation_mean(&all.total) < 20);
    bd_evaluation one = evaluate(&s, 1, 0);
    assert_true(fabs(one.total.loss - all.total.loss) <= 1e-6 * all.total.loss);
    bd_evaluation_release(&one);
    bd_evaluation_release(&all);
    close_subject(&s);
}

// For rows 0 … 26, the sum over the parts is the whole, and the rows of a part are spread.
static void fewer_rows_are_spread_evenly(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "opt");
    bd_evaluation all = evaluate(&s, 4, 27), three = evaluate(&s, 2, 3);
    assert_int_equal(three.n_rows, 3);
    int64_t n_targets = 0;
    static const int64_t rows[] = {0, 9, 18};
    for (size_t i = 0; i < 3; i++) {
        bd_batch batch = load_batch(&s.rows, &rows[i], 1);
        n_targets += batch.targets.n_targets;
        bd_batch_release(&batch);
    }
    assert_int_equal(three.total.n_targets, n_targets);
    assert_true(three.total.loss > 0 && three.total.loss < all.total.loss);
    bd_evaluation most = evaluate(&s, 4, 1000);
    assert_memory_equal(&most.total, &all.total, sizeof all.total);
    bd_evaluation_release(&all);
    bd_evaluation_release(&three);
    bd_evaluation_release(&most);
    close_subject(&s);
}

static void nothing_to_predict_is_not_a_number(void **state)
{
    (void)state;
    const bd_evaluation_sum nothing = {0}, no_text = {.loss = 2, .n_targets = 1};
    assert_true(isnan(bd_evaluation_mean(&nothing)));
    assert_true(isnan(bd_evaluation_bits_per_byte(&nothing)));
    assert_true(bd_evaluation_mean(&no_text) == 2);
    assert_true(isnan(bd_evaluation_bits_per_byte(&no_text)));
    const bd_evaluation_sum some = {.loss = M_LN2 * 6, .n_targets = 2, .n_bytes = 3};
    assert_true(fabs(bd_evaluation_bits_per_byte(&some) - 2) < 1e-15);
}

static void a_loss_that_is_no_number_names_its_row(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_model model;
    bd_evaluation evaluation;
    open_subject(&s, "gpt2");
    s.weights[s.parameters.final_norm.gain] = NAN;
    const bd_model_options options = {.max_rows = 2, .seq_len = 64};
    check(bd_model_init(&model, s.backend, &s.parameters, &options, &err), &err);
    check(bd_model_set_weights(&model, s.weights, &err), &err);
    assert_int_equal(bd_evaluate(&evaluation, &model, &s.rows, NULL, 0, &err), BD_ERR_FORMAT);
    assert_mentions(&err, "the loss of token 0 of row 0 is ");
    bd_model_release(&model);
    close_subject(&s);
}

static void a_model_without_room_for_a_row_is_refused(void **state)
{
    (void)state;
    subject s;
    bd_error err = {0};
    bd_model model;
    bd_evaluation evaluation;
    open_subject(&s, "opt");
    const bd_model_options options = {.max_rows = 4, .seq_len = 63};
    check(bd_model_init(&model, s.backend, &s.parameters, &options, &err), &err);
    assert_int_equal(bd_evaluate(&evaluation, &model, &s.rows, NULL, 0, &err), BD_ERR_ARGUMENT);
    assert_mentions(&err, "rows have 64 tokens, the model's buffers room for 63");
    bd_model_release(&model);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(only_trained_tokens_count),
        cmocka_unit_test(the_loss_is_pytorchs),
        cmocka_unit_test(fewer_rows_are_spread_evenly),
        cmocka_unit_test(nothing_to_predict_is_not_a_number),
        cmocka_unit_test(a_loss_that_is_no_number_names_its_row),
        cmocka_unit_test(a_model_without_room_for_a_row_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
