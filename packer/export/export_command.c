// `bindery export`: a dataset is written for other people's trainers, or a model for other people's
// programs. Models are the trainer's, which the packer does not know: bindery.c hands in the
// function that exports one.
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/threads.h"
#include "common/cli/human.h"
#include "common/cli/program.h"
#include "packer/commands.h"
#include "packer/export/export.h"

static bd_model_exporter model_exporter;

typedef struct export_settings {
    const char *out;
    // Those of a dataset.
    bd_table_format format;
    const char *columns;
    bool overwrite;
    int64_t n_threads;
    bool format_given, columns_given, threads_given;
    // Those of a model.
    const char *model;
    int64_t step;
    int type, weights;
    bool step_given, type_given, weights_given;
} export_settings;

// Not const: the words of --type and --weights are handed in.
static bd_option export_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(export_settings, out),
     .required = true,
     .help = "Write the files into DIR, which is absent or empty"},
    {.name = "format",
     .value = "HOW",
     BD_CHOICE(export_settings, format, bd_table_format_names),
     BD_GIVEN(export_settings, format_given),
     .initial = "stream",
     .help = "Datasets only: an Arrow stream (.arrows) or Parquet for each shard"},
    {.name = "columns",
     .value = "LIST",
     BD_TEXT(export_settings, columns),
     BD_GIVEN(export_settings, columns_given),
     .initial = "input_ids,position_ids,labels,seq_lengths",
     .help =
         "Datasets only: columns in their order, with commas between them; also cu_seqlens, "
         "loss_mask and completion_mask"},
    {.name = "overwrite",
     BD_FLAG(export_settings, overwrite),
     .help = "Datasets only: replace the export that DIR holds"},
    {.name = "threads",
     .value = "N",
     BD_INTEGER(export_settings, n_threads, 1, 4096),
     BD_GIVEN(export_settings, threads_given),
     .initial = "0",
     .initial_note = "one per core",
     .help = "Datasets only: shards to export at the same time"},
    {.name = "model",
     .value = "RUN",
     BD_DIRECTORY(export_settings, model),
     .help = "Export the model of this training run instead of a dataset"},
    {.name = "step",
     .value = "N",
     BD_INTEGER(export_settings, step, 0, INT64_MAX),
     BD_GIVEN(export_settings, step_given),
     .initial = "-1",
     .initial_note = "the latest",
     .help = "Models only: the checkpoint to take"},
    {.name = "type",
     .value = "TYPE",
     BD_CHOICE(export_settings, type, NULL),
     BD_GIVEN(export_settings, type_given),
     .initial = "float",
     .help = "Models only: what to store its weights in"},
    {.name = "weights",
     .value = "WHICH",
     BD_CHOICE(export_settings, weights, NULL),
     BD_GIVEN(export_settings, weights_given),
     .initial = "auto",
     .help = "Models only: the weights as they were trained, or their average (train "
             "--average); auto takes the average if there is one"},
};

static bd_status check_usage(const bd_arguments *arguments, bd_error *err)
{
    const export_settings *settings = arguments->settings;
    const bool is_model = settings->model != NULL;
    const struct {
        const char *name;
        bool given, is_of_model;
    } options[] = {
        {"--format", settings->format_given, false},
        {"--columns", settings->columns_given, false},
        {"--overwrite", settings->overwrite, false},
        {"--threads", settings->threads_given, false},
        {"--step", settings->step_given, true},
        {"--type", settings->type_given, true},
        {"--weights", settings->weights_given, true},
    };
    if ((arguments->n_operands == 1) == is_model)
        return bd_fail(err, BD_ERR_ARGUMENT, "expected either a DATASET or --model RUN");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].given && options[i].is_of_model != is_model)
            return bd_fail(err, BD_ERR_ARGUMENT, "%s has no meaning %s --model",
                           options[i].name, is_model ? "with" : "without");
    return BD_OK;
}

static int export_dataset(const bd_arguments *arguments)
{
    const export_settings *settings = arguments->settings;
    const int64_t started_ns = bd_now_ns();
    bd_error err;
    bd_export_result result;
    bd_export_job job = {
        .dataset = arguments->operands[0],
        .folder = settings->out,
        .format = settings->format,
        .overwrite = settings->overwrite,
        .quiet = arguments->quiet,
    };
    if (bd_export_columns_parse(&job.columns, settings->columns, &err) != BD_OK)
        return bd_command_misuse(arguments, &err);
    if (bd_export(&job, bd_threads_count(settings->n_threads), &result, &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    if (arguments->quiet)
        return BD_EXIT_DONE;
    printf("'%s' holds %s row%s in %zu file%s\n", settings->out,
           bd_format_exact(result.n_rows).text, result.n_rows == 1 ? "" : "s", result.n_files,
           result.n_files == 1 ? "" : "s");
    bd_command_say_time(arguments, bd_now_ns() - started_ns, result.n_bytes, "written");
    return BD_EXIT_DONE;
}

static int export_run(const bd_arguments *arguments)
{
    const export_settings *settings = arguments->settings;
    bd_error err;
    if (check_usage(arguments, &err) != BD_OK)
        return bd_command_misuse(arguments, &err);
    bd_interrupt_catch();
    if (!settings->model)
        return export_dataset(arguments);
    return model_exporter.run(arguments, settings->model, settings->out, settings->step,
                              settings->type, settings->weights);
}

static const bd_command export_command = {
    .name = "export",
    .summary = "Write a dataset, or a trained model, for other programs",
    .description =
        "A dataset becomes one file for each shard and an " BD_EXPORT_NAME " that names them, "
        "with rows and checksums (schemas/export-v1.schema.json). The columns are lists of "
        "integers:\n"
        "\n"
        "  input_ids     the row's tokens\n"
        "  position_ids  restart at 0 with each segment, and with the padding\n"
        "  labels        the token where it is a target, else -100: not shifted\n"
        "  seq_lengths   of the segments, and of the padding if there is any\n"
        "  cu_seqlens    the boundaries as the shard holds them, without the padding\n"
        "\n"
        "A token is a target if the token before it is of the same segment. Every row is "
        "checked as it is read. Memory: about 8 MiB for each column and thread, more if a row "
        "is longer than a million tokens.\n"
        "\n"
        "A model (--model) becomes a folder that Hugging Face's transformers load, and that "
        "train --init begins with: config.json, model.safetensors, and the run's "
        "tokenizer. Memory: 4 bytes for each parameter, 6 in bf16.\n"
        "\n"
        "No file has its name before all are complete.\n"
        "\n"
        "Exit status: 0 done, 2 it could not be done.\n"
        "\n"
        "Examples:\n"
        "\n"
        "  bindery export -o tables --format parquet shards\n"
        "  bindery export -o model --model run --type bf16\n",
    .operands = "[DATASET]",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = export_options,
    .n_options = sizeof export_options / sizeof export_options[0],
    .settings_size = sizeof(export_settings),
    .run = export_run,
};

const bd_command *bd_export_command(const bd_model_exporter *exporter)
{
    model_exporter = *exporter;
    for (size_t i = 0; i < export_command.n_options; i++) {
        bd_option *option = &export_options[i];
        if (option->offset == offsetof(export_settings, type))
            option->choices = exporter->type_words;
        if (option->offset == offsetof(export_settings, weights))
            option->choices = exporter->weights_words;
    }
    return &export_command;
}
