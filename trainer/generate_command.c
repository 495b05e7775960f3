// `bindery generate`: text from a trained model.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/threads.h"
#include "common/base/utf8.h"
#include "common/chat/chat_format.h"
#include "common/cli/program.h"
#include "common/cli/terminal.h"
#include "trainer/commands.h"
#include "trainer/generator.h"
#include "trainer/model/backend_choice.h"
#include "trainer/weights/run.h"

typedef struct generate_settings {
    bd_texts prompts;
    const char *prompts_file;
    const char *chat, *system;
    int64_t n_tokens;
    double temperature;
    int64_t top_k;
    double top_p, min_p;
    bd_texts stops;
    int64_t seed;
    bool json;
    bd_weights_choice weights;
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_precision_choice precision;
    int64_t n_threads;
} generate_settings;

static const bd_option generate_options[] = {
    {.name = "prompt",
     .value = "TEXT",
     BD_TEXTS(generate_settings, prompts),
     .initial_note = "The",
     .help = "Text to continue; can be given several times"},
    {.name = "prompts",
     .value = "FILE",
     BD_FILE(generate_settings, prompts_file),
     .help = "Continue each line of FILE"},
    {.name = "chat",
     .value = "FORMAT|FILE",
     BD_FILE_OR(generate_settings, chat, bd_built_in_chat_formats),
     .initial_note = "prompts are plain text",
     .help = "Answer each prompt as a user's turn of a chat, in the --chat-format of pack"},
    {.name = "system",
     .value = "TEXT",
     BD_TEXT(generate_settings, system),
     .initial_note = "the chat format's",
     .help = "The chat's system message"},
    {.name = "tokens",
     .value = "N",
     BD_INTEGER(generate_settings, n_tokens, 1, 1 << 20),
     .initial = "200",
     .help = "Stop after N tokens, or when the document ends"},
    {.name = "stop",
     .value = "TEXT",
     BD_TEXTS(generate_settings, stops),
     .help = "Stop when the new text contains TEXT, and leave that out; can be given several "
             "times"},
    {.name = "temperature",
     .value = "X",
     BD_REAL(generate_settings, temperature, 0, 100),
     .initial = "0.8",
     .help = "Below 1 prefers likelier tokens; 0 always takes the likeliest"},
    {.name = "top-k",
     .value = "N",
     BD_INTEGER(generate_settings, top_k, 0, INT64_C(1) << 32),
     .initial = "40",
     .help = "Draw from the N likeliest tokens; 0 draws from all"},
    {.name = "top-p",
     .value = "X",
     BD_REAL(generate_settings, top_p, 0, 1),
     .initial = "1",
     .help = "Draw from the likeliest tokens that together have the probability X"},
    {.name = "min-p",
     .value = "X",
     BD_REAL(generate_settings, min_p, 0, 1),
     .initial = "0",
     .help = "Draw from tokens that are at least X times as likely as the likeliest"},
    {.name = "seed",
     .value = "N",
     BD_INTEGER(generate_settings, seed, 0, INT64_MAX),
     .initial = "1",
     .help = "Seed of the draws"},
    {.name = "json",
     BD_FLAG(generate_settings, json),
     .help = "Print a line of JSON for each prompt"},
    {.name = "weights",
     .value = "WHICH",
     BD_CHOICE(generate_settings, weights, bd_weights_choice_names),
     .initial = "auto",
     .help = BD_WEIGHTS_HELP},
    BD_AUTO_BACKEND_OPTIONS(
        generate_settings,
        "the type that the run was trained in, or float if that needs a device"),
    BD_THREADS_OPTION(generate_settings, n_threads,
                      "Threads of the kernels; the result does not depend on it"),
};

// Everything that generating needs, all owned.
typedef struct generation {
    char *lines;  // of --prompts; each has a NUL at its end
    const char **prompts;
    size_t n_prompts, prompts_capacity;
    bd_run run;
    bd_backend *backend;
    bd_run_tokenizer tokenizer;
    bd_chat_format *chat;  // NULL: none
    bd_generator generator;
} generation;

// ---- Prompts ----------------------------------------------------------------------------

static bd_status add_prompt(generation *g, const char *prompt, bd_error *err)
{
    BD_TRY(bd_array_reserve((void **)&g->prompts, &g->prompts_capacity, g->n_prompts + 1,
                            sizeof *g->prompts, err));
    g->prompts[g->n_prompts++] = prompt;
    return BD_OK;
}

// A line ends with LF or CRLF, the last one perhaps with nothing.
static bd_status add_lines(generation *g, const char *path, bd_error *err)
{
    enum { MAX_BYTES = 1 << 30 };
    size_t size_bytes;
    BD_TRY(bd_file_read(path, MAX_BYTES, &g->lines, &size_bytes, err));
    if (memchr(g->lines, '\0', size_bytes))
        return bd_fail(err, BD_ERR_FORMAT, "'%s' is no text: it has a byte that is 0", path);
    char *const end = g->lines + size_bytes;
    for (char *line = g->lines; line < end;) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        char *last = newline ? newline : end;
        *last = '\0';
        if (last > line && last[-1] == '\r')
            last[-1] = '\0';
        BD_TRY(add_prompt(g, line, err));
        line = last + 1;
    }
    return g->n_prompts > 0 ? BD_OK : bd_fail(err, BD_ERR_ARGUMENT, "'%s' has no line", path);
}

static bd_status gather_prompts(generation *g, const generate_settings *settings, bd_error *err)
{
    for (size_t i = 0; i < settings->prompts.n; i++)
        BD_TRY(add_prompt(g, settings->prompts.items[i], err));
    if (settings->prompts_file)
        return add_lines(g, settings->prompts_file, err);
    if (settings->chat && g->n_prompts == 0)
        return bd_fail(err, BD_ERR_ARGUMENT, "--chat needs --prompt or --prompts");
    return g->n_prompts > 0 ? BD_OK : add_prompt(g, "The", err);
}

// Puts before the message in *err where prompt i was given.
static bd_status name_prompt(const generate_settings *settings, size_t i, bd_status status,
                             bd_error *err)
{
    const size_t n = settings->prompts.n;
    if (settings->prompts_file && i >= n)
        return bd_error_prefix(err, status, "'%s', line %zu", settings->prompts_file,
                               i - n + 1);
    return n > 1 ? bd_error_prefix(err, status, "--prompt number %zu", i + 1)
                 : bd_error_prefix(err, status, "--prompt");
}

// ---- Opening ----------------------------------------------------------------------------

// Opens the chat format. What it cannot say is found here, where no prompt is to blame.
static bd_status open_chat(generation *g, const generate_settings *settings, bd_error *err)
{
    bd_spans spans = {0};
    if (!settings->chat)
        return BD_OK;
    BD_TRY(bd_chat_format_open(&g->chat, settings->chat, err));
    bd_status status = bd_chat_format_find_tokens(g->chat, g->tokenizer.tokenizer,
                                                  g->tokenizer.tokenizer->name, err);
    if (status == BD_OK)
        status = bd_chat_render_prompt(g->chat, settings->system, "", &spans, err);
    bd_spans_release(&spans);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "--chat");
}

static bd_status open_generation(generation *g, const bd_arguments *arguments, bd_error *err)
{
    const generate_settings *settings = arguments->settings;
    const char *folder = arguments->operands[0];
    const int n_threads = bd_threads_count(settings->n_threads);
    bd_error why;
    for (size_t i = 0; i < settings->stops.n; i++)
        if (!settings->stops.items[i][0])
            return bd_fail(err, BD_ERR_ARGUMENT, "--stop: every text contains an empty one");
    if (settings->system && !settings->chat)
        return bd_fail(err, BD_ERR_ARGUMENT, "--system goes with --chat");
    BD_TRY(gather_prompts(g, settings, err));
    BD_TRY(bd_run_open(&g->run, folder, settings->weights, err));
    BD_TRY(bd_run_open_tokenizer(&g->run, folder, &g->tokenizer, err));
    BD_TRY(open_chat(g, settings, err));
    BD_TRY(bd_backend_open_choice(&g->backend, settings->backend, settings->backend_module,
                                  settings->isa, 0, n_threads, err));
    bd_generator_options options = {
        .max_tokens = settings->n_tokens,
        .drawing = {settings->temperature, settings->top_k, settings->top_p, settings->min_p},
        .seed = (uint64_t)settings->seed,
        .stops = settings->stops,
        .chat = g->chat,
        .system = settings->system,
    };
    BD_TRY(
        bd_run_settle_type(&g->run, settings->precision, g->backend, &options.type, &why, err));
    if (why.message[0] && !arguments->quiet)
        bd_command_note(arguments, "computes in float: %s", why.message);
    const bd_status status =
        bd_generator_init(&g->generator, g->backend, &g->run.parameters, &g->tokenizer,
                          g->prompts, g->n_prompts, &options, err);
    if (status != BD_OK && g->generator.refused < g->n_prompts)
        return name_prompt(settings, g->generator.refused, status, err);
    if (status == BD_ERR_MEMORY)
        return bd_error_suffix(err, status, "--tokens limits what follows a prompt");
    BD_TRY(status);
    BD_TRY(bd_decoder_set_weights(&g->generator.decoder, g->run.weights, err));
    bd_run_forget_weights(&g->run);
    return BD_OK;
}

static void close_generation(generation *g)
{
    bd_generator_release(&g->generator);
    bd_chat_format_free(g->chat);
    bd_run_tokenizer_close(&g->tokenizer);
    if (g->backend)
        g->backend->operations->close(g->backend);
    bd_run_release(&g->run);
    free(g->prompts);
    free(g->lines);
}

// ---- Printing ---------------------------------------------------------------------------

// How far the documents are printed: all before `document`, and that one's first n_bytes. `begun`
// says whether its header is printed.
typedef struct printed {
    size_t document, n_bytes;
    bool begun;
} printed;

// The bytes of `text` that are printed before more of it is known: all but a last character that
// may lack bytes. A byte that no following one can make valid is passed over.
static size_t count_settled(const char *text, size_t n)
{
    enum { LONGEST_CHARACTER = 4 };
    size_t settled = bd_utf8_valid_prefix(text, n);
    while (n - settled >= LONGEST_CHARACTER) {
        settled++;
        settled += bd_utf8_valid_prefix(text + settled, n - settled);
    }
    return settled;
}

// Prints what is certain of a document's text and not yet printed.
static void print_text(const bd_continuation *document, printed *at)
{
    const char *text = document->text + at->n_bytes;
    const size_t n_new = document->n_certain - at->n_bytes;
    const size_t n = document->ending != BD_ENDING_NONE ? n_new : count_settled(text, n_new);
    bd_print_safely(stdout, text, n, true);
    at->n_bytes += n;
}

static bd_status print_json(const generation *g, size_t i, bd_error *err)
{
    const bd_continuation *document = &g->generator.documents[i];
    char *text = bd_continuation_text(document);
    if (!text)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for a text");
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.0");
    bd_json_set_string(json, "prompt", g->prompts[i]);
    bd_json_set_string(json, "text", text);
    bd_json_set_integer(json, "prompt_tokens", document->n_prompt);
    bd_json_set_integer(json, "tokens", document->n_drawn);
    bd_json_set_string(json, "ended_by", bd_ending_names[document->ending]);
    free(text);
    return bd_json_put(json, BD_JSON_COMPACT, stdout, err);
}

// Prints documents in their order: of the first that has not ended what there is, as JSON nothing.
static bd_status print_documents(const generation *g, bool json, printed *at, bd_error *err)
{
    while (at->document < g->n_prompts) {
        const bd_continuation *document = &g->generator.documents[at->document];
        const bool ended = document->ending != BD_ENDING_NONE;
        if (json && ended)
            BD_TRY(print_json(g, at->document, err));
        if (!json && g->n_prompts > 1 && !at->begun)
            printf("%s==> %zu of %zu <==\n", at->document > 0 ? "\n" : "", at->document + 1,
                   g->n_prompts);
        // Of a chat the answer alone is printed.
        if (g->chat && !at->begun)
            at->n_bytes = document->n_prompt_text;
        at->begun = true;
        if (!json)
            print_text(document, at);
        if (!json && ended)
            putchar('\n');
        if (!ended)
            break;
        *at = (printed){.document = at->document + 1};
    }
    fflush(stdout);
    return BD_OK;
}

static bd_status generate(generation *g, bool json, bd_error *err)
{
    printed at = {0};
    bool ended = false;
    while (!ended) {
        BD_TRY(bd_generator_step(&g->generator, &ended, err));
        BD_TRY(print_documents(g, json, &at, err));
    }
    return BD_OK;
}

static int generate_run(const bd_arguments *arguments)
{
    const generate_settings *settings = arguments->settings;
    bd_error err;
    generation g = {0};
    bd_status status = open_generation(&g, arguments, &err);
    if (status == BD_OK)
        status = generate(&g, settings->json, &err);
    close_generation(&g);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_generate_command = {
    .name = "generate",
    .summary = "Generate text with a trained model",
    .description =
        "Continues each prompt until the document ends, --tokens tokens are written, the text "
        "contains one of --stop, or the model has no more positions.\n"
        "\n"
        "With --chat a prompt is what a user says, rendered as pack renders chats, and the "
        "answer alone is printed. It ends where the format ends an assistant's turn, too. Take "
        "the format that the model was trained with. Special tokens come from it alone: what a "
        "prompt spells is text.\n"
        "\n"
        "Prompts are continued side by side, up to 64 at a time and fewer if memory is short. "
        "What is written for one depends on its number and on --seed, not on the others.\n",
    .operands = "RUN",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = generate_options,
    .n_options = sizeof generate_options / sizeof generate_options[0],
    .settings_size = sizeof(generate_settings),
    .run = generate_run,
};
