// `bindery plan`: how rows of several lengths would be filled, before anything is packed.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/folder.h"
#include "common/base/interrupt.h"
#include "common/base/threads.h"
#include "common/cli/program.h"
#include "common/cli/terminal.h"
#include "packer/commands.h"
#include "packer/pack/input_option_table.h"
#include "packer/pack/job.h"
#include "packer/pack/ledger_report.h"
#include "packer/plan/estimate_dataset.h"
#include "packer/plan/estimate_inputs.h"
#include "packer/plan/estimate_report.h"

enum { MAX_SEQ_LENS = 32 };

typedef struct plan_settings {
    bd_pack_options pack;  // first: see input_option_table.h
    const char *seq_lens;
    int64_t context;
    int long_policy;  // one more than the value; 0: not given
    int64_t max_documents;
    int64_t sample_bytes;
} plan_settings;

// `error` is not among them: its rows would be those of `split`, or none.
static const char *const policies[] = {"same", "split", "truncate", "drop", NULL};

static const bd_option plan_options[] = {
    {.name = "seq-len",
     .value = "N,N...",
     BD_TEXT(plan_settings, seq_lens),
     .initial_note = "powers of two around their lengths",
     .help = "Tokens in a row: the lengths to compare, such as 1k,2k,8k"},
    {.name = "context",
     .value = "N",
     BD_LENGTH(plan_settings, context, BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN),
     .initial = "-1",
     .initial_note = "not known",
     .help = "Positions that the model has: the longest rows to recommend"},
    BD_TOKENIZER_OPTION,
    {.name = "long",
     .value = "HOW",
     BD_CHOICE(plan_settings, long_policy, policies),
     .initial = "same",
     .help = "What to do with documents longer than a row; same is what the dataset does, and "
             "split for inputs, drop for chats"},
    {.name = "max-documents",
     .value = "N",
     BD_INTEGER(plan_settings, max_documents, 0, BD_MAX_SEQ_LEN),
     .initial = "-1",
     .initial_note = "the dataset's, else no limit",
     .help = "Most documents, or pieces of them, in a row; 0 for no limit"},
    BD_MIN_TOKENS_OPTION,
    BD_INPUT_OPTIONS,
    BD_FOLDER_OPTIONS,
    BD_UNIT_OPTIONS,
    {.name = "sample",
     .value = "SIZE",
     BD_SIZE(plan_settings, sample_bytes, 1, INT64_C(1) << 40),
     .initial = "64M",
     .help = "Read about SIZE bytes of the inputs, spread over them; all if they have no more"},
    BD_THREADS_OPTION(plan_settings, pack.n_threads,
                      "Threads to use, and to estimate the time for"),
    {.name = "json",
     BD_FLAG(plan_settings, pack.json),
     .help = "Print JSON (schemas/estimate-v1.schema.json)"},
};

// ---- The lengths to compare ----------------------------------------------------------------

typedef struct seq_len_list {
    int64_t items[MAX_SEQ_LENS];  // [n], increasing
    size_t n;
} seq_len_list;

static void insert_seq_len(seq_len_list *list, int64_t seq_len)
{
    size_t at = 0;
    while (at < list->n && list->items[at] < seq_len)
        at++;
    if (at < list->n && list->items[at] == seq_len)
        return;
    memmove(&list->items[at + 1], &list->items[at], (list->n - at) * sizeof list->items[0]);
    list->items[at] = seq_len;
    list->n++;
}

static bd_status parse_seq_lens(const char *text, seq_len_list *list, bd_error *err)
{
    for (const char *at = text;; at++) {
        const char *end;
        int64_t seq_len;
        if (!bd_read_size(at, &seq_len, &end) || (*end != ',' && *end != '\0') ||
            seq_len < BD_MIN_SEQ_LEN || seq_len > BD_MAX_SEQ_LEN)
            return bd_fail(err, BD_ERR_ARGUMENT,
                           "--seq-len: '%.100s' is not a list of lengths from %d to %d", text,
                           BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN);
        if (list->n == MAX_SEQ_LENS)
            return bd_fail(err, BD_ERR_ARGUMENT, "--seq-len: more than %d lengths",
                           MAX_SEQ_LENS);
        insert_seq_len(list, seq_len);
        at = end;
        if (*at == '\0')
            return BD_OK;
    }
}

// Takes the lengths that were given, or chooses those that suit the documents and the model.
static void choose_seq_lens(seq_len_list *list, const int64_t histogram[BD_HISTOGRAM_BINS],
                            int64_t context)
{
    int64_t usual[BD_DEFAULT_SEQ_LENS];
    if (list->n > 0)
        return;
    bd_default_seq_lens(histogram, usual);
    for (int i = 0; i < BD_DEFAULT_SEQ_LENS; i++)
        if (context == BD_NOT_GIVEN || usual[i] <= context)
            insert_seq_len(list, usual[i]);
    if (context != BD_NOT_GIVEN)
        insert_seq_len(list, context);
}

// A length is recommended only if --seq-len or --context says which lengths are possible.
static bd_status choose_most_tokens(int64_t *most, const plan_settings *settings,
                                    const seq_len_list *given, bd_error *err)
{
    *most = settings->context != BD_NOT_GIVEN ? settings->context
            : given->n > 0                    ? INT64_MAX
                                              : 0;
    if (given->n > 0 && given->items[0] > *most)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--seq-len: none of the lengths is at most --context %" PRId64, *most);
    return BD_OK;
}

// ---- A dataset -----------------------------------------------------------------------------

static bd_dataset_config config_of_plan(const bd_dataset_config *old,
                                        const plan_settings *settings)
{
    bd_dataset_config config = *old;
    if (settings->long_policy > 0)
        config.long_policy = (bd_long_policy)(settings->long_policy - 1);
    if (settings->max_documents != BD_NOT_GIVEN)
        config.max_documents = settings->max_documents;
    return config;
}

static bd_status plan_dataset(const bd_arguments *arguments, seq_len_list *seq_lens,
                              bd_estimates *estimates, bd_forecast *forecast, bd_error *err)
{
    const plan_settings *settings = arguments->settings;
    const char *folder = arguments->operands[0];
    bd_manifest manifest;
    BD_TRY(bd_manifest_read(&manifest, folder, err));
    const bool given = seq_lens->n > 0;
    choose_seq_lens(seq_lens, manifest.totals.document_lengths, settings->context);
    if (!given)
        insert_seq_len(seq_lens, manifest.config.seq_len);
    const bd_dataset_config config = config_of_plan(&manifest.config, settings);
    bd_estimates_init(estimates, &config, seq_lens->items, seq_lens->n);
    forecast->is_dataset = forecast->is_exact = true;
    forecast->n_documents = manifest.totals.documents;
    forecast->n_targets = config.loss_mask ? manifest.totals.targets : -1;
    forecast->n_units = (int64_t)manifest.n_shards;
    forecast->n_left_out = manifest.totals.dropped_documents;
    const bd_status status =
        bd_estimate_dataset(estimates, folder, &manifest, forecast->n_threads, arguments->quiet,
                            &forecast->read_time_ns, err);
    bd_manifest_release(&manifest);
    return status;
}

// ---- Inputs --------------------------------------------------------------------------------

typedef struct laying_out {
    bd_estimates *estimates;
    const bd_length_sample *sample;
} laying_out;

static bd_status lay_out_unit(void *context, int64_t index, bd_error *err)
{
    const laying_out *l = context;
    BD_TRY(bd_interrupt_check(err));
    const size_t unit = (size_t)index / l->estimates->n, way = (size_t)index % l->estimates->n;
    return bd_estimates_add(l->estimates, way, &l->sample->units[unit], err);
}

static bd_status lay_out_sample(bd_estimates *estimates, const bd_length_sample *sample,
                                int n_threads, bd_error *err)
{
    laying_out l = {estimates, sample};
    bd_threads *threads;
    BD_TRY(bd_threads_new(&threads, n_threads, err));
    const bd_status status = bd_threads_run(threads, lay_out_unit, &l,
                                            (int64_t)(sample->n_units * estimates->n), err);
    bd_threads_free(threads);
    return status;
}

static bd_status estimate_sample(const bd_length_sample *sample, const bd_pack_job *job,
                                 const plan_settings *settings, seq_len_list *seq_lens,
                                 bd_estimates *estimates, bd_forecast *forecast, bd_error *err)
{
    bd_figures lengths = {0};  // for its histogram
    if (sample->n_documents == 0)
        return bd_fail(err, BD_ERR_FORMAT, "nothing to plan: no document was found");
    for (size_t u = 0; u < sample->n_units; u++)
        for (size_t i = 0; i < sample->units[u].n; i++)
            bd_figures_count_document(&lengths, sample->units[u].items[i]);
    choose_seq_lens(seq_lens, lengths.document_lengths, settings->context);
    const bd_dataset_config config = config_of_plan(&job->config, settings);
    bd_estimates_init(estimates, &config, seq_lens->items, seq_lens->n);
    forecast->is_exact = sample->is_all;
    forecast->factor = sample->is_all ? 1 : sample->total_bytes / sample->read_bytes;
    forecast->n_documents = sample->n_documents;
    forecast->n_targets = job->config.loss_mask ? sample->n_targets : -1;
    forecast->n_windows = sample->n_windows;
    forecast->read_bytes = sample->read_bytes;
    forecast->total_bytes = sample->total_bytes;
    forecast->read_time_ns = sample->time_ns;
    forecast->n_units =
        sample->is_all ? (int64_t)sample->n_units
                       : (int64_t)ceil(sample->total_bytes / (double)job->reading.unit_bytes);
    return lay_out_sample(estimates, sample, forecast->n_threads, err);
}

static bd_status plan_inputs(const bd_arguments *arguments, bd_pack_job *job,
                             seq_len_list *seq_lens, bd_estimates *estimates,
                             bd_forecast *forecast, bd_error *err)
{
    const plan_settings *settings = arguments->settings;
    bd_inputs inputs = {0};
    bd_length_sample sample = {0};
    bd_status status = bd_pack_job_collect(&inputs, arguments->operands, arguments->n_operands,
                                           &settings->pack, err);
    if (status == BD_OK)
        status = bd_pack_job_examine(job, &inputs, forecast->n_threads, err);
    if (status == BD_OK)
        bd_report_passed_over(stderr, &inputs.passed);
    job->inputs = &inputs;
    if (status == BD_OK)
        status = bd_length_sample_take(&sample, job, settings->sample_bytes,
                                       forecast->n_threads, err);
    if (status == BD_OK)
        status = estimate_sample(&sample, job, settings, seq_lens, estimates, forecast, err);
    bd_length_sample_release(&sample);
    bd_inputs_release(&inputs);
    return status;
}

// ---- The command ---------------------------------------------------------------------------

// An unfinished dataset counts as well: the error about its manifest then says what is missing.
static bool is_dataset(const bd_arguments *arguments)
{
    const plan_settings *settings = arguments->settings;
    return arguments->n_operands == 1 && settings->pack.sources.n == 0 &&
           (bd_folder_holds(arguments->operands[0], BD_MANIFEST_NAME) ||
            bd_folder_holds(arguments->operands[0], BD_PLAN_NAME));
}

static bd_status print_forecast(const bd_arguments *arguments, const bd_forecast *forecast,
                                bd_error *err)
{
    const plan_settings *settings = arguments->settings;
    if (!settings->pack.json) {
        bd_forecast_print(stdout, forecast, bd_terminal_color(stdout, arguments->color));
        return BD_OK;
    }
    return bd_json_put(bd_forecast_to_json(forecast), BD_JSON_INDENTED, stdout, err);
}

static int plan_run(const bd_arguments *arguments)
{
    plan_settings *settings = arguments->settings;
    bd_pack_job *job = &settings->pack.job;
    bd_error err;
    bd_estimates estimates;
    bd_forecast forecast = {.estimates = &estimates,
                            .factor = 1,
                            .n_threads = bd_threads_count(settings->pack.n_threads)};
    seq_len_list seq_lens = {0};
    job->config.seq_len = BD_MIN_SEQ_LEN;  // the estimates have their own
    job->config.shuffle = BD_NO_SHUFFLE;
    job->limit = BD_NO_LIMIT;
    bd_status status =
        settings->seq_lens ? parse_seq_lens(settings->seq_lens, &seq_lens, &err) : BD_OK;
    if (status == BD_OK)
        status = choose_most_tokens(&forecast.most_tokens, settings, &seq_lens, &err);
    if (status == BD_OK)
        status = bd_pack_job_complete(&settings->pack, &err);
    if (status != BD_OK) {
        bd_pack_job_release(job);
        return bd_command_misuse(arguments, &err);
    }
    bd_interrupt_catch();
    status = is_dataset(arguments)
                 ? plan_dataset(arguments, &seq_lens, &estimates, &forecast, &err)
                 : plan_inputs(arguments, job, &seq_lens, &estimates, &forecast, &err);
    bd_pack_job_release(job);
    if (status == BD_OK)
        status = print_forecast(arguments, &forecast, &err);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_plan_command = {
    .name = "plan",
    .summary = "Compare row lengths and strategies before packing",
    .description =
        "Lays out the documents of INPUTs, which are what pack takes, or of one DATASET, for "
        "several row lengths and by every strategy, with the code that packs, and writes "
        "nothing. The table tells for each: the rows; the padding; how many documents are cut "
        "(split, truncated or dropped, as --long says); how much less attention has to compute "
        "than under a plain causal mask; the time; and the size of the shards without "
        "--compress. With --context, or among lengths that --seq-len names, a star marks what "
        "is recommended, and the sentence below says why.\n"
        "\n"
        "If the inputs have more than --sample bytes, a sample is read and tokenised, in 32 "
        "places at "
        "equal distances (compressed files from their start), and the figures are scaled up; a "
        "document is read whole, so a few huge ones may make it larger. Smaller inputs are "
        "read completely, unit by unit, and every count is what pack would give. So it is for "
        "a dataset, whose shards stay the units: the counts are what repack would give. "
        "Options about inputs say nothing about a dataset.\n"
        "\n"
        "The time is that of reading and tokenising, measured here, and of laying out, on "
        "--threads threads; writing comes on top of it.\n"
        "\n"
        "Memory: for inputs 8 bytes per document that is read, 70 for each of its segments, "
        "and "
        "for each thread 20 per byte of the largest record, and for tables the column of one "
        "row "
        "group; for a dataset, for each thread, 40 bytes per document of a shard and 70 per "
        "segment.\n"
        "\n"
        "Exit status: 0 done, 2 it could not be done.\n"
        "\n"
        "Examples:\n"
        "\n"
        "  bindery plan --context 2k corpus.jsonl more-text/\n"
        "  bindery plan --seq-len 1024,2048,8192 --long truncate shards\n",
    .operands = "[INPUT...|DATASET]",
    .operand_kind = BD_OPTION_FILE,
    .options = plan_options,
    .n_options = sizeof plan_options / sizeof plan_options[0],
    .settings_size = sizeof(plan_settings),
    .run = plan_run,
};
