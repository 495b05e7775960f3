// bench_generate - speed of generation, beside the time that reading the weights takes.
//
//   bench_generate [OPTIONS] [THREADS]    --help tells the options
//
// The prompts are read first. Then each step adds one token to each, and after each step the same
// threads read all weights that a step reads, adding them up: no program that multiplies by every
// weight once can be quicker than that, where the weights do not fit into a cache. The medians of
// both times are printed, and their quotient, 1 at best.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/measure.h"
#include "common/base/random.h"
#include "common/base/threads.h"
#include "common/cli/program.h"
#include "trainer/model/decoder.h"

typedef struct generate_settings {
    int preset;
    int64_t n_vocabulary, n_documents, n_past, n_steps;
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_type precision;
    bool json;
} generate_settings;

static const bd_option generate_options[] = {
    {.name = "preset",
     .value = "NAME",
     BD_CHOICE(generate_settings, preset, bd_model_presets),
     .initial = "smollm2-135m",
     .help = "Shape of the model, as bindery train has it"},
    {.name = "vocabulary",
     .value = "N",
     BD_INTEGER(generate_settings, n_vocabulary, 2, 1 << 20),
     .initial = "49152",
     .help = "Ids of the model"},
    {.name = "documents",
     .value = "N",
     BD_INTEGER(generate_settings, n_documents, 1, 1 << 12),
     .initial = "1",
     .help = "Prompts that are continued side by side"},
    {.name = "past",
     .value = "N",
     BD_INTEGER(generate_settings, n_past, 1, 1 << 20),
     .initial = "256",
     .help = "Tokens of a prompt"},
    {.name = "steps",
     .value = "N",
     BD_INTEGER(generate_settings, n_steps, 1, 1 << 20),
     .initial = "30",
     .help = "Tokens of each prompt to measure"},
    BD_BACKEND_OPTIONS(generate_settings),
    {.name = "json", BD_FLAG(generate_settings, json), .help = "Print one JSON object"},
};

// ---- Reading the weights ------------------------------------------------------------------

enum { NUMBERS_PER_TASK = 1 << 18, SUMS = 64 };  // more sums than a processor adds at a time

typedef struct reading {
    const float *numbers;
    int64_t n;
    float *sums;  // one for each task, so that nothing is left out
} reading;

static bd_status read_part(void *context, int64_t index, bd_error *err)
{
    (void)err;
    const reading *r = context;
    const int64_t left = r->n - index * NUMBERS_PER_TASK;
    const int64_t n = left < NUMBERS_PER_TASK ? left / SUMS * SUMS : NUMBERS_PER_TASK;
    const float *numbers = r->numbers + index * NUMBERS_PER_TASK;
    float sums[SUMS] = {0};
    for (int64_t i = 0; i < n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            sums[k] += numbers[i + k];
    r->sums[index] = 0.0f;
    for (int k = 0; k < SUMS; k++)
        r->sums[index] += sums[k];
    return BD_OK;
}

// ---- Steps --------------------------------------------------------------------------------

typedef struct measured {
    bench_time prefill, step, read;
    int64_t n_read;  // weights that a step reads
} measured;

static measured measure(bd_decoder *decoder, const generate_settings *s, int n_threads)
{
    bd_error err;
    const bd_parameters *p = decoder->parameters;
    const int64_t n = s->n_documents, n_vocabulary = p->config.n_vocabulary;
    measured m = {.n_read = p->n_total -
                            (p->config.has_head ? n_vocabulary * p->config.n_channels : 0)};
    uint32_t *ids = bench_allocate((size_t)s->n_past * sizeof *ids);
    float *logits = bench_allocate((size_t)(n * n_vocabulary) * sizeof *logits);
    bd_new_tokens *tokens = bench_allocate((size_t)n * sizeof *tokens);
    bench_time *steps = bench_allocate((size_t)s->n_steps * sizeof *steps);
    bench_time *reads = bench_allocate((size_t)s->n_steps * sizeof *reads);
    reading r = {decoder->weights, m.n_read, NULL};
    const int64_t n_tasks = (m.n_read + NUMBERS_PER_TASK - 1) / NUMBERS_PER_TASK;
    r.sums = bench_allocate((size_t)n_tasks * sizeof *r.sums);
    bd_threads *threads;
    bench_check(bd_threads_new(&threads, n_threads, &err), &err);
    bd_random random = {1};
    for (int64_t i = 0; i < s->n_past; i++)
        ids[i] = bd_random_bounded(&random, (uint32_t)n_vocabulary);
    for (int64_t d = 0; d < n; d++)
        tokens[d] = (bd_new_tokens){d, ids, s->n_past, logits + d * n_vocabulary};
    bench_time begun = bench_now();
    bench_check(bd_decoder_add(decoder, tokens, n, &err), &err);
    m.prefill = bench_since(begun);
    for (int64_t d = 0; d < n; d++)
        tokens[d].n = 1;
    for (int64_t step = 0; step < s->n_steps; step++) {
        begun = bench_now();
        bench_check(bd_decoder_add(decoder, tokens, n, &err), &err);
        steps[step] = bench_since(begun);
        reads[step] = (bench_time){0};
        if (!decoder->backend->operations->works_on_host)
            continue;
        begun = bench_now();
        bench_check(bd_threads_run(threads, read_part, &r, n_tasks, &err), &err);
        reads[step] = bench_since(begun);
    }
    m.step = bench_median(steps, (size_t)s->n_steps);
    m.read = bench_median(reads, (size_t)s->n_steps);
    bd_threads_free(threads);
    free(r.sums);
    free(ids);
    free(logits);
    free(tokens);
    free(steps);
    free(reads);
    return m;
}

// ---- Results ------------------------------------------------------------------------------

static void print_text(const measured *m, const generate_settings *s)
{
    const double n = (double)s->n_documents;
    printf("prompts: %.0f tokens/s\n", n * (double)s->n_past / m->prefill.wall);
    printf("generation: %.1f tokens/s, a step %.2f ms\n", n / m->step.wall, 1e3 * m->step.wall);
    if (m->read.wall > 0)
        printf("reading %.0f MB of weights: %.2f ms, %.1f GB/s; a step takes %.2f times that\n",
               4e-6 * (double)m->n_read, 1e3 * m->read.wall,
               4e-9 * (double)m->n_read / m->read.wall, m->step.wall / m->read.wall);
}

static void print_json(const measured *m, const generate_settings *s)
{
    const double n = (double)s->n_documents;
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "preset", bd_model_presets[s->preset]);
    bd_json_set_integer(json, "documents", s->n_documents);
    bd_json_set_integer(json, "past", s->n_past);
    bd_json_set_real(json, "prompt_tokens_per_second", n * (double)s->n_past / m->prefill.wall);
    bd_json_set_real(json, "tokens_per_second", n / m->step.wall);
    bd_json_set_real(json, "step_seconds", m->step.wall);
    bd_json_set_real(json, "read_seconds", m->read.wall);
    bd_json_set_integer(json, "weights_read", m->n_read);
    bench_print_json(json);
}

static int run(const bd_arguments *arguments)
{
    const generate_settings *s = arguments->settings;
    const int n_threads = bench_threads(arguments, bd_threads_count(0));
    bd_error err;
    bd_model_config config;
    bd_parameters parameters;
    bd_decoder decoder;
    bench_check(bd_model_config_preset(&config, bd_model_presets[s->preset], &err), &err);
    config.n_vocabulary = s->n_vocabulary;
    config.n_positions = s->n_past + s->n_steps;
    bench_check(bd_parameters_init(&parameters, &config, &err), &err);
    bd_backend *backend =
        bench_open(s->backend, s->backend_module, s->isa, n_threads, s->precision);
    const bd_decoder_options options = {.type = s->precision,
                                        .n_documents = s->n_documents,
                                        .max_tokens = s->n_past + s->n_steps};
    bench_check(bd_decoder_init(&decoder, backend, &parameters, &options, &err), &err);
    float *weights = bench_allocate((size_t)parameters.n_total * sizeof *weights);
    bd_parameters_draw(&parameters, 1, weights);
    bench_check(bd_decoder_set_weights(&decoder, weights, &err), &err);
    free(weights);
    const measured m = measure(&decoder, s, n_threads);
    if (s->json)
        print_json(&m, s);
    else
        print_text(&m, s);
    bd_decoder_release(&decoder);
    backend->operations->close(backend);
    bd_parameters_release(&parameters);
    return BD_EXIT_DONE;
}

static const bd_command command = {
    .name = "bench_generate",
    .summary = "Measure the speed of generation beside that of reading the weights",
    .operands = "[THREADS]",
    .options = generate_options,
    .n_options = sizeof generate_options / sizeof generate_options[0],
    .settings_size = sizeof(generate_settings),
    .run = run,
};

int main(int argc, char **argv)
{
    return bench_main(&command, argc, argv);
}
