#include "trainer/setup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/threads.h"
#include "common/cli/settings_file.h"
#include "common/dataset/stored_tokenizer.h"
#include "trainer/commands.h"
#include "trainer/metrics/event_file.h"
#include "trainer/weights/pretrained.h"

// ---- Settings ---------------------------------------------------------------------------

// What --config and the options of the model change in *config.
static bd_status apply_options(bd_model_config *config, const bd_train_options *options,
                               bd_error *err)
{
    if (options->config) {
        const bd_status status = bd_model_config_read(config, options->config, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "--config");
    }
    if (options->n_channels != BD_NOT_GIVEN && options->n_channels != config->n_channels) {
        config->n_channels = options->n_channels;
        config->n_feed_forward = 4 * options->n_channels;
    }
    if (options->n_feed_forward != BD_NOT_GIVEN)
        config->n_feed_forward = options->n_feed_forward;
    if (options->n_layers != BD_NOT_GIVEN)
        config->n_layers = options->n_layers;
    if (options->n_heads != BD_NOT_GIVEN)
        config->n_heads = options->n_heads;
    if (options->n_positions != BD_NOT_GIVEN)
        config->n_positions = options->n_positions;
    if (options->n_vocabulary != BD_NOT_GIVEN)
        config->n_vocabulary = options->n_vocabulary;
    return bd_model_config_check(config, err);
}

// The shape of the weights to begin with; the options may repeat it, not change it.
static bd_status choose_initial(bd_model_config *config, const bd_train_options *options,
                                int64_t vocab_size, bd_error *err)
{
    bd_model_config asked;
    const bd_status status = bd_pretrained_config(config, options->init, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "--init");
    BD_TRY(bd_pretrained_check_vocabulary(config, options->init, vocab_size, err));
    asked = *config;
    if (options->preset_given) {
        BD_TRY(bd_model_config_preset(&asked, bd_model_presets[options->preset], err));
        asked.n_vocabulary = config->n_vocabulary;
    }
    BD_TRY(apply_options(&asked, options, err));
    return bd_pretrained_refuse_other(config, &asked, options->init, err);
}

static bd_status choose_config(bd_model_config *config, const bd_train_options *options,
                               const bd_rows *rows, bd_error *err)
{
    const int64_t vocab_size = bd_rows_packing(rows)->vocab_size;
    if (options->init)
        return choose_initial(config, options, vocab_size, err);
    BD_TRY(bd_model_config_preset(config, bd_model_presets[options->preset], err));
    config->n_vocabulary = vocab_size;
    return apply_options(config, options, err);
}

// A new model can read the longest segment of all its datasets: if it has too few positions for
// that, it gets as many as a row has tokens, so that what else is packed alike fits as well.
static bd_status fit_positions(bd_model_config *config, bd_setup *s, bd_error *err)
{
    const int64_t of_data = bd_rows_longest_segment(&s->rows);
    const int64_t eval_datasets = bd_eval_datasets_longest_segment(&s->eval_datasets);
    const int64_t longest = of_data > eval_datasets ? of_data : eval_datasets;
    if (longest <= config->n_positions)
        return BD_OK;
    if (s->options->n_positions != BD_NOT_GIVEN)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--positions %" PRId64 " are too few for a segment of %" PRId64
                       " tokens: give as many or leave the option out",
                       config->n_positions, longest);
    s->too_few_positions = config->n_positions;
    config->n_positions = bd_rows_packing(&s->rows)->seq_len;
    return BD_OK;
}

static bd_status choose_training(bd_hyperparameters *hyperparameters,
                                 const bd_train_options *options, bd_error *err)
{
    const bool whole = options->micro_batch_rows == BD_NOT_GIVEN ||
                       options->micro_batch_rows > options->batch_rows;
    *hyperparameters = (bd_hyperparameters){
        .n_steps = options->n_steps,
        .batch_rows = options->batch_rows,
        .micro_batch_rows = whole ? options->batch_rows : options->micro_batch_rows,
        .schedule = options->schedule,
        .warm_up_steps = options->warm_up_steps,
        .learning_rate = options->learning_rate,
        .min_learning_rate = options->min_learning_rate,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->epsilon,
        .weight_decay = options->weight_decay,
        .clip_norm = options->clip_norm,
        .skip_spikes = options->skip_spikes,
        .seed = (uint64_t)options->seed,
        .type = BD_FLOAT,  // until the model is known: settle_type()
        .recomputes = options->recomputes,
    };
    return bd_count_decay_steps(&hyperparameters->decay_steps, options->decay, options->n_steps,
                                err);
}

// ---- The same for all ranks -----------------------------------------------------------------

// Ranks that were given different commands, or see different files, would train nonsense. What
// rank 0 has must be what all have.
static bd_status check_same_number(bd_setup *s, uint64_t mine, const char *what, bd_error *err)
{
    uint64_t first = mine;
    BD_TRY(bd_group_follow(s->group, &first, sizeof first, err));
    if (first == mine)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "rank %d has %s than rank 0: give all ranks the same command and the same "
                   "files",
                   (int)s->group->rank, what);
}

// Takes over `json`.
static bd_status check_same_json(bd_setup *s, bd_json *json, const char *what, bd_error *err)
{
    char *text = NULL;
    const bd_status printed = bd_json_print(json, BD_JSON_COMPACT, &text, err);
    const uint64_t mine = printed == BD_OK ? bd_hash64(text, strlen(text), 0) : 0;
    free(text);
    bd_json_free(json);
    BD_TRY(bd_group_agree(s->group, printed, err));
    return check_same_number(s, mine, what, err);
}

// Everything that decides what the ranks ask each other, and when.
static bd_status check_same_settings(bd_setup *s, bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set(json, "training", bd_json_share(s->training_json));
    bd_json_set(json, "data", bd_json_share(s->data_json));
    bd_json_set_string(json, "backend", s->backend->operations->name);
    bd_json_set_string(json, "precision", bd_precision_choice_words[s->options->precision]);
    bd_json_set_integer(json, "save_every", s->options->save_every);
    bd_json_set_integer(json, "probe_every", s->options->probe_every);
    return check_same_json(s, json, "other settings or other data", err);
}

static bd_status check_same_model(bd_setup *s, bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set(json, "model", bd_model_config_to_json(&s->run.parameters.config));
    bd_json_set(json, "training", bd_json_share(s->training_json));
    if (s->continues)
        bd_json_set_string(json, "checkpoint", s->run.checkpoint.digest.hex);
    return check_same_json(s, json, "another model or another checkpoint", err);
}

// ---- Beginning --------------------------------------------------------------------------

// What metrics.jsonl is, in a folder without a checkpoint.
typedef enum log_kind {
    LOG_ABSENT,
    LOG_EMPTY,
    LOG_TORN,  // not one whole line
    LOG_OURS,  // so its first line says
    LOG_FOREIGN,
} log_kind;

static bd_status read_log_kind(const char *folder, log_kind *kind, bd_error *err)
{
    bd_metrics_reader reader;
    bd_metrics_line line;
    bool more = false;
    *kind = LOG_ABSENT;
    if (!bd_folder_holds(folder, BD_METRICS_NAME))
        return BD_OK;
    char *path = bd_path_join(folder, BD_METRICS_NAME);
    if (!path)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a file name");
    bd_status status = bd_metrics_reader_open(&reader, path, err);
    if (status == BD_OK) {
        status = bd_metrics_reader_next(&reader, &line, &more, err);
        const bool is_first = more && reader.damage.n_lines == 0;
        *kind = is_first && line.kind == BD_METRICS_STEP ? LOG_OURS
                : more || reader.damage.n_lines > 0      ? LOG_FOREIGN
                : reader.n_torn == 0                     ? LOG_EMPTY
                                                         : LOG_TORN;
        bd_metrics_reader_close(&reader);
    }
    free(path);
    return status;
}

// Whether settings.yaml is what keep_settings() leaves: settings of this command alone, those
// among them that are always there.
static bool has_own_settings(const char *folder)
{
    static const char *const always[] = {"steps", "seed", "batch", "learning-rate"};
    size_t n_options = 0, n_always = 0;
    bd_settings_file file = {0};
    char *path = bd_path_join(folder, BD_RUN_SETTINGS_NAME);
    if (path && bd_settings_file_read(&file, path, NULL) == BD_OK) {
        for (size_t i = 0; i < file.n; i++) {
            for (size_t k = 0; k < bd_train_command.n_options; k++)
                n_options += strcmp(file.items[i].name, bd_train_command.options[k].name) == 0;
            for (size_t k = 0; k < sizeof always / sizeof always[0]; k++)
                n_always += strcmp(file.items[i].name, always[k]) == 0;
        }
    }
    const bool is_own = n_options == file.n && n_always == sizeof always / sizeof always[0];
    bd_settings_file_release(&file);
    free(path);
    return is_own;
}

static bool holds_text(const char *folder, const char *name, const char *text)
{
    char *path = bd_path_join(folder, name), *there = NULL;
    size_t size_bytes;
    const bool same = path &&
                      bd_file_read(path, strlen(text), &there, &size_bytes, NULL) == BD_OK &&
                      size_bytes == strlen(text) && memcmp(there, text, size_bytes) == 0;
    free(there);
    free(path);
    return same;
}

// What tells whether a folder without a checkpoint is one of a run that ended before its first.
// Such a run made metrics.jsonl, settings.yaml and tokenizer.json, in this order. Their names
// prove nothing: others call their files so.
typedef struct folder_signs {
    log_kind log;
    bool has_settings;   // that are this command's
    bool has_tokenizer;  // that is the very one which the run will write
} folder_signs;

static bd_status refuse_entry(void *context, const char *folder, const char *name,
                              bd_error *err)
{
    const folder_signs *signs = context;
    const bool is_fresh = signs->log == LOG_EMPTY || signs->log == LOG_TORN;
    const bool proved = signs->log == LOG_OURS || (is_fresh && signs->has_settings);
    bool fine = name[0] == '.';
    if (strcmp(name, BD_METRICS_NAME) == 0)
        fine = proved || signs->log == LOG_EMPTY;
    else if (strcmp(name, BD_RUN_SETTINGS_NAME) == 0)
        fine = proved;
    else if (strcmp(name, BD_TOKENIZER_NAME) == 0)
        fine = proved || signs->has_tokenizer;
    else if (strncmp(name, BD_EVENT_FILE_PREFIX, strlen(BD_EVENT_FILE_PREFIX)) == 0)
        fine = proved || signs->log == LOG_EMPTY;
    else if (bd_checkpoint_is_tensors_name(name))
        fine = true;  // ours, as bd_checkpoint_refuse_unknown() has seen
    if (fine)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "'%s' is not empty ('%s') and holds no run: give -o a folder of its own",
                   folder, name);
}

// Whether the folder must hold a run already.
static bool must_continue(const bd_train_options *options)
{
    return options->resume || options->resume_from != BD_LATEST;
}

// Makes the folder ours alone while the run lasts.
static bd_status lock_folder(bd_setup *s, bd_error *err)
{
    const char *folder = s->options->out;
    int64_t step;
    bd_status status = BD_OK;
    if (!must_continue(s->options))
        BD_TRY(bd_folder_make(folder, &s->n_made, err));
    else if ((status = bd_checkpoint_find_latest(folder, &step, err)) != BD_OK)
        return bd_error_suffix(err, status, "-o without --resume begins a new run");
    status = bd_folder_lock(&s->lock, folder, BD_LOCK_EXCLUSIVE, "training in", err);
    return status == BD_OK ? BD_OK : bd_error_suffix(err, status, "-o can name another one");
}

// A folder for a new run holds nothing of anybody else's.
static bd_status check_folder(const bd_setup *s, bd_error *err)
{
    const char *folder = s->options->out;
    folder_signs signs = {.has_settings = has_own_settings(folder),
                          .has_tokenizer = holds_text(folder, BD_TOKENIZER_NAME, s->tokenizer)};
    BD_TRY(read_log_kind(folder, &signs.log, err));
    return bd_folder_visit(folder, refuse_entry, &signs, err);
}

// Takes the folder, and finds the checkpoint to begin from: *step, or -1 if there is none.
static bd_status take_folder(bd_setup *s, int64_t *step, bd_error *err)
{
    const char *folder = s->options->out;
    BD_TRY(lock_folder(s, err));
    BD_TRY(bd_checkpoint_find_up_to(folder, INT64_MAX, step, err));
    BD_TRY(bd_checkpoint_refuse_unknown(folder, err));
    if (*step < 0)
        return check_folder(s, err);
    if (s->options->resume_from != BD_LATEST)
        *step = s->options->resume_from;
    return BD_OK;
}

static bd_status begin_new(bd_setup *s, bd_error *err)
{
    const char *init = s->options->init;
    bd_model_config config;
    BD_TRY(choose_config(&config, s->options, &s->rows, err));
    if (!init)
        BD_TRY(fit_positions(&config, s, err));
    BD_TRY(bd_parameters_init(&s->run.parameters, &config, err));
    // Before there is memory for what a config may say.
    const bd_status status =
        init ? bd_pretrained_read(init, &s->run.parameters, NULL, err) : BD_OK;
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "--init");
}

static bd_status refuse_difference(const bd_json *here, const bd_json *there, const char *what,
                                   const char *folder, bd_error *err)
{
    char where[256];
    if (!bd_json_difference(here, there, where, sizeof where))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot resume '%s': its %s is another one: %s; -o begins a new run in "
                   "another folder",
                   folder, what, where);
}

// The options may repeat what the model is, not change it. With --resume those that are not
// given, the preset's default among them, say nothing, and what the run once began with
// (--config, --init) may be gone.
static bd_status refuse_other_model(bd_setup *s, bd_error *err)
{
    bd_model_config asked = s->run.checkpoint.config;
    if (must_continue(s->options) && !s->options->preset_given && !s->options->model_given)
        return BD_OK;
    if (must_continue(s->options) && !s->options->preset_given && !s->options->init)
        BD_TRY(apply_options(&asked, s->options, err));
    else
        BD_TRY(choose_config(&asked, s->options, &s->rows, err));
    // It may have been given more than what it asked for: fit_positions().
    if (s->options->n_positions == BD_NOT_GIVEN &&
        asked.n_positions < s->run.checkpoint.config.n_positions)
        asked.n_positions = s->run.checkpoint.config.n_positions;
    bd_json *here = bd_model_config_to_json(&asked);
    bd_json *there = bd_model_config_to_json(&s->run.checkpoint.config);
    const bd_status status = refuse_difference(here, there, "model", s->options->out, err);
    bd_json_free(here);
    bd_json_free(there);
    return status;
}

// Says after the message in *err how to go on from the checkpoint before the latest, `step`, if
// there is one.
static bd_status suggest_earlier(const bd_train_options *options, int64_t step,
                                 bd_status status, bd_error *err)
{
    int64_t before;
    if (options->resume_from != BD_LATEST || !err ||
        bd_checkpoint_find_up_to(options->out, step - 1, &before, NULL) != BD_OK || before < 0)
        return status;
    return bd_error_suffix(err, status,
                           "--resume-from %" PRId64 " takes the checkpoint before it", before);
}

// All of it but the tensors.
static bd_status open_checkpoint(bd_setup *s, bd_error *err)
{
    const bd_status status =
        bd_checkpoint_load(&s->run.checkpoint, s->options->out, s->begin_step, err);
    if (status != BD_OK && s->options->resume_from != BD_LATEST)
        return bd_error_prefix(err, status, "--resume-from %" PRId64, s->begin_step);
    if (status != BD_OK)
        return suggest_earlier(s->options, s->begin_step, status, err);
    return bd_parameters_init(&s->run.parameters, &s->run.checkpoint.config, err);
}

// The run may become longer if that is asked for. Then the last step, and with it the decay,
// are not those of the checkpoint; all else is.
static bd_status refuse_other_training(bd_setup *s, const bd_hyperparameters *hyperparameters,
                                       bd_error *err)
{
    const bd_json *there = s->run.checkpoint.training;
    bd_hyperparameters before = *hyperparameters;
    int64_t n_steps;
    BD_TRY(bd_json_get_integer(there, "steps", 1, INT64_MAX, &n_steps, err));
    if (s->is_length_given && hyperparameters->n_steps > n_steps) {
        before.n_steps = n_steps;
        if (!bd_json_is_null(there, "decay_steps"))
            BD_TRY(bd_json_get_integer(there, "decay_steps", 0, INT64_MAX, &before.decay_steps,
                                       err));
    }
    s->n_steps_before = before.n_steps;
    bd_json *here = bd_hyperparameters_to_json(&before);
    const bd_status status = refuse_difference(here, there, "training", s->options->out, err);
    bd_json_free(here);
    return status;
}

// A run of an older version kept all of its checkpoints: they are removed only if somebody asks
// for it.
static bd_status spare_checkpoints(bd_setup *s, bd_error *err)
{
    char *path;
    BD_TRY(bd_run_find_settings(s->settled.out, &path, err));
    if (!path && !s->settled.kept_given)
        s->settled.n_kept = 0;
    free(path);
    return BD_OK;
}

// A run goes on in the type that it was begun in: another one gives other bits.
static bd_status settle_run_type(const bd_setup *s, bd_type *type, bd_error *err)
{
    const bd_model_config *config = &s->run.parameters.config;
    BD_TRY(bd_run_type(&s->run, type, err));
    const bd_status status = bd_model_check_type(s->backend, config, *type, err);
    if (status == BD_OK)
        return BD_OK;
    bd_error_prefix(err, status, "cannot resume '%s' in %s", s->options->out,
                    bd_precision_words[*type]);
    return bd_error_suffix(err, status, "--backend cuda computes in it");
}

// What the model computes in, once it is known.
static bd_status settle_type(bd_setup *s, bd_hyperparameters *hyperparameters, bd_error *err)
{
    if (s->continues && s->options->precision == BD_PRECISION_AUTO)
        BD_TRY(settle_run_type(s, &hyperparameters->type, err));
    else
        hyperparameters->type = bd_precision_settle(s->options->precision, BD_BF16, s->backend,
                                                    &s->run.parameters.config, &s->why_float);
    bd_json_free(s->training_json);
    s->training_json = bd_hyperparameters_to_json(hyperparameters);
    return BD_OK;
}

static bd_status begin_from_checkpoint(bd_setup *s, bd_hyperparameters *hyperparameters,
                                       bd_error *err)
{
    const char *folder = s->options->out;
    BD_TRY(open_checkpoint(s, err));
    BD_TRY(refuse_other_model(s, err));
    BD_TRY(refuse_difference(s->data_json, s->run.checkpoint.data, "dataset", folder, err));
    BD_TRY(settle_type(s, hyperparameters, err));
    BD_TRY(refuse_other_training(s, hyperparameters, err));
    BD_TRY(spare_checkpoints(s, err));
    if (s->run.checkpoint.step > s->options->n_steps)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot resume '%s': its step %" PRId64 " is after the last one, "
                       "--steps %" PRId64,
                       folder, s->run.checkpoint.step, s->options->n_steps);
    return BD_OK;
}

// What rank 0 finds holds for all.
static bd_status begin_run(bd_setup *s, bd_hyperparameters *hyperparameters, bd_error *err)
{
    int64_t step = -1;
    const bd_status status = bd_setup_is_first(s) ? take_folder(s, &step, err) : BD_OK;
    BD_TRY(bd_group_agree(s->group, status, err));
    BD_TRY(bd_group_follow(s->group, &step, sizeof step, err));
    s->continues = step >= 0;
    s->begin_step = s->continues ? step : 0;
    s->n_steps_before = hyperparameters->n_steps;
    if (s->continues) {
        BD_TRY(begin_from_checkpoint(s, hyperparameters, err));
    } else {
        BD_TRY(begin_new(s, err));
        BD_TRY(settle_type(s, hyperparameters, err));
    }
    const bd_model_config *config = &s->run.parameters.config;
    BD_TRY(bd_check_fit(config, &s->rows, err));
    return bd_eval_datasets_check_fit(&s->eval_datasets, config, err);
}

// Weights [n_total] and moments that the run begins with into host memory, where the moments
// are zero.
static bd_status read_own_state(bd_setup *s, float *weights, const bd_moments *moments,
                                bd_error *err)
{
    if (!s->continues && s->options->init)
        return bd_pretrained_read(s->options->init, &s->run.parameters, weights, err);
    if (!s->continues) {
        bd_parameters_draw(&s->run.parameters, (uint64_t)s->options->seed, weights);
        return BD_OK;
    }
    const bd_checkpoint *checkpoint = &s->run.checkpoint;
    const bd_status status =
        bd_checkpoint_load_tensors(checkpoint, &s->run.parameters, weights, moments, err);
    return status == BD_OK ? BD_OK : suggest_earlier(s->options, checkpoint->step, status, err);
}

// The same, and all ranks have the same weights: --init may name files that are not.
static bd_status read_state(bd_setup *s, float *weights, const bd_moments *moments,
                            bd_error *err)
{
    BD_TRY(bd_group_agree(s->group, read_own_state(s, weights, moments, err), err));
    if (s->group->n_ranks == 1)
        return BD_OK;
    const size_t size_bytes = (size_t)s->run.parameters.n_total * sizeof *weights;
    return check_same_number(s, bd_hash64(weights, size_bytes, 0), "other weights", err);
}

// By way of the host's memory to a device.
static bd_status upload_state(bd_setup *s, bd_error *err)
{
    const bd_trainer *trainer = &s->trainer;
    const bd_operations *operations = s->backend->operations;
    const size_t n = (size_t)s->run.parameters.n_total;
    const size_t n_slice = (size_t)(trainer->slice.end - trainer->slice.begin);
    float *weights = calloc(n, sizeof *weights);
    const bd_moments moments = {trainer->slice, calloc(n_slice + 1, sizeof(float)),
                                calloc(n_slice + 1, sizeof(float))};
    bd_status status = BD_OK;
    if (!weights || !moments.m || !moments.v)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parameters", n);
    if (status == BD_OK)
        status = read_state(s, weights, &moments, err);
    if (status == BD_OK)
        status = bd_model_set_weights(&s->trainer.model, weights, err);
    if (status == BD_OK)
        status =
            operations->upload(s->backend, trainer->m, moments.m, n_slice * sizeof(float), err);
    if (status == BD_OK)
        status =
            operations->upload(s->backend, trainer->v, moments.v, n_slice * sizeof(float), err);
    free(weights);
    free(moments.m);
    free(moments.v);
    return status;
}

// A device's memory is exchanged by the device's own collectives.
static bd_status open_collectives(bd_setup *s, bd_error *err)
{
    bd_group *group = s->group;
    const bd_operations *operations = s->backend->operations;
    bd_collectives_id id = {{0}};
    s->collectives = group->collectives;
    if (group->n_ranks == 1 || operations->works_on_host)
        return BD_OK;
    bd_status status = BD_OK;
    if (bd_setup_is_first(s))
        status = operations->make_collectives_id(s->backend, &id, err);
    BD_TRY(bd_group_agree(group, status, err));
    BD_TRY(bd_group_follow(group, &id, sizeof id, err));
    return operations->open_collectives(s->backend, &id, group->rank, group->n_ranks,
                                        &s->collectives, err);
}

static bd_status begin_training(bd_setup *s, const bd_hyperparameters *hyperparameters,
                                bd_error *err)
{
    bd_trainer *trainer = &s->trainer;
    const bd_trainer_needs needs = {&s->rows, &s->run.parameters, s->backend, s->group,
                                    s->collectives};
    const bd_trainer_start start = {.step = s->begin_step};
    BD_TRY(bd_trainer_init(trainer, hyperparameters, &needs, &start, err));
    trainer->spike_guard = s->run.checkpoint.spike_guard;
    // Where the backend's memory is the host's, no tensor is ever there twice.
    if (s->backend->operations->works_on_host && hyperparameters->type == BD_FLOAT) {
        const bd_moments moments = {trainer->slice, trainer->m, trainer->v};
        return read_state(s, trainer->model.masters, &moments, err);
    }
    return upload_state(s, err);
}

// What is looked at beside the training.
static bd_status begin_looking(bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    if (options->sample_every != BD_NOT_GIVEN)
        BD_TRY(bd_samples_open(&s->samples, &options->sample_prompts, &s->trainer.model,
                               s->sources.folders[0], &s->rows.manifests[0], err));
    return BD_OK;
}

// Whether all that a checkpoint keeps lies in this process's own memory.
static bool lies_whole(const bd_setup *s)
{
    return s->group->n_ranks == 1 && s->backend->operations->works_on_host;
}

static bool fits_memory(const bd_train_options *options, int64_t n_total)
{
    return n_total <= options->save_memory_bytes / (BD_STATE_ARRAYS * (int64_t)sizeof(float));
}

// The settings that the run has in effect, for those who go on with it or repeat it.
static bd_status keep_settings(const bd_setup *s, bd_error *err)
{
    bd_train_options effective = *s->options;
    effective.n_epochs = 0;  // they are steps by now
    effective.n_tokens = 0;
    effective.preset_given |= !effective.init && !effective.config;
    effective.model_given = effective.kept_given = true;
    char *text;
    size_t size_bytes;
    BD_TRY(bd_settings_print(&bd_train_command, &effective, &text, &size_bytes, err));
    const bd_status status =
        bd_file_publish(effective.out, BD_RUN_SETTINGS_NAME, text, size_bytes, err);
    free(text);
    return status;
}

static bd_status remove_pending(void *context, const char *folder, const char *name,
                                bd_error *err)
{
    char final[sizeof BD_RUN_SETTINGS_NAME + sizeof BD_TOKENIZER_NAME];
    (void)context;
    if (!bd_pending_final_name(name, final, sizeof final) ||
        (strcmp(final, BD_RUN_SETTINGS_NAME) != 0 && strcmp(final, BD_TOKENIZER_NAME) != 0))
        return BD_OK;
    return bd_folder_remove(folder, name, err);
}

// Everything is well: the folder is ours from here on. What a run that was killed left in it
// goes, and so do the steps after the one that was asked for.
static bd_status begin_writing(bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    const int64_t n_total = s->run.parameters.n_total;
    const bd_checkpoint_policy policy = {options->out, options->n_kept,
                                         !lies_whole(s) || fits_memory(options, n_total)};
    BD_TRY(bd_checkpoint_writer_new(&s->writer, &policy, n_total, err));
    if (s->trainer.step < options->n_steps) {  // else nothing is left to tell
        BD_TRY(bd_metrics_open(&s->metrics, options->out, s->trainer.step,
                               &s->run.parameters.config, 1e12 * options->peak_tflops, err));
        BD_TRY(keep_settings(s, err));
    }
    BD_TRY(bd_file_publish(options->out, BD_TOKENIZER_NAME, s->tokenizer, strlen(s->tokenizer),
                           err));
    BD_TRY(bd_folder_visit(options->out, remove_pending, NULL, err));
    BD_TRY(bd_checkpoint_clear_away(options->out, err));
    return s->continues ? bd_checkpoint_remove_after(options->out, s->trainer.step, err)
                        : BD_OK;
}

static bd_status open_data(bd_setup *s, bd_error *err)
{
    BD_TRY(bd_data_sources_parse(&s->sources, &s->options->data, err));
    const char *const *folders = (const char *const *)s->sources.folders;
    BD_TRY(bd_rows_open_all(&s->rows, folders, s->sources.weights, s->sources.n, err));
    BD_TRY(bd_rows_check_targets(&s->rows, folders, err));
    BD_TRY(bd_stored_tokenizer_read(folders[0], &s->rows.manifests[0].tokenizer_digest,
                                    &s->tokenizer, err));
    return bd_run_describe_data(folders, &s->rows, &s->data_json, err);
}

// -o and --resume name the run's folder, and may both do so.
static bd_status choose_folder(bd_train_options *options, bd_error *err)
{
    if (!options->out)
        options->out = options->resume;
    if (!options->out)
        return bd_fail(err, BD_ERR_ARGUMENT, "-o DIR or --resume DIR is required");
    if (options->resume && strcmp(options->out, options->resume) != 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "-o and --resume name different folders");
    return BD_OK;
}

static bd_status prepare(bd_setup *s, bd_hyperparameters *hyperparameters, bd_error *err)
{
    const bd_train_options *options = s->options;
    BD_TRY(choose_folder(&s->settled, err));
    const bd_run_length length = {options->n_steps, options->n_epochs, options->n_tokens};
    s->is_length_given = length.n_steps > 0 || length.n_epochs > 0 || length.n_tokens > 0;
    const bd_status opened = open_data(s, err);
    if (opened != BD_OK)
        return bd_error_prefix(err, opened, "--data");
    BD_TRY(bd_eval_datasets_open(&s->eval_datasets, &options->eval, bd_rows_packing(&s->rows),
                                 err));
    BD_TRY(bd_count_steps(&s->settled.n_steps, &length, options->batch_rows, &s->rows, err));
    BD_TRY(choose_training(hyperparameters, options, err));
    s->training_json = bd_hyperparameters_to_json(hyperparameters);
    return bd_backend_open_choice(&s->backend, options->backend, options->backend_module,
                                  options->isa, s->group->local_rank,
                                  bd_threads_count(options->n_threads), err);
}

// What only rank 0 does.
static bd_status begin_telling(bd_setup *s, bd_error *err)
{
    if (!bd_setup_is_first(s))
        return BD_OK;
    BD_TRY(begin_looking(s, err));
    return begin_writing(s, err);
}

bd_status bd_setup_open(bd_setup *s, const bd_train_options *options, bd_group *group,
                        bool quiet, bd_error *err)
{
    bd_hyperparameters hyperparameters;
    *s = (bd_setup){
        .settled = *options, .group = group, .quiet = quiet || group->rank > 0, .lock = -1};
    s->options = &s->settled;
    // After each of these all ranks are well, or all have failed.
    BD_TRY(bd_group_agree(group, prepare(s, &hyperparameters, err), err));
    BD_TRY(bd_group_agree(group, check_same_settings(s, err), err));
    BD_TRY(bd_group_agree(group, begin_run(s, &hyperparameters, err), err));
    BD_TRY(bd_group_agree(group, check_same_model(s, err), err));
    BD_TRY(bd_group_agree(group, open_collectives(s, err), err));
    BD_TRY(bd_group_agree(group, begin_training(s, &hyperparameters, err), err));
    BD_TRY(bd_group_agree(group, begin_telling(s, err), err));
    s->n_made = 0;  // from here on there is something in it
    return BD_OK;
}

void bd_setup_close(bd_setup *s)
{
    bd_checkpoint_writer_free(s->writer);
    bd_samples_close(&s->samples);
    bd_eval_datasets_close(&s->eval_datasets);
    bd_metrics_close(s->metrics);
    bd_trainer_release(&s->trainer);
    if (s->collectives && s->collectives != s->group->collectives)
        s->collectives->operations->close(s->collectives);
    if (s->backend)
        s->backend->operations->close(s->backend);
    bd_run_release(&s->run);
    bd_rows_close(&s->rows);
    bd_data_sources_release(&s->sources);
    bd_json_free(s->training_json);
    bd_json_free(s->data_json);
    free(s->tokenizer);
    if (s->lock >= 0 || s->n_made > 0)
        bd_folder_withdraw(s->options->out, s->n_made, s->lock);
    *s = (bd_setup){.lock = -1};
}
