// `bindery verify`: the verdict for people and for scripts.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/threads.h"
#include "common/cli/human.h"
#include "common/cli/program.h"
#include "common/cli/terminal.h"
#include "packer/commands.h"
#include "packer/verify/verify.h"

typedef struct verify_settings {
    bool structure;
    bd_texts against;
    int64_t n_threads;
    bool json;
} verify_settings;

static const bd_option verify_options[] = {
    {.name = "structure",
     BD_FLAG(verify_settings, structure),
     .help = "Check files, sizes and checksums only, and no row"},
    {.name = "against",
     .value = "INPUT",
     BD_TEXTS(verify_settings, against),
     .help = "Read the corpus again, too: its tokens must be those of the rows; may be "
             "repeated"},
    BD_THREADS_OPTION(verify_settings, n_threads, "Threads to use"),
    {.name = "json",
     BD_FLAG(verify_settings, json),
     .help = "Print the verdict as JSON (schemas/verdict-v1.schema.json)"},
};

static bd_status print_verdict_json(const bd_verdict *verdict, bd_verify_depth depth,
                                    bd_error *err)
{
    bd_json *problems = bd_json_array();
    for (size_t i = 0; i < verdict->n_problems; i++) {
        bd_json *problem = bd_json_object();
        bd_json_set_string(problem, "message", verdict->problems[i].message);
        bd_json_append(problems, problem);
    }
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.1");
    bd_json_set_bool(json, "good", verdict->n_problems == 0);
    bd_json_set_integer(json, "shards", (int64_t)verdict->n_shards);
    bd_json_set_integer(json, "rows", verdict->n_rows);
    bd_json_set_integer(json, "tokens", verdict->n_tokens);
    bd_json_set_string(json, "checked", bd_verify_depth_names[depth]);
    if (depth == BD_VERIFY_CORPUS)
        bd_json_set_integer(json, "compared", verdict->n_compared);
    else
        bd_json_set_null(json, "compared");
    bd_json_set(json, "problems", problems);
    return bd_json_put(json, BD_JSON_INDENTED, stdout, err);
}

static void print_good(const char *folder, const bd_verdict *verdict, bd_verify_depth depth)
{
    printf("'%s' is good: %zu shard%s, %s rows, %s tokens; ", folder, verdict->n_shards,
           verdict->n_shards == 1 ? "" : "s", bd_format_exact(verdict->n_rows).text,
           bd_format_exact(verdict->n_tokens).text);
    if (depth == BD_VERIFY_STRUCTURE)
        puts("only files were checked");
    else
        puts("every row obeys every rule");
    if (depth == BD_VERIFY_CORPUS)
        printf("Its tokens are those of the corpus (%s documents compared)\n",
               bd_format_exact(verdict->n_compared).text);
}

static void print_verdict(const char *folder, const bd_verdict *verdict, bd_verify_depth depth)
{
    for (size_t i = 0; i < verdict->n_problems; i++) {
        const char *message = verdict->problems[i].message;
        bd_print_safely(stdout, message, strlen(message), false);
        putchar('\n');
    }
    if (verdict->n_problems == 0)
        print_good(folder, verdict, depth);
    else
        printf("'%s' is damaged%s: %zu problem%s\n", folder,
               depth == BD_VERIFY_CORPUS ? ", or the corpus has changed" : "",
               verdict->n_problems, verdict->n_problems == 1 ? "" : "s");
}

static int verify_run(const bd_arguments *arguments)
{
    const verify_settings *settings = arguments->settings;
    const char *folder = arguments->operands[0];
    bd_error err;
    if (settings->structure && settings->against.n > 0) {
        bd_fail(&err, BD_ERR_ARGUMENT, "--structure does not go together with --against");
        return bd_command_misuse(arguments, &err);
    }
    const bd_verify_settings how = {
        .depth = settings->structure       ? BD_VERIFY_STRUCTURE
                 : settings->against.n > 0 ? BD_VERIFY_CORPUS
                                           : BD_VERIFY_ROWS,
        .corpus = settings->against.items,
        .n_corpus = settings->against.n,
        .n_threads = bd_threads_count(settings->n_threads),
        .quiet = arguments->quiet,
    };
    const int64_t started_ns = bd_now_ns();
    bd_verdict verdict;
    if (bd_verify(folder, &how, &verdict, &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    bd_status status = BD_OK;
    if (settings->json)
        status = print_verdict_json(&verdict, how.depth, &err);
    else if (!arguments->quiet || verdict.n_problems > 0)
        print_verdict(folder, &verdict, how.depth);
    bd_command_say_time(arguments, bd_now_ns() - started_ns, verdict.n_bytes, "checked");
    const bool good = verdict.n_problems == 0;
    bd_verdict_release(&verdict);
    if (status != BD_OK)
        return bd_command_fail(arguments, &err);
    return good ? BD_EXIT_DONE : BD_EXIT_NO;
}

static const char verify_description[] =
    "Reads every file that the manifest names and checks every rule of schemas/shard-v1.md: "
    "each row's boundaries, ids and checksum, that the pieces of each document cover it once "
    "and in order, the figures, the ledger, the tokenizer, and the checksums of all files. "
    "With --structure no row is looked at: every file is there, opens, says what the manifest "
    "says, and has its size and checksum.\n"
    "\n"
    "--against INPUT reads the corpus again as plan.json says that it was read, tokenises it, "
    "and compares every document with its pieces in the rows. INPUT is what pack takes, also "
    "what was given with --source NAME=INPUT (without NAME=): a file, a folder, a pattern, "
    "@FILE, or - for standard input, which must then be given again. Inputs are found by "
    "their names in the manifest; files that the dataset was not packed from are passed over. "
    "One that is missing ends the check (2); one that has changed is told, with the first "
    "document of each shard that differs (1). For a held-out dataset give the whole corpus.\n"
    "\n"
    "Prints one line for each damaged file: the shard, the row and the rule. Memory, for each "
    "thread: 16 bytes for each segment of a shard and 100 more for each piece of a split "
    "document, and all of a compressed shard; with --against what packing a unit takes and 56 "
    "bytes for each segment besides.\n"
    "\n"
    "Exit status: 0 good, 1 damaged, 2 it could not be checked.\n"
    "\n"
    "Examples:\n"
    "\n"
    "  bindery verify shards\n"
    "  bindery verify --structure shards\n"
    "  bindery verify shards --against corpus.jsonl --against more/\n";

const bd_command bd_verify_command = {
    .name = "verify",
    .summary = "Check every row, rule and checksum of a dataset",
    .description = verify_description,
    .operands = "DATASET",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = verify_options,
    .n_options = sizeof verify_options / sizeof verify_options[0],
    .settings_size = sizeof(verify_settings),
    .run = verify_run,
};
