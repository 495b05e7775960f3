#include "trainer/setup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "common/cli/human.h"
#include "common/dataset/stored_tokenizer.h"
#include "trainer/commands.h"
#include "trainer/run_folder.h"
#include "trainer/weights/pretrained.h"

// ---- The same for all ranks -----------------------------------------------------------------

// Ranks that were given different commands, or that see different files, would train nonsense:
// `mine` must equal the number that rank 0 has.
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

// The same for a document, which is freed.
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

// ---- Options and data -----------------------------------------------------------------------

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

static bd_status open_inputs(bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    s->folder = options->out ? options->out : options->resume;
    if (!s->folder && !options->dry_run)
        return bd_fail(err, BD_ERR_ARGUMENT, "-o DIR or --resume DIR is required");
    if (options->resume && strcmp(s->folder, options->resume) != 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "-o and --resume name different folders");
    const bd_status opened = open_data(s, err);
    if (opened != BD_OK)
        return bd_error_prefix(err, opened, "--data");
    BD_TRY(bd_eval_datasets_open(&s->eval_datasets, &options->eval, bd_rows_config(&s->rows),
                                 err));

    bd_hyperparameters *h = &s->hyperparameters;
    *h = options->hyperparameters;
    if (h->micro_batch_rows == BD_NOT_GIVEN || h->micro_batch_rows > h->batch_rows)
        h->micro_batch_rows = h->batch_rows;
    h->type = BD_FLOAT;  // until the model is known: settle_type()
    BD_TRY(bd_count_steps(&h->n_steps, &options->length, h->batch_rows, &s->rows, err));
    BD_TRY(bd_count_decay_steps(&h->decay_steps, options->decay, h->n_steps, err));
    s->training_json = bd_hyperparameters_to_json(h);
    return bd_backend_open_choice(&s->backend, options->backend, options->backend_module,
                                  options->isa, s->group->local_rank,
                                  bd_threads_count(options->n_threads), err);
}

// Compares everything that decides which functions of the group the ranks call, and when.
static bd_status check_same_settings(bd_setup *s, bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set(json, "training", bd_json_share(s->training_json));
    bd_json_set(json, "data", bd_json_share(s->data_json));
    bd_json_set_string(json, "backend", s->backend->operations->name);
    bd_json_set_string(json, "precision", bd_precision_choice_names[s->options->precision]);
    bd_json_set_integer(json, "save_every", s->options->save_every);
    bd_json_set_integer(json, "probe_every", s->options->probe_every);
    bd_json_set_integer(json, "eval_every",
                        s->eval_datasets.n > 0 ? s->options->eval_every : BD_NOT_GIVEN);
    bd_json_set_integer(json, "sample_every", s->options->sample_every);
    return check_same_json(s, json, "other settings or other data", err);
}

// ---- The folder -----------------------------------------------------------------------------

static bool must_continue(const bd_train_options *options)
{
    return options->resume || options->resume_from != BD_NOT_GIVEN;
}

// Locks the folder while the run lasts, and finds the checkpoint to begin from: *step, or -1 if
// the run is a new one.
static bd_status take_folder(bd_setup *s, int64_t *step, bd_error *err)
{
    bd_status status = BD_OK;
    if (!must_continue(s->options))
        BD_TRY(bd_folder_make(s->folder, &s->n_made, err));
    else if ((status = bd_checkpoint_find_latest(s->folder, step, err)) != BD_OK)
        return bd_error_suffix(err, status, "-o without --resume begins a new run");
    status = bd_folder_lock(&s->lock, s->folder, BD_LOCK_EXCLUSIVE, "training in", err);
    if (status != BD_OK)
        return bd_error_suffix(err, status, "-o can name another one");
    BD_TRY(bd_checkpoint_find_up_to(s->folder, INT64_MAX, step, err));
    BD_TRY(bd_checkpoint_refuse_unknown(s->folder, err));
    if (*step < 0)
        return bd_run_folder_check(s->folder, s->tokenizer, err);
    if (s->options->resume_from != BD_NOT_GIVEN)
        *step = s->options->resume_from;
    return BD_OK;
}

// ---- The model ------------------------------------------------------------------------------

// Changes *config as --config and the options of the model ask.
static bd_status apply_model_options(bd_model_config *config, const bd_train_options *options,
                                     bd_error *err)
{
    if (options->config) {
        const bd_status status = bd_model_config_read(config, options->config, err);
        if (status != BD_OK)
            return bd_error_prefix(err, status, "--config");
    }
    // Widths that follow from others are counted again (bd_model_config_complete) unless they are
    // given as well.
    if (options->n_channels != BD_NOT_GIVEN && options->n_channels != config->n_channels) {
        config->n_channels = options->n_channels;
        config->n_feed_forward = 0;
        config->head_size = 0;
        config->query_scale = 0;
    }
    if (options->n_heads != BD_NOT_GIVEN && options->n_heads != config->n_heads) {
        config->n_heads = options->n_heads;
        config->n_kv_heads = 0;
        config->head_size = 0;
        config->query_scale = 0;
    }
    if (options->n_kv_heads != BD_NOT_GIVEN)
        config->n_kv_heads = options->n_kv_heads;
    if (options->head_size != BD_NOT_GIVEN && options->head_size != config->head_size) {
        config->head_size = options->head_size;
        config->query_scale = 0;
    }
    if (options->n_feed_forward != BD_NOT_GIVEN)
        config->n_feed_forward = options->n_feed_forward;
    if (options->n_layers != BD_NOT_GIVEN && options->n_layers != config->n_layers) {
        static const bd_layer_set none;
        if (config->window > 0 || memcmp(&config->unrotated, &none, sizeof none) != 0)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "--layers %" PRId64 " cannot be given for a model whose layers have "
                           "windows or differ in their rotation: change the file of --config",
                           options->n_layers);
        config->n_layers = options->n_layers;
    }
    if (options->n_positions != BD_NOT_GIVEN)
        config->n_positions = options->n_positions;
    if (options->n_vocabulary != BD_NOT_GIVEN)
        config->n_vocabulary = options->n_vocabulary;
    return bd_model_config_complete(config, err);
}

// The shape that the options ask for. With --init they may repeat the shape of the weights, but
// not change it.
static bd_status choose_config(bd_model_config *config, const bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    const int64_t vocab_size = bd_rows_config(&s->rows)->vocab_size;
    if (!options->init) {
        BD_TRY(bd_model_config_preset(config, bd_model_presets[options->preset], err));
        config->n_vocabulary = vocab_size;
        return apply_model_options(config, options, err);
    }
    const bd_status status = bd_pretrained_config(config, options->init, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "--init");
    BD_TRY(bd_pretrained_check_vocabulary(config, options->init, vocab_size, err));
    bd_model_config asked = *config;
    if (options->preset_given) {
        BD_TRY(bd_model_config_preset(&asked, bd_model_presets[options->preset], err));
        asked.n_vocabulary = config->n_vocabulary;
    }
    BD_TRY(apply_model_options(&asked, options, err));
    return bd_pretrained_refuse_other(config, &asked, options->init, err);
}

static bd_status describe_new_model(bd_setup *s, bd_error *err)
{
    const char *init = s->options->init;
    bd_model_config config;
    BD_TRY(choose_config(&config, s, err));

    // A new model must be able to read the longest segment of all its datasets. If it has too
    // few positions for that, it gets as many as a row has tokens: other data that is packed
    // alike fits then as well.
    const int64_t trained = bd_rows_longest_segment(&s->rows);
    const int64_t evaluated = bd_eval_datasets_longest_segment(&s->eval_datasets);
    const int64_t longest = trained > evaluated ? trained : evaluated;
    if (!init && longest > config.n_positions) {
        if (s->options->n_positions != BD_NOT_GIVEN)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "--positions %" PRId64 " are too few for a segment of %" PRId64
                           " tokens: give as many or leave the option out",
                           config.n_positions, longest);
        s->too_few_positions = config.n_positions;
        config.n_positions = bd_rows_config(&s->rows)->seq_len;
    }
    BD_TRY(bd_parameters_init(&s->run.parameters, &config, err));
    // Checks the files before memory is allocated for the sizes that their config claims.
    const bd_status status =
        init ? bd_pretrained_read(init, &s->run.parameters, NULL, err) : BD_OK;
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "--init");
}

// Appends to the message in *err how to continue from the checkpoint before `step`, if there is
// one.
static bd_status suggest_earlier(const bd_setup *s, int64_t step, bd_status status,
                                 bd_error *err)
{
    int64_t before;
    if (s->options->resume_from != BD_NOT_GIVEN || !err ||
        bd_checkpoint_find_up_to(s->folder, step - 1, &before, NULL) != BD_OK || before < 0)
        return status;
    return bd_error_suffix(err, status,
                           "--resume-from %" PRId64 " takes the checkpoint before it", before);
}

static bd_status refuse_difference(const bd_setup *s, const bd_json *here, const bd_json *there,
                                   const char *what, bd_error *err)
{
    char where[256];
    if (!bd_json_difference(here, there, where, sizeof where))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT,
                   "cannot resume '%s': its %s is another one: %s; -o begins a new run in "
                   "another folder",
                   s->folder, what, where);
}

// The options may repeat what the model is, but not change it. With --resume, options that are
// not given, the preset's default among them, do not count, and the files that the run once
// began with (--config, --init) may be gone.
static bd_status refuse_other_model(bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    const bd_model_config *saved = &s->run.checkpoint.config;
    bd_model_config asked = *saved;
    if (must_continue(options) && !options->preset_given && !options->model_given)
        return BD_OK;
    if (must_continue(options) && !options->preset_given && !options->init)
        BD_TRY(apply_model_options(&asked, options, err));
    else
        BD_TRY(choose_config(&asked, s, err));
    // describe_new_model() may have given it more positions than were asked for.
    if (options->n_positions == BD_NOT_GIVEN && asked.n_positions < saved->n_positions)
        asked.n_positions = saved->n_positions;
    bd_json *here = bd_model_config_to_json(&asked), *there = bd_model_config_to_json(saved);
    const bd_status status = refuse_difference(s, here, there, "model", err);
    bd_json_free(here);
    bd_json_free(there);
    return status;
}

// The run may become longer if that is asked for. Then the last step, and with it the decay,
// differ from those of the checkpoint; nothing else may.
static bd_status refuse_other_training(bd_setup *s, bd_error *err)
{
    const bd_json *there = s->run.checkpoint.training;
    bd_hyperparameters before = s->hyperparameters;
    int64_t n_steps;
    BD_TRY(bd_json_get_integer(there, "steps", 1, INT64_MAX, &n_steps, err));
    if (bd_run_length_is_given(&s->options->length) && before.n_steps > n_steps) {
        before.n_steps = n_steps;
        if (!bd_json_is_null(there, "decay_steps"))
            BD_TRY(bd_json_get_integer(there, "decay_steps", 0, INT64_MAX, &before.decay_steps,
                                       err));
    }
    s->n_steps_before = before.n_steps;
    bd_json *here = bd_hyperparameters_to_json(&before);
    const bd_status status = refuse_difference(s, here, there, "training", err);
    bd_json_free(here);
    return status;
}

// Decides in which type the model computes, now that it is known. A run continues in the type
// that it began with: another one gives other bits.
static bd_status settle_type(bd_setup *s, bd_error *err)
{
    const bd_model_config *config = &s->run.parameters.config;
    bd_type *type = &s->hyperparameters.type;
    if (s->continues && s->options->precision == BD_PRECISION_AUTO) {
        BD_TRY(bd_run_type(&s->run, type, err));
        const bd_status status = bd_model_check_type(s->backend, config, *type, err);
        if (status != BD_OK) {
            bd_error_prefix(err, status, "cannot resume '%s' in %s", s->folder,
                            bd_precision_names[*type]);
            return bd_error_suffix(err, status, "--backend cuda computes in it");
        }
    } else {
        *type = bd_precision_settle(s->options->precision, BD_BF16, s->backend, config,
                                    &s->why_float);
        const bd_status status = bd_model_check_type(s->backend, config, *type, err);
        if (status != BD_OK)
            return bd_error_suffix(err, status, "--precision float can be computed everywhere");
    }
    bd_json_free(s->training_json);
    s->training_json = bd_hyperparameters_to_json(&s->hyperparameters);
    return BD_OK;
}

// Reads everything in the checkpoint except for its tensors.
static bd_status open_checkpoint(bd_setup *s, bd_error *err)
{
    bd_status status = bd_checkpoint_load(&s->run.checkpoint, s->folder, s->begin_step, err);
    if (status != BD_OK && s->options->resume_from != BD_NOT_GIVEN)
        return bd_error_prefix(err, status, "--resume-from %" PRId64, s->begin_step);
    if (status != BD_OK)
        return suggest_earlier(s, s->begin_step, status, err);
    BD_TRY(bd_parameters_init(&s->run.parameters, &s->run.checkpoint.config, err));
    BD_TRY(refuse_other_model(s, err));
    BD_TRY(refuse_difference(s, s->data_json, s->run.checkpoint.data, "dataset", err));
    BD_TRY(settle_type(s, err));
    BD_TRY(refuse_other_training(s, err));

    // A run of an older version, which has no settings, kept all of its checkpoints: they are
    // removed only if --keep asks for it.
    char *path;
    BD_TRY(bd_run_find_settings(s->folder, &path, err));
    if (!path && !s->options->kept_given)
        s->n_kept = 0;
    free(path);
    if (s->begin_step > s->hyperparameters.n_steps)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot resume '%s': its step %" PRId64 " is after the last one, "
                       "--steps %" PRId64,
                       s->folder, s->begin_step, s->hyperparameters.n_steps);
    return BD_OK;
}

// The model of the checkpoint of `step`, or a new one if that is -1.
static bd_status describe_model(bd_setup *s, int64_t step, bd_error *err)
{
    s->continues = step >= 0;
    s->begin_step = s->continues ? step : 0;
    s->n_steps_before = s->hyperparameters.n_steps;
    if (s->continues) {
        BD_TRY(open_checkpoint(s, err));
    } else {
        BD_TRY(describe_new_model(s, err));
        BD_TRY(settle_type(s, err));
    }
    const bd_model_config *config = &s->run.parameters.config;
    BD_TRY(bd_check_fit(config, &s->rows, err));
    return bd_eval_datasets_check_fit(&s->eval_datasets, config, err);
}

// Only rank 0 reads the folder; it sends the others the step to begin from.
static bd_status open_model(bd_setup *s, bd_error *err)
{
    int64_t step = -1;
    const bd_status taken = bd_setup_is_first(s) ? take_folder(s, &step, err) : BD_OK;
    BD_TRY(bd_group_agree(s->group, taken, err));
    BD_TRY(bd_group_follow(s->group, &step, sizeof step, err));
    return describe_model(s, step, err);
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

// ---- Memory ---------------------------------------------------------------------------------

// Tensors that do not all lie in this process's memory must be copied into it before they are
// written, others may be.
static bd_checkpoint_policy checkpoint_policy(const bd_setup *s, const bd_hyperparameters *h)
{
    const bd_parameters *parameters = &s->run.parameters;
    const int64_t n_total = parameters->n_total;
    const int64_t n_v = bd_second_moments_before(h->optimizer, parameters, n_total);
    const int64_t n_average = h->average > 0 ? n_total : 0;
    const bool needs_copies = s->group->n_ranks > 1 || !s->backend->operations->works_on_host;
    const int64_t most_copied = s->options->save_memory_bytes / (int64_t)sizeof(float);
    return (bd_checkpoint_policy){
        .folder = s->folder,
        .n_kept = s->n_kept,
        .has_memory = needs_copies || 2 * n_total + n_v + n_average <= most_copied,
        .n_numbers = {[BD_STATE_WEIGHTS] = n_total,
                      [BD_STATE_M] = n_total,
                      [BD_STATE_V] = n_v,
                      [BD_STATE_AVERAGE] = n_average},
    };
}

// A device keeps the most that an operation has needed: the workspace of matrix products, or, for
// gradients of attention in bf16, a float for every number of the queries. The CPU needs little.
static size_t measure_scratch(const bd_setup *s, const bd_model_options *model)
{
    const size_t workspace = (size_t)32 << 20;
    const bd_model_config *c = &s->run.parameters.config;
    const int64_t n_tokens = model->max_rows * model->seq_len;
    const size_t of_query =
        ((model->type == BD_FLOAT ? 0 : (size_t)c->head_size) + 4) * sizeof(float);
    const size_t attention = (size_t)(n_tokens * c->n_heads) * of_query;
    if (s->backend->operations->works_on_host)
        return 0;
    return (attention > workspace ? attention : workspace) +
           BD_TRANSFER_SLOTS * bd_transfer_slot_bytes(n_tokens);
}

bd_status bd_setup_measure(const bd_setup *s, const bd_hyperparameters *h, int32_t rank,
                           bd_run_size *size, bd_error *err)
{
    const bd_checkpoint_policy policy = checkpoint_policy(s, h);
    bd_group seen_by_rank = *s->group;
    seen_by_rank.rank = rank;
    *size = (bd_run_size){0};
    BD_TRY(bd_training_measure(&size->training, h, &s->run.parameters,
                               bd_rows_config(&s->rows)->seq_len, &seen_by_rank, err));
    size->scratch = measure_scratch(s, &size->training.model);
    if (rank == 0 && s->options->sample_every != BD_NOT_GIVEN)
        BD_TRY(bd_samples_measure(&s->options->sample_prompts, h->type, &s->run.parameters,
                                  &size->samples, err));
    for (int i = 0; rank == 0 && policy.has_memory && i < BD_STATE_ARRAYS; i++)
        size->copies += (size_t)policy.n_numbers[i] * sizeof(float);
    const size_t others[] = {size->scratch, size->samples,
                             s->backend->operations->works_on_host ? size->copies : 0};
    size->total = size->training.total_bytes;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!bd_size_add(size->total, others[i], &size->total))
            return bd_fail(err, BD_ERR_MEMORY, "the run's buffers are too large");
    return BD_OK;
}

// The trainer compares what it takes itself, and says what would help.
static bd_status check_other_memory(const bd_setup *s, bd_error *err)
{
    bd_run_size size;
    size_t free_bytes;
    BD_TRY(bd_setup_measure(s, &s->hyperparameters, s->group->rank, &size, err));
    BD_TRY(s->backend->operations->free_memory(s->backend, &free_bytes, err));
    if (size.training.total_bytes > free_bytes || size.total <= free_bytes)
        return BD_OK;
    return bd_fail(
        err, BD_ERR_MEMORY,
        "the run takes %s of the memory of %s, %s of it for scratch, samples and "
        "copies of checkpoints (--save-memory), and %s are free; --dry-run says what "
        "takes how much",
        bd_format_bytes(size.total).text, s->backend->operations->name,
        bd_format_bytes(size.total - size.training.total_bytes).text,
        bd_format_bytes(free_bytes).text);
}

// ---- Weights and moments --------------------------------------------------------------------

// A device's memory is exchanged by collectives of the device.
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

// The average of a new run begins with its weights.
static void begin_average(const bd_setup *s, const float *weights, const bd_moments *moments)
{
    const bd_rank_slice slice = moments->slice;
    if (moments->average && !s->continues)
        memcpy(moments->average, weights + slice.begin,
               (size_t)(slice.end - slice.begin) * sizeof *weights);
}

// Fills weights [n_total] and moments, which are zero before, in host memory with what the run
// begins with.
static bd_status read_state(bd_setup *s, float *weights, const bd_moments *moments,
                            bd_error *err)
{
    const bd_parameters *parameters = &s->run.parameters;
    bd_status status = BD_OK;
    if (s->continues) {
        status =
            bd_checkpoint_load_tensors(&s->run.checkpoint, parameters, weights, moments, err);
        if (status != BD_OK)
            status = suggest_earlier(s, s->begin_step, status, err);
    } else if (s->options->init) {
        status = bd_pretrained_read(s->options->init, parameters, weights, err);
    } else {
        bd_parameters_draw(parameters, (uint64_t)s->hyperparameters.seed, weights);
    }
    BD_TRY(bd_group_agree(s->group, status, err));
    begin_average(s, weights, moments);
    if (s->group->n_ranks == 1)
        return BD_OK;
    // The files of --init have no checksum that the ranks could have compared before.
    const size_t size_bytes = (size_t)parameters->n_total * sizeof *weights;
    return check_same_number(s, bd_hash64(weights, size_bytes, 0), "other weights", err);
}

// Reads the state into memory of its own and copies it to the backend.
static bd_status upload_state(bd_setup *s, bd_error *err)
{
    bd_trainer *trainer = &s->trainer;
    const bd_optimizer *optimizer = &trainer->optimizer;
    const size_t n = (size_t)s->run.parameters.n_total;
    const size_t n_slice = (size_t)(optimizer->slice.end - optimizer->slice.begin);
    float *weights = calloc(n, sizeof *weights);
    const size_t n_v = (size_t)optimizer->n_v, n_average = optimizer->average ? n_slice : 0;
    float *slices = calloc(n_slice + n_v + n_average + 1, sizeof *slices);
    const bd_moments moments = {optimizer->slice, slices, slices + n_slice,
                                optimizer->average ? slices + n_slice + n_v : NULL};
    const struct {
        float *to;
        const float *from;
        size_t n;
    } copies[] = {{optimizer->m, moments.m, n_slice},
                  {optimizer->v, moments.v, n_v},
                  {optimizer->average, moments.average, n_average}};
    bd_status status = BD_OK;
    if (!weights || !slices)
        status = bd_fail(err, BD_ERR_MEMORY, "no memory for %zu parameters", n);
    if (status == BD_OK)
        status = read_state(s, weights, &moments, err);
    if (status == BD_OK)
        status = bd_model_set_weights(&trainer->model, weights, err);
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        if (status == BD_OK && copies[i].n > 0)
            status = s->backend->operations->upload(s->backend, copies[i].to, copies[i].from,
                                                    copies[i].n * sizeof *slices, err);
    free(weights);
    free(slices);
    return status;
}

static bd_status open_trainer(bd_setup *s, bd_error *err)
{
    bd_trainer *trainer = &s->trainer;
    const bd_optimizer *optimizer = &trainer->optimizer;
    const bd_trainer_needs needs = {&s->rows, &s->run.parameters, s->backend, s->group,
                                    s->collectives};
    BD_TRY(check_other_memory(s, err));
    BD_TRY(bd_trainer_init(trainer, &s->hyperparameters, &needs, s->begin_step, err));
    trainer->spike_guard = s->run.checkpoint.spike_guard;
    if (!s->backend->operations->works_on_host || s->hyperparameters.type != BD_FLOAT)
        return upload_state(s, err);
    // The tensors are read to where they stay, so that memory never holds them twice.
    const bd_moments moments = {optimizer->slice, optimizer->m, optimizer->v,
                                optimizer->average};
    return read_state(s, trainer->model.masters, &moments, err);
}

// ---- What the run writes --------------------------------------------------------------------

// Writes the settings in effect, for --resume and for those who want to repeat the run.
static bd_status write_settings(const bd_setup *s, bd_error *err)
{
    bd_train_options effective = *s->options;
    effective.length = (bd_run_length){s->hyperparameters.n_steps, BD_NOT_GIVEN, BD_NOT_GIVEN};
    effective.n_kept = s->n_kept;
    effective.preset_given |= !effective.init && !effective.config;
    effective.model_given = effective.kept_given = true;
    char *text;
    size_t size_bytes;
    BD_TRY(bd_settings_print(&bd_train_command, &effective, &text, &size_bytes, err));
    const bd_status status =
        bd_file_publish(s->folder, BD_RUN_SETTINGS_NAME, text, size_bytes, err);
    free(text);
    return status;
}

static bd_status remove_unfinished(void *context, const char *folder, const char *name,
                                   bd_error *err)
{
    char final[sizeof BD_RUN_SETTINGS_NAME + sizeof BD_TOKENIZER_NAME];
    (void)context;
    if (!bd_pending_final_name(name, final, sizeof final) ||
        (strcmp(final, BD_RUN_SETTINGS_NAME) != 0 && strcmp(final, BD_TOKENIZER_NAME) != 0))
        return BD_OK;
    return bd_folder_remove(folder, name, err);
}

// Only rank 0 does this, after everything else has succeeded. Files that a killed run left
// unfinished are removed, and so are the steps after the one to begin from.
static bd_status open_outputs(bd_setup *s, bd_error *err)
{
    const bd_train_options *options = s->options;
    if (!bd_setup_is_first(s))
        return BD_OK;
    if (options->sample_every != BD_NOT_GIVEN)
        BD_TRY(bd_samples_open(&s->samples, &options->sample_prompts, &s->trainer.model,
                               s->sources.folders[0], &s->rows.manifests[0], err));
    const bd_checkpoint_policy policy = checkpoint_policy(s, &s->hyperparameters);
    BD_TRY(bd_checkpoint_writer_new(&s->writer, &policy, err));
    if (s->begin_step < s->hyperparameters.n_steps) {  // a finished run has nothing to log
        BD_TRY(bd_metrics_open(&s->metrics, s->folder, s->begin_step, &s->run.parameters.config,
                               1e12 * options->peak_tflops, err));
        BD_TRY(write_settings(s, err));
    }
    BD_TRY(
        bd_file_publish(s->folder, BD_TOKENIZER_NAME, s->tokenizer, strlen(s->tokenizer), err));
    BD_TRY(bd_folder_visit(s->folder, remove_unfinished, NULL, err));
    BD_TRY(bd_checkpoint_clear_away(s->folder, err));
    return s->continues ? bd_checkpoint_remove_after(s->folder, s->begin_step, err) : BD_OK;
}

// ---- All of it ------------------------------------------------------------------------------

bd_status bd_setup_open(bd_setup *s, const bd_train_options *options, bd_group *group,
                        bool quiet, bd_error *err)
{
    *s = (bd_setup){.options = options,
                    .n_kept = options->n_kept,
                    .group = group,
                    .quiet = quiet || group->rank > 0,
                    .lock = -1};
    // After each of these lines all ranks have succeeded, or all have failed.
    BD_TRY(bd_group_agree(group, open_inputs(s, err), err));
    BD_TRY(bd_group_agree(group, check_same_settings(s, err), err));
    BD_TRY(bd_group_agree(group, open_model(s, err), err));
    BD_TRY(bd_group_agree(group, check_same_model(s, err), err));
    BD_TRY(bd_group_agree(group, open_collectives(s, err), err));
    BD_TRY(bd_group_agree(group, open_trainer(s, err), err));
    BD_TRY(bd_group_agree(group, open_outputs(s, err), err));
    s->n_made = 0;  // the folder holds a run now, and stays
    return BD_OK;
}

bd_status bd_setup_describe(bd_setup *s, const bd_train_options *options, bd_group *group,
                            bd_error *err)
{
    *s = (bd_setup){.options = options, .group = group, .lock = -1};
    BD_TRY(open_inputs(s, err));
    int64_t step = -1;
    if (must_continue(options))
        BD_TRY(bd_checkpoint_find_latest(s->folder, &step, err));
    else if (s->folder && bd_checkpoint_find_up_to(s->folder, INT64_MAX, &step, NULL) != BD_OK)
        step = -1;  // there is no such folder yet
    return describe_model(s, options->resume_from != BD_NOT_GIVEN ? options->resume_from : step,
                          err);
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
        bd_folder_withdraw(s->folder, s->n_made, s->lock);
    *s = (bd_setup){.lock = -1};
}
