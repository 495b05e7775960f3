// `bindery train`: its options, and what its exit status means.
#include "common/base/interrupt.h"
#include "common/cli/program.h"
#include "trainer/commands.h"
#include "trainer/dry_run.h"
#include "trainer/loop.h"
#include "trainer/model/model_config.h"
#include "trainer/train_options.h"
#include "trainer/weights/run.h"

#define OVERRIDE(field, max)                                                              \
    BD_INTEGER(bd_train_options, field, 1, max), BD_GIVEN(bd_train_options, model_given), \
        .initial = "-1", .initial_note = "the preset's"

#define RATE_FACTOR(kind) \
    BD_REAL(bd_train_options, hyperparameters.rate_factors[kind], 0, 1e3), .initial = "1"

static const bd_option train_options[] = {
    {.group = "The run",
     .name = "data",
     .value = "DATASET[:WEIGHT]",
     .names_files = true,
     BD_TEXTS(bd_train_options, data),
     .required = true,
     .help = "Train on this packed dataset; give several with the weight of each"},
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     .is_saved_nowhere = true,
     BD_DIRECTORY(bd_train_options, out),
     .initial_note = "that of --resume",
     .help = "Write checkpoints and metrics into DIR"},
    {.name = "steps",
     .value = "N",
     .alternatives = "length",
     BD_INTEGER(bd_train_options, length.n_steps, 1, INT64_C(1) << 40),
     .initial = "-1",
     .initial_note = "300",
     .help = "Steps of the whole run, those before a resume included"},
    {.name = "epochs",
     .value = "X",
     .alternatives = "length",
     BD_REAL(bd_train_options, length.n_epochs, 1e-9, 1e9),
     .initial = "-1",
     .initial_note = "see --steps",
     .help = "Length of the run in passes over the dataset, which may be fractions"},
    {.name = "tokens",
     .value = "N",
     .alternatives = "length",
     BD_INTEGER(bd_train_options, length.n_tokens, 1, INT64_MAX),
     .initial = "-1",
     .initial_note = "see --steps",
     .help = "Length of the run in tokens, padding included"},
    {.name = "seed",
     .value = "N",
     BD_INTEGER(bd_train_options, hyperparameters.seed, 0, INT64_MAX),
     .initial = "1234",
     .help = "Seed of the initial weights and of the order of rows"},
    {.name = "resume",
     .value = "DIR",
     .is_saved_nowhere = true,
     BD_DIRECTORY(bd_train_options, resume),
     .initial_note = "that of -o",
     .help = "Continue the run that DIR holds, with its settings unless others are given; "
             "more --steps make it longer"},
    {.name = "resume-from",
     .value = "STEP",
     .is_saved_nowhere = true,
     BD_INTEGER(bd_train_options, resume_from, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "the latest",
     .help = "Continue from the checkpoint of this step, and remove those after it"},
    BD_SETTINGS_OPTION(bd_train_options, settings_file, "steps: 300"),
    {.name = "dry-run",
     .letter = 'n',
     .is_saved_nowhere = true,
     BD_FLAG(bd_train_options, dry_run),
     .help =
         "Train nothing and write nothing: print the model, the memory that each part takes, "
         "and how long the run may take; exit status 1 if it does not fit"},
    {.group = "The model",
     .name = "preset",
     .value = "NAME",
     BD_CHOICE(bd_train_options, preset, bd_model_presets),
     BD_GIVEN(bd_train_options, preset_given),
     .initial = "tiny",
     .describe_choice = bd_model_preset_describe,
     .help = "Shape of the model: family, layers x channels, heads and their size, channels "
             "inside a feed-forward block, and parameters without the embeddings"},
    {.name = "config",
     .value = "FILE",
     BD_FILE(bd_train_options, config),
     BD_GIVEN(bd_train_options, model_given),
     .initial_note = "the preset",
     .help = "Read the shape from a Hugging Face config.json"},
    {.name = "init",
     .value = "DIR",
     BD_DIRECTORY(bd_train_options, init),
     BD_GIVEN(bd_train_options, model_given),
     .initial_note = "random weights",
     .help = "Begin a new run with the shape and weights in a Hugging Face folder (config.json "
             "and safetensors)"},
    {.name = "layers", .value = "N", OVERRIDE(n_layers, BD_MOST_LAYERS), .help = "Layers"},
    {.name = "channels", .value = "N", OVERRIDE(n_channels, 1 << 16), .help = "Channels"},
    {.name = "heads", .value = "N", OVERRIDE(n_heads, 1024), .help = "Attention heads"},
    {.name = "kv-heads",
     .value = "N",
     OVERRIDE(n_kv_heads, 1024),
     .help = "Heads of keys and values; each serves several heads of queries. If only --heads "
             "is given, as many as that"},
    {.name = "head-size",
     .value = "N",
     OVERRIDE(head_size, BD_MOST_HEAD_SIZE),
     .help = "Channels of a head; --channels divided by --heads if only these are given"},
    {.name = "feed-forward",
     .value = "N",
     OVERRIDE(n_feed_forward, 1 << 18),
     .help = "Channels inside a feed-forward block; 4 times --channels if only that is given"},
    {.name = "positions",
     .value = "N",
     BD_LENGTH(bd_train_options, n_positions, 1, 1 << 24),
     BD_GIVEN(bd_train_options, model_given),
     .initial = "-1",
     .initial_note = "the preset's, or what segments need",
     .help = "Positions; 2k is 2048"},
    {.name = "vocab-size",
     .value = "N",
     BD_INTEGER(bd_train_options, n_vocabulary, 1, INT64_C(1) << 32),
     BD_GIVEN(bd_train_options, model_given),
     .initial = "-1",
     .initial_note = "the tokenizer's",
     .help = "Rows of the token table, at least as many as the tokenizer has ids"},
    {.group = "Batches",
     .name = "batch",
     .value = "ROWS",
     .aliases = (const char *const[]){"global-batch-size", NULL},
     BD_INTEGER(bd_train_options, hyperparameters.batch_rows, 1, 1 << 20),
     .initial = "8",
     .help = "Rows in one step, all ranks together"},
    {.name = "micro-batch",
     .value = "ROWS",
     .aliases = (const char *const[]){"micro-batch-size", NULL},
     BD_INTEGER(bd_train_options, hyperparameters.micro_batch_rows, 1, 1 << 20),
     .initial = "-1",
     .initial_note = "the batch",
     .help = "Most rows that a rank computes at a time; memory grows with it"},
    {.name = "recompute",
     BD_FLAG(bd_train_options, hyperparameters.recomputes),
     .help = "Keep only the output of each layer and recompute the rest in the backward pass: "
             "less memory, more time, the same bits"},
    {.group = "Learning rate and optimizer",
     .name = "learning-rate",
     .value = "X",
     .aliases = (const char *const[]){"lr", NULL},
     BD_REAL(bd_train_options, hyperparameters.learning_rate, 0, 1e3),
     .initial = "0.001",
     .help = "Peak of the learning rate"},
    {.name = "min-learning-rate",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.min_learning_rate, 0, 1e3),
     .initial = "0.0001",
     .help = "Learning rate at the last step"},
    {.name = "warm-up",
     .value = "STEPS",
     .aliases = (const char *const[]){"warmup", NULL},
     BD_INTEGER(bd_train_options, hyperparameters.warm_up_steps, 0, INT64_C(1) << 40),
     .initial = "20",
     .help = "Steps over which the learning rate rises from 0"},
    {.name = "schedule",
     .value = "NAME",
     BD_CHOICE(bd_train_options, hyperparameters.schedule, bd_learning_rate_schedules),
     .initial = "cosine",
     .help = "How the learning rate falls to its minimum after the warm-up; wsd stays at the "
             "peak until --decay, then falls linearly"},
    {.name = "decay",
     .value = "X",
     BD_REAL(bd_train_options, decay, 0, 1e12),
     .initial = "0.1",
     .help = "Length of the fall of wsd: a number of steps, or below 1 a share of all steps"},
    {.name = "matrix-rate-factor",
     .value = "X",
     RATE_FACTOR(BD_KIND_MATRIX),
     .help = "Learning rate of the matrices of the layers, as a multiple of --learning-rate"},
    {.name = "table-rate-factor",
     .value = "X",
     RATE_FACTOR(BD_KIND_TABLE),
     .help = "The same for the tables of tokens and positions, and for the head"},
    {.name = "vector-rate-factor",
     .value = "X",
     RATE_FACTOR(BD_KIND_VECTOR),
     .help = "The same for biases and gains"},
    {.name = "optimizer",
     .value = "NAME",
     BD_CHOICE(bd_train_options, hyperparameters.optimizer, bd_optimizer_kind_names),
     .initial = "adamw",
     .help = "adamw for all parameters; or muon for the matrices of the layers and adamw for "
             "tables, biases and gains, with the same learning rate and weight decay"},
    {.name = "momentum",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.momentum, 0, 0.999999),
     .initial = "0.95",
     .help = "Muon's momentum"},
    {.name = "beta1",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.beta1, 0, 0.999999),
     .initial = "0.9",
     .help = "AdamW's first decay"},
    {.name = "beta2",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.beta2, 0, 0.999999),
     .initial = "0.95",
     .help = "AdamW's second decay"},
    {.name = "epsilon",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.epsilon, 1e-30, 1),
     .initial = "1e-8",
     .help = "AdamW's epsilon"},
    {.name = "weight-decay",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.weight_decay, 0, 100),
     .initial = "0.1",
     .help = "Weight decay of matrices; biases and gains have none"},
    {.name = "average",
     .value = "DECAY",
     BD_REAL(bd_train_options, hyperparameters.average, 0, 0.9999999),
     .initial = "0",
     .initial_note = "none",
     .help = "Keep a running average of the weights, which moves towards them by 1 - DECAY a "
             "step, faster at first (0.999 is usual); evaluations, samples, generate and "
             "export use it"},
    {.name = "loss",
     .value = "KIND",
     BD_CHOICE(bd_train_options, hyperparameters.loss, bd_loss_kind_names),
     .initial = "per-token",
     .help = "What is minimised, and shown: the mean over the targets of a batch, or over its "
             "documents of the mean of each"},
    {.name = "z-loss",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.z_loss, 0, 1),
     .initial = "0",
     .help = "Also minimise X times the square of every target's log-sum-exp, which keeps "
             "logits small (1e-4 is usual); it is not part of the loss that is shown"},
    {.name = "clip",
     .value = "NORM",
     BD_REAL(bd_train_options, hyperparameters.clip_norm, 0, 1e30),
     .initial = "1",
     .help = "Clip the gradient to this global norm; 0 never clips"},
    {.name = "skip-spikes",
     .value = "X",
     BD_REAL(bd_train_options, hyperparameters.skip_spikes, 1, 1e30),
     .initial = "0",
     .initial_note = "none",
     .help = "Do not apply a step whose gradient norm is more than X times the usual one (a "
             "mean over about 50 steps)"},
    {.group = "Checkpoints",
     .name = "save-every",
     .value = "STEPS",
     .aliases = (const char *const[]){"save-interval", NULL},
     BD_INTEGER(bd_train_options, save_every, 1, INT64_C(1) << 40),
     .initial = "100",
     .help = "Steps between checkpoints; the last step is always saved"},
    {.name = "keep",
     .value = "N",
     BD_INTEGER(bd_train_options, n_kept, 0, INT64_C(1) << 40),
     BD_GIVEN(bd_train_options, kept_given),
     .initial = "3",
     .help = "Keep the N latest checkpoints; 0 keeps all"},
    {.name = "save-memory",
     .value = "SIZE",
     BD_SIZE(bd_train_options, save_memory_bytes, 0, INT64_C(1) << 50),
     .initial = "1G",
     .help = "Copy a checkpoint and write it while training continues if the copy, 12 bytes "
             "per parameter (16 with --average), is at most SIZE; devices and several ranks "
             "always copy"},
    {.group = "Logging and evaluation",
     .name = "log-every",
     .value = "STEPS",
     BD_INTEGER(bd_train_options, log_every, 1, INT64_C(1) << 40),
     .initial = "20",
     .help = "Steps between printed lines"},
    {.name = "eval",
     .value = "DATASET",
     .names_files = true,
     BD_TEXTS(bd_train_options, eval),
     .help = "Evaluate on this dataset without training on it; can be given several times"},
    {.name = "eval-every",
     .value = "STEPS",
     BD_INTEGER(bd_train_options, eval_every, 1, INT64_C(1) << 40),
     .initial = "100",
     .help = "Steps between evaluations; the last step is always evaluated"},
    {.name = "eval-rows",
     .value = "N",
     BD_INTEGER(bd_train_options, eval_rows, 1, INT64_MAX),
     .initial = "0",
     .initial_note = "all",
     .help = "Evaluate only N rows, spread evenly over the dataset"},
    {.name = "sample-every",
     .value = "STEPS",
     BD_INTEGER(bd_train_options, sample_every, 1, INT64_C(1) << 40),
     .initial = "-1",
     .initial_note = "never",
     .help = "Steps between samples of text that the model generates"},
    {.name = "sample-prompt",
     .value = "TEXT",
     BD_TEXTS(bd_train_options, sample_prompts),
     .initial_note = "The",
     .help = "Continue this text by up to 100 tokens; can be given several times"},
    {.name = "probe",
     .value = "STEPS",
     BD_INTEGER(bd_train_options, probe_every, 1, INT64_C(1) << 40),
     .initial = "-1",
     .initial_note = "never",
     .help = "Steps between probes: a probe changes one document of a micro-batch; if any bit "
             "of another document's logits or gradients changes, the run ends with exit "
             "status 1"},
    {.group = "The machine",
     .name = "peak-tflops",
     .value = "X",
     BD_REAL(bd_train_options, peak_tflops, 1e-6, 1e9),
     .initial = "0",
     .initial_note = "unknown, no MFU",
     .help = "Peak speed of all devices together, of which MFU is the share that is used"},
    BD_AUTO_BACKEND_OPTIONS(bd_train_options,
                            "bf16 if the device can compute the model in it "
                            "(heads of 64 or 128 channels), else float; a run "
                            "continues in the type that it began with"),
    BD_THREADS_OPTION(bd_train_options, n_threads,
                      "Threads of the kernels; the result does not depend on it"),
};

// Options that are not given are taken from the run that --resume names. A run of an older
// version has no settings.yaml; then all of them must be given.
static bd_status train_inherits(const void *settings, char **path, bd_error *err)
{
    const char *folder = ((const bd_train_options *)settings)->resume;
    *path = NULL;
    return folder ? bd_run_find_settings(folder, path, err) : BD_OK;
}

// If several ranks agreed to fail, one of them prints the message. It does so before it leaves
// the group: a launcher that sees one process fail kills the others.
static int train_run(const bd_arguments *arguments)
{
    bd_error err;
    bd_group *group;
    bool leaks = false;
    if (bd_group_join(&group, &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    const bd_train_options *options = arguments->settings;
    bool fits = true;
    const bd_status status =
        options->dry_run ? bd_train_dry_run(stdout, options, group, &fits, &err)
                         : bd_train_loop(options, group, arguments->quiet, &leaks, &err);
    const int exit_status = status != BD_OK ? leaks ? BD_EXIT_NO : BD_EXIT_FAILED
                            : fits          ? BD_EXIT_DONE
                                            : BD_EXIT_NO;
    if (status != BD_OK && (!group->agreed_to_fail || group->reports))
        bd_command_say(arguments, &err);
    bd_group_leave(group, status != BD_OK, exit_status);
    if (status == BD_ERR_INTERRUPTED)
        bd_interrupt_raise();
    return exit_status;
}

const bd_command bd_train_command = {
    .name = "train",
    .summary = "Train a decoder on a packed dataset",
    .description =
        "The model reads the boundaries of the dataset: no token attends to another document, "
        "positions restart at each document, and no token is predicted across a boundary. If "
        "the dataset has loss masks, only the tokens that they mark are targets. The loss of a "
        "step is the mean over its targets, or with --loss per-document the mean over its "
        "documents of the mean over the targets of each; a document without a target does not "
        "count, and each piece of a split document counts as one.\n"
        "\n"
        "Several datasets (--data web:0.7 --data code:0.3) are mixed row by row. In every "
        "1,024 rows each dataset has the share that its weight gives it, in an order that the "
        "seed decides; each dataset is read in its own order, again and again. All must have "
        "the same tokenizer and rows of the same length. 32 record batches of a compressed "
        "dataset are kept in memory.\n"
        "\n"
        "The run writes into DIR: settings.yaml, all settings as --settings takes them; "
        "metrics.jsonl, one line for each step (schemas/metrics-v1.schema.json); the same for "
        "TensorBoard in events.out.tfevents.*; the dataset's tokenizer.json; and checkpoints, "
        "which eval, prove and generate read. bindery report makes a page of it. The same "
        "program, BLAS and instruction set (--isa) give the same bits with any number of "
        "threads, stopped and resumed or not.\n"
        "\n"
        "A printed line has the step, its loss, in parentheses the smoothed loss (exponential "
        "mean, 0.98 a step, without bias), tokens per second without padding, MFU, and the "
        "time left. MFU is the share of --peak-tflops that the mathematics of the model "
        "needs: 6 FLOP for each weight of a matrix product and token that is not padding, and "
        "12 for each layer, channel of its query heads, and pair of tokens that see each "
        "other in it, inside its window if it has one. Without --peak-tflops the line has the "
        "achieved FLOP/s: a share of a guessed peak would mean nothing. metrics.jsonl and the "
        "events are flushed at every step, so that a killed run loses nothing of them.\n"
        "\n"
        "A run that was stopped continues from its latest checkpoint by --resume DIR alone, "
        "which reads DIR/settings.yaml, or by the same command again. Options that would make "
        "it another run are refused, and the message names the difference. More --steps (or "
        "--epochs, --tokens) than it began with make a run longer, also a finished one: the "
        "learning rate then follows the schedule of the longer run. --schedule wsd is made "
        "for this, because until --decay begins it is the same for every length: "
        "--resume-from takes a checkpoint from before. bindery train --settings "
        "DIR/settings.yaml -o OTHER repeats a run. After the first Ctrl-C or SIGTERM the "
        "current step is finished and saved, without its evaluation and samples, and the "
        "program ends by that signal; a second one ends it at once.\n"
        "\n"
        "The trainer removes and replaces only files in DIR that are proved to be its own: a "
        "folder with other files is refused, and so are weights that no checkpoint's JSON "
        "names. A damaged line of metrics.jsonl is reported and kept, and the run continues.\n"
        "\n"
        "Several processes that mpirun starts train together. They take the same rows as one "
        "process would, distributed so that all have the same amount of attention to compute. "
        "Every rank keeps the moments of its part of the parameters; rank 0 prints, evaluates "
        "and saves whole tensors, so that any number of ranks can continue a run. The same "
        "number of ranks gives the same bits; another number gives the same losses within "
        "rounding, and a message says so. All ranks must see the same folders. A signal to "
        "any rank stops and saves all of them; mpirun itself kills them a second after it "
        "gets a signal, unless an option forbids it (Open MPI: --mca "
        "odls_base_sigkill_timeout 60).\n"
        "\n"
        "Examples:\n"
        "\n"
        "  bindery train --data shards -o run --preset tiny --steps 300\n"
        "  mpirun -n 4 bindery train --data shards -o run --preset opt-125m\n"
        "  bindery train --resume run --steps 600\n"
        "  bindery train --data shards -o run --init opt-125m --learning-rate 1e-4\n",
    .options = train_options,
    .n_options = sizeof train_options / sizeof train_options[0],
    .settings_size = sizeof(bd_train_options),
    .inherits = train_inherits,
    .run = train_run,
};
