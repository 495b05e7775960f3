// `bindery inspect`: what is in a dataset.
#include <stdio.h>
#include <stdlib.h>

#include "common/base/interrupt.h"
#include "common/base/threads.h"
#include "common/cli/human.h"
#include "common/cli/program.h"
#include "common/page/page.h"
#include "packer/commands.h"
#include "packer/inspect/difference.h"
#include "packer/inspect/difference_json.h"
#include "packer/inspect/inspect_rows.h"
#include "packer/inspect/inspection_json.h"
#include "packer/inspect/inspection_page.h"
#include "packer/inspect/report_difference.h"
#include "packer/inspect/report_inspection.h"

enum { SAMPLE_BYTES = 300 };  // of the text of each document that --sample shows

typedef struct inspect_settings {
    bool json;
    bool scan;
    bool duplicates;
    int64_t memory_bytes;
    const char *row;
    int64_t sample;
    int64_t seed;
    const char *diff;
    const char *html;
    bool overwrite;
    int64_t n_threads;
} inspect_settings;

static const bd_option inspect_options[] = {
    {.name = "scan",
     BD_FLAG(inspect_settings, scan),
     .help = "Count again from the rows; they must agree with the manifest"},
    {.name = "duplicates",
     BD_FLAG(inspect_settings, duplicates),
     .help = "Count repeated documents by a hash of their tokens"},
    {.name = "row",
     .value = "N",
     BD_TEXT(inspect_settings, row),
     .help = "Show row N of the dataset, from 0, as text with its documents; or SHARD:N, "
             "row N of a shard"},
    {.name = "sample",
     .value = "N",
     BD_INTEGER(inspect_settings, sample, 1, BD_MAX_SAMPLE),
     .initial = "0",
     .initial_note = "none",
     .help = "Show N rows drawn by --seed, the beginning of each document"},
    {.name = "seed",
     .value = "SEED",
     BD_INTEGER(inspect_settings, seed, 0, INT64_MAX),
     .initial = "0",
     .help = "Which rows --sample draws"},
    {.name = "diff",
     .value = "OTHER",
     BD_DIRECTORY(inspect_settings, diff),
     .help = "Compare OTHER (A) with the dataset (B): packing, inputs, figures, documents"},
    {.name = "html",
     .value = "FILE",
     BD_FILE(inspect_settings, html),
     .help = "Write a page for browsers to FILE: the figures with plots, rows to look at, the "
             "shards"},
    {.name = "overwrite",
     BD_FLAG(inspect_settings, overwrite),
     .help = "Replace the FILE of --html if it is there"},
    {.name = "memory",
     .value = "SIZE",
     BD_SIZE(inspect_settings, memory_bytes, 0, INT64_MAX),
     .initial = "256M",
     .help = "Most memory for the hashes of --duplicates and --diff, 16 bytes a document"},
    BD_THREADS_OPTION(inspect_settings, n_threads, "Shards to read at the same time"),
    {.name = "json",
     BD_FLAG(inspect_settings, json),
     .help = "Print it all as JSON (schemas/inspection-v1.schema.json, of --diff "
             "difference-v1.schema.json)"},
};

static bd_text_style style_of(const bd_arguments *arguments)
{
    return (bd_text_style){
        .color = bd_terminal_color(stdout, arguments->color),
        .blocks = bd_locale_is_utf8(),
    };
}

// ---- Figures -------------------------------------------------------------------------------

static bd_status write_page(const bd_arguments *arguments, const bd_inspection *inspection,
                            bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    size_t size_bytes;
    bd_interrupt_catch();  // nothing half-written shall stay behind
    BD_TRY(bd_inspection_page_publish(inspection, settings->html, settings->overwrite,
                                      &size_bytes, err));
    if (!arguments->quiet)
        printf("'%s' shows '%s', %s\n", settings->html, inspection->path,
               bd_format_bytes(size_bytes).text);
    return bd_interrupt_check(err);
}

static bd_status count(const bd_arguments *arguments, bd_inspection *inspection, bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    const int n_threads = bd_threads_count(settings->n_threads);
    if (settings->scan)
        BD_TRY(bd_inspection_scan(inspection, n_threads, arguments->quiet, err));
    else
        BD_TRY(bd_inspection_sample(inspection, err));
    if (!settings->duplicates)
        return BD_OK;
    return bd_inspection_count_duplicates(inspection, settings->memory_bytes, n_threads,
                                          arguments->quiet, err);
}

static bd_status show_figures(const bd_arguments *arguments, bd_inspection *inspection,
                              bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    if (settings->html)  // rather now than after a long scan
        BD_TRY(bd_page_check_path(settings->html, settings->overwrite, err));
    BD_TRY(count(arguments, inspection, err));
    if (settings->html)
        return write_page(arguments, inspection, err);
    if (settings->json)
        return bd_json_put(bd_inspection_to_json(inspection), BD_JSON_INDENTED, stdout, err);
    bd_report_inspection(stdout, inspection, style_of(arguments));
    return BD_OK;
}

static bd_status inspect(const bd_arguments *arguments, bd_inspection *inspection,
                         bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    bd_row_style style = {.color = style_of(arguments).color};
    if (settings->row)
        return bd_inspect_row(stdout, inspection, settings->row, style, err);
    if (settings->sample == 0)
        return show_figures(arguments, inspection, err);
    style.most_bytes = SAMPLE_BYTES;
    return bd_inspect_sample(stdout, inspection, settings->sample, settings->seed, style, err);
}

// ---- --diff --------------------------------------------------------------------------------

static bd_status compare_datasets(const bd_arguments *arguments, const bd_inspection *a,
                                  const bd_inspection *b, bool *same, bd_error *err)
{
    const inspect_settings *settings = arguments->settings;
    bd_difference difference;
    BD_TRY(bd_difference_find(&difference, a, b, settings->memory_bytes,
                              bd_threads_count(settings->n_threads), arguments->quiet, err));
    *same = bd_difference_is_none(&difference);
    if (settings->json)
        return bd_json_put(bd_difference_to_json(&difference, a, b), BD_JSON_INDENTED, stdout,
                           err);
    return bd_report_difference(stdout, &difference, a, b, style_of(arguments), err);
}

static int run_difference(const bd_arguments *arguments)
{
    const inspect_settings *settings = arguments->settings;
    bd_error err;
    bd_inspection a, b = {0};
    bool same = false;
    bd_status status = bd_inspection_open(&a, settings->diff, &err);
    if (status == BD_OK)
        status = bd_inspection_open(&b, arguments->operands[0], &err);
    if (status == BD_OK)
        status = compare_datasets(arguments, &a, &b, &same, &err);
    bd_inspection_release(&a);
    bd_inspection_release(&b);
    if (status != BD_OK)
        return bd_command_fail(arguments, &err);
    return same ? BD_EXIT_DONE : BD_EXIT_NO;
}

// ---- All of it -----------------------------------------------------------------------------

// Refuses options that contradict each other, as BD_ERR_ARGUMENT.
static bd_status check_inspect_options(const inspect_settings *settings, bd_error *err)
{
    const int n_modes =
        (settings->row != NULL) + (settings->sample > 0) + (settings->diff != NULL);
    const char *mode = settings->row ? "row" : settings->sample > 0 ? "sample" : "diff";
    if (n_modes > 1)
        return bd_fail(err, BD_ERR_ARGUMENT, "--row, --sample and --diff do not go together");
    if (n_modes == 1 && (settings->scan || settings->duplicates || settings->html))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--%s does not go together with --scan, --duplicates or --html", mode);
    if (settings->json && (settings->row || settings->sample > 0 || settings->html))
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--json does not go together with --row, --sample or --html");
    if (settings->overwrite && !settings->html)
        return bd_fail(err, BD_ERR_ARGUMENT, "--overwrite is for the file of --html");
    return BD_OK;
}

static int inspect_run(const bd_arguments *arguments)
{
    const inspect_settings *settings = arguments->settings;
    bd_error err;
    bd_inspection inspection;
    if (check_inspect_options(settings, &err) != BD_OK)
        return bd_command_misuse(arguments, &err);
    if (settings->diff)
        return run_difference(arguments);
    if (bd_inspection_open(&inspection, arguments->operands[0], &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    const bd_status status = inspect(arguments, &inspection, &err);
    bd_inspection_release(&inspection);
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
        "The figures come from the manifest or the shard's metadata, at any size in "
        "milliseconds; what only rows tell comes from at most 256 of them and is marked "
        "\"about\". --scan reads every row, counts again and must agree.\n"
        "\n"
        "Memory: of --scan 3 MiB and 8 bytes for each token of the vocabulary for each thread, "
        "besides the shards that are being read; of --duplicates and --diff what --memory "
        "says, beyond which a sketch of 64 KiB counts, 1.2 % more or less, and --diff tells "
        "only "
        "whether the documents are the same.\n"
        "\n"
        "The page of --html needs no network and no other file. It has at most 32 rows with "
        "4,096 tokens of each, 100 sources and 1,000 shards, and says where it leaves "
        "something "
        "out: less than 10 MB whatever the dataset holds, usually less than 1 MB.\n"
        "\n"
        "Exit status: 0 done, 1 --scan disagrees or --diff finds a difference, 2 it could not "
        "be done.\n",
    .operands = "DATASET|SHARD",
    .operand_kind = BD_OPTION_FILE,
    .options = inspect_options,
    .n_options = sizeof inspect_options / sizeof inspect_options[0],
    .settings_size = sizeof(inspect_settings),
    .run = inspect_run,
};
