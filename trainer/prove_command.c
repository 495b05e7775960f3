// `bindery prove`: the experiment as a table and a verdict.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/json.h"
#include "common/program.h"
#include "common/threads.h"
#include "trainer/backend_choice.h"
#include "trainer/commands.h"
#include "trainer/prove.h"
#include "trainer/run.h"

typedef struct prove_settings {
    int64_t n_documents;
    bd_model_family family;
    const char *run;
    bd_sabotage sabotage;
    bool probe;
    int64_t seed;
    bd_backend_choice backend;
    const char *backend_module;
    bd_type precision;
    int64_t n_threads;
    bool json;
} prove_settings;

static const bd_option prove_options[] = {
    {.name = "documents",
     .value = "N",
     BD_INTEGER(prove_settings, n_documents, 1, 1 << 20),
     .initial = "20",
     .help = "Take whole rows until they have N documents or pieces"},
    {.name = "model",
     .value = "FAMILY",
     BD_CHOICE(prove_settings, family, bd_model_family_words),
     .initial = "opt",
     .help = "Family of a small model with random weights; not with --run"},
    {.name = "run",
     .value = "DIR",
     BD_DIRECTORY(prove_settings, run),
     .initial_note = "random weights",
     .help = "Use the trained model of this run instead"},
    {.name = "sabotage",
     .value = "WHAT",
     BD_CHOICE(prove_settings, sabotage, bd_sabotage_words),
     .initial = "none",
     .help = "Break one operation's boundaries on purpose; it must be noticed"},
    {.name = "probe",
     BD_FLAG(prove_settings, probe),
     .help = "Change one document and look for any changed bit in the others"},
    {.name = "seed",
     .value = "N",
     BD_INTEGER(prove_settings, seed, 0, INT64_MAX),
     .initial = "1",
     .help = "Seed of the random weights; not with --run"},
    BD_BACKEND_OPTIONS(prove_settings),
    BD_THREADS_OPTION(prove_settings, n_threads, "Threads of the kernels"),
    {.name = "json",
     BD_FLAG(prove_settings, json),
     .help = "Print the result as JSON (schemas/proof-v1.schema.json)"},
};

// ---- The model --------------------------------------------------------------------------

typedef struct subject {
    bd_run run;                // owned, if a run was given
    bd_parameters parameters;  // owned otherwise
    float *drawn;              // owned otherwise
    const bd_parameters *of;   // whichever it is
    const float *weights;      // likewise
} subject;

static bd_status draw_subject(subject *s, const prove_settings *settings, int64_t n_vocabulary,
                              int64_t seq_len, bd_error *err)
{
    bd_model_config config;
    BD_TRY(bd_model_config_preset(&config, "tiny", err));
    config.family = settings->family;
    config.n_vocabulary = n_vocabulary;
    if (config.n_positions < seq_len)
        config.n_positions = seq_len;
    if (settings->precision == BD_BF16)
        config.n_heads = config.n_channels / 64;  // attention in bf16 takes no smaller ones
    BD_TRY(bd_model_config_check(&config, err));
    BD_TRY(bd_parameters_init(&s->parameters, &config, err));
    s->drawn = malloc((size_t)s->parameters.n_total * sizeof *s->drawn);
    if (!s->drawn)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the weights");
    bd_parameters_draw(&s->parameters, (uint64_t)settings->seed, s->drawn);
    s->of = &s->parameters;
    s->weights = s->drawn;
    return BD_OK;
}

static bd_status open_subject(subject *s, const prove_settings *settings, const bd_rows *rows,
                              bd_error *err)
{
    const bd_packing *packing = &rows->manifests[0].packing;
    if (!settings->run)
        return draw_subject(s, settings, packing->vocab_size, packing->seq_len, err);
    BD_TRY(bd_run_open(&s->run, settings->run, err));
    s->of = &s->run.parameters;
    s->weights = s->run.weights;
    return BD_OK;
}

static void close_subject(subject *s)
{
    bd_run_release(&s->run);
    bd_parameters_release(&s->parameters);
    free(s->drawn);
}

// ---- The proof --------------------------------------------------------------------------

static const char *verdict_of(const bd_proof_line *line)
{
    if (!line->agrees)
        return "DIFFERS";
    return line->zero_by_mathematics ? "agrees (zero by mathematics)" : "agrees";
}

static void print_proof(const bd_proof *proof, bd_sabotage sabotage)
{
    printf("%" PRId64 " segments packed into %" PRId64
           " rows, against the same segments one per "
           "sequence\n%" PRId64 " targets, loss %.9f packed, %.9f alone\n\n",
           proof->n_segments, proof->n_rows, proof->n_targets, proof->loss_packed,
           proof->loss_alone);
    printf("%-52s %10s %10s %10s\n", "parameter", "gradient", "difference", "relative");
    for (size_t i = 0; i < proof->n_lines; i++) {
        const bd_proof_line *line = &proof->lines[i];
        const double relative = line->largest_difference == 0
                                    ? 0.0
                                    : line->largest_difference / line->largest_gradient;
        printf("%-52s %10.3e %10.3e %10.1e  %s\n", line->parameter->name,
               line->largest_gradient, line->largest_difference, relative, verdict_of(line));
    }
    if (proof->n_kinks > 0)
        printf("\n%" PRId64
               " ReLU input%s so close to 0 that float and double put %s on different "
               "sides\n",
               proof->n_kinks, proof->n_kinks == 1 ? " is" : "s are",
               proof->n_kinks == 1 ? "it" : "them");
    if (proof->n_disagree == 0)
        printf("\nProved: the gradients of all %zu parameters agree\n", proof->n_lines);
    else
        printf("\nNot so: %zu of %zu parameters differ%s\n", proof->n_disagree, proof->n_lines,
               sabotage != BD_SABOTAGE_NONE ? ", as they must: the sabotage was noticed" : "");
}

static bd_json *proof_to_json(const bd_proof *proof, const prove_settings *settings)
{
    bd_json *lines = bd_json_array();
    for (size_t i = 0; i < proof->n_lines; i++) {
        const bd_proof_line *line = &proof->lines[i];
        bd_json *json = bd_json_object();
        bd_json_set_string(json, "name", line->parameter->name);
        bd_json_set_figure(json, "largest_gradient", line->largest_gradient);
        bd_json_set_figure(json, "largest_difference", line->largest_difference);
        bd_json_set_figure(json, "bound", line->bound);
        bd_json_set_bool(json, "agrees", line->agrees);
        bd_json_set_bool(json, "zero_by_mathematics", line->zero_by_mathematics);
        bd_json_append(lines, json);
    }
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.1");
    bd_json_set_bool(json, "proved", proof->n_disagree == 0);
    bd_json_set_string(json, "precision", bd_precision_words[settings->precision]);
    bd_json_set_string(json, "sabotage", bd_sabotage_words[settings->sabotage]);
    bd_json_set_integer(json, "rows", proof->n_rows);
    bd_json_set_integer(json, "segments", proof->n_segments);
    bd_json_set_integer(json, "targets", proof->n_targets);
    bd_json_set_figure(json, "loss_packed", proof->loss_packed);
    bd_json_set_figure(json, "loss_alone", proof->loss_alone);
    bd_json_set_integer(json, "kinks", proof->n_kinks);
    bd_json_set(json, "parameters", lines);
    return json;
}

// ---- The probe --------------------------------------------------------------------------

static bool probe_is_good(const bd_probe *probe)
{
    return probe->leaked_tokens == 0 && probe->changed_tokens > 0;
}

static void print_probe(const bd_probe *probe)
{
    printf("%" PRId64 " segments in %" PRId64 " rows; one of %" PRId64
           " tokens was changed, and %" PRId64 " of its tokens with it\n",
           probe->n_segments, probe->n_rows, probe->probed_tokens, probe->changed_tokens);
    if (probe_is_good(probe))
        printf("Nothing leaks: logits and gradients of the other %" PRId64
               " tokens are the same in every bit\n",
               probe->other_tokens);
    else
        printf("Not so: %" PRId64 " of the other %" PRId64 " tokens changed\n",
               probe->leaked_tokens, probe->other_tokens);
}

static bd_json *probe_to_json(const bd_probe *probe, const prove_settings *settings)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.1");
    bd_json_set_bool(json, "proved", probe_is_good(probe));
    bd_json_set_string(json, "precision", bd_precision_words[settings->precision]);
    bd_json_set_integer(json, "rows", probe->n_rows);
    bd_json_set_integer(json, "segments", probe->n_segments);
    bd_json_set_integer(json, "probed_tokens", probe->probed_tokens);
    bd_json_set_integer(json, "changed_tokens", probe->changed_tokens);
    bd_json_set_integer(json, "other_tokens", probe->other_tokens);
    bd_json_set_integer(json, "leaked_tokens", probe->leaked_tokens);
    return json;
}

static bd_experiment experiment_of(const prove_settings *settings, const bd_rows *rows,
                                   const subject *s, bd_backend *backend)
{
    return (bd_experiment){
        .rows = rows,
        .parameters = s->of,
        .weights = s->weights,
        .backend = backend,
        .type = settings->precision,
        .n_documents = settings->n_documents,
    };
}

// ---- The command ------------------------------------------------------------------------

static bd_status run_probe(const prove_settings *settings, const bd_experiment *experiment,
                           bool *good, bd_error *err)
{
    bd_probe probe;
    BD_TRY(bd_probe_run(&probe, experiment, err));
    *good = probe_is_good(&probe);
    if (settings->json)
        return bd_json_put(probe_to_json(&probe, settings), BD_JSON_INDENTED, stdout, err);
    print_probe(&probe);
    return BD_OK;
}

static bd_status run_proof(const prove_settings *settings, const bd_experiment *experiment,
                           bool *good, bd_error *err)
{
    bd_proof proof;
    BD_TRY(bd_prove(&proof, experiment, settings->sabotage, err));
    *good = proof.n_disagree == 0;
    bd_status status = BD_OK;
    if (settings->json)
        status = bd_json_put(proof_to_json(&proof, settings), BD_JSON_INDENTED, stdout, err);
    else
        print_proof(&proof, settings->sabotage);
    bd_proof_release(&proof);
    return status;
}

static int prove_run(const bd_arguments *arguments)
{
    const prove_settings *settings = arguments->settings;
    const int n_threads = bd_threads_count(settings->n_threads);
    bd_error err;
    bd_rows rows = {0};
    subject s = {0};
    bd_backend *backend = NULL;
    bool good = false;
    if (settings->probe && settings->sabotage != BD_SABOTAGE_NONE) {
        bd_fail(&err, BD_ERR_ARGUMENT, "--probe and --sabotage are two experiments");
        return bd_command_misuse(arguments, &err);
    }
    bd_status status = bd_rows_open(&rows, arguments->operands[0], &err);
    if (status == BD_OK)
        status = open_subject(&s, settings, &rows, &err);
    if (status == BD_OK)
        status = bd_backend_open_choice(&backend, settings->backend, settings->backend_module,
                                        0, n_threads, &err);
    if (status == BD_OK) {
        const bd_experiment experiment = experiment_of(settings, &rows, &s, backend);
        status = settings->probe ? run_probe(settings, &experiment, &good, &err)
                                 : run_proof(settings, &experiment, &good, &err);
    }
    if (backend)
        backend->operations->close(backend);
    close_subject(&s);
    bd_rows_close(&rows);
    if (status != BD_OK)
        return bd_command_fail(arguments, &err);
    return good ? BD_EXIT_DONE : BD_EXIT_NO;
}

const bd_command bd_prove_command = {
    .name = "prove",
    .summary = "Show on a dataset that packing changes no gradient",
    .description =
        "Takes whole rows of the dataset and computes the gradient of every parameter twice: "
        "packed, through the loader and the kernels that training uses, and with every "
        "document "
        "in a sequence of its own, through a plain double-precision reference that knows no "
        "boundaries. A parameter agrees when its largest difference is at most 1e-5 of its own "
        "largest gradient plus 1e-7 of the largest gradient of all; with --precision bf16, "
        "2^-5 "
        "and 1e-5, and the weights are the rounded ones on both sides.\n"
        "\n"
        "--sabotage gives the boundaries {0, used} to attention (mask), to the embedding "
        "(positions) or to the loss (targets): that is what systems without boundaries do, and "
        "the proof must then fail. --probe changes one document and compares logits and "
        "gradients "
        "of all other tokens bit for bit.\n"
        "\n"
        "Exit status: 0 proved, 1 not so, 2 it could not be done.\n",
    .operands = "DATASET",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = prove_options,
    .n_options = sizeof prove_options / sizeof prove_options[0],
    .settings_size = sizeof(prove_settings),
    .run = prove_run,
};
