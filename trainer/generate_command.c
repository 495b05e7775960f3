// `bindery generate`: text from a trained model.
#include <stdio.h>

#include "common/base/threads.h"
#include "common/base/utf8.h"
#include "common/cli/program.h"
#include "common/cli/terminal.h"
#include "trainer/commands.h"
#include "trainer/generator.h"
#include "trainer/model/backend_choice.h"
#include "trainer/model/model.h"
#include "trainer/weights/run.h"

typedef struct generate_settings {
    const char *prompt;
    int64_t n_tokens;
    double temperature;
    int64_t top_k;
    int64_t seed;
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
     BD_TEXT(generate_settings, prompt),
     .initial = "The",
     .help = "Text to continue"},
    {.name = "tokens",
     .value = "N",
     BD_INTEGER(generate_settings, n_tokens, 1, 1 << 20),
     .initial = "200",
     .help = "Stop after N tokens, or when the document ends"},
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
    {.name = "seed",
     .value = "N",
     BD_INTEGER(generate_settings, seed, 0, INT64_MAX),
     .initial = "1",
     .help = "Seed of the draws"},
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
    bd_run run;
    bd_backend *backend;
    bd_model model;
    bd_run_tokenizer tokenizer;
    bd_generator generator;
} generation;

static bd_status open_generation(generation *g, const bd_arguments *arguments, bd_error *err)
{
    const generate_settings *settings = arguments->settings;
    const char *folder = arguments->operands[0];
    const int n_threads = bd_threads_count(settings->n_threads);
    bd_type type;
    bd_error why;
    BD_TRY(bd_run_open(&g->run, folder, settings->weights, err));
    BD_TRY(bd_run_open_tokenizer(&g->run, folder, &g->tokenizer, err));
    BD_TRY(bd_backend_open_choice(&g->backend, settings->backend, settings->backend_module,
                                  settings->isa, 0, n_threads, err));
    BD_TRY(bd_run_settle_type(&g->run, settings->precision, g->backend, &type, &why, err));
    if (why.message[0] && !arguments->quiet)
        bd_command_note(arguments, "computes in float: %s", why.message);
    const bd_model_options options = {
        .type = type, .max_rows = 1, .seq_len = g->run.parameters.config.n_positions};
    BD_TRY(bd_model_init(&g->model, g->backend, &g->run.parameters, &options, err));
    BD_TRY(bd_model_set_weights(&g->model, g->run.weights, err));
    bd_run_forget_weights(&g->run);
    BD_TRY(bd_generator_init(&g->generator, &g->model, &g->tokenizer, err));
    const bd_status status = bd_generator_begin(&g->generator, settings->prompt, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "--prompt");
}

static void close_generation(generation *g)
{
    bd_generator_release(&g->generator);
    bd_run_tokenizer_close(&g->tokenizer);
    bd_model_release(&g->model);
    if (g->backend)
        g->backend->operations->close(g->backend);
    bd_run_release(&g->run);
}

// Prints the text up to its last whole character, which may still lack up to 3 bytes.
static void print_text(bd_generator *generator, bool finished)
{
    enum { LONGEST_CHARACTER = 4 };
    size_t n = bd_utf8_valid_prefix(generator->text, generator->n_text);
    if (finished || generator->n_text - n >= LONGEST_CHARACTER)
        n = generator->n_text;
    bd_print_safely(stdout, generator->text, n, true);
    fflush(stdout);
    bd_generator_take(generator, n);
}

static bd_status generate(generation *g, const generate_settings *settings, bd_error *err)
{
    const bd_drawing drawing = {settings->temperature, settings->top_k};
    bd_random random = {bd_random_mix((uint64_t)settings->seed)};
    bool ended = false;
    for (int64_t i = 0; i < settings->n_tokens && !ended; i++) {
        BD_TRY(bd_generator_next(&g->generator, drawing, &random, &ended, err));
        print_text(&g->generator, false);
    }
    print_text(&g->generator, true);
    putchar('\n');
    return BD_OK;
}

static int generate_run(const bd_arguments *arguments)
{
    const generate_settings *settings = arguments->settings;
    bd_error err;
    generation g = {0};
    bd_status status = open_generation(&g, arguments, &err);
    if (status == BD_OK)
        status = generate(&g, settings, &err);
    close_generation(&g);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_generate_command = {
    .name = "generate",
    .summary = "Generate text with a trained model",
    .description =
        "Continues the prompt until the document ends, --tokens tokens are written, or the "
        "model has no more positions.\n",
    .operands = "RUN",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = generate_options,
    .n_options = sizeof generate_options / sizeof generate_options[0],
    .settings_size = sizeof(generate_settings),
    .run = generate_run,
};
