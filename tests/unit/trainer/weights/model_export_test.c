#include "trainer/weights/model_export.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "common/base/folder.h"
#include "common/base/json.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/unit/temporary_folder.h"
#include "trainer/weights/checkpoint.h"
#include "trainer/weights/pretrained.h"
#include "trainer/weights/safetensors.h"

#define SMALL(name)               \
    {.family = &bd_family_##name, \
     .n_layers = 2,               \
     .n_channels = 6,             \
     .n_heads = 3,                \
     .n_feed_forward = 5,         \
     .n_positions = 7,            \
     .n_vocabulary = 257},
static const bd_model_config families[] = {BD_FOR_EACH_FAMILY(SMALL)};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

// A number for weight `i` of step `step`; some are halfway between two numbers of bf16.
static float weight_of(int64_t step, int64_t i)
{
    return ldexpf(1 + (float)i / 256 + (float)step / 1024, (int)(i % 40) - 20);
}

static bd_json *describe_data(const char *fingerprint)
{
    bd_json *data = bd_json_object();
    bd_json_set_string(data, "tokenizer", "bytes");
    bd_json_set_string(data, "fingerprint", fingerprint);
    bd_json_set_integer(data, "separator", 256);
    bd_json_set_null(data, "bos");
    return data;
}

// A run in which the weights of each step are those of weight_of().
static void save_step(const char *run, const bd_model_config *config, int64_t step,
                      const char *fingerprint)
{
    bd_error err = {0};
    bd_parameters parameters;
    assert_int_equal(bd_parameters_init(&parameters, config, NULL), BD_OK);
    float *weights = malloc((size_t)parameters.n_total * sizeof *weights);
    assert_non_null(weights);
    for (int64_t i = 0; i < parameters.n_total; i++)
        weights[i] = weight_of(step, i);
    bd_json *training = bd_json_object(), *data = describe_data(fingerprint);
    bd_json_set_integer(training, "steps", 9);
    const bd_checkpoint_state state = {.step = step,
                                       .n_ranks = 1,
                                       .parameters = &parameters,
                                       .arrays = {weights, weights, weights},
                                       .training = training,
                                       .data = data};
    if (bd_checkpoint_save(run, &state, &err) != BD_OK)
        fail_msg("%s", err.message);
    bd_json_free(training);
    bd_json_free(data);
    free(weights);
    bd_parameters_release(&parameters);
}

static const char *make_run(const bd_model_config *config)
{
    const char *run = config->family->name;
    add_folder(run);
    save_step(run, config, 3, bd_tokenizer_bytes()->fingerprint.hex);
    save_step(run, config, 12, bd_tokenizer_bytes()->fingerprint.hex);
    return run;
}

static void export_model(const bd_model_export_job *job, bd_model_export_result *result)
{
    bd_error err = {0};
    if (bd_model_export(job, result, &err) != BD_OK)
        fail_msg("%s", err.message);
}

// The exported model is that of `step`, rounded or not.
static void assert_exported(const char *folder, const bd_model_config *config, int64_t step,
                            bd_type type)
{
    bd_error err = {0};
    bd_model_config read, complete = *config;
    bd_parameters parameters;
    assert_int_equal(bd_model_config_complete(&complete, &err), BD_OK);
    assert_int_equal(bd_pretrained_config(&read, folder, &err), BD_OK);
    assert_memory_equal(&read, &complete, sizeof read);
    assert_int_equal(bd_parameters_init(&parameters, &read, NULL), BD_OK);
    float *weights = malloc((size_t)parameters.n_total * sizeof *weights);
    if (bd_pretrained_read(folder, &parameters, weights, &err) != BD_OK)
        fail_msg("%s", err.message);
    for (int64_t i = 0; i < parameters.n_total; i++) {
        const float exact = weight_of(step, i);
        const float expected =
            type == BD_BF16 ? bd_float_of_bf16(bd_bf16_of_float(exact)) : exact;
        assert_true(weights[i] == expected);
    }
    free(weights);
    bd_parameters_release(&parameters);
}

static void the_latest_step_is_exported(void **state)
{
    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        bd_model_export_result result;
        const char *run = make_run(&families[f]), *out = families[f].family->architecture;
        export_model(
            &(bd_model_export_job){run, out, BD_LATEST_STEP, BD_FLOAT, BD_WEIGHTS_AUTO},
            &result);
        assert_int_equal(result.step, 12);
        assert_ptr_equal(result.family, families[f].family);
        assert_exported(out, &families[f], 12, BD_FLOAT);
    }
}

static void another_step_and_type_are_exported(void **state)
{
    (void)state;
    for (int f = 0; f < N_FAMILIES; f++) {
        bd_model_export_result result;
        const char *run = make_run(&families[f]), *out = families[f].family->architecture;
        add_folder(out);  // empty, which is as good as absent
        export_model(&(bd_model_export_job){run, out, 3, BD_BF16, BD_WEIGHTS_AUTO}, &result);
        assert_int_equal(result.step, 3);
        assert_exported(out, &families[f], 3, BD_BF16);
    }
}

static void the_file_is_one_that_transformers_take(void **state)
{
    (void)state;
    bd_model_export_result result;
    const char *run = make_run(&families[0]), *out = "out";
    export_model(&(bd_model_export_job){run, out, BD_LATEST_STEP, BD_BF16, BD_WEIGHTS_AUTO},
                 &result);
    bd_safetensors *file;
    assert_int_equal(bd_safetensors_open(&file, in(out, "model.safetensors"), NULL), BD_OK);
    const bd_tensor_view *table =
        bd_safetensors_find(file, "model.decoder.embed_tokens.weight");
    assert_int_equal(table->dtype, BD_DTYPE_BF16);
    assert_int_equal(table->shape[0], 257);  // not rounded up
    assert_null(bd_safetensors_find(file, "lm_head.weight"));
    for (size_t i = 0; i < bd_safetensors_count(file); i++)
        assert_null(strstr(bd_safetensors_at(file, i)->name, "adamw"));
    bd_safetensors_close(file);

    static const struct {
        const char *file, *key, *value;
    } texts[] = {{"config.json", "torch_dtype", "bfloat16"},
                 {"config.json", "model_type", "opt"},
                 {"tokenizer_config.json", "eos_token", "<|endoftext|>"},
                 {"tokenizer_config.json", "tokenizer_class", "PreTrainedTokenizerFast"},
                 {"tokenizer.json", "version", "1.0"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bd_json *json;
        const char *value;
        assert_int_equal(bd_json_read_file(in(out, texts[i].file), 1 << 20, &json, NULL),
                         BD_OK);
        assert_int_equal(bd_json_get_string(json, texts[i].key, &value, NULL), BD_OK);
        assert_string_equal(value, texts[i].value);
        bd_json_free(json);
    }
    bd_json *json;
    int64_t end;
    assert_int_equal(bd_json_read_file(in(out, "generation_config.json"), 1 << 20, &json, NULL),
                     BD_OK);
    assert_int_equal(bd_json_get_integer(json, "eos_token_id", 0, 256, &end, NULL), BD_OK);
    assert_int_equal(end, 256);
    bd_json_free(json);
}

static void assert_refused(const bd_model_export_job *job, bd_status status, const char *reason)
{
    bd_error err = {0};
    bd_model_export_result result;
    const bd_status actual = bd_model_export(job, &result, &err);
    if (actual != status || !strstr(err.message, reason))
        fail_msg("expected %d and '%s', not %d and '%s'", status, reason, actual, err.message);
}

static void a_folder_that_is_not_empty_is_left_alone(void **state)
{
    (void)state;
    const char *run = make_run(&families[0]), *out = "out";
    add_folder(out);
    write_text(in(out, "notes"), "mine");
    const bd_model_export_job job = {run, out, BD_LATEST_STEP, BD_FLOAT, BD_WEIGHTS_AUTO};
    assert_refused(&job, BD_ERR_ARGUMENT, "not empty ('notes')");
    assert_int_equal(count_entries(out), 1);
    assert_file_holds(in(out, "notes"), "mine");
    // Files of a killed process do not prevent an export.
    assert_int_equal(remove(in(out, "notes")), 0);
    write_text(in(out, ".config.json.a1b2c3d4.part"), "half");
    bd_model_export_result result;
    export_model(&job, &result);
    assert_false(exists(in(out, ".config.json.a1b2c3d4.part")));
    assert_refused(&job, BD_ERR_ARGUMENT, "not empty");
    assert_exported(out, &families[0], 12, BD_FLOAT);
}

static void a_run_that_cannot_be_exported_makes_no_folder(void **state)
{
    (void)state;
    const char *run = make_run(&families[0]), *out = "out";
    assert_refused(&(bd_model_export_job){run, out, 4, BD_FLOAT, BD_WEIGHTS_AUTO}, BD_ERR_IO,
                   "step-00000004.json");
    save_step(run, &families[0], 20, "00000000000000000000000000000000");
    assert_refused(&(bd_model_export_job){run, out, BD_LATEST_STEP, BD_FLOAT, BD_WEIGHTS_AUTO},
                   BD_ERR_ARGUMENT, "another tokenizer");
    write_text(in(run, "step-00000012.safetensors"), "damaged");
    assert_refused(&(bd_model_export_job){run, out, 12, BD_FLOAT, BD_WEIGHTS_AUTO},
                   BD_ERR_FORMAT, "step-00000012.safetensors");
    assert_refused(&(bd_model_export_job){".", out, BD_LATEST_STEP, BD_FLOAT, BD_WEIGHTS_AUTO},
                   BD_ERR_ARGUMENT, "holds no checkpoint");
    assert_false(exists(out));
}

static void a_write_that_fails_leaves_no_file(void **state)
{
    (void)state;
    const char *run = make_run(&families[1]), *out = "out";
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 3; i++) {  // in the weights, in tokenizer.json, in the others
        static const rlim_t limits[] = {5000, 3000, 50};
        small = (struct rlimit){limits[i], before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        bd_error err = {0};
        bd_model_export_result result;
        const bd_status status = bd_model_export(
            &(bd_model_export_job){run, out, BD_LATEST_STEP, BD_BF16, BD_WEIGHTS_AUTO}, &result,
            &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, BD_ERR_IO);
        assert_non_null(strstr(err.message, "cannot write"));
        assert_false(exists(out));
    }
    signal(SIGXFSZ, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_inside_folder(the_latest_step_is_exported),
        test_inside_folder(another_step_and_type_are_exported),
        test_inside_folder(the_file_is_one_that_transformers_take),
        test_inside_folder(a_folder_that_is_not_empty_is_left_alone),
        test_inside_folder(a_run_that_cannot_be_exported_makes_no_folder),
        test_inside_folder(a_write_that_fails_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
