// `bindery locate`: where a token, or a text, of a dataset came from.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/interrupt.h"
#include "common/base/json.h"
#include "common/base/threads.h"
#include "common/cli/program.h"
#include "common/cli/terminal.h"
#include "common/dataset/stored_tokenizer.h"
#include "packer/commands.h"
#include "packer/locate/locate_find.h"
#include "packer/locate/locate_report.h"

typedef struct locate_settings {
    const char *find;
    int64_t limit;
    bd_texts corpus;
    int64_t context;
    int64_t n_threads;
    bool json;
} locate_settings;

enum { MAX_FOUND = 10000 };

static const bd_option locate_options[] = {
    {.name = "find",
     .value = "TEXT",
     BD_TEXT(locate_settings, find),
     .initial_note = "none",
     .help = "Show the documents that contain TEXT, each at its first occurrence"},
    {.name = "limit",
     .value = "N",
     BD_INTEGER(locate_settings, limit, 1, MAX_FOUND),
     .initial = "10",
     .help = "With --find: the first N documents, in the order of the dataset"},
    {.name = "corpus",
     .value = "PATH",
     BD_TEXTS(locate_settings, corpus),
     .help = "Where the inputs lie now, as they were given to pack: their records are read and "
             "shown as well; may be repeated"},
    {.name = "context",
     .value = "SIZE",
     BD_SIZE(locate_settings, context, 0, BD_MAX_CONTEXT),
     .initial = "200",
     .help = "Bytes of text to show on either side"},
    BD_THREADS_OPTION(locate_settings, n_threads, "Shards to search at the same time"),
    {.name = "json",
     BD_FLAG(locate_settings, json),
     .help = "Print JSON (schemas/location-v1.schema.json)"},
};

// The tokens that were asked for, and everything that is needed to locate them.
typedef struct locating {
    const bd_arguments *arguments;
    const bd_tokenizer *tokenizer;
    bd_manifest manifest;
    bd_locator locator;
    bd_check check;  // of the plan, and the corpus: for --corpus
    bd_corpus corpus;
    bd_found *tokens;  // [n_tokens], owned
    size_t n_tokens;
    bd_json *locations;  // an array, for --json
} locating;

static bd_status parse_addresses(locating *l, bd_error *err)
{
    const size_t n = l->arguments->n_operands - 1;
    l->tokens = calloc(n + 1, sizeof *l->tokens);
    if (!l->tokens)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu tokens", n);
    for (; l->n_tokens < n; l->n_tokens++) {
        bd_found *token = &l->tokens[l->n_tokens];
        token->n_tokens = 1;
        BD_TRY(bd_token_address_parse(&token->address, l->arguments->operands[l->n_tokens + 1],
                                      &l->manifest, err));
    }
    return BD_OK;
}

static bd_status find_text(locating *l, bd_error *err)
{
    const locate_settings *settings = l->arguments->settings;
    const bd_search search = {
        .folder = l->arguments->operands[0],
        .manifest = &l->manifest,
        .tokenizer = l->tokenizer,
        .text = settings->find,
        .n_bytes = strlen(settings->find),
        .limit = settings->limit,
        .n_threads = bd_threads_count(settings->n_threads),
        .quiet = l->arguments->quiet,
    };
    if (!l->tokenizer->takes_text)
        return bd_fail(err, BD_ERR_ARGUMENT,
                       "--find: of the ids of '%s' nobody knows what text they stand for",
                       search.folder);
    return bd_search_run(&search, &l->tokens, &l->n_tokens, err);
}

static bd_status show(locating *l, const bd_location *location, bool is_first, bd_error *err)
{
    const locate_settings *settings = l->arguments->settings;
    bd_record_place record = {0}, *shown = NULL;
    bd_status status = BD_OK;
    if (settings->corpus.n > 0 && location->kind != BD_TOKEN_PADDING) {
        status =
            bd_record_find(&record, &l->corpus, location, 2 * (size_t)settings->context, err);
        shown = &record;
    }
    if (status == BD_OK && settings->json) {
        bd_json *json;
        status = bd_location_to_json(location, shown, &l->manifest, &json, err);
        bd_json_append(l->locations, json);
    } else if (status == BD_OK) {
        fputs(is_first ? "" : "\n", stdout);
        bd_location_print(stdout, location, shown, &l->manifest,
                          bd_terminal_color(stdout, l->arguments->color));
    }
    bd_record_place_release(&record);
    return status;
}

static bd_status show_all(locating *l, bd_error *err)
{
    for (size_t i = 0; i < l->n_tokens; i++) {
        bd_location location;
        BD_TRY(bd_interrupt_check(err));
        bd_status status = bd_locate(&l->locator, &l->tokens[i].address, l->tokens[i].n_tokens,
                                     &location, err);
        if (status == BD_OK)
            status = show(l, &location, i == 0, err);
        bd_location_release(&location);
        BD_TRY(status);
    }
    return BD_OK;
}

// With --find, whether there may be more than what is shown.
static bool reached_limit(const locating *l)
{
    const locate_settings *settings = l->arguments->settings;
    return settings->find && l->n_tokens == (size_t)settings->limit;
}

static bd_status print_locations_json(const locating *l, bd_error *err)
{
    const locate_settings *settings = l->arguments->settings;
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", l->manifest.config.loss_mask ? "1.1" : "1.0");
    if (settings->find)
        bd_json_set_string(json, "find", settings->find);
    else
        bd_json_set_null(json, "find");
    bd_json_set_bool(json, "limited", reached_limit(l));
    bd_json_set(json, "locations", bd_json_share(l->locations));
    return bd_json_put(json, BD_JSON_INDENTED, stdout, err);
}

static void print_end(const locating *l)
{
    if (l->n_tokens == 0)
        puts("No document contains it");
    else if (reached_limit(l))
        printf("\nThe first %zu documents that contain it; --limit shows more\n", l->n_tokens);
}

static bd_status locate(locating *l, bd_error *err)
{
    const locate_settings *settings = l->arguments->settings;
    const char *folder = l->arguments->operands[0];
    BD_TRY(bd_manifest_read(&l->manifest, folder, err));
    BD_TRY(bd_stored_tokenizer_open(&l->tokenizer, folder, &l->manifest.config, err));
    if (settings->corpus.n > 0) {
        BD_TRY(bd_check_init(&l->check, folder, &l->manifest, err));
        BD_TRY(bd_corpus_open(&l->corpus, &l->check, settings->corpus.items, settings->corpus.n,
                              err));
    }
    BD_TRY(bd_locator_init(&l->locator, folder, &l->manifest, l->tokenizer, settings->context,
                           err));
    BD_TRY(settings->find ? find_text(l, err) : parse_addresses(l, err));
    l->locations = bd_json_array();
    BD_TRY(show_all(l, err));
    if (settings->json)
        return print_locations_json(l, err);
    if (settings->find)
        print_end(l);
    return BD_OK;
}

static int locate_run(const bd_arguments *arguments)
{
    const locate_settings *settings = arguments->settings;
    locating l = {.arguments = arguments};
    bd_error err;
    if ((arguments->n_operands > 1) == (settings->find != NULL) ||
        (settings->find && *settings->find == '\0')) {
        bd_fail(&err, BD_ERR_ARGUMENT,
                "either places, as SHARD:ROW:TOKEN or ROW:TOKEN, or --find with a text");
        return bd_command_misuse(arguments, &err);
    }
    bd_interrupt_catch();
    const bd_status status = locate(&l, &err);
    const bool found = l.n_tokens > 0;
    bd_json_free(l.locations);
    free(l.tokens);
    bd_locator_release(&l.locator);
    bd_corpus_release(&l.corpus);
    bd_check_release(&l.check);
    bd_tokenizer_close(l.tokenizer);
    bd_manifest_release(&l.manifest);
    if (status != BD_OK)
        return bd_command_fail(arguments, &err);
    return found ? BD_EXIT_DONE : BD_EXIT_NO;
}

const bd_command bd_locate_command = {
    .name = "locate",
    .summary = "Show where a token or a text of a dataset came from",
    .description =
        "A PLACE is SHARD:ROW:TOKEN, or ROW:TOKEN with the row's number in the whole dataset; "
        "SHARD is the shard's number or its file's name, and all count from 0. Shown are the "
        "input and the place in it, the document, the piece of it that lies in the row, what "
        "is to be predicted there, and the document's text with the token marked. Padding, "
        "separators and BOS tokens are called so.\n"
        "\n"
        "--find looks for a text in the bytes that tokens stand for, document by document, "
        "those that were split as a whole, and shows each that contains it once. Upper and "
        "lower case differ. Text that --long truncate or drop left out is not in the dataset "
        "and "
        "not found.\n"
        "\n"
        "The dataset knows the names of its inputs, not where they lie. With --corpus the "
        "record is read from its file, which must be as it was when it was packed: its bytes, "
        "its line, and for text the token's byte and line. A compressed file is read from its "
        "start.\n"
        "\n"
        "Memory: 4 MB for each thread, however long documents and tokens are, four times "
        "--context, 100 bytes for each piece of a split document in a shard, and with --corpus "
        "one record or row group; a compressed shard is decompressed in memory besides.\n"
        "\n"
        "Exit status: 0 found, 1 nothing was found, 2 it could not be done.\n"
        "\n"
        "Examples:\n"
        "\n"
        "  bindery locate shards 500:40\n"
        "  bindery locate shards 00012-00003.arrow:12:40 --corpus corpus.jsonl\n"
        "  bindery locate shards --find 'lorem ipsum' --limit 3\n",
    .operands = "DATASET [PLACE...]",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = locate_options,
    .n_options = sizeof locate_options / sizeof locate_options[0],
    .settings_size = sizeof(locate_settings),
    .run = locate_run,
};
