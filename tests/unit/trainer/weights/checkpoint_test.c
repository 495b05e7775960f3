#include "trainer/weights/checkpoint.h"

#include <signal.h>
#include <sys/resource.h>

#include "common/base/file.h"
#include "tests/unit/temporary_folder.h"
#include "trainer/weights/safetensors.h"

static const bd_model_config tiny = {
    .family = &bd_family_opt,
    .n_layers = 1,
    .n_channels = 2,
    .n_heads = 1,
    .n_feed_forward = 3,
    .n_positions = 4,
    .n_vocabulary = 5,
};

// A whole training state; `seed` changes every number of it.
typedef struct example {
    bd_parameters parameters;
    float *weights, *m, *v;
    bd_json *training, *data;
} example;

static float *numbers(const example *e, float first)
{
    float *values = malloc((size_t)e->parameters.n_total * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < e->parameters.n_total; i++)
        values[i] = first + (float)i / 8;
    return values;
}

static example make_example(const bd_model_config *config, int seed)
{
    example e = {0};
    assert_int_equal(bd_parameters_init(&e.parameters, config, NULL), BD_OK);
    e.weights = numbers(&e, (float)seed);
    e.m = numbers(&e, (float)seed + 10000);
    e.v = numbers(&e, (float)seed + 20000);
    e.training = bd_json_object();
    bd_json_set_real(e.training, "learning_rate", 0.1 + seed);
    e.data = bd_json_object();
    bd_json_set_integer(e.data, "seq_len", 2048);
    return e;
}

static void free_example(example *e)
{
    bd_parameters_release(&e->parameters);
    free(e->weights);
    free(e->m);
    free(e->v);
    bd_json_free(e->training);
    bd_json_free(e->data);
}

static bd_status save(const char *folder, int64_t step, const example *e, bd_error *err)
{
    const bd_checkpoint_state state = {
        .step = step,
        .parameters = &e->parameters,
        .arrays = {e->weights, e->m, e->v},
        .training = e->training,
        .data = e->data,
        .n_ranks = 2,
        .isa = "avx2",
        .spike_guard = {3, 4, 5, 6.5},
    };
    return bd_checkpoint_save(folder, &state, err);
}

static void save_tiny(const char *folder, int64_t step, int seed)
{
    example e = make_example(&tiny, seed);
    bd_error err = {0};
    if (save(folder, step, &e, &err) != BD_OK)
        fail_msg("%s", err.message);
    free_example(&e);
}

// Loads the json, and the tensors for a model of `config`.
static bd_status load_as(const char *folder, int64_t step, const bd_model_config *config,
                         bd_error *err)
{
    bd_checkpoint checkpoint;
    BD_TRY(bd_checkpoint_load(&checkpoint, folder, step, err));
    example e = make_example(config, 0);
    const bd_moments moments = {{0, e.parameters.n_total}, e.m, e.v, NULL};
    const bd_status status =
        bd_checkpoint_load_tensors(&checkpoint, &e.parameters, e.weights, &moments, err);
    free_example(&e);
    bd_checkpoint_release(&checkpoint);
    return status;
}

static void assert_load_fails(const char *folder, const bd_model_config *config,
                              const char *reason)
{
    bd_error err = {0};
    const bd_status status = load_as(folder, 100, config, &err);
    if (status != BD_ERR_FORMAT || !strstr(err.message, reason) ||
        !strstr(err.message, "step-00000100."))
        fail_msg("expected '%s', not %d and '%s'", reason, status, err.message);
}

static void assert_holds(const char *folder, int64_t step, int seed)
{
    bd_checkpoint checkpoint;
    bd_error err = {0};
    if (bd_checkpoint_load(&checkpoint, folder, step, &err) != BD_OK)
        fail_msg("%s", err.message);
    assert_int_equal(checkpoint.step, step);
    assert_int_equal(checkpoint.n_ranks, 2);
    assert_string_equal(checkpoint.isa, "avx2");
    const bd_spike_guard spike_guard = {3, 4, 5, 6.5};
    assert_memory_equal(&checkpoint.spike_guard, &spike_guard, sizeof spike_guard);
    char where[256] = "";
    bd_json *here = bd_model_config_to_json(&checkpoint.config);
    bd_json *there = bd_model_config_to_json(&tiny);
    assert_false(bd_json_difference(here, there, where, sizeof where));
    bd_json_free(here);
    bd_json_free(there);

    example expected = make_example(&checkpoint.config, seed);
    example actual = make_example(&checkpoint.config, seed + 500);
    assert_false(bd_json_difference(checkpoint.training, expected.training, where, 256));
    assert_false(bd_json_difference(checkpoint.data, expected.data, where, 256));
    const bd_moments moments = {{0, actual.parameters.n_total}, actual.m, actual.v, NULL};
    if (bd_checkpoint_load_tensors(&checkpoint, &actual.parameters, actual.weights, &moments,
                                   &err) != BD_OK)
        fail_msg("%s", err.message);
    const size_t size_bytes = (size_t)expected.parameters.n_total * sizeof(float);
    assert_memory_equal(actual.weights, expected.weights, size_bytes);
    assert_memory_equal(actual.m, expected.m, size_bytes);
    assert_memory_equal(actual.v, expected.v, size_bytes);
    free_example(&expected);
    free_example(&actual);
    bd_checkpoint_release(&checkpoint);
}

// ---- Saving and loading ---------------------------------------------------------------------

static void saved_state_is_loaded_bit_for_bit(void **state)
{
    save_tiny(*state, 100, 1);
    assert_int_equal(count_entries(*state), 2);
    assert_holds(*state, 100, 1);
}

static void both_families_and_any_step_are_saved(void **state)
{
    bd_model_config config = tiny;
    config.family = &bd_family_gpt2;
    config.n_layers = 2;
    static const int64_t steps[] = {0, 99999999, 100000000, INT64_MAX};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int64_t latest;
        example e = make_example(&config, 1);
        assert_int_equal(save(*state, steps[i], &e, NULL), BD_OK);
        assert_int_equal(load_as(*state, steps[i], &config, NULL), BD_OK);
        assert_int_equal(bd_checkpoint_find_latest(*state, &latest, NULL), BD_OK);
        assert_true(latest == steps[i]);
        free_example(&e);
    }
    assert_int_equal(count_entries(*state), 8);
}

static void tensors_have_hugging_faces_names_and_their_moments_prefixes(void **state)
{
    save_tiny(*state, 100, 1);
    bd_safetensors *file;
    assert_int_equal(bd_safetensors_open(&file, in(*state, "step-00000100.safetensors"), NULL),
                     BD_OK);
    example e = make_example(&tiny, 1);
    assert_int_equal(bd_safetensors_count(file), 3 * e.parameters.n);
    static const char name[] = "model.decoder.layers.0.self_attn.k_proj.weight";
    size_t i = 0;
    while (strcmp(e.parameters.items[i].name, name) != 0)
        i++;
    const int64_t offset = e.parameters.items[i].offset, shape[] = {2, 2};
    const struct {
        const char *prefix;
        const float *values;
    } kinds[] = {{"", e.weights}, {"adamw.m.", e.m}, {"adamw.v.", e.v}};
    for (int k = 0; k < 3; k++) {
        char full[100];
        float values[4];
        snprintf(full, sizeof full, "%s%s", kinds[k].prefix, name);
        assert_int_equal(bd_safetensors_copy_f32(file, full, 2, shape, values, NULL), BD_OK);
        assert_memory_equal(values, kinds[k].values + offset, sizeof values);
    }
    free_example(&e);
    bd_safetensors_close(file);
}

// Matrices have a momentum and no second moment; tables and vectors have AdamW's moments.
static void a_run_of_muon_keeps_what_muon_has(void **state)
{
    example e = make_example(&tiny, 1), loaded = make_example(&tiny, 2);
    bd_json_set_string(e.training, "optimizer", "muon");
    assert_int_equal(save(*state, 100, &e, NULL), BD_OK);
    bd_safetensors *file;
    assert_int_equal(bd_safetensors_open(&file, in(*state, "step-00000100.safetensors"), NULL),
                     BD_OK);
    enum { N_MATRICES = 6 };  // q, k, v, out_proj, fc1, fc2
    assert_int_equal(bd_safetensors_count(file), 3 * e.parameters.n - N_MATRICES);
    const int64_t shape[] = {2, 2}, table[] = {5, 2};
    float values[10];
    assert_int_equal(
        bd_safetensors_copy_f32(file, "muon.m.model.decoder.layers.0.self_attn.k_proj.weight",
                                2, shape, values, NULL),
        BD_OK);
    assert_int_equal(bd_safetensors_copy_f32(file, "adamw.v.model.decoder.embed_tokens.weight",
                                             2, table, values, NULL),
                     BD_OK);
    bd_safetensors_close(file);

    bd_checkpoint checkpoint;
    const int64_t n = e.parameters.n_total;
    assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_OK);
    assert_int_equal(checkpoint.kept.optimizer, BD_OPTIMIZER_MUON);
    const bd_moments moments = {{0, n}, loaded.m, loaded.v, NULL};
    const int64_t n_v = bd_second_moments_before(BD_OPTIMIZER_MUON, &e.parameters, n);
    float *before = numbers(&loaded, 20002);
    assert_int_equal(bd_checkpoint_load_tensors(&checkpoint, &loaded.parameters, loaded.weights,
                                                &moments, NULL),
                     BD_OK);
    assert_memory_equal(loaded.weights, e.weights, (size_t)n * sizeof(float));
    assert_memory_equal(loaded.m, e.m, (size_t)n * sizeof(float));
    // Second moments lie without gaps: 5 x 2 and 6 x 2 of tables, 2 of each norm and bias, 3
    // of one.
    assert_int_equal(n_v, 10 + 12 + 6 * 2 + 4 * 2 + 3 + 2);
    assert_memory_equal(loaded.v, e.v, (size_t)n_v * sizeof(float));
    assert_memory_equal(loaded.v + n_v, before + n_v, (size_t)(n - n_v) * sizeof(float));
    free(before);
    free_example(&e);
    free_example(&loaded);
    bd_checkpoint_release(&checkpoint);
}

// An average is kept if the settings say so, and may be loaded in place of the weights.
static void an_average_is_kept_beside_the_weights(void **state)
{
    example e = make_example(&tiny, 1), loaded = make_example(&tiny, 2);
    const int64_t n = e.parameters.n_total;
    float *average = numbers(&e, 30000), *loaded_average = numbers(&e, 0);
    bd_json_set_real(e.training, "average", 0.99);
    const bd_checkpoint_state whole = {
        .step = 100,
        .parameters = &e.parameters,
        .arrays = {e.weights, e.m, e.v, average},
        .training = e.training,
        .data = e.data,
        .n_ranks = 1,
    };
    bd_checkpoint checkpoint;
    assert_int_equal(bd_checkpoint_save(*state, &whole, NULL), BD_OK);
    assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_OK);
    assert_true(checkpoint.kept.has_average);
    const bd_moments beside = {{0, n}, loaded.m, loaded.v, loaded_average};
    const bd_moments instead = {{0, n}, NULL, NULL, loaded.weights};
    const size_t size_bytes = (size_t)n * sizeof(float);
    assert_int_equal(
        bd_checkpoint_load_tensors(&checkpoint, &e.parameters, loaded.weights, &beside, NULL),
        BD_OK);
    assert_memory_equal(loaded.weights, e.weights, size_bytes);
    assert_memory_equal(loaded.v, e.v, size_bytes);
    assert_memory_equal(loaded_average, average, size_bytes);
    assert_int_equal(
        bd_checkpoint_load_tensors(&checkpoint, &e.parameters, loaded.weights, &instead, NULL),
        BD_OK);
    assert_memory_equal(loaded.weights, average, size_bytes);
    free(average);
    free(loaded_average);
    free_example(&e);
    free_example(&loaded);
    bd_checkpoint_release(&checkpoint);
}

// Slices begin and end inside parameters, and one is empty.
static void a_slice_of_the_moments_is_that_of_the_whole(void **state)
{
    save_tiny(*state, 100, 1);
    bd_checkpoint checkpoint;
    assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_OK);
    example expected = make_example(&tiny, 1), actual = make_example(&tiny, 2);
    const int64_t n = expected.parameters.n_total;
    const int64_t ends[] = {0, 1, 1, 65, n / 2, n - 1, n};
    for (size_t i = 1; i < sizeof ends / sizeof *ends; i++) {
        const bd_rank_slice slice = {ends[i - 1], ends[i]};
        const bd_moments moments = {slice, actual.m + slice.begin, actual.v + slice.begin,
                                    NULL};
        assert_int_equal(bd_checkpoint_load_tensors(&checkpoint, &actual.parameters,
                                                    actual.weights, &moments, NULL),
                         BD_OK);
    }
    assert_memory_equal(actual.m, expected.m, (size_t)n * sizeof(float));
    assert_memory_equal(actual.v, expected.v, (size_t)n * sizeof(float));
    free_example(&expected);
    free_example(&actual);
    bd_checkpoint_release(&checkpoint);
}

static void moments_may_be_left_out(void **state)
{
    save_tiny(*state, 100, 1);
    bd_checkpoint checkpoint;
    assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_OK);
    example expected = make_example(&tiny, 1), actual = make_example(&tiny, 2);
    assert_int_equal(
        bd_checkpoint_load_tensors(&checkpoint, &actual.parameters, actual.weights, NULL, NULL),
        BD_OK);
    assert_memory_equal(actual.weights, expected.weights,
                        (size_t)expected.parameters.n_total * sizeof(float));
    free_example(&expected);
    free_example(&actual);
    bd_checkpoint_release(&checkpoint);
    bd_checkpoint_release(&checkpoint);
}

static void same_state_gives_the_same_bytes(void **state)
{
    const char *other = in(*state, "other");
    add_folder(other);
    save_tiny(*state, 100, 1);
    save_tiny(other, 100, 1);
    assert_same_files(in(*state, "step-00000100.safetensors"),
                      in(*state, "other/step-00000100.safetensors"));
    assert_same_files(in(*state, "step-00000100.json"), in(*state, "other/step-00000100.json"));
}

// ---- Replacing ------------------------------------------------------------------------------

static void saving_a_step_again_replaces_it_whole(void **state)
{
    save_tiny(*state, 50, 1);
    save_tiny(*state, 100, 2);
    save_tiny(*state, 100, 3);
    assert_holds(*state, 100, 3);
    assert_holds(*state, 50, 1);
    assert_int_equal(count_entries(*state), 4);
}

// Between the two renames there is no .json that could refer to the new tensors: here the
// rename of the tensors fails, because a folder has their name.
static void old_json_never_stands_beside_new_tensors(void **state)
{
    save_tiny(*state, 100, 1);
    assert_int_equal(remove(in(*state, "step-00000100.safetensors")), 0);
    add_folder(in(*state, "step-00000100.safetensors"));
    example e = make_example(&tiny, 2);
    bd_error err;
    assert_int_equal(save(*state, 100, &e, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "cannot save step 100: cannot publish '"));
    assert_int_equal(count_entries(*state), 1);
    free_example(&e);
}

static void save_that_fails_leaves_what_was_there(void **state)
{
    save_tiny(*state, 100, 1);
    example e = make_example(&tiny, 2);
    bd_error err;
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){.rlim_cur = 1000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const bd_status status = save(*state, 100, &e, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, BD_ERR_IO);
    assert_non_null(strstr(err.message, "cannot save step 100: "));
    assert_int_equal(count_entries(*state), 2);
    assert_holds(*state, 100, 1);

    assert_int_equal(save(in(*state, "missing"), 100, &e, &err), BD_ERR_IO);
    free_example(&e);
}

// ---- Finding --------------------------------------------------------------------------------

static void latest_is_the_highest_step_that_has_its_json(void **state)
{
    static const char *const ignored[] = {
        ".step-00000900.json.0123abcd.part",
        ".step-00000900.safetensors.0123abcd.part",
        "step-00000900.safetensors",
        "step-900.json",
        "step-0000000900.json",
        "step-00000900.json~",
        "step-+0000900.json",
        "step- 0000900.json",
        "step-00000900 .json",
        "step--0000900.json",
        "step-.json",
        "step-99999999999999999999.json",
        "tep-00000900.json",
        "xstep-00000900.json",
        "manifest.json",
    };
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        write_text(in(*state, ignored[i]), "{}");
    int64_t step;
    bd_error err;
    char expected[5000];
    snprintf(expected, sizeof expected,
             "'%s' holds no checkpoint: there is no step-NNNNNNNN.json", (char *)*state);
    assert_int_equal(bd_checkpoint_find_latest(*state, &step, &err), BD_ERR_ARGUMENT);
    assert_string_equal(err.message, expected);

    static const int64_t steps[] = {0, 9, 100000001, 99999999, 20};
    static const int64_t latest[] = {0, 9, 100000001, 100000001, 100000001};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        save_tiny(*state, steps[i], 1);
        assert_int_equal(bd_checkpoint_find_latest(*state, &step, NULL), BD_OK);
        assert_int_equal(step, latest[i]);
    }
    assert_int_equal(bd_checkpoint_find_latest(in(*state, "missing"), &step, &err), BD_ERR_IO);

    static const int64_t last[] = {-1, 0, 8, 9, 19, 20, 21, 100000000, INT64_MAX};
    static const int64_t up_to[] = {-1, 0, 0, 9, 9, 20, 20, 99999999, 100000001};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        assert_int_equal(bd_checkpoint_find_up_to(*state, last[i], &step, NULL), BD_OK);
        assert_int_equal(step, up_to[i]);
    }
}

static void save_four(const char *folder)
{
    static const int64_t steps[] = {3, 100000001, 20, 99999999};  // in no order
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        save_tiny(folder, steps[i], 1);
}

static void as_many_steps_are_kept_as_asked_for(void **state)
{
    static const int64_t n_kept[] = {0, 5, 4, 3, 1};  // 0 means all
    static const int64_t oldest[] = {3, 3, 3, 20, 100000001};
    save_four(*state);
    write_text(in(*state, "metrics.jsonl"), "{}");
    for (size_t i = 0; i < sizeof n_kept / sizeof *n_kept; i++) {
        const int n = n_kept[i] == 0 || n_kept[i] > 4 ? 4 : (int)n_kept[i];
        assert_int_equal(bd_checkpoint_prune(*state, n_kept[i], NULL), BD_OK);
        assert_int_equal(count_entries(*state), 2 * n + 1);
        assert_holds(*state, oldest[i], 1);
        assert_holds(*state, 100000001, 1);
    }
}

static void rename_in(const char *folder, const char *from, const char *to)
{
    char old[256];
    snprintf(old, sizeof old, "%s", in(folder, from));
    assert_int_equal(rename(old, in(folder, to)), 0);
}

// Points where a process may be killed: the .json is not published yet, or withdrawn.
static void tensors_whose_json_is_pending_are_ours(void **state)
{
    save_four(*state);
    rename_in(*state, "step-00000020.json", ".step-00000020.json.00000000.part");
    rename_in(*state, "step-00000003.json", ".step-00000003.json.0123abcd.part");
    write_text(in(*state, ".step-00000003.json.00000001.part"), "{}");
    write_text(in(*state, ".step-00000007.safetensors.00000001.part"), "half");
    write_text(in(*state, ".somebody.00000001.part"), "somebody's");
    write_text(in(*state, "step-20.safetensors"), "somebody's");  // not a name of ours
    assert_int_equal(bd_checkpoint_refuse_unknown(*state, NULL), BD_OK);
    assert_int_equal(bd_checkpoint_clear_away(*state, NULL), BD_OK);
    assert_int_equal(count_entries(*state), 2 * 2 + 2);
    assert_int_equal(access(in(*state, ".somebody.00000001.part"), F_OK), 0);
    assert_int_equal(access(in(*state, "step-20.safetensors"), F_OK), 0);
    assert_holds(*state, 99999999, 1);
}

// No .json, one of another step, one of other tensors, and one that cannot be read.
static void tensors_that_no_json_names_are_left_alone(void **state)
{
    static const char *const pending[] = {NULL, ".step-00000003.json.00000000.part",
                                          ".step-00000020.json.00000000.part",
                                          ".step-00000020.json.0123abcd.part"};
    for (size_t i = 0; i < sizeof pending / sizeof *pending; i++) {
        bd_error err;
        save_tiny(*state, 20, 2);
        if (i == 1)
            rename_in(*state, "step-00000020.json", pending[i]);
        else
            assert_int_equal(unlink(in(*state, "step-00000020.json")), 0);
        if (i == 2) {
            add_folder(in(*state, "other"));
            save_tiny(in(*state, "other"), 20, 3);
            rename_in(*state, "other/step-00000020.json", pending[i]);
        }
        if (i == 3)
            write_text(in(*state, pending[i]), "{}");
        assert_int_equal(bd_checkpoint_refuse_unknown(*state, &err), BD_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "'step-00000020.safetensors'"));
        assert_int_equal(bd_checkpoint_clear_away(*state, NULL), BD_OK);
        assert_int_equal(access(in(*state, "step-00000020.safetensors"), F_OK), 0);
        assert_int_equal(unlink(in(*state, "step-00000020.safetensors")), 0);
    }
}

static void a_step_is_not_saved_over_somebodys_tensors(void **state)
{
    example e = make_example(&tiny, 1);
    bd_error err;
    write_text(in(*state, "step-00000020.safetensors"), "somebody's");
    for (int has_json = 0; has_json < 2; has_json++) {
        if (has_json)
            write_text(in(*state, "step-00000020.json"), "{}");
        assert_int_equal(save(*state, 20, &e, &err), BD_ERR_ARGUMENT);
        assert_file_holds(in(*state, "step-00000020.safetensors"), "somebody's");
        assert_int_equal(count_entries(*state), 1 + has_json);
    }
    free_example(&e);
}

static void steps_that_are_not_ours_are_not_removed(void **state)
{
    save_four(*state);
    write_text(in(*state, "step-00000020.json"), "{}");
    assert_int_equal(bd_checkpoint_prune(*state, 1, NULL), BD_OK);
    assert_int_equal(count_entries(*state), 4);
    assert_file_holds(in(*state, "step-00000020.json"), "{}");
    // When a run goes back to an earlier step, these must not be found, and must not be
    // removed.
    assert_int_equal(bd_checkpoint_remove_after(*state, 3, NULL), BD_OK);
    assert_int_equal(count_entries(*state), 2);
    assert_file_holds(in(*state, "step-00000020.json.aside"), "{}");
    assert_int_equal(access(in(*state, "step-00000020.safetensors.aside"), F_OK), 0);
    // Nothing is replaced by it.
    save_tiny(*state, 20, 1);
    write_text(in(*state, "step-00000020.json"), "[]");
    assert_int_equal(bd_checkpoint_remove_after(*state, 3, NULL), BD_ERR_ARGUMENT);
    assert_file_holds(in(*state, "step-00000020.json.aside"), "{}");
    assert_file_holds(in(*state, "step-00000020.json"), "[]");
}

static void steps_after_one_are_removed(void **state)
{
    save_four(*state);
    assert_int_equal(bd_checkpoint_remove_after(*state, 20, NULL), BD_OK);
    assert_int_equal(count_entries(*state), 4);
    assert_holds(*state, 3, 1);
    assert_holds(*state, 20, 1);
}

// Changes one byte in place: replacing a file thousands of times would keep a disk busy.
static void set_byte(const char *path, size_t at, int value)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(value, file), value);
    assert_int_equal(fclose(file), 0);
}

// ---- Damage ---------------------------------------------------------------------------------

static void every_changed_byte_of_the_json_is_refused(void **state)
{
    save_tiny(*state, 100, 1);
    const char *path = in(*state, "step-00000100.json");
    size_t n;
    char *bytes = read_file(path, &n);
    bd_checkpoint checkpoint;
    for (size_t i = 0; i < n; i++) {
        const int original = (unsigned char)bytes[i];
        const int stride = i + 4 < n ? 7 : 1;  // every value somewhere, and at the end
        for (int value = (int)i % stride; value < 256; value += stride) {
            if (value == original)
                continue;
            set_byte(path, i, value);
            assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_ERR_FORMAT);
            assert_null(checkpoint.document);
            assert_null(checkpoint.tensors_path);
        }
        set_byte(path, i, original);
    }
    assert_holds(*state, 100, 1);
    for (size_t size = n; size-- > 0;) {
        assert_int_equal(truncate(path, (off_t)size), 0);
        assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_ERR_FORMAT);
    }
    bytes[n] = '\n';
    write_file(path, bytes, n + 1);
    assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_ERR_FORMAT);
    write_file(path, bytes, n);
    assert_holds(*state, 100, 1);
    free(bytes);
}

// Writes a step's json again with `to` in the place of `from`, and with a right seal.
static void forge_json(const char *path, const char *text, const char *from, const char *to)
{
    char body[3000], whole[4000];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(body, sizeof body, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    snprintf(whole, sizeof whole, "%s,\n  \"checksum\": \"%s\"\n}\n", body,
             bd_digest_of(body, strlen(body)).hex);
    write_text(path, whole);
}

static void keys_that_format_1_0_lacks_are_zero(void **state)
{
    save_tiny(*state, 100, 1);
    const char *path = in(*state, "step-00000100.json");
    size_t n;
    char *text = read_file(path, &n);
    *strstr(text, ",\n  \"checksum\"") = '\0';
    forge_json(path, text, "\"history\"", "\"unknown\"");
    bd_checkpoint checkpoint;
    const bd_spike_guard nothing = {0};
    assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_OK);
    assert_memory_equal(&checkpoint.spike_guard, &nothing, sizeof nothing);
    bd_checkpoint_release(&checkpoint);
    free(text);
}

// A json with a right seal that contains something else.
static void sealed_lie_is_refused(void **state)
{
    static const struct {
        const char *from, *to, *reason;
        bd_status status;
    } cases[] = {
        {"\"1.3\"", "\"2.0\"", "format '2.0' is not one", BD_ERR_UNSUPPORTED},
        {"\"step\": 100", "\"step\": 101", "it is of step 101", BD_ERR_FORMAT},
        {"\"step-00000100.", "\"step-00000101.", "'file' is 'step-00000101.safetensors'",
         BD_ERR_FORMAT},
        {"\"step-00000100.", "\"../../secrets/", "'file' is '../../secrets/", BD_ERR_FORMAT},
        {"\"hidden_size\": 2", "\"hidden_size\": 0", "'model': 'hidden_size'", BD_ERR_FORMAT},
        {"\"data\": {", "\"step\": {", "duplicate", BD_ERR_FORMAT},
        {"\"learning_rate\": ", "\"optimizer\": ", "'optimizer'", BD_ERR_FORMAT},
    };
    save_tiny(*state, 100, 1);
    const char *path = in(*state, "step-00000100.json");
    size_t n;
    char *text = read_file(path, &n);
    *strstr(text, ",\n  \"checksum\"") = '\0';
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forge_json(path, text, cases[i].from, cases[i].to);
        bd_checkpoint checkpoint;
        bd_error err = {0};
        const bd_status status = bd_checkpoint_load(&checkpoint, *state, 100, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].reason))
            fail_msg("expected '%s', not %d and '%s'", cases[i].reason, status, err.message);
    }
    free(text);
}

static void every_flipped_bit_of_the_tensors_is_noticed(void **state)
{
    save_tiny(*state, 100, 1);
    const char *path = in(*state, "step-00000100.safetensors");
    size_t n;
    char *bytes = read_file(path, &n);
    for (size_t i = 0; i < n; i++) {
        const int original = (unsigned char)bytes[i];
        set_byte(path, i, original ^ (1 << (i % 8)));
        assert_load_fails(*state, &tiny, "is damaged: its checksum does not match");
        set_byte(path, i, original);
    }
    free(bytes);
}

static void tensors_of_another_size_are_refused(void **state)
{
    save_tiny(*state, 100, 1);
    const char *path = in(*state, "step-00000100.safetensors");
    size_t n;
    char *bytes = read_file(path, &n), reason[100];
    const size_t sizes[] = {0, 1, n / 2, n - 1, n + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_file(path, bytes, sizes[i]);
        snprintf(reason, sizeof reason, "is damaged: %zu bytes instead of %zu", sizes[i], n);
        assert_load_fails(*state, &tiny, reason);
    }
    free(bytes);
    assert_int_equal(remove(path), 0);
    bd_error err;
    assert_int_equal(load_as(*state, 100, &tiny, &err), BD_ERR_IO);
    assert_non_null(strstr(err.message, "step-00000100.safetensors': No such file"));
}

static void tensors_of_another_model_are_refused(void **state)
{
    bd_model_config config = tiny;
    config.n_layers = 2;
    example e = make_example(&config, 1);
    assert_int_equal(save(*state, 100, &e, NULL), BD_OK);
    assert_int_equal(load_as(*state, 100, &config, NULL), BD_OK);
    free_example(&e);

    bd_model_config other = config;
    other.n_layers = 3;
    assert_load_fails(*state, &other, "has no tensor 'model.decoder.layers.2.");
    other.n_layers = 1;
    assert_load_fails(*state, &other, "has 108 tensors, 48 more than the model");
    other = config;
    other.n_positions = 5;
    assert_load_fails(*state, &other, "has the shape [6, 2] instead of [7, 2]");
    other = config;
    other.family = &bd_family_gpt2;
    assert_load_fails(*state, &other, "has no tensor 'transformer.wte.weight'");
}

// Tensors that agree with checksum and json, but one moment is missing.
static void missing_moment_is_refused(void **state)
{
    example e = make_example(&tiny, 1);
    save_tiny(*state, 100, 1);
    const char *path = in(*state, "step-00000100.safetensors");
    bd_safetensors *file;
    assert_int_equal(bd_safetensors_open(&file, path, NULL), BD_OK);
    bd_tensor_view views[200];
    size_t n = 0;
    for (size_t i = 0; i < bd_safetensors_count(file); i++) {
        const bd_tensor_view *view = bd_safetensors_at(file, i);
        if (strcmp(view->name, "adamw.v.model.decoder.final_layer_norm.bias") != 0)
            views[n++] = *view;
    }
    const bd_safetensors_content content = {views, n, NULL, 0};
    bd_safetensors_receipt receipt;
    const char *other = in(*state, "other");
    assert_int_equal(bd_safetensors_write(other, &content, &receipt, NULL), BD_OK);
    bd_safetensors_close(file);
    bd_checkpoint checkpoint;
    assert_int_equal(bd_checkpoint_load(&checkpoint, *state, 100, NULL), BD_OK);
    assert_int_equal(rename(other, path), 0);
    checkpoint.size_bytes = receipt.size_bytes;
    checkpoint.digest = receipt.digest;
    bd_error err;
    assert_int_equal(
        bd_checkpoint_load_tensors(&checkpoint, &e.parameters, e.weights, NULL, &err),
        BD_ERR_FORMAT);
    assert_non_null(strstr(err.message, "has no tensor 'adamw.v.model.decoder.final"));
    bd_checkpoint_release(&checkpoint);
    free_example(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_in_folder(saved_state_is_loaded_bit_for_bit),
        test_in_folder(both_families_and_any_step_are_saved),
        test_in_folder(tensors_have_hugging_faces_names_and_their_moments_prefixes),
        test_in_folder(a_run_of_muon_keeps_what_muon_has),
        test_in_folder(an_average_is_kept_beside_the_weights),
        test_in_folder(a_slice_of_the_moments_is_that_of_the_whole),
        test_in_folder(moments_may_be_left_out),
        test_in_folder(same_state_gives_the_same_bytes),
        test_in_folder(saving_a_step_again_replaces_it_whole),
        test_in_folder(old_json_never_stands_beside_new_tensors),
        test_in_folder(save_that_fails_leaves_what_was_there),
        test_in_folder(latest_is_the_highest_step_that_has_its_json),
        test_in_folder(as_many_steps_are_kept_as_asked_for),
        test_in_folder(tensors_whose_json_is_pending_are_ours),
        test_in_folder(tensors_that_no_json_names_are_left_alone),
        test_in_folder(a_step_is_not_saved_over_somebodys_tensors),
        test_in_folder(steps_that_are_not_ours_are_not_removed),
        test_in_folder(steps_after_one_are_removed),
        test_in_folder(every_changed_byte_of_the_json_is_refused),
        test_in_folder(keys_that_format_1_0_lacks_are_zero),
        test_in_folder(sealed_lie_is_refused),
        test_in_folder(every_flipped_bit_of_the_tensors_is_noticed),
        test_in_folder(tensors_of_another_size_are_refused),
        test_in_folder(tensors_of_another_model_are_refused),
        test_in_folder(missing_moment_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
