// `bindery verify`: the verdict for people and for scripts.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format.h"
#include "common/json.h"
#include "common/program.h"
#include "common/terminal.h"
#include "common/threads.h"
#include "packer/commands.h"
#include "packer/verify.h"

typedef struct verify_settings {
    int64_t n_threads;
    bool json;
} verify_settings;

static const bd_option verify_options[] = {
    {.name = "threads",
     .value = "N",
     BD_INTEGER(verify_settings, n_threads, 1, 4096),
     .initial = "0",
     .initial_note = "one per core",
     .help = "Shards to check at the same time"},
    {.name = "json",
     BD_FLAG(verify_settings, json),
     .help = "Print the verdict as JSON (schemas/verdict-v1.schema.json)"},
};

static bd_status print_json(const bd_verdict *verdict, bd_error *err)
{
    bd_json *problems = bd_json_array();
    for (size_t i = 0; i < verdict->n_problems; i++) {
        bd_json *problem = bd_json_object();
        bd_json_set_string(problem, "message", verdict->problems[i].message);
        bd_json_append(problems, problem);
    }
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.0");
    bd_json_set_bool(json, "good", verdict->n_problems == 0);
    bd_json_set_integer(json, "shards", (int64_t)verdict->n_shards);
    bd_json_set_integer(json, "rows", verdict->n_rows);
    bd_json_set_integer(json, "tokens", verdict->n_tokens);
    bd_json_set(json, "problems", problems);
    char *text = NULL;
    const bd_status status = bd_json_print(json, BD_JSON_INDENTED, &text, err);
    if (status == BD_OK)
        puts(text);
    free(text);
    bd_json_free(json);
    return status;
}

static void print_text(const bd_arguments *arguments, const bd_verdict *verdict)
{
    for (size_t i = 0; i < verdict->n_problems; i++) {
        const char *message = verdict->problems[i].message;
        bd_print_safely(stdout, message, strlen(message), false);
        putchar('\n');
    }
    if (verdict->n_problems > 0)
        printf("'%s' is damaged: %zu problem%s\n", arguments->operands[0], verdict->n_problems,
               verdict->n_problems == 1 ? "" : "s");
    else
        printf("'%s' is good: %zu shard%s, %s rows, %s tokens; every row obeys every rule\n",
               arguments->operands[0], verdict->n_shards, verdict->n_shards == 1 ? "" : "s",
               bd_format_exact(verdict->n_rows).text, bd_format_exact(verdict->n_tokens).text);
}

static int verify_run(const bd_arguments *arguments)
{
    const verify_settings *settings = arguments->settings;
    const int n_threads = bd_threads_count(settings->n_threads);
    bd_error err;
    bd_verdict verdict;
    if (bd_verify(arguments->operands[0], n_threads, arguments->quiet, &verdict, &err) != BD_OK)
        return bd_command_fail(arguments, &err);
    bd_status status = BD_OK;
    if (settings->json)
        status = print_json(&verdict, &err);
    else
        print_text(arguments, &verdict);
    const bool good = verdict.n_problems == 0;
    bd_verdict_release(&verdict);
    if (status != BD_OK)
        return bd_command_fail(arguments, &err);
    return good ? BD_EXIT_DONE : BD_EXIT_NO;
}

const bd_command bd_verify_command = {
    .name = "verify",
    .summary = "Check every row, rule and checksum of a dataset",
    .description = "Reads every file that the manifest names and checks every rule of "
                   "schemas/shard-v1.md: "
                   "each row's boundaries, ids and checksum, that the pieces of each document "
                   "cover it once "
                   "and in order, the figures, the ledger, the tokenizer, and the checksums of "
                   "all files.\n"
                   "\n"
                   "Prints one line for each damaged file: the shard, the row and the rule. "
                   "Memory: 100 bytes "
                   "per segment of a shard, for each thread.\n"
                   "\n"
                   "Exit status: 0 good, 1 damaged, 2 it could not be checked.\n",
    .operands = "DATASET",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = verify_options,
    .n_options = sizeof verify_options / sizeof verify_options[0],
    .settings_size = sizeof(verify_settings),
    .run = verify_run,
};
