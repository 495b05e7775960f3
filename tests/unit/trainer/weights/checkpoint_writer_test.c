#include "trainer/weights/checkpoint_writer.h"

#include "tests/unit/temporary_folder.h"
#include "tests/unit/trainer/trainer_fixture.h"

// Fills a step with the subject's weights as weights and moments.
static bd_checkpoint_state state_of(const subject *s, int64_t step, const bd_json *json)
{
    return (bd_checkpoint_state){
        .step = step,
        .parameters = &s->parameters,
        .arrays = {s->weights, s->weights, s->weights},
        .training = json,
        .data = json,
        .n_ranks = 1,
    };
}

static bd_checkpoint_writer *open_writer(const subject *s, const char *folder, int64_t n_kept,
                                         bool has_memory)
{
    bd_error err;
    bd_checkpoint_writer *writer;
    const int64_t n = s->parameters.n_total;
    const bd_checkpoint_policy policy = {folder, n_kept, has_memory, {n, n, n}};
    check(bd_checkpoint_writer_new(&writer, &policy, &err), &err);
    return writer;
}

// Passes the step to the writer as a run does.
static bd_status save(bd_checkpoint_writer *writer, const bd_checkpoint_state *step,
                      bd_error *err)
{
    float *arrays[BD_STATE_ARRAYS];
    bd_checkpoint_state handed = *step;
    BD_TRY(bd_checkpoint_writer_prepare(writer, arrays, err));
    for (int i = 0; arrays[0] && i < BD_STATE_AVERAGE; i++) {
        memcpy(arrays[i], step->arrays[i], (size_t)step->parameters->n_total * sizeof(float));
        handed.arrays[i] = arrays[i];
    }
    return bd_checkpoint_writer_save(writer, &handed, err);
}

// The written step is the one that was passed, although the weights changed right after.
static void training_goes_on_while_a_step_is_written(void **state)
{
    static const bool has_memory[] = {true, false};
    subject s;
    bd_error err;
    open_subject(&s, "opt");
    const size_t n = (size_t)s.parameters.n_total;
    float *before = malloc(n * sizeof *before), *loaded = malloc(n * sizeof *loaded);
    assert_true(before && loaded);
    bd_json *json = bd_json_object();
    for (size_t i = 0; i < 2; i++) {
        bd_checkpoint checkpoint;
        bd_checkpoint_writer *writer = open_writer(&s, *state, 0, has_memory[i]);
        const bd_checkpoint_state handed = state_of(&s, (int64_t)i, json);
        memcpy(before, s.weights, n * sizeof *before);
        check(save(writer, &handed, &err), &err);
        for (size_t k = 0; k < n; k++)
            s.weights[k] += 1.0f;
        check(bd_checkpoint_writer_finish(writer, &err), &err);
        check(bd_checkpoint_load(&checkpoint, *state, (int64_t)i, &err), &err);
        check(bd_checkpoint_load_tensors(&checkpoint, &s.parameters, loaded, NULL, &err), &err);
        assert_memory_equal(loaded, before, n * sizeof *before);
        bd_checkpoint_release(&checkpoint);
        bd_checkpoint_writer_free(writer);
    }
    bd_json_free(json);
    free(before);
    free(loaded);
    close_subject(&s);
}

static void older_steps_go_once_the_new_one_is_there(void **state)
{
    subject s;
    bd_error err;
    open_subject(&s, "opt");
    bd_json *json = bd_json_object();
    bd_checkpoint_writer *writer = open_writer(&s, *state, 2, true);
    for (int64_t step = 1; step <= 5; step++) {
        const bd_checkpoint_state handed = state_of(&s, step, json);
        check(save(writer, &handed, &err), &err);
    }
    bd_checkpoint_writer_free(writer);  // waits for the last one
    assert_int_equal(count_entries(*state), 4);
    int64_t step;
    check(bd_checkpoint_find_up_to(*state, 4, &step, &err), &err);
    assert_int_equal(step, 4);
    check(bd_checkpoint_find_latest(*state, &step, &err), &err);
    assert_int_equal(step, 5);
    bd_json_free(json);
    close_subject(&s);
}

static void a_failure_is_told_to_whoever_asks_next(void **state)
{
    subject s;
    bd_error err = {0};
    open_subject(&s, "opt");
    bd_json *json = bd_json_object();
    char missing[4096];
    snprintf(missing, sizeof missing, "%s", in(*state, "missing"));
    const bd_checkpoint_state handed = state_of(&s, 7, json);

    bd_checkpoint_writer *writer = open_writer(&s, missing, 0, false);
    assert_int_equal(save(writer, &handed, &err), BD_ERR_IO);
    assert_mentions(&err, "cannot save step 7");
    bd_checkpoint_writer_free(writer);

    writer = open_writer(&s, missing, 0, true);
    check(bd_checkpoint_writer_check(writer, &err), &err);
    check(save(writer, &handed, &err), &err);
    bd_status status = BD_OK;
    while (status == BD_OK)  // at any time after it has failed
        status = bd_checkpoint_writer_check(writer, &err);
    assert_int_equal(status, BD_ERR_IO);
    assert_mentions(&err, "cannot save step 7");
    err = (bd_error){0};
    assert_int_equal(save(writer, &handed, &err), BD_ERR_IO);
    assert_mentions(&err, "cannot save step 7");
    assert_int_equal(bd_checkpoint_writer_finish(writer, &err), BD_ERR_IO);
    bd_checkpoint_writer_free(writer);
    bd_json_free(json);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(training_goes_on_while_a_step_is_written),
        test_in_folder(older_steps_go_once_the_new_one_is_there),
        test_in_folder(a_failure_is_told_to_whoever_asks_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
