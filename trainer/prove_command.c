// `bindery prove`: the experiment as a table and a verdict.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/json.h"
#include "common/base/threads.h"
#include "common/cli/program.h"
#include "trainer/commands.h"
#include "trainer/model/backend_choice.h"
#include "trainer/proof/prove.h"
#include "trainer/weights/run.h"

typedef struct prove_settings {
    int64_t n_documents;
    int family;  // of bd_families
    const char *run;
    int64_t step;
    bd_sabotage sabotage;
    bd_loss_kind loss;
    bool probe;
    int64_t seed;
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_type precision;
    int64_t n_threads;
    bool json;
    bool all_parameters;
} prove_settings;

enum { N_WORST = 5 };  // parameters that are shown

static const bd_option prove_options[] = {
    {.name = "documents",
     .value = "N",
     BD_INTEGER(prove_settings, n_documents, 1, 1 << 20),
     .initial = "20",
     .help = "Take whole rows until they have N documents or pieces"},
    {.name = "model",
     .value = "FAMILY",
     BD_CHOICE(prove_settings, family, bd_family_names),
     .initial = "opt",
     .help = "Family of a small model with random weights; not with --run"},
    {.name = "run",
     .value = "DIR",
     BD_DIRECTORY(prove_settings, run),
     .initial_note = "random weights",
     .help = "Use the trained model of this run instead"},
    {.name = "step",
     .value = "N",
     BD_INTEGER(prove_settings, step, 0, INT64_MAX),
     .initial = "-1",
     .initial_note = "the latest",
     .help = "With --run: the checkpoint of this step"},
    {.name = "sabotage",
     .value = "WHAT",
     BD_CHOICE(prove_settings, sabotage, bd_sabotage_names),
     .initial = "none",
     .help = "Break one operation's boundaries, or the loss's mask, on purpose; it must be "
             "noticed"},
    {.name = "loss",
     .value = "KIND",
     BD_CHOICE(prove_settings, loss, bd_loss_kind_names),
     .initial = "per-token",
     .help = "The loss whose gradients are compared, as of train --loss"},
    {.name = "probe",
     BD_FLAG(prove_settings, probe),
     .help = "Only change documents and look for any changed bit in the others"},
    {.name = "all-parameters",
     BD_FLAG(prove_settings, all_parameters),
     .help = "Show every parameter, not only those closest to their bounds"},
    {.name = "seed",
     .value = "N",
     BD_INTEGER(prove_settings, seed, 0, INT64_MAX),
     .initial = "0",
     .help = "Seed of the random weights and of the row to begin with; 0: the first"},
    BD_BACKEND_OPTIONS(prove_settings),
    BD_THREADS_OPTION(prove_settings, n_threads, "Threads of the kernels"),
    {.name = "json",
     BD_FLAG(prove_settings, json),
     .help = "Print the result as JSON (schemas/proof-v2.schema.json)"},
};

// ---- The model --------------------------------------------------------------------------

typedef struct subject {
    bd_run run;                // owned, if a run was given
    bd_parameters parameters;  // owned otherwise
    float *drawn;              // owned otherwise
    const bd_parameters *of;   // borrowed from one of the two
    const float *weights;      // likewise
} subject;

// A small model of the family. What the family can have, it has: heads that share keys, windows
// shorter than most documents, layers that are not rotated.
static bd_status make_small_model(bd_model_config *config, const bd_family *family,
                                  const bd_dataset_config *dataset, bd_error *err)
{
    enum { WINDOW = 24, UNROTATED_INTERVAL = 4 };
    BD_TRY(bd_model_config_preset(config, family->position_table ? "tiny" : "llama-tiny", err));
    config->family = family;
    bd_model_config_set_defaults(config);
    config->n_vocabulary = dataset->vocab_size;
    if (config->n_positions < dataset->seq_len)
        config->n_positions = dataset->seq_len;
    if (family->windows != BD_WINDOWS_NONE)
        config->window = WINDOW;
    for (int64_t l = 0; l < config->n_layers; l++) {
        const bool is_unrotated =
            family->has_unrotated_layers && (l + 1) % UNROTATED_INTERVAL == 0;
        const bool has_window = family->windows == BD_WINDOWS_UNROTATED
                                    ? is_unrotated
                                    : family->windows == BD_WINDOWS_ALL || l % 2 == 0;
        if (is_unrotated)
            bd_layer_set_add(&config->unrotated, l);
        if (config->window > 0 && has_window)
            bd_layer_set_add(&config->windowed, l);
    }
    return bd_model_config_complete(config, err);
}

static bd_status open_proved_model(subject *s, const prove_settings *settings,
                                   const bd_rows *rows, bd_error *err)
{
    if (settings->run) {
        BD_TRY(settings->step >= 0
                   ? bd_run_open_step(&s->run, settings->run, settings->step,
                                      BD_WEIGHTS_TRAINED, err)
                   : bd_run_open(&s->run, settings->run, BD_WEIGHTS_TRAINED, err));
        s->of = &s->run.parameters;
        s->weights = s->run.weights;
        return BD_OK;
    }
    bd_model_config config;
    BD_TRY(make_small_model(&config, bd_families[settings->family], &rows->manifests[0].config,
                            err));
    BD_TRY(bd_parameters_init(&s->parameters, &config, err));
    s->drawn = malloc((size_t)s->parameters.n_total * sizeof *s->drawn);
    if (!s->drawn)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for the weights");
    bd_parameters_draw(&s->parameters, (uint64_t)settings->seed, s->drawn);
    s->of = &s->parameters;
    s->weights = s->drawn;
    return BD_OK;
}

static void close_proved_model(subject *s)
{
    bd_run_release(&s->run);
    bd_parameters_release(&s->parameters);
    free(s->drawn);
}

// ---- Printing ---------------------------------------------------------------------------

// The note after a line, by its verdict.
static const char *const verdict_notes[] = {
    [BD_PROOF_AGREES] = "",
    [BD_PROOF_ROUNDING] = "  DIFFERS, by the size of rounding",
    [BD_PROOF_KERNEL] = "  DIFFERS, alone as well: the kernels compute something else",
    [BD_PROOF_LEAK] = "  DIFFERS, only when packed: a leak",
};

static int by_ratio(const void *a, const void *b)
{
    const bd_proof_line *x = *(bd_proof_line *const *)a, *y = *(bd_proof_line *const *)b;
    if (x->ratio != y->ratio)
        return x->ratio > y->ratio ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void print_proof_line(const bd_proof_line *line)
{
    char name[sizeof line->parameter->name + 24];
    snprintf(name, sizeof name, "%s[%" PRId64 "]", line->parameter->name, line->element);
    printf("%-54s %10.1e %8.1e %8.1e %8.1e %8.1e %9.2g%s\n", name, line->gradient,
           line->packed_difference, line->packed_to_alone, line->noise, line->bound,
           line->ratio,
           line->verdict == BD_PROOF_AGREES && line->zero_by_mathematics
               ? "  (zero by mathematics)"
               : verdict_notes[line->verdict]);
}

// Prints the worst lines with the worst first, or all in the model's order.
static void print_lines(const bd_proof *proof, bool all)
{
    const bd_proof_line **lines = malloc(proof->n_lines * sizeof *lines);
    const size_t n = all || proof->n_lines < N_WORST ? proof->n_lines : N_WORST;
    if (!lines)
        return;
    for (size_t i = 0; i < proof->n_lines; i++)
        lines[i] = &proof->lines[i];
    if (n < proof->n_lines) {
        qsort(lines, proof->n_lines, sizeof *lines, by_ratio);
        printf("The %zu of %zu parameters that come closest to their bounds, or are farthest "
               "beyond them\n(--all-parameters shows all), each by its worst element:\n\n",
               n, proof->n_lines);
    }
    printf("%-54s %10s %8s %8s %8s %8s %9s\n", "", "", "packed", "packed", "", "", "part of");
    printf("%-54s %10s %8s %8s %8s %8s %9s\n", "parameter[element]", "gradient", "- exact",
           "- alone", "noise", "bound", "the bound");
    for (size_t i = 0; i < n; i++)
        print_proof_line(lines[i]);
    free(lines);
}

static void print_probe(const bd_probe *probe)
{
    printf("%" PRId64 " document%s of %" PRId64 " segments in %" PRId64 " rows %s changed, one "
           "at a time, and %" PRId64 " of their %" PRId64 " tokens with them\n",
           probe->n_documents, probe->n_documents == 1 ? "" : "s", probe->n_segments,
           probe->n_rows, probe->n_documents == 1 ? "was" : "were", probe->changed_tokens,
           probe->probed_tokens);
    if (bd_probe_is_clean(probe) && probe->other_tokens == 0)
        printf("There is no other document that anything could leak into\n");
    else if (bd_probe_is_clean(probe))
        printf("Nothing leaks: logits and gradients of the other %" PRId64
               " tokens are the same in every bit\n",
               probe->other_tokens);
    else if (probe->leaked_tokens > 0)
        printf("LEAK: %" PRId64 " of the other %" PRId64 " tokens changed, first in segment "
               "%" PRId64 " of row %" PRId64 "\n",
               probe->leaked_tokens, probe->other_tokens, probe->leak_segment, probe->leak_row);
    else
        printf("The probe saw nothing: changing a document did not change its own tokens\n");
}

static void print_proof(const bd_proof *proof, bd_sabotage sabotage, bool all)
{
    printf("%" PRId64 " segments packed into %" PRId64
           " rows, against each alone in a row by the "
           "same kernels\nand alone in double precision (exact)\n%" PRId64
           " targets, loss %.9f packed, %.9f alone, %.9f exact\n\n",
           proof->n_segments, proof->n_rows, proof->n_targets, proof->loss_packed,
           proof->loss_alone, proof->loss_exact);
    print_lines(proof, all);
    if (proof->n_kinks > 0)
        printf("\n%" PRId64
               " ReLU input%s so close to 0 that float and double put %s on different "
               "sides\n",
               proof->n_kinks, proof->n_kinks == 1 ? " is" : "s are",
               proof->n_kinks == 1 ? "it" : "them");
    if (proof->probe.n_documents > 0) {
        printf("\n");
        print_probe(&proof->probe);
    }
    if (proof->proved)
        printf(
            "\nProved: the gradients of all %zu parameters agree, the worst element at %.2g of "
            "its bound\n",
            proof->n_lines, proof->worst_ratio);
    else if (proof->n_disagree > 0)
        printf("\nNot proved: %zu of %zu parameters differ%s\n", proof->n_disagree,
               proof->n_lines,
               sabotage != BD_SABOTAGE_NONE ? ", as they must: the sabotage was noticed" : "");
    else
        printf("\nNot proved: %s\n",
               sabotage != BD_SABOTAGE_NONE
                   ? "the gradients agree, so the sabotage was NOT noticed"
                   : "the gradients agree, but the probe is not clean");
}

// ---- The same as JSON -------------------------------------------------------------------

static bd_json *probe_to_json(const bd_probe *probe)
{
    bd_json *json = bd_json_object();
    bd_json_set_bool(json, "clean", bd_probe_is_clean(probe));
    bd_json_set_integer(json, "documents", probe->n_documents);
    bd_json_set_integer(json, "probed_tokens", probe->probed_tokens);
    bd_json_set_integer(json, "changed_tokens", probe->changed_tokens);
    bd_json_set_integer(json, "other_tokens", probe->other_tokens);
    bd_json_set_integer(json, "leaked_tokens", probe->leaked_tokens);
    return json;
}

static bd_json *line_to_json(const bd_proof_line *line)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "name", line->parameter->name);
    bd_json_set_integer(json, "element", line->element);
    bd_json_set_figure(json, "gradient", line->gradient);
    bd_json_set_figure(json, "packed_difference", line->packed_difference);
    bd_json_set_figure(json, "alone_difference", line->alone_difference);
    bd_json_set_figure(json, "packed_to_alone", line->packed_to_alone);
    bd_json_set_figure(json, "noise", line->noise);
    bd_json_set_figure(json, "magnitude", line->magnitude);
    bd_json_set_figure(json, "bound", line->bound);
    bd_json_set_figure(json, "ratio", line->ratio);
    bd_json_set_string(json, "verdict", bd_proof_verdict_names[line->verdict]);
    bd_json_set_bool(json, "zero_by_mathematics", line->zero_by_mathematics);
    return json;
}

static bd_json *proof_to_json(const bd_proof *proof)
{
    bd_json *lines = bd_json_array();
    for (size_t i = 0; i < proof->n_lines; i++)
        bd_json_append(lines, line_to_json(&proof->lines[i]));
    bd_json *json = bd_json_object();
    bd_json_set_integer(json, "targets", proof->n_targets);
    bd_json_set_figure(json, "loss_packed", proof->loss_packed);
    bd_json_set_figure(json, "loss_alone", proof->loss_alone);
    bd_json_set_figure(json, "loss_exact", proof->loss_exact);
    bd_json_set_integer(json, "longest_sum", proof->longest_sum);
    bd_json_set_figure(json, "worst_ratio", proof->worst_ratio);
    bd_json_set_integer(json, "kinks", proof->n_kinks);
    bd_json_set(json, "parameters", lines);
    return json;
}

// `gradients`, which it frees, and `probe` may be NULL if that experiment was not made.
static bd_status put_json(const prove_settings *settings, bool proved, int64_t n_rows,
                          int64_t n_segments, bd_json *gradients, const bd_probe *probe,
                          bd_error *err)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "2.1");
    bd_json_set_bool(json, "proved", proved);
    bd_json_set_string(json, "precision", bd_precision_names[settings->precision]);
    bd_json_set_string(json, "sabotage", bd_sabotage_names[settings->sabotage]);
    bd_json_set_string(json, "loss", bd_loss_kind_names[settings->loss]);
    bd_json_set_integer(json, "rows", n_rows);
    bd_json_set_integer(json, "segments", n_segments);
    if (gradients)
        bd_json_set(json, "gradients", gradients);
    if (probe)
        bd_json_set(json, "probe", probe_to_json(probe));
    return bd_json_put(json, BD_JSON_INDENTED, stdout, err);
}

// ---- The command ------------------------------------------------------------------------

static bd_status run_probe(const prove_settings *settings, const bd_experiment *experiment,
                           bool *good, bd_error *err)
{
    bd_probe probe;
    BD_TRY(bd_probe_run(&probe, experiment, err));
    *good = bd_probe_is_clean(&probe);
    if (settings->json)
        return put_json(settings, *good, probe.n_rows, probe.n_segments, NULL, &probe, err);
    print_probe(&probe);
    return BD_OK;
}

static bd_status run_proof(const prove_settings *settings, const bd_experiment *experiment,
                           bool *good, bd_error *err)
{
    bd_proof proof;
    BD_TRY(bd_prove(&proof, experiment, settings->sabotage, err));
    // With a sabotage, "no" is the expected answer; exit status 0 says that it was not noticed.
    *good = settings->sabotage == BD_SABOTAGE_NONE ? proof.proved : proof.n_disagree == 0;
    bd_status status = BD_OK;
    if (settings->json)
        status = put_json(settings, proof.proved, proof.n_rows, proof.n_segments,
                          proof_to_json(&proof),
                          proof.probe.n_documents > 0 ? &proof.probe : NULL, err);
    else
        print_proof(&proof, settings->sabotage, settings->all_parameters);
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
    bd_threads *threads = NULL;
    bool good = false;
    if (settings->probe && settings->sabotage != BD_SABOTAGE_NONE) {
        bd_fail(&err, BD_ERR_ARGUMENT, "--probe and --sabotage are two experiments");
        return bd_command_misuse(arguments, &err);
    }
    if (settings->step >= 0 && !settings->run) {
        bd_fail(&err, BD_ERR_ARGUMENT, "--step is a checkpoint of a run: give --run, too");
        return bd_command_misuse(arguments, &err);
    }
    bd_status status = bd_rows_open(&rows, arguments->operands[0], &err);
    if (status == BD_OK)
        status = open_proved_model(&s, settings, &rows, &err);
    if (status == BD_OK)
        status = bd_backend_open_choice(&backend, settings->backend, settings->backend_module,
                                        settings->isa, 0, n_threads, &err);
    if (status == BD_OK)
        status = bd_threads_new(&threads, n_threads, &err);
    if (status == BD_OK) {
        const bd_experiment experiment = {
            .rows = &rows,
            .parameters = s.of,
            .weights = s.weights,
            .backend = backend,
            .threads = threads,
            .type = settings->precision,
            .loss = settings->loss,
            .n_documents = settings->n_documents,
            .seed = (uint64_t)settings->seed,
        };
        status = settings->probe ? run_probe(settings, &experiment, &good, &err)
                                 : run_proof(settings, &experiment, &good, &err);
    }
    bd_threads_free(threads);
    if (backend)
        backend->operations->close(backend);
    close_proved_model(&s);
    bd_rows_close(&rows);
    if (status != BD_OK)
        return bd_command_fail(arguments, &err);
    return good ? BD_EXIT_DONE : BD_EXIT_NO;
}

const bd_command bd_prove_command = {
    .name = "prove",
    .summary = "Show on a dataset that packing changes no gradient",
    .description =
        "Takes whole rows of the dataset and computes the gradient of every parameter three "
        "times: packed, through the loader and the kernels that training uses; with every "
        "document alone in a row of its own, through the same kernels; and alone through a "
        "plain double-precision reference that knows no boundaries. Every element of both must "
        "be as close to the reference as arithmetic in float can be, by a bound that follows "
        "from that element's own terms and from random rounding of the reference, and from no "
        "processor (docs/proof.md). With --precision bf16 the weights are the rounded ones in "
        "all three. Then three documents are changed, one at a time, and no bit of any other "
        "token's logits and gradients may change.\n"
        "\n"
        "--sabotage gives the boundaries {0, used} to attention (mask), to learned positions "
        "(positions), to the rotation of queries (rotation) or to the loss (targets): that is "
        "what systems without boundaries do, and the proof must then fail. Positions are "
        "learned in opt and gpt2, and rotated in all other families. mask-loss takes the loss "
        "mask away, so that all tokens are trained; it is refused if the rows have none. "
        "--probe makes the second experiment alone.\n"
        "\n"
        "Exit status: 0 proved (or a sabotage that was not noticed), 1 not proved, 2 it could "
        "not be done.\n",
    .operands = "DATASET",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = prove_options,
    .n_options = sizeof prove_options / sizeof prove_options[0],
    .settings_size = sizeof(prove_settings),
    .run = prove_run,
};
