// `bindery train`: a run from its first step, or from its latest checkpoint, to its last.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/folder.h"
#include "common/format.h"
#include "common/program.h"
#include "common/terminal.h"
#include "common/threads.h"
#include "trainer/backend_choice.h"
#include "trainer/checkpoint.h"
#include "trainer/commands.h"
#include "trainer/data_sources.h"
#include "trainer/metrics.h"
#include "trainer/pretrained.h"
#include "trainer/run.h"
#include "trainer/training.h"

enum { NOT_GIVEN = 0 };

typedef struct train_settings {
    bd_texts data;
    const char *out;
    int preset;
    bool preset_given;
    const char *config;
    const char *init;
    int64_t n_layers, n_channels, n_heads, n_positions;
    int64_t n_steps, batch_rows, micro_batch_rows, warm_up_steps;
    double learning_rate, min_learning_rate, beta1, beta2, epsilon, weight_decay, clip_norm;
    int64_t seed;
    int64_t save_every, log_every;
    bool resume;
    bd_backend_choice backend;
    const char *backend_module;
    bd_type precision;
    int64_t n_threads;
} train_settings;

#define OVERRIDE(field, max) \
    BD_INTEGER(train_settings, field, 1, max), .initial = "0", .initial_note = "the preset's"

static const bd_option train_options[] = {
    {.name = "data",
     .value = "DATASET[:WEIGHT]",
     BD_TEXTS(train_settings, data),
     .required = true,
     .help = "Train on this packed dataset; give several with the weight of each"},
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(train_settings, out),
     .required = true,
     .help = "Put checkpoints and metrics into DIR"},
    {.name = "preset",
     .value = "NAME",
     BD_CHOICE(train_settings, preset, bd_model_presets),
     BD_GIVEN(train_settings, preset_given),
     .initial = "tiny",
     .help = "Shape of the model"},
    {.name = "config",
     .value = "FILE",
     BD_FILE(train_settings, config),
     .initial_note = "the preset",
     .help = "Take the shape from a Hugging Face config.json"},
    {.name = "init",
     .value = "DIR",
     BD_DIRECTORY(train_settings, init),
     .initial_note = "random weights",
     .help = "Begin a new run with shape and weights of a Hugging Face folder (config.json and "
             "safetensors of OPT or GPT-2)"},
    {.name = "layers", .value = "N", OVERRIDE(n_layers, 1024), .help = "Layers"},
    {.name = "channels", .value = "N", OVERRIDE(n_channels, 1 << 16), .help = "Channels"},
    {.name = "heads", .value = "N", OVERRIDE(n_heads, 1024), .help = "Attention heads"},
    {.name = "positions", .value = "N", OVERRIDE(n_positions, 1 << 24), .help = "Positions"},
    {.name = "steps",
     .value = "N",
     BD_INTEGER(train_settings, n_steps, 1, INT64_C(1) << 40),
     .initial = "300",
     .help = "Steps in all, those before a resume included"},
    {.name = "batch",
     .value = "ROWS",
     BD_INTEGER(train_settings, batch_rows, 1, 1 << 20),
     .initial = "8",
     .help = "Rows of one step"},
    {.name = "micro-batch",
     .value = "ROWS",
     BD_INTEGER(train_settings, micro_batch_rows, 1, 1 << 20),
     .initial = "0",
     .initial_note = "the batch",
     .help = "Rows that go through the model at a time; memory grows with it"},
    {.name = "learning-rate",
     .value = "X",
     BD_REAL(train_settings, learning_rate, 0, 1e3),
     .initial = "0.001",
     .help = "Peak of the learning rate"},
    {.name = "min-learning-rate",
     .value = "X",
     BD_REAL(train_settings, min_learning_rate, 0, 1e3),
     .initial = "0.0001",
     .help = "Learning rate at the last step"},
    {.name = "warm-up",
     .value = "STEPS",
     BD_INTEGER(train_settings, warm_up_steps, 0, INT64_C(1) << 40),
     .initial = "20",
     .help = "Steps over which the learning rate rises from 0"},
    {.name = "beta1",
     .value = "X",
     BD_REAL(train_settings, beta1, 0, 0.999999),
     .initial = "0.9",
     .help = "AdamW's first decay"},
    {.name = "beta2",
     .value = "X",
     BD_REAL(train_settings, beta2, 0, 0.999999),
     .initial = "0.95",
     .help = "AdamW's second decay"},
    {.name = "epsilon",
     .value = "X",
     BD_REAL(train_settings, epsilon, 1e-30, 1),
     .initial = "1e-8",
     .help = "AdamW's epsilon"},
    {.name = "weight-decay",
     .value = "X",
     BD_REAL(train_settings, weight_decay, 0, 100),
     .initial = "0.1",
     .help = "Decay of matrices; biases and gains have none"},
    {.name = "clip",
     .value = "NORM",
     BD_REAL(train_settings, clip_norm, 0, 1e30),
     .initial = "1",
     .help = "Clip the gradient to this global norm; 0 does not clip"},
    {.name = "seed",
     .value = "N",
     BD_INTEGER(train_settings, seed, 0, INT64_MAX),
     .initial = "1234",
     .help = "Seed of the initial weights and of the order of rows"},
    {.name = "save-every",
     .value = "STEPS",
     BD_INTEGER(train_settings, save_every, 1, INT64_C(1) << 40),
     .initial = "100",
     .help = "Steps between checkpoints; the last step is always saved"},
    {.name = "log-every",
     .value = "STEPS",
     BD_INTEGER(train_settings, log_every, 1, INT64_C(1) << 40),
     .initial = "20",
     .help = "Steps between printed lines"},
    {.name = "resume",
     BD_FLAG(train_settings, resume),
     .help = "Continue the run in DIR from its latest checkpoint; the other options must be "
             "those that it began with"},
    BD_BACKEND_OPTIONS(train_settings),
    BD_THREADS_OPTION(train_settings, n_threads,
                      "Threads of the kernels; the result does not depend on it"),
};

// What a run needs, from opening the data to its end.
typedef struct session {
    const train_settings *settings;
    bool quiet;
    bd_data_sources sources;
    bd_rows rows;
    bd_run run;  // the checkpoint, or a new model in the same form
    bd_backend *backend;
    bd_training training;
    bd_json *training_json, *data_json;
    float *host[3];  // weights, m, v on their way to a checkpoint
    FILE *metrics;
    int lock;  // of the folder; -1 before
} session;

// ---- Settings ---------------------------------------------------------------------------

// What --config and the options of the model change in *config.
static bd_status apply_options(bd_model_config *config, const train_settings *settings,
                               bd_error *err)
{
    if (settings->config)
        BD_TRY(bd_model_config_read(config, settings->config, err));
    if (settings->n_channels != NOT_GIVEN && settings->n_channels != config->n_channels) {
        config->n_channels = settings->n_channels;
        config->n_feed_forward = 4 * settings->n_channels;
    }
    if (settings->n_layers != NOT_GIVEN)
        config->n_layers = settings->n_layers;
    if (settings->n_heads != NOT_GIVEN)
        config->n_heads = settings->n_heads;
    if (settings->n_positions != NOT_GIVEN)
        config->n_positions = settings->n_positions;
    return bd_model_config_check(config, err);
}

// The shape of the weights to begin with; the options may repeat it, not change it.
static bd_status choose_initial(bd_model_config *config, const train_settings *settings,
                                const bd_manifest *manifest, bd_error *err)
{
    bd_model_config asked;
    BD_TRY(bd_pretrained_config(config, settings->init, err));
    BD_TRY(bd_pretrained_check_vocabulary(config, settings->init, manifest->packing.vocab_size,
                                          err));
    asked = *config;
    if (settings->preset_given) {
        BD_TRY(bd_model_config_preset(&asked, bd_model_presets[settings->preset], err));
        asked.n_vocabulary = config->n_vocabulary;
    }
    BD_TRY(apply_options(&asked, settings, err));
    return bd_pretrained_refuse_other(config, &asked, settings->init, err);
}

static bd_status choose_config(bd_model_config *config, const train_settings *settings,
                               const bd_manifest *manifest, bd_error *err)
{
    if (settings->init)
        return choose_initial(config, settings, manifest, err);
    BD_TRY(bd_model_config_preset(config, bd_model_presets[settings->preset], err));
    config->n_vocabulary = manifest->packing.vocab_size;
    return apply_options(config, settings, err);
}

static bd_training_settings choose_training(const train_settings *settings)
{
    const bool whole = settings->micro_batch_rows == NOT_GIVEN ||
                       settings->micro_batch_rows > settings->batch_rows;
    return (bd_training_settings){
        .n_steps = settings->n_steps,
        .batch_rows = settings->batch_rows,
        .micro_batch_rows = whole ? settings->batch_rows : settings->micro_batch_rows,
        .warm_up_steps = settings->warm_up_steps,
        .learning_rate = settings->learning_rate,
        .min_learning_rate = settings->min_learning_rate,
        .beta1 = settings->beta1,
        .beta2 = settings->beta2,
        .epsilon = settings->epsilon,
        .weight_decay = settings->weight_decay,
        .clip_norm = settings->clip_norm,
        .seed = (uint64_t)settings->seed,
        .type = settings->precision,
    };
}

// ---- Beginning --------------------------------------------------------------------------

static bd_status refuse_entry(void *context, const char *folder, const char *name,
                              bd_error *err)
{
    (void)context;
    // That is all that a run leaves that ended before its first checkpoint.
    if (name[0] == '.' || strcmp(name, BD_METRICS_NAME) == 0 ||
        strcmp(name, BD_TOKENIZER_NAME) == 0)
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT, "'%s' is not empty ('%s'); --resume continues a run",
                   folder, name);
}

// Makes the folder ours alone while the run lasts.
static bd_status lock_folder(session *s, bd_error *err)
{
    const char *folder = s->settings->out;
    if (!s->settings->resume)
        BD_TRY(bd_folder_make(folder, err));
    return bd_folder_lock(&s->lock, folder, BD_LOCK_EXCLUSIVE, "training in", err);
}

static bd_status begin_new(session *s, bd_error *err)
{
    bd_model_config config;
    BD_TRY(bd_folder_visit(s->settings->out, refuse_entry, NULL, err));
    BD_TRY(choose_config(&config, s->settings, &s->rows.manifests[0], err));
    BD_TRY(bd_parameters_init(&s->run.parameters, &config, err));
    if (s->settings->init)
        return bd_pretrained_load(s->settings->init, &s->run.parameters, &s->run.weights, err);
    s->run.weights = malloc((size_t)s->run.parameters.n_total * sizeof *s->run.weights);
    if (!s->run.weights)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " parameters",
                       s->run.parameters.n_total);
    bd_parameters_draw(&s->run.parameters, (uint64_t)s->settings->seed, s->run.weights);
    return BD_OK;
}

static bd_status refuse_difference(const bd_json *here, const bd_json *there, const char *what,
                                   const char *folder, bd_error *err)
{
    char where[256];
    if (!bd_json_difference(here, there, where, sizeof where))
        return BD_OK;
    return bd_fail(err, BD_ERR_ARGUMENT, "cannot resume '%s': its %s is another one: %s",
                   folder, what, where);
}

// The options may repeat what the model is, not change it. (A preset, having a default, is not
// looked at.)
static bd_status refuse_other_model(session *s, bd_error *err)
{
    bd_model_config asked = s->run.checkpoint.config;
    BD_TRY(apply_options(&asked, s->settings, err));
    bd_json *here = bd_model_config_to_json(&asked);
    bd_json *there = bd_model_config_to_json(&s->run.checkpoint.config);
    const bd_status status = refuse_difference(here, there, "model", s->settings->out, err);
    bd_json_free(here);
    bd_json_free(there);
    return status;
}

static bd_status begin_from_checkpoint(session *s, bd_error *err)
{
    const char *folder = s->settings->out;
    BD_TRY(bd_run_open(&s->run, folder, true, err));
    BD_TRY(refuse_other_model(s, err));
    BD_TRY(refuse_difference(s->data_json, s->run.checkpoint.data, "dataset", folder, err));
    BD_TRY(refuse_difference(s->training_json, s->run.checkpoint.training, "training", folder,
                             err));
    if (s->run.checkpoint.step > s->settings->n_steps)
        return bd_fail(err, BD_ERR_FORMAT,
                       "cannot resume '%s': its step %" PRId64 " is after the last one", folder,
                       s->run.checkpoint.step);
    return BD_OK;
}

static bd_status begin(session *s, bd_error *err)
{
    const train_settings *settings = s->settings;
    const bd_training_settings training = choose_training(settings);
    const int n_threads = bd_threads_count(settings->n_threads);
    BD_TRY(bd_data_sources_parse(&s->sources, &settings->data, err));
    const char *const *folders = (const char *const *)s->sources.folders;
    BD_TRY(bd_rows_open_all(&s->rows, folders, s->sources.weights, s->sources.n, err));
    s->training_json = bd_training_settings_to_json(&training);
    BD_TRY(bd_run_describe_data(folders, &s->rows, &s->data_json, err));
    BD_TRY(lock_folder(s, err));
    BD_TRY(settings->resume ? begin_from_checkpoint(s, err) : begin_new(s, err));
    BD_TRY(bd_folder_remove_pending(settings->out, err));  // of a run that was killed
    BD_TRY(bd_run_keep_tokenizer(settings->out, folders[0], &s->rows.manifests[0], err));
    const int64_t step = settings->resume ? s->run.checkpoint.step : 0;
    BD_TRY(bd_backend_open_choice(&s->backend, s->settings->backend,
                                  s->settings->backend_module, n_threads, err));
    BD_TRY(bd_training_init(&s->training, &training, &s->rows, &s->run.parameters, s->backend,
                            step, s->run.weights, s->run.m, s->run.v, err));
    for (int i = 0; i < 3; i++) {
        s->host[i] = malloc((size_t)s->run.parameters.n_total * sizeof *s->host[i]);
        if (!s->host[i])
            return bd_fail(err, BD_ERR_MEMORY, "no memory for checkpoints");
    }
    return bd_metrics_open(&s->metrics, settings->out, step, err);
}

static void end(session *s)
{
    if (s->metrics)
        fclose(s->metrics);
    bd_training_release(&s->training);
    if (s->backend)
        s->backend->operations->close(s->backend);
    bd_run_release(&s->run);
    bd_rows_close(&s->rows);
    bd_data_sources_release(&s->sources);
    bd_json_free(s->training_json);
    bd_json_free(s->data_json);
    for (int i = 0; i < 3; i++)
        free(s->host[i]);
    if (s->lock >= 0)
        close(s->lock);
}

// ---- Steps ------------------------------------------------------------------------------

static bd_status save(session *s, bd_error *err)
{
    const bd_operations *operations = s->backend->operations;
    const size_t size_bytes = (size_t)s->run.parameters.n_total * sizeof(float);
    const float *from[3] = {s->training.model.masters, s->training.m, s->training.v};
    for (int i = 0; i < 3; i++)
        BD_TRY(operations->download(s->backend, s->host[i], from[i], size_bytes, err));
    const bd_checkpoint_state state = {
        .step = s->training.step,
        .parameters = &s->run.parameters,
        .weights = s->host[0],
        .m = s->host[1],
        .v = s->host[2],
        .training = s->training_json,
        .data = s->data_json,
    };
    return bd_checkpoint_save(s->settings->out, &state, err);
}

typedef struct pace {
    int64_t begun_ns, tokens;
} pace;

static void describe(char *line, size_t size, const session *s, const bd_step_result *result,
                     const pace *so_far)
{
    const int64_t elapsed_ns = bd_now_ns() - so_far->begun_ns;
    const double rate = (double)so_far->tokens / ((double)elapsed_ns / 1e9);
    const double left_ns = fmin((double)(s->settings->n_steps - result->step) *
                                    (double)result->n_tokens / rate * 1e9,
                                (double)(INT64_MAX / 2));
    snprintf(line, size,
             "step %" PRId64 "/%" PRId64
             "  loss %.4f  lr %.2e  norm %.2f  %.0f tokens/s  %s left",
             result->step, s->settings->n_steps, result->loss, result->learning_rate,
             result->gradient_norm, rate, bd_format_duration((int64_t)left_ns).text);
}

static bool is_live(const session *s)
{
    return !s->quiet && bd_terminal_has_escapes(stderr);
}

static void report(const session *s, const bd_step_result *result, const pace *so_far)
{
    char line[160];
    const bool logged = result->step % s->settings->log_every == 0 || result->step == 1 ||
                        result->step == s->settings->n_steps;
    const bool live = is_live(s);
    if (!logged && !live)
        return;
    describe(line, sizeof line, s, result, so_far);
    if (live)
        fprintf(stderr, "\r\x1b[K%s", logged ? "" : line);
    if (logged) {
        puts(line);
        fflush(stdout);
    }
}

static bd_status train(session *s, bd_error *err)
{
    pace so_far = {.begun_ns = bd_now_ns()};
    while (s->training.step < s->settings->n_steps) {
        bd_step_result result;
        const int64_t step_begun_ns = bd_now_ns();
        BD_TRY(bd_training_step(&s->training, &result, err));
        so_far.tokens += result.n_tokens;
        BD_TRY(bd_metrics_write(s->metrics, &result, bd_now_ns() - step_begun_ns, err));
        report(s, &result, &so_far);
        if (result.step % s->settings->save_every == 0 || result.step == s->settings->n_steps)
            BD_TRY(save(s, err));
    }
    return BD_OK;
}

static int train_run(const bd_arguments *arguments)
{
    bd_error err;
    session s = {.settings = arguments->settings, .quiet = arguments->quiet, .lock = -1};
    bd_status status = begin(&s, &err);
    if (status == BD_OK && !s.quiet)
        fprintf(stderr,
                "bindery train: %s with %s parameters in %s on %s, from step %" PRId64 "\n",
                bd_model_family_words[s.run.parameters.config.family],
                bd_format_count((uint64_t)s.run.parameters.n_total).text,
                bd_precision_words[s.training.settings.type], s.backend->operations->name,
                s.training.step);
    if (status == BD_OK)
        status = train(&s, &err);
    if (is_live(&s))
        fputs("\r\x1b[K", stderr);  // the step that was being shown when it ended
    end(&s);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_train_command = {
    .name = "train",
    .summary = "Train a decoder on a packed dataset",
    .description =
        "The model reads the dataset's boundaries: no token attends across a document, "
        "positions "
        "restart at each document, nothing is predicted across a boundary. The loss is the sum "
        "over the targets of a step divided by their number.\n"
        "\n"
        "Several datasets (--data web:0.7 --data code:0.3) are mixed row by row: of every "
        "1,024 "
        "rows each has the share that its weight gives it, in an order that the seed decides, "
        "and each is read in its own order, again and again. They must have the same "
        "tokenizer and rows of the same length.\n"
        "\n"
        "DIR gets metrics.jsonl, one line for each step (schemas/metrics-v1.schema.json), the "
        "dataset's tokenizer.json, and checkpoints that --resume, prove and generate read. The "
        "same program, BLAS and "
        "processor give the same bits for any number of threads, stopped and resumed or not.\n"
        "\n"
        "Examples:\n"
        "\n"
        "  bindery train --data shards -o run --preset tiny --steps 300\n"
        "  bindery train --data shards -o run --init opt-125m --learning-rate 1e-4\n",
    .options = train_options,
    .n_options = sizeof train_options / sizeof train_options[0],
    .settings_size = sizeof(train_settings),
    .run = train_run,
};
