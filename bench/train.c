// bench_train - training speed: forward, backward and AdamW on packed rows.
//
//   bench_train [OPTIONS] [THREADS]    --help tells the options
//
// By default it is the small model that bench/train measures beside PyTorch: GPT-2 with 4 layers,
// 256 channels, 4 heads, vocabulary 8192; 4 rows of 512 tokens per step, documents of mean length
// 200, float. A first round over all rows warms up; then the median of the steps is printed.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "common/base/random.h"
#include "common/cli/program.h"
#include "trainer/data/step_work.h"
#include "trainer/model/model.h"

typedef struct train_settings {
    int preset;
    int64_t n_vocabulary, seq_len, batch_rows, n_steps, n_distinct;
    double peak_tflops;
    const char *rows;
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_type precision;
    bool json;
} train_settings;

static const bd_option train_options[] = {
    {.name = "preset",
     .value = "NAME",
     BD_CHOICE(train_settings, preset, bd_model_presets),
     .initial = "small-gpt2",
     .help = "Shape of the model, as bindery train has it, with positions for one row"},
    {.name = "vocabulary",
     .value = "N",
     BD_INTEGER(train_settings, n_vocabulary, 2, 1 << 16),
     .initial = "8192",
     .help = "Ids of the model"},
    {.name = "seq-len",
     .value = "N",
     BD_INTEGER(train_settings, seq_len, 2, 1 << 16),
     .initial = "512",
     .help = "Tokens in a row"},
    {.name = "batch",
     .value = "ROWS",
     BD_INTEGER(train_settings, batch_rows, 1, 1 << 10),
     .initial = "4",
     .help = "Rows of one step"},
    {.name = "steps",
     .value = "N",
     BD_INTEGER(train_settings, n_steps, 1, 1 << 20),
     .initial = "30",
     .help = "Steps to measure, after as many that warm up, at most a round over the rows"},
    {.name = "distinct",
     .value = "STEPS",
     BD_INTEGER(train_settings, n_distinct, 1, 1 << 10),
     .initial = "10",
     .help = "Steps in a round, after which the rows begin again"},
    {.name = "peak-tflops",
     .value = "X",
     BD_REAL(train_settings, peak_tflops, 1e-3, 1e6),
     .initial = "0",
     .initial_note = "unknown, no MFU",
     .help = "Peak speed of the device, to print the share that is used (MFU)"},
    {.name = "rows",
     .value = "FILE",
     BD_FILE(train_settings, rows),
     .initial_note = "nowhere",
     .help = "Write the rows' boundaries as JSON, for bench/train-rivals.py --rows"},
    BD_BACKEND_OPTIONS(train_settings),
    {.name = "json", BD_FLAG(train_settings, json), .help = "Print one JSON object"},
};

// ---- Rows -----------------------------------------------------------------------------------

typedef struct corpus {
    int64_t n_rows, seq_len, batch_rows;
    int32_t *offsets, *values;  // owned, see kernels/boundaries.h
    uint16_t *ids;              // owned
} corpus;

// Log-normal documents of mean 200 (sigma 1), end to end, cut where a row ends.
static void make_corpus(corpus *c, const train_settings *s)
{
    const int64_t n_rows = s->n_distinct * s->batch_rows, n_tokens = n_rows * s->seq_len;
    *c = (corpus){.n_rows = n_rows, .seq_len = s->seq_len, .batch_rows = s->batch_rows};
    c->offsets = bench_allocate((size_t)(n_rows + 1) * sizeof *c->offsets);
    c->values = bench_allocate((size_t)(n_tokens + n_rows) * sizeof *c->values);
    c->ids = bench_allocate((size_t)n_tokens * sizeof *c->ids);
    bd_random random = {1};
    double left = 0;
    int32_t n = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        int32_t at = 0;
        c->offsets[r] = n;
        c->values[n++] = 0;
        while (at < s->seq_len) {
            if (left < 1)
                left = fmax(1, round(exp(log(200.0) - 0.5 + bd_random_normal(&random))));
            const double length = fmin(left, (double)(s->seq_len - at));
            left -= length;
            at += (int32_t)length;
            c->values[n++] = at;
        }
    }
    c->offsets[n_rows] = n;
    for (int64_t t = 0; t < n_tokens; t++)
        c->ids[t] = (uint16_t)bd_random_bounded(&random, (uint32_t)s->n_vocabulary);
}

static void release_corpus(corpus *c)
{
    free(c->offsets);
    free(c->values);
    free(c->ids);
}

static void write_rows(const corpus *c, const char *path)
{
    FILE *out = fopen(path, "w");
    bd_error err;
    if (!out)
        bench_check(bd_fail_errno(&err, "cannot write '%s'", path), &err);
    for (int64_t r = 0; r < c->n_rows; r++) {
        fprintf(out, "%s[0", r == 0 ? "[" : ",\n ");
        for (int32_t i = c->offsets[r] + 1; i < c->offsets[r + 1]; i++)
            fprintf(out, ", %d", c->values[i]);
        fputc(']', out);
    }
    fputs("]\n", out);
    fclose(out);
}

static bd_model_batch batch_of(const corpus *c, int64_t step)
{
    const int64_t row = step * c->batch_rows % c->n_rows;
    const bd_boundaries boundaries = {c->batch_rows, c->seq_len, c->offsets + row, c->values};
    return bd_model_batch_of(c->ids + row * c->seq_len, sizeof *c->ids, boundaries);
}

// ---- Steps ----------------------------------------------------------------------------------

// Weights, moments and the model that they belong to.
typedef struct trainee {
    bd_parameters parameters;
    bd_backend *backend;
    bd_model model;
    bd_sent_batch sent;   // the batch of the next step, if it was sent already
    void *m, *v, *parts;  // the backend's memory, owned
} trainee;

static void open_trainee(trainee *t, const train_settings *s, int n_threads)
{
    bd_error err;
    bd_model_config config;
    const char *preset = bd_model_presets[s->preset];
    *t = (trainee){0};
    bench_check(bd_model_config_preset(&config, preset, &err), &err);
    config.n_vocabulary = s->n_vocabulary;
    config.n_positions = s->seq_len;
    bench_check(bd_parameters_init(&t->parameters, &config, &err), &err);
    t->backend = bench_open(s->backend, s->backend_module, s->isa, n_threads, s->precision);
    const bd_model_options options = {
        .type = s->precision, .max_rows = s->batch_rows, .seq_len = s->seq_len};
    bench_check(bd_model_init(&t->model, t->backend, &t->parameters, &options, &err), &err);
    const size_t size_bytes = (size_t)t->parameters.n_total * sizeof(float);
    const bd_adamw_part all = {t->parameters.n_total, 0.1f, 1.0f};
    t->m = bench_memory(t->backend, NULL, size_bytes);
    t->v = bench_memory(t->backend, NULL, size_bytes);
    t->parts = bench_memory(t->backend, &all, sizeof all);
    float *weights = bench_allocate(size_bytes);
    bd_parameters_draw(&t->parameters, 1, weights);
    bench_check(bd_model_set_weights(&t->model, weights, &err), &err);
    free(weights);
}

static void close_trainee(trainee *t)
{
    t->backend->operations->release(t->backend, t->m);
    t->backend->operations->release(t->backend, t->v);
    t->backend->operations->release(t->backend, t->parts);
    bd_model_release(&t->model);
    t->backend->operations->close(t->backend);
    bd_parameters_release(&t->parameters);
}

// Returns the mean loss before the step.
static double train_step(trainee *t, const corpus *c, int64_t step)
{
    const bd_model_batch batch = batch_of(c, step), next = batch_of(c, step + 1);
    const double scale =
        bd_loss_scale(bd_count_row_targets(&batch.targets, &batch.mask), BD_LOSS_PER_TOKEN);
    bd_error err;
    double loss_sum;
    bench_check(bd_model_zero_gradients(&t->model, &err), &err);
    if (!bd_is_sent(&t->sent))
        bench_check(bd_model_send(&t->model, &batch, &t->sent, &err), &err);
    bench_check(bd_model_train_sent(&t->model, &t->sent, &next, scale, &loss_sum, &err), &err);
    const bd_adamw_args args = {
        .n = t->parameters.n_total,
        .step = step + 1,
        .learning_rate = 1e-4f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .epsilon = 1e-8f,
        .gradient_scale = 1.0f,
        .n_parts = 1,
        .parts = t->parts,
        .gradient = t->model.gradients,
        .parameter = t->model.masters,
        .m = t->m,
        .v = t->v,
        .rounded = t->model.type == BD_BF16 ? t->model.weights : NULL,
    };
    bench_check(t->backend->operations->adamw(t->backend, &args, &err), &err);
    return loss_sum * scale;
}

typedef struct measured {
    bench_time step;    // the median
    double first_loss;  // loss of fresh weights: about the logarithm of the vocabulary
} measured;

// The host waits for the loss of every step, so on a device the time of a step contains its
// own work up to the loss, and AdamW of the step before.
static measured time_steps(trainee *t, const corpus *c, int64_t n_steps)
{
    const int64_t round = c->n_rows / c->batch_rows,
                  warm_up = n_steps < round ? n_steps : round;
    bench_time *times = bench_allocate((size_t)n_steps * sizeof *times);
    const double first_loss = train_step(t, c, 0);
    for (int64_t step = 1; step < warm_up; step++)
        train_step(t, c, step);
    for (int64_t step = 0; step < n_steps; step++) {
        const bench_time begun = bench_now();
        train_step(t, c, warm_up + step);
        times[step] = bench_since(begun);
    }
    const measured result = {bench_median(times, (size_t)n_steps), first_loss};
    free(times);
    return result;
}

// ---- Results --------------------------------------------------------------------------------

static double flop_per_token(const bd_model_config *config, const corpus *c)
{
    const bd_boundaries all = {c->n_rows, c->seq_len, c->offsets, c->values};
    const bd_step_work work = bd_count_work(&all, config->window);
    return bd_model_flop(config, &work) / (double)work.n_used;
}

typedef struct figures {
    double tokens_per_second, step_ms, cpu_ms_per_token, tflops, mfu;  // mfu 0: unknown
    double first_loss;
} figures;

static figures figures_of(const train_settings *s, const measured *m, double token_flop)
{
    const double n_tokens = (double)(s->batch_rows * s->seq_len);
    const double rate = n_tokens / m->step.wall;
    return (figures){
        .tokens_per_second = rate,
        .step_ms = 1e3 * m->step.wall,
        .cpu_ms_per_token = 1e3 * m->step.cpu / n_tokens,
        .tflops = 1e-12 * rate * token_flop,
        .mfu = s->peak_tflops > 0 ? 1e-12 * rate * token_flop / s->peak_tflops : 0,
        .first_loss = m->first_loss,
    };
}

static void print_figures(const train_settings *s, const figures *f, bool on_host,
                          int n_threads)
{
    if (on_host)
        printf("%d threads: %.0f tokens/s, %.3f CPU ms/token", n_threads, f->tokens_per_second,
               f->cpu_ms_per_token);
    else
        printf("%s, %s: %.0f tokens/s, %.2f TFLOP/s", bd_model_presets[s->preset],
               bd_precision_names[s->precision], f->tokens_per_second, f->tflops);
    if (f->mfu > 0)
        printf(", MFU %.1f %%", 100 * f->mfu);
    printf(" (median of %" PRId64 " steps)\n", s->n_steps);
}

static void print_json(const train_settings *s, const figures *f, const trainee *t,
                       double token_flop)
{
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "backend", t->backend->operations->name);
    bd_json_set_string(json, "precision", bd_precision_names[s->precision]);
    bd_json_set_string(json, "preset", bd_model_presets[s->preset]);
    bd_json_set_integer(json, "parameters", t->parameters.n_total);
    bd_json_set_integer(json, "vocabulary", s->n_vocabulary);
    bd_json_set_integer(json, "seq_len", s->seq_len);
    bd_json_set_integer(json, "rows", s->batch_rows);
    bd_json_set_integer(json, "steps", s->n_steps);
    bd_json_set_real(json, "step_ms", f->step_ms);
    bd_json_set_real(json, "tokens_per_second", f->tokens_per_second);
    bd_json_set_real(json, "cpu_ms_per_token", f->cpu_ms_per_token);
    bd_json_set_real(json, "first_loss", f->first_loss);
    bd_json_set_real(json, "flop_per_token", token_flop);
    bd_json_set_real(json, "tflops", f->tflops);
    if (f->mfu > 0) {
        bd_json_set_real(json, "peak_tflops", s->peak_tflops);
        bd_json_set_real(json, "mfu", f->mfu);
    } else {
        bd_json_set_null(json, "peak_tflops");
        bd_json_set_null(json, "mfu");
    }
    bench_print_json(json);
}

static int train_run(const bd_arguments *arguments)
{
    const train_settings *s = arguments->settings;
    const int n_threads = bench_threads(arguments, 2);
    corpus c;
    trainee t;
    make_corpus(&c, s);
    if (s->rows)
        write_rows(&c, s->rows);
    open_trainee(&t, s, n_threads);
    const double token_flop = flop_per_token(&t.parameters.config, &c);
    const measured m = time_steps(&t, &c, s->n_steps);
    const figures f = figures_of(s, &m, token_flop);
    if (s->json)
        print_json(s, &f, &t, token_flop);
    else
        print_figures(s, &f, t.backend->operations->works_on_host, n_threads);
    close_trainee(&t);
    release_corpus(&c);
    return BD_EXIT_DONE;
}

static const bd_command train_command = {
    .name = "bench_train",
    .summary = "Measure training steps: forward, backward and AdamW",
    .description =
        "THREADS are of the CPU; without it 2. MFU is the share of the peak that the "
        "mathematics of the model asks for: 6 FLOP for each weight of a matrix "
        "product and token, 12 for each pair of tokens that may see each other, "
        "channel and layer.",
    .operands = "[THREADS]",
    .options = train_options,
    .n_options = sizeof train_options / sizeof train_options[0],
    .settings_size = sizeof(train_settings),
    .run = train_run,
};

int main(int argc, char **argv)
{
    return bench_main(&train_command, argc, argv);
}
