// `bindery generate`: text from a trained model.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/array.h"
#include "common/program.h"
#include "common/terminal.h"
#include "common/threads.h"
#include "common/utf8.h"
#include "trainer/backend_choice.h"
#include "trainer/commands.h"
#include "trainer/model.h"
#include "trainer/run.h"
#include "trainer/sampling.h"

typedef struct generate_settings {
    const char *prompt;
    int64_t n_tokens;
    double temperature;
    int64_t top_k;
    int64_t seed;
    bd_backend_choice backend;
    const char *backend_module;
    bd_type precision;
    int64_t n_threads;
} generate_settings;

static const bd_option generate_options[] = {
    {.name = "prompt",
     .value = "TEXT",
     BD_TEXT(generate_settings, prompt),
     .initial = "The ",
     .help = "Text to go on from"},
    {.name = "tokens",
     .value = "N",
     BD_INTEGER(generate_settings, n_tokens, 1, 1 << 20),
     .initial = "200",
     .help = "Stop after N tokens, or when the document ends"},
    {.name = "temperature",
     .value = "X",
     BD_REAL(generate_settings, temperature, 0, 100),
     .initial = "0.8",
     .help = "Below 1 likelier tokens are preferred; 0 always takes the likeliest"},
    {.name = "top-k",
     .value = "N",
     BD_INTEGER(generate_settings, top_k, 0, INT64_C(1) << 32),
     .initial = "40",
     .help = "Draw from the N likeliest tokens; 0 from all"},
    {.name = "seed",
     .value = "N",
     BD_INTEGER(generate_settings, seed, 0, INT64_MAX),
     .initial = "1",
     .help = "Seed of the draws"},
    BD_BACKEND_OPTIONS(generate_settings),
    BD_THREADS_OPTION(generate_settings, n_threads,
                      "Threads of the kernels; the result does not depend on it"),
};

// A document that grows token by token.
typedef struct generation {
    bd_run run;
    bd_backend *backend;
    bd_model model;
    bd_run_tokenizer text_of;
    uint32_t *ids;  // [n_positions], owned
    int64_t n;      // tokens so far
    float *logits;  // [n_positions][n_vocabulary], owned
    double *scratch;
    char *text;  // not printed yet, owned
    size_t n_text, text_capacity;
} generation;

static bd_status encode_prompt(const generation *g, const char *prompt, size_t n_bytes,
                               uint32_t *ids, int64_t *n, bd_error *err)
{
    bd_encoder encoder;
    size_t n_ids = 0;
    BD_TRY(bd_encoder_init(&encoder, g->text_of.tokenizer, err));
    const bd_status status = bd_encode(&encoder, prompt, n_bytes, ids, &n_ids, err);
    bd_encoder_release(&encoder);
    *n = (int64_t)n_ids;
    return status;
}

static bd_status take_prompt(generation *g, const char *prompt, bd_error *err)
{
    const int64_t n_positions = g->run.parameters.config.n_positions;
    const size_t n_bytes = strlen(prompt);
    uint32_t *ids = malloc(
        g->text_of.tokenizer->kind->max_ids(g->text_of.tokenizer, n_bytes) * sizeof *ids + 1);
    if (!ids)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the prompt");
    int64_t n;
    bd_status status = encode_prompt(g, prompt, n_bytes, ids, &n, err);
    const int64_t n_bos = g->text_of.bos != BD_NO_BOS;
    if (status == BD_OK && (n + n_bos == 0 || n + n_bos >= n_positions))
        status = bd_fail(err, BD_ERR_ARGUMENT,
                         "--prompt: %" PRId64 " tokens; from %" PRId64 " to %" PRId64
                         " can be gone on from",
                         n, 1 - n_bos, n_positions - 1 - n_bos);
    if (status == BD_OK) {
        if (n_bos)
            g->ids[0] = (uint32_t)g->text_of.bos;
        memcpy(g->ids + n_bos, ids, (size_t)n * sizeof *ids);
        g->n = n + n_bos;
    }
    free(ids);
    return status;
}

static bd_status open_generation(generation *g, const char *folder,
                                 const generate_settings *settings, bd_error *err)
{
    const int n_threads = bd_threads_count(settings->n_threads);
    BD_TRY(bd_run_open(&g->run, folder, false, err));
    const bd_model_config *c = &g->run.parameters.config;
    BD_TRY(bd_run_open_tokenizer(&g->run, folder, &g->text_of, err));
    BD_TRY(bd_backend_open_choice(&g->backend, settings->backend, settings->backend_module,
                                  n_threads, err));
    BD_TRY(bd_model_init(&g->model, g->backend, &g->run.parameters, settings->precision, 1,
                         c->n_positions, err));
    BD_TRY(bd_model_set_weights(&g->model, g->run.weights, err));
    g->ids = calloc((size_t)c->n_positions, sizeof *g->ids);
    g->logits = malloc((size_t)(c->n_positions * c->n_vocabulary) * sizeof *g->logits);
    g->scratch = malloc((size_t)c->n_vocabulary * sizeof *g->scratch);
    if (!g->ids || !g->logits || !g->scratch)
        return bd_fail(err, BD_ERR_MEMORY, "no memory to generate");
    return take_prompt(g, settings->prompt, err);
}

static void close_generation(generation *g)
{
    free(g->ids);
    free(g->logits);
    free(g->scratch);
    free(g->text);
    bd_run_tokenizer_close(&g->text_of);
    bd_model_release(&g->model);
    if (g->backend)
        g->backend->operations->close(g->backend);
    bd_run_release(&g->run);
}

// The token after the n so far: one row with one document, all of it computed again.
static bd_status next_token(generation *g, const generate_settings *settings, bd_random *random,
                            uint32_t *id, bd_error *err)
{
    const int64_t n_vocabulary = g->run.parameters.config.n_vocabulary;
    const int32_t offsets[] = {0, 2}, values[] = {0, (int32_t)g->n};
    const bd_boundaries boundaries = {1, g->n, offsets, values};
    const bd_model_batch batch = {g->ids, sizeof *g->ids, boundaries, boundaries, boundaries};
    BD_TRY(bd_model_forward(&g->model, &batch, err));
    BD_TRY(bd_model_row_logits(&g->model, &batch, 0, g->logits, err));
    *id = bd_sample(random, g->logits + (g->n - 1) * n_vocabulary, n_vocabulary,
                    settings->temperature, settings->top_k, g->scratch);
    return BD_OK;
}

// Adds a token's bytes to the text that is still to be printed.
static bd_status add_text(generation *g, uint32_t id, bd_error *err)
{
    size_t size_bytes;
    const char *bytes =
        g->text_of.tokenizer->kind->token_bytes(g->text_of.tokenizer, id, &size_bytes);
    BD_TRY(
        bd_array_reserve((void **)&g->text, &g->text_capacity, g->n_text + size_bytes, 1, err));
    if (size_bytes > 0)
        memcpy(g->text + g->n_text, bytes, size_bytes);
    g->n_text += size_bytes;
    return BD_OK;
}

// Prints whole characters; the last one may still lack bytes, up to 3 of them.
static void print_text(generation *g, bool finished)
{
    enum { LONGEST_CHARACTER = 4 };
    size_t n = bd_utf8_valid_prefix(g->text, g->n_text);
    if (finished || g->n_text - n >= LONGEST_CHARACTER)
        n = g->n_text;
    bd_print_safely(stdout, g->text, n, true);
    fflush(stdout);
    memmove(g->text, g->text + n, g->n_text - n);
    g->n_text -= n;
}

static bd_status generate(generation *g, const generate_settings *settings, bd_error *err)
{
    bd_random random = {bd_random_mix((uint64_t)settings->seed)};
    for (int64_t i = g->text_of.bos != BD_NO_BOS; i < g->n; i++)
        BD_TRY(add_text(g, g->ids[i], err));
    const int64_t n_positions = g->run.parameters.config.n_positions;
    for (int64_t i = 0; i < settings->n_tokens && g->n < n_positions; i++) {
        uint32_t id;
        BD_TRY(next_token(g, settings, &random, &id, err));
        if (id == g->text_of.separator)
            break;
        BD_TRY(add_text(g, id, err));
        print_text(g, false);
        g->ids[g->n++] = id;
    }
    print_text(g, true);
    putchar('\n');
    return BD_OK;
}

static int generate_run(const bd_arguments *arguments)
{
    const generate_settings *settings = arguments->settings;
    bd_error err;
    generation g = {0};
    bd_status status = open_generation(&g, arguments->operands[0], settings, &err);
    if (status == BD_OK)
        status = generate(&g, settings, &err);
    close_generation(&g);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_generate_command = {
    .name = "generate",
    .summary = "Write text with a trained model",
    .description =
        "Goes on from the prompt until the document ends, --tokens were written, or the "
        "model has no more positions.\n",
    .operands = "RUN",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = generate_options,
    .n_options = sizeof generate_options / sizeof generate_options[0],
    .settings_size = sizeof(generate_settings),
    .run = generate_run,
};
