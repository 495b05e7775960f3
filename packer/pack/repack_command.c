// `bindery repack`: datasets in, the same documents in rows of another kind out.
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/threads.h"
#include "common/cli/program.h"
#include "packer/commands.h"
#include "packer/pack/dataset_card.h"
#include "packer/pack/ledger_report.h"
#include "packer/pack/repack.h"

typedef struct repack_settings {
    const char *out;
    int64_t seq_len;
    int strategy, long_policy, codec;  // one more than the value; 0: not given
    int64_t max_documents, shuffle;
    int64_t n_threads;
    bool overwrite;
    bool json;
} repack_settings;

static const char *const strategies[] = {"same", "best-fit", "first-fit", "concat", NULL};
static const char *const policies[] = {"same", "split", "truncate", "drop", "error", NULL};
static const char *const codecs[] = {"same", "none", "zstd", NULL};

static const bd_option repack_options[] = {
    {.name = "out",
     .letter = 'o',
     .value = "DIR",
     BD_DIRECTORY(repack_settings, out),
     .required = true,
     .help = "Write the new dataset into DIR; an unfinished one is continued"},
    {.name = "seq-len",
     .value = "N",
     BD_LENGTH(repack_settings, seq_len, BD_MIN_SEQ_LEN, BD_MAX_SEQ_LEN),
     .initial = "-1",
     .initial_note = "as it was",
     .help = "Tokens in a row; 8k is 8192"},
    {.name = "strategy",
     .value = "HOW",
     BD_CHOICE(repack_settings, strategy, strategies),
     .initial = "same",
     .help = "How rows are filled"},
    {.name = "long",
     .value = "HOW",
     BD_CHOICE(repack_settings, long_policy, policies),
     .initial = "same",
     .help = "What to do with documents longer than a row"},
    {.name = "max-documents",
     .value = "N",
     BD_INTEGER(repack_settings, max_documents, 0, BD_MAX_SEQ_LEN),
     .initial = "-1",
     .initial_note = "as it was",
     .help = "Most documents, or pieces of them, in a row; 0 for no limit"},
    {.name = "shuffle",
     .value = "SEED",
     BD_INTEGER(repack_settings, shuffle, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "as it was",
     .help = "Shuffle the documents of each unit"},
    {.name = "compress",
     .value = "CODEC",
     BD_CHOICE(repack_settings, codec, codecs),
     .initial = "same",
     .help = "Compression of the shards"},
    BD_THREADS_OPTION(repack_settings, n_threads,
                      "Shards to repack at the same time; the result does not depend on it"),
    {.name = "overwrite",
     BD_FLAG(repack_settings, overwrite),
     .help = "Replace a dataset that is in DIR already"},
    {.name = "json",
     BD_FLAG(repack_settings, json),
     .help = "Print the new manifest as JSON (schemas/manifest-v1.schema.json)"},
};

static bd_dataset_config config_of_repack(const bd_joined *from,
                                          const repack_settings *settings)
{
    bd_dataset_config config = from->items[0].manifest.config;
    config.loss_mask = bd_joined_has_masks(from);
    if (settings->seq_len != BD_NOT_GIVEN)
        config.seq_len = settings->seq_len;
    if (settings->strategy > 0)
        config.strategy = (bd_strategy)(settings->strategy - 1);
    if (settings->long_policy > 0)
        config.long_policy = (bd_long_policy)(settings->long_policy - 1);
    if (settings->codec > 0)
        config.codec = (bd_shard_codec)(settings->codec - 1);
    if (settings->max_documents != BD_NOT_GIVEN)
        config.max_documents = settings->max_documents;
    if (settings->shuffle != BD_NOT_GIVEN)
        config.shuffle = settings->shuffle;
    config.batch_rows = bd_dataset_default_batch_rows(&config);
    return config;
}

static bd_status repack(const bd_arguments *arguments, bd_joined *from,
                        bd_repack_result *result, bd_error *err)
{
    const repack_settings *settings = arguments->settings;
    const int64_t started_ns = bd_now_ns();
    BD_TRY(bd_joined_open(from, arguments->operands, arguments->n_operands, err));
    const bd_repack_job job = {
        .from = from,
        .to = settings->out,
        .config = config_of_repack(from, settings),
        .n_threads = bd_threads_count(settings->n_threads),
        .overwrite = settings->overwrite,
        .quiet = arguments->quiet,
    };
    BD_TRY(bd_repack(&job, result, err));
    if (result->already_finished && !arguments->quiet)
        bd_command_note(arguments, "'%s' is finished already, with the same plan",
                        settings->out);
    if (result->card_kept && !arguments->quiet)
        bd_command_note(arguments, BD_CARD_KEPT, settings->out);
    if (settings->json)
        BD_TRY(bd_manifest_print(settings->out, stdout, err));
    else if (!arguments->quiet)
        BD_TRY(bd_report_ledger(stdout, settings->out, &result->manifest, err));
    if (!result->already_finished)
        bd_command_say_time(arguments, bd_now_ns() - started_ns, result->n_bytes, "read");
    return BD_OK;
}

static int repack_run(const bd_arguments *arguments)
{
    bd_error err;
    bd_joined from = {0};
    bd_repack_result result = {0};
    bd_interrupt_catch();
    const bd_status status = repack(arguments, &from, &result, &err);
    bd_joined_release(&from);
    bd_repack_result_release(&result);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_repack_command = {
    .name = "repack",
    .summary = "Pack datasets again, to another row length or strategy, or into one",
    .description =
        "Puts the documents of DATASET together from their pieces and packs them again, "
        "without tokenising. Options that are not given stay as they were. Packing to another "
        "length and "
        "back gives the same bytes as packing the corpus afresh.\n"
        "\n"
        "Several datasets are joined: the documents of the first, then those of the next, each "
        "with its source, in rows as the options say or as the first one has them. No row "
        "holds documents of two. They need the same tokenizer, separator, BOS, padding, "
        "--min-tokens and --holdout; one that is given twice is refused. If one has loss "
        "masks, "
        "the documents of those that have none are trained whole. How each corpus was "
        "read stays with its inputs, so verify --against takes all of them together; files of "
        "one name and size are told apart by their order.\n"
        "\n"
        "A dataset with truncated documents is refused, since their ends are lost; so is one "
        "with dropped documents, unless those would be dropped again. The held-out "
        "dataset in DATASET/holdout is repacked in the same way, into DIR/holdout; several "
        "datasets must all have one there, or none.\n"
        "\n"
        "Memory, for each thread, is below 4 bytes per token of a shard (2 if the vocabulary "
        "has at most 65536 ids), and 120 per segment of it; a compressed shard is decompressed "
        "in memory besides.\n"
        "\n"
        "Examples:\n"
        "\n"
        "  bindery repack shards -o shards-8k --seq-len 8192\n"
        "  bindery repack web code books -o all\n",
    .operands = "DATASET...",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = repack_options,
    .n_options = sizeof repack_options / sizeof repack_options[0],
    .settings_size = sizeof(repack_settings),
    .run = repack_run,
};
