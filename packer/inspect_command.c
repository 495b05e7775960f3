// `bindery inspect`: what is in a dataset.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/format.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/shard.h"
#include "common/terminal.h"
#include "common/threads.h"
#include "packer/commands.h"
#include "packer/report.h"
#include "packer/row_text.h"
#include "packer/scan.h"

enum { NOT_GIVEN = -1 };

typedef struct inspect_settings {
    bool json;
    bool scan;
    int64_t row;
    int64_t n_threads;
} inspect_settings;

static const bd_option inspect_options[] = {
    {.name = "scan",
     BD_FLAG(inspect_settings, scan),
     .help = "Count again from the rows; they must agree with the manifest"},
    {.name = "row",
     .value = "N",
     BD_INTEGER(inspect_settings, row, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "none",
     .help = "Show row N of the dataset, from 0, as text with its documents"},
    {.name = "threads",
     .value = "N",
     BD_INTEGER(inspect_settings, n_threads, 1, 4096),
     .initial = "0",
     .initial_note = "one per core",
     .help = "Shards to scan at the same time"},
    {.name = "json",
     BD_FLAG(inspect_settings, json),
     .help = "Print the manifest as JSON (schemas/manifest-v1.schema.json)"},
};

// ---- --row ---------------------------------------------------------------------------------

static bd_status show_row(const bd_arguments *arguments, const bd_manifest *manifest,
                          bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    const char *folder = arguments->operands[0];
    const bd_tokenizer *tokenizer;
    size_t index;
    int64_t row_in_shard;
    if (!bd_manifest_find_row(manifest, settings->row, &index, &row_in_shard))
        return bd_fail(err, BD_ERR_ARGUMENT, "--row: '%s' has rows 0 to %" PRId64, folder,
                       manifest->totals.rows - 1);
    BD_TRY(bd_tokenizer_open(&tokenizer, manifest->packing.tokenizer, err));
    bd_shard shard;
    const bd_status opened = bd_shard_open_entry(&shard, folder, manifest, index, err);
    if (opened != BD_OK) {
        bd_tokenizer_close(tokenizer);
        return opened;
    }
    bd_hasher *hasher = bd_hasher_new();
    bd_row row;
    bd_status status = hasher ? bd_shard_row(&shard, row_in_shard, hasher, &row, err)
                              : bd_fail(err, BD_ERR_MEMORY, "no memory for a checksum");
    if (status == BD_OK) {
        printf("Row %" PRId64 ": row %" PRId64 " of %s, %" PRId64 " segments, %d of %" PRId64
               " tokens used\n",
               settings->row, row_in_shard,
               bd_unit_shard_name(&manifest->shards[index].unit).text, row.n_segments,
               row.bounds[row.n_segments], manifest->packing.seq_len);
        status = bd_row_print(stdout, &row, manifest, tokenizer,
                              bd_terminal_color(stdout, arguments->color), err);
        if (status == BD_ERR_FORMAT)
            bd_error_prefix(err, status, "'%s', row %" PRId64, shard.path, row_in_shard);
    }
    bd_hasher_free(hasher);
    bd_shard_close(&shard);
    bd_tokenizer_close(tokenizer);
    return status;
}

// ---- --scan --------------------------------------------------------------------------------

typedef struct scanning {
    bd_scan scan;
    bd_progress *progress;
} scanning;

// bd_scan_shard() compares with the shard's figures, and opening it with the manifest's.
static bd_status scan_shard(void *context, int64_t index, bd_error *err)
{
    scanning *s = context;
    bd_figures figures;
    BD_TRY(bd_scan_shard(&s->scan, (size_t)index, &figures, err));
    bd_progress_add(s->progress, (uint64_t)figures.rows);
    return BD_OK;
}

static bd_status scan_rows(const bd_arguments *arguments, const bd_manifest *manifest,
                           bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    const int n_threads = bd_threads_count(settings->n_threads);
    scanning s = {0};
    bd_threads *threads = NULL;
    bd_status status = bd_scan_init(&s.scan, arguments->operands[0], manifest, err);
    if (status == BD_OK)
        status = bd_threads_new(&threads, n_threads, err);
    if (status == BD_OK) {
        s.progress =
            bd_progress_new(&(bd_progress_config){.label = "scanning",
                                                  .unit = "rows",
                                                  .total = (uint64_t)manifest->totals.rows,
                                                  .quiet = arguments->quiet});
        status = bd_threads_run(threads, scan_shard, &s, (int64_t)manifest->n_shards, err);
        bd_progress_free(s.progress);
    }
    bd_threads_free(threads);
    bd_scan_release(&s.scan);
    return status;
}

// ---- All of it -----------------------------------------------------------------------------

static bd_status inspect(const bd_arguments *arguments, const bd_manifest *manifest,
                         bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    if (settings->row != NOT_GIVEN)
        return show_row(arguments, manifest, err);
    if (settings->scan)
        BD_TRY(scan_rows(arguments, manifest, err));
    if (settings->json)
        return bd_manifest_print(arguments->operands[0], stdout, err);
    BD_TRY(bd_report_ledger(stdout, manifest, err));
    putchar('\n');
    bd_report_figures(stdout, manifest);
    if (settings->scan)
        printf("\nCounted again from all %s rows: they agree with the manifest\n",
               bd_format_exact(manifest->totals.rows).text);
    return BD_OK;
}

static int inspect_run(const bd_arguments *arguments)
{
    const inspect_settings *settings = arguments->settings;
    bd_error err;
    bd_manifest manifest;
    if (settings->row != NOT_GIVEN && (settings->scan || settings->json)) {
        bd_fail(&err, BD_ERR_ARGUMENT, "--row does not go together with --scan or --json");
        return bd_command_misuse(arguments, &err);
    }
    if (bd_manifest_read(&manifest, arguments->operands[0], &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    const bd_status status = inspect(arguments, &manifest, &err);
    bd_manifest_release(&manifest);
    if (status == BD_OK)
        return BD_EXIT_DONE;
    bd_command_fail(arguments, &err);
    // A scan that disagrees is an answer; a row that cannot be shown is not.
    return settings->scan && status == BD_ERR_FORMAT ? BD_EXIT_NO : BD_EXIT_FAILED;
}

const bd_command bd_inspect_command = {
    .name = "inspect",
    .summary = "Show what is in a dataset",
    .description =
        "The figures come from the manifest, at any size in milliseconds. --scan reads "
        "every row, counts again and must agree: exit status 1 if it does not.\n"
        "\n"
        "Exit status: 0 done, 1 --scan disagrees, 2 it could not be done.\n",
    .operands = "DATASET",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = inspect_options,
    .n_options = sizeof inspect_options / sizeof inspect_options[0],
    .settings_size = sizeof(inspect_settings),
    .run = inspect_run,
};
