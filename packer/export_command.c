// `bindery export`: a dataset for other people's trainers.
#include <inttypes.h>
#include <stdio.h>

#include "common/format.h"
#include "common/interrupt.h"
#include "common/program.h"
#include "common/threads.h"
#include "packer/commands.h"
#include "packer/export.h"

typedef struct export_settings {
    const char *out;
    bd_table_format format;
    const char *columns;
    bool overwrite;
    int64_t n_threads;
} export_settings;

static const bd_option export_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(export_settings, out),
     .required = true,
     .help = "Write the files into DIR, which is absent or empty"},
    {.name = "format",
     .value = "HOW",
     BD_CHOICE(export_settings, format, bd_table_format_words),
     .initial = "stream",
     .help = "An Arrow stream (.arrows) or Parquet for each shard"},
    {.name = "columns",
     .value = "LIST",
     BD_TEXT(export_settings, columns),
     .initial = "input_ids,position_ids,labels,seq_lengths",
     .help = "Columns in their order, with commas between them; also cu_seqlens"},
    {.name = "overwrite",
     BD_FLAG(export_settings, overwrite),
     .help = "Replace the export that DIR holds"},
    BD_THREADS_OPTION(export_settings, n_threads, "Shards to export at the same time"),
};

static int export_run(const bd_arguments *arguments)
{
    const export_settings *settings = arguments->settings;
    bd_error err;
    bd_export_result result;
    bd_export_job job = {
        .dataset = arguments->operands[0],
        .folder = settings->out,
        .format = settings->format,
        .overwrite = settings->overwrite,
        .quiet = arguments->quiet,
    };
    bd_interrupt_catch();
    if (bd_export_columns_parse(&job.columns, settings->columns, &err) != BD_OK)
        return bd_command_misuse(arguments, &err);
    if (bd_export(&job, bd_threads_count(settings->n_threads), &result, &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    printf("'%s' holds %s row%s in %zu file%s\n", settings->out,
           bd_format_exact(result.n_rows).text, result.n_rows == 1 ? "" : "s", result.n_files,
           result.n_files == 1 ? "" : "s");
    return BD_EXIT_DONE;
}

const bd_command bd_export_command = {
    .name = "export",
    .summary = "Write a dataset as tables that other trainers read",
    .description =
        "Writes one file for each shard and an " BD_EXPORT_NAME " that names them, with rows "
        "and checksums (schemas/export-v1.schema.json). The columns are lists of integers:\n"
        "\n"
        "  input_ids     the row's tokens\n"
        "  position_ids  restart at 0 with each segment, and with the padding\n"
        "  labels        the token where it is a target, -100 where it is none: not shifted\n"
        "  seq_lengths   of the segments, and of the padding if there is any\n"
        "  cu_seqlens    the boundaries as the shard holds them, without the padding\n"
        "\n"
        "A token is a target if the token before it is of the same segment. Every row is "
        "checked as it is read. No file has its name before all are complete. Memory: about "
        "8 MiB for each column and thread, more if a row is longer than a million tokens.\n"
        "\n"
        "Exit status: 0 done, 2 it could not be done.\n",
    .operands = "DATASET",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = export_options,
    .n_options = sizeof export_options / sizeof export_options[0],
    .settings_size = sizeof(export_settings),
    .run = export_run,
};
