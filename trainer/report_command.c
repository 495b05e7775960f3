// `bindery report`: runs as a page for browsers.
#include <inttypes.h>
#include <stdio.h>

#include "common/base/interrupt.h"
#include "common/cli/human.h"
#include "common/cli/program.h"
#include "common/page/page.h"
#include "trainer/commands.h"
#include "trainer/report/run_page.h"

typedef struct report_settings {
    const char *out;
    bool overwrite;
} report_settings;

static const bd_option report_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "FILE",
     BD_FILE(report_settings, out),
     .required = true,
     .help = "Write the page to FILE"},
    {.name = "overwrite",
     BD_FLAG(report_settings, overwrite),
     .help = "Replace FILE if it exists"},
};

static bd_status report(const bd_arguments *arguments, bd_run_summary **runs, bd_error *err)
{
    const report_settings *settings = arguments->settings;
    const size_t n_runs = arguments->n_operands;
    size_t size_bytes;
    BD_TRY(bd_page_check_path(settings->out, settings->overwrite, err));
    if (n_runs > BD_PAGE_RUNS)
        return bd_fail(err, BD_ERR_ARGUMENT, "a page shows at most %d runs, not %zu",
                       BD_PAGE_RUNS, n_runs);
    for (size_t i = 0; i < n_runs; i++)
        BD_TRY(bd_run_summary_new(&runs[i], arguments->operands[i], err));
    for (size_t i = 0; i < n_runs; i++) {
        const bd_metrics_damage *damage = &runs[i]->damage;
        if (damage->n_lines > 0)  // printed even with --quiet: the page lacks them
            bd_command_note(arguments, "%" PRId64 " damaged line%s of metrics %s left out%s %s",
                            damage->n_lines, damage->n_lines == 1 ? "" : "s",
                            damage->n_lines == 1 ? "is" : "are",
                            damage->n_lines == 1 ? ":" : ", the first:", damage->why.message);
    }
    BD_TRY(bd_run_page_publish(runs, n_runs, settings->out, settings->overwrite, &size_bytes,
                               err));
    if (!arguments->quiet)
        printf("'%s' shows %zu run%s, %s\n", settings->out, n_runs, n_runs == 1 ? "" : "s",
               bd_format_bytes(size_bytes).text);
    return BD_OK;
}

static int report_run(const bd_arguments *arguments)
{
    bd_error err;
    bd_run_summary *runs[BD_PAGE_RUNS] = {0};
    bd_interrupt_catch();
    const bd_status status = report(arguments, runs, &err);
    for (size_t i = 0; i < BD_PAGE_RUNS; i++)
        bd_run_summary_free(runs[i]);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_report_command = {
    .name = "report",
    .summary = "Show training runs as a page for browsers",
    .description =
        "A RUN is the folder of a training run, which may be unfinished. The page has loss, "
        "learning rate, gradient norm and speed over the steps, evaluations, samples, and the "
        "settings in which the runs differ. It needs no network and no other file.\n"
        "\n"
        "It shows at most 16 runs, 512 points of a curve (beyond that the mean of neighbouring "
        "steps, with their least and greatest values as a band), 8 datasets of evaluation and "
        "the latest 12 samples of a run, 1,500 bytes of each: less than 20 MB whatever the "
        "runs hold, usually less than 300 kB for each. Memory: half a megabyte for each run "
        "and ten times the page. Damaged lines of metrics.jsonl are left out, with a message.\n"
        "\n"
        "Example:\n"
        "\n"
        "  bindery report run-a run-b -o runs.html\n"
        "\n"
        "Exit status: 0 done, 2 it could not be done.\n",
    .operands = "RUN...",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = report_options,
    .n_options = sizeof report_options / sizeof report_options[0],
    .settings_size = sizeof(report_settings),
    .run = report_run,
};
