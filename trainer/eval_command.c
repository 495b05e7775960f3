// `bindery eval`: how well a trained model predicts a dataset.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/threads.h"
#include "common/cli/human.h"
#include "common/cli/program.h"
#include "common/cli/terminal.h"
#include "common/dataset/stored_tokenizer.h"
#include "trainer/commands.h"
#include "trainer/evaluation.h"
#include "trainer/model/backend_choice.h"
#include "trainer/weights/run.h"

typedef struct eval_settings {
    int64_t n_rows, batch_rows;
    bd_weights_choice weights;
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_precision_choice precision;
    int64_t n_threads;
    bool json;
} eval_settings;

static const bd_option eval_options[] = {
    {.name = "rows",
     .value = "N",
     BD_INTEGER(eval_settings, n_rows, 1, INT64_MAX),
     .initial = "0",
     .initial_note = "all",
     .help = "Evaluate only N rows, spread evenly over the dataset"},
    {.name = "batch",
     .value = "ROWS",
     BD_INTEGER(eval_settings, batch_rows, 1, 1 << 20),
     .initial = "4",
     .help = "Rows that are computed at a time; memory grows with it"},
    {.name = "weights",
     .value = "WHICH",
     BD_CHOICE(eval_settings, weights, bd_weights_choice_names),
     .initial = "auto",
     .help = BD_WEIGHTS_HELP},
    BD_AUTO_BACKEND_OPTIONS(
        eval_settings, "the type that the run was trained in, or float if that needs a device"),
    BD_THREADS_OPTION(eval_settings, n_threads,
                      "Threads of the kernels; the result does not depend on it"),
    {.name = "json",
     BD_FLAG(eval_settings, json),
     .help = "Print the result as JSON (schemas/eval-v1.schema.json)"},
};

// A model and the dataset that it predicts, all owned.
typedef struct eval_subject {
    bd_run run;
    bd_rows rows;
    const bd_tokenizer *tokenizer;  // NULL if its ids stand for no known text
    bd_backend *backend;
    bd_model model;
} eval_subject;

static bd_status open_eval(eval_subject *s, const bd_arguments *arguments, bd_error *err)
{
    const eval_settings *settings = arguments->settings;
    const char *dataset = arguments->operands[1], *fingerprint;
    bd_type type;
    bd_error why;
    BD_TRY(bd_run_open(&s->run, arguments->operands[0], settings->weights, err));
    BD_TRY(bd_rows_open(&s->rows, dataset, err));
    BD_TRY(bd_rows_check_targets(&s->rows, &dataset, err));
    BD_TRY(bd_json_get_string(s->run.checkpoint.data, "fingerprint", &fingerprint, err));
    BD_TRY(bd_evaluation_check_tokenizer(fingerprint, &s->rows, err));
    BD_TRY(bd_check_fit(&s->run.parameters.config, &s->rows, err));
    BD_TRY(bd_stored_tokenizer_open(&s->tokenizer, dataset, bd_rows_config(&s->rows), err));
    if (!s->tokenizer->takes_text) {
        bd_tokenizer_close(s->tokenizer);
        s->tokenizer = NULL;
    }
    BD_TRY(bd_backend_open_choice(&s->backend, settings->backend, settings->backend_module,
                                  settings->isa, 0, bd_threads_count(settings->n_threads),
                                  err));
    BD_TRY(bd_run_settle_type(&s->run, settings->precision, s->backend, &type, &why, err));
    if (why.message[0] && !arguments->quiet)
        bd_command_note(arguments, "computes in float: %s", why.message);
    const bd_model_options options = {.type = type,
                                      .max_rows = settings->batch_rows,
                                      .seq_len = bd_rows_config(&s->rows)->seq_len};
    BD_TRY(bd_model_init(&s->model, s->backend, &s->run.parameters, &options, err));
    BD_TRY(bd_model_set_weights(&s->model, s->run.weights, err));
    bd_run_forget_weights(&s->run);
    return BD_OK;
}

static void close_eval(eval_subject *s)
{
    bd_model_release(&s->model);
    if (s->backend)
        s->backend->operations->close(s->backend);
    bd_tokenizer_close(s->tokenizer);
    bd_rows_close(&s->rows);
    bd_run_release(&s->run);
}

// ---- The answer -------------------------------------------------------------------------

static void print_figure(double value, int width, const char *format)
{
    char text[32] = "-";
    if (isfinite(value))
        snprintf(text, sizeof text, format, value);
    printf(" %*s", width, text);
}

static void print_sum(const char *name, const bd_evaluation_sum *sum)
{
    const double mean = bd_evaluation_mean(sum);
    print_figure(mean, 9, "%.5f");
    print_figure(exp(mean), 12, "%.4f");
    print_figure(bd_evaluation_bits_per_byte(sum), 10, "%.5f");
    printf(" %14s %14s  ", bd_format_count((uint64_t)sum->n_targets).text,
           bd_format_count((uint64_t)sum->n_bytes).text);
    bd_print_safely(stdout, name, strlen(name), false);
    putchar('\n');
}

static void print_evaluation(const bd_evaluation *evaluation)
{
    printf(" %9s %12s %10s %14s %14s  %s\n", "loss", "perplexity", "bits/byte", "targets",
           "bytes", "source");
    for (size_t i = 0; i < evaluation->n_sources; i++)
        print_sum(evaluation->sources[i].name, &evaluation->sources[i].sum);
    print_sum("(all)", &evaluation->total);
}

static void set_sum(bd_json *json, const bd_evaluation_sum *sum)
{
    const double mean = bd_evaluation_mean(sum);
    bd_json_set_integer(json, "targets", sum->n_targets);
    bd_json_set_integer(json, "bytes", sum->n_bytes);
    bd_json_set_figure(json, "loss", mean);
    bd_json_set_figure(json, "perplexity", exp(mean));
    bd_json_set_figure(json, "bits_per_byte", bd_evaluation_bits_per_byte(sum));
}

static bd_json *evaluation_to_json(const bd_evaluation *evaluation, const eval_subject *s)
{
    bd_json *sources = bd_json_array();
    for (size_t i = 0; i < evaluation->n_sources; i++) {
        bd_json *source = bd_json_object();
        bd_json_set_string(source, "name", evaluation->sources[i].name);
        set_sum(source, &evaluation->sources[i].sum);
        bd_json_append(sources, source);
    }
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "format", "1.1");
    bd_json_set_integer(json, "step", s->run.checkpoint.step);
    bd_json_set_string(json, "weights", s->run.averaged ? "average" : "trained");
    bd_json_set_string(json, "precision", bd_precision_names[s->model.type]);
    bd_json_set_integer(json, "rows", evaluation->n_rows);
    set_sum(json, &evaluation->total);
    bd_json_set(json, "sources", sources);
    return json;
}

static int eval_run(const bd_arguments *arguments)
{
    const eval_settings *settings = arguments->settings;
    bd_error err;
    eval_subject s = {0};
    bd_evaluation evaluation = {0};
    bd_status status = open_eval(&s, arguments, &err);
    if (status == BD_OK)
        status =
            bd_evaluate(&evaluation, &s.model, &s.rows, s.tokenizer, settings->n_rows, &err);
    if (status == BD_OK && settings->json)
        status =
            bd_json_put(evaluation_to_json(&evaluation, &s), BD_JSON_INDENTED, stdout, &err);
    else if (status == BD_OK)
        print_evaluation(&evaluation);
    bd_evaluation_release(&evaluation);
    close_eval(&s);
    return status == BD_OK ? BD_EXIT_DONE : bd_command_fail(arguments, &err);
}

const bd_command bd_eval_command = {
    .name = "eval",
    .summary = "Measure how well a trained model predicts a dataset",
    .description =
        "Evaluates the model of RUN's latest checkpoint on the dataset, with the dataset's "
        "boundaries, and prints for each source and for all of them: the loss, which is the "
        "mean over the targets in nats; the perplexity, e to that power; and bits per byte, "
        "the sum of the losses in bits divided by the bytes of text that the targets stand "
        "for. The first token of a document is not a target; a separator is a target without "
        "text. Tokens that are only numbers (ids:N) have no bytes, and so no bits per byte.\n"
        "\n"
        "Example:\n"
        "\n"
        "  bindery eval run held-out\n",
    .operands = "RUN DATASET",
    .operand_kind = BD_OPTION_DIRECTORY,
    .options = eval_options,
    .n_options = sizeof eval_options / sizeof eval_options[0],
    .settings_size = sizeof(eval_settings),
    .run = eval_run,
};
