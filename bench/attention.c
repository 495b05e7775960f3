// bench_attention - how long document attention takes, forward and backward.
//
//   bench_attention [OPTIONS] [THREADS]    --help tells the options
//
// A case is a mix of documents, a row's length and a head size. Times are medians. TFLOP/s
// count the allowed pairs alone: 2 products forward, 5 backward. On a device a run is as many
// calls in a row as fill a twentieth of a second, between two synchronisations.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "common/base/threads.h"
#include "common/cli/program.h"

enum { N_RUNS = 9, DEVICE_TOKENS = 16384, EVEN_TOKENS = 1024, NOT_GIVEN = 0 };

typedef enum mix { MIX_CAUSAL, MIX_CORPUS, MIX_SHORT, MIX_EVEN, N_MIXES } mix;
static const char *const mix_words[] = {"causal", "corpus", "short", "even",
                                        "all",    "auto",   NULL};
enum { EVERY_MIX = N_MIXES, AUTOMATIC_MIX };

typedef struct attention_settings {
    int mix;
    int64_t seq_len, n_rows, n_heads, head_size, window;
    bd_backend_choice backend;
    const char *backend_module;
    bd_isa_choice isa;
    bd_type precision;
    bool json;
} attention_settings;

static const bd_option attention_options[] = {
    {.name = "mix",
     .value = "WHICH",
     BD_CHOICE(attention_settings, mix, mix_words),
     .initial = "auto",
     .help =
         "One document a row, documents as in a corpus, many of mean length 64, or all three; "
         "or the same ones of mean length 200 every 1024 tokens; auto takes all on a device "
         "and "
         "corpus on the CPU"},
    {.name = "seq-len",
     .value = "N",
     BD_INTEGER(attention_settings, seq_len, 1, 1 << 20),
     .initial = "0",
     .initial_note = "1024, then 4096, then 16384",
     .help = "Tokens in a row"},
    {.name = "rows",
     .value = "N",
     BD_INTEGER(attention_settings, n_rows, 1, 1 << 10),
     .initial = "0",
     .initial_note = "1; on a device what makes 16384 tokens",
     .help = "Rows of a batch"},
    {.name = "heads",
     .value = "N",
     BD_INTEGER(attention_settings, n_heads, 1, 1024),
     .initial = "12",
     .help = "Heads"},
    {.name = "head-size",
     .value = "N",
     BD_INTEGER(attention_settings, head_size, 1, 256),
     .initial = "0",
     .initial_note = "64; on a device 64, then 128",
     .help = "Channels of a head"},
    {.name = "window",
     .value = "N",
     BD_INTEGER(attention_settings, window, 1, 1 << 20),
     .initial = "0",
     .initial_note = "none",
     .help = "Keys that a token sees at most"},
    BD_BACKEND_OPTIONS(attention_settings),
    {.name = "json",
     BD_FLAG(attention_settings, json),
     .help = "Print one JSON object, with the boundaries, for bench/attention-rivals.py"},
};

// ---- Documents ------------------------------------------------------------------------------

static uint64_t next_random(uint64_t *state)  // splitmix64
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state)  // in (0, 1]
{
    return (double)((next_random(state) >> 11) + 1) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return radius * cos(2.0 * M_PI * uniform(state));
}

// Lengths are log-normal.
typedef struct lengths {
    double mean;
    double spread;  // standard deviation of the logarithm
} lengths;

// With MIX_CORPUS, the mean and the number of allowed pairs are those of a real packed corpus:
// a longer row holds longer documents.
static lengths lengths_of(mix which, int64_t seq_len)
{
    switch (which) {
    case MIX_CAUSAL:
        return (lengths){(double)seq_len, 0.0};
    case MIX_SHORT:
        return (lengths){64.0, 0.5};
    case MIX_EVEN:
        return (lengths){200.0, 0.5};
    default:
        if (seq_len < 4096)
            return (lengths){128.0, 0.26};
        return seq_len < 16384 ? (lengths){186.0, 0.57} : (lengths){221.0, 0.73};
    }
}

typedef struct attention_case {
    mix which;
    int64_t seq_len, n_rows, n_heads, head_size, window;
    int32_t *offsets, *values;  // owned, host memory; see kernels/boundaries.h
    double pairs;               // a token and one that it sees, of all rows
} attention_case;

// Appends the boundaries of documents that fill tokens first … last - 1 of a row.
static int32_t *add_documents(attention_case *c, int32_t *bounds, int64_t first, int64_t last,
                              uint64_t *state)
{
    const lengths like = lengths_of(c->which, c->seq_len);
    const double n_tokens = (double)(last - first);
    const int n = (int)fmax(1.0, n_tokens / like.mean);
    double *length = bench_allocate((size_t)n * sizeof *length), total = 0.0, so_far = 0.0;
    int32_t begin = (int32_t)first;
    for (int i = 0; i < n; i++)
        total += length[i] = exp(like.spread * normal(state));
    for (int i = 0; i < n; i++) {
        so_far += length[i];
        const int32_t end = (int32_t)(first + lrint(n_tokens * so_far / total));
        const double tokens = end - begin;
        if (end == begin)
            continue;  // the length was rounded to 0
        const double hidden =
            c->window == NOT_GIVEN ? 0.0 : fmax(0.0, tokens - (double)c->window);
        c->pairs += tokens * (tokens + 1.0) / 2.0 - hidden * (hidden + 1.0) / 2.0;
        *bounds++ = begin = end;
    }
    free(length);
    return bounds;
}

// Appends the boundaries of a full row.
static void add_row(attention_case *c, int64_t row, uint64_t *state)
{
    const int64_t period = c->which == MIX_EVEN ? EVEN_TOKENS : c->seq_len;
    const uint64_t begun = *state;
    int32_t *bounds = c->values + c->offsets[row];
    *bounds++ = 0;
    for (int64_t first = 0; first < c->seq_len; first += period) {
        const int64_t left = c->seq_len - first;
        *state = begun;
        bounds =
            add_documents(c, bounds, first, first + (left < period ? left : period), state);
    }
    c->offsets[row + 1] = (int32_t)(bounds - c->values);
}

static void make_documents(attention_case *c)
{
    const size_t most = (size_t)c->n_rows * (size_t)(c->seq_len + 1);
    uint64_t state = 1;
    c->offsets = bench_allocate((size_t)(c->n_rows + 1) * sizeof *c->offsets);
    c->values = bench_allocate(most * sizeof *c->values);
    c->offsets[0] = 0;
    c->pairs = 0.0;
    for (int64_t r = 0; r < c->n_rows; r++)
        add_row(c, r, &state);
}

// ---- Tensors --------------------------------------------------------------------------------

typedef struct tensors {
    bd_attention_forward_args forward;
    bd_attention_backward_args backward;
    void *memory[7];  // owned, the backend's
} tensors;

// Numbers between -0.5 and 0.5 in the backend's memory.
static void *random_tensor(bd_backend *backend, int64_t n, bd_type type)
{
    uint64_t state = 2;
    const size_t size_bytes = (size_t)n * bd_type_bytes(type);
    void *host = bench_allocate(size_bytes);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)(uniform(&state) - 0.5);
        if (type == BD_FLOAT)
            ((float *)host)[i] = x;
        else
            ((uint16_t *)host)[i] = bd_bf16_of_float(x);
    }
    void *tensor = bench_memory(backend, host, size_bytes);
    free(host);
    return tensor;
}

static bd_attention_backward_args backward_of(const bd_attention_forward_args *f,
                                              const void *d_out, char *d_qkv)
{
    const size_t row_bytes = (size_t)(f->q_stride / 3) * bd_type_bytes(f->type);
    bd_attention_backward_args args = bd_attention_backward_of(f);
    args.d_out = d_out;
    args.d_q = d_qkv;
    args.d_k = d_qkv + row_bytes;
    args.d_v = d_qkv + 2 * row_bytes;
    return args;
}

static void make_tensors(tensors *t, bd_backend *backend, const attention_case *c, bd_type type)
{
    const int64_t width = c->n_heads * c->head_size, n_tokens = c->n_rows * c->seq_len;
    const size_t row_bytes = (size_t)width * bd_type_bytes(type);
    const size_t n_values = (size_t)c->offsets[c->n_rows];
    char *qkv = random_tensor(backend, 3 * n_tokens * width, type);
    char *d_qkv = bench_memory(backend, NULL, 3 * (size_t)n_tokens * row_bytes);
    void *out = bench_memory(backend, NULL, (size_t)n_tokens * row_bytes);
    void *d_out = random_tensor(backend, n_tokens * width, type);
    float *lse = bench_memory(backend, NULL, (size_t)(n_tokens * c->n_heads) * sizeof *lse);
    int32_t *offsets =
        bench_memory(backend, c->offsets, (size_t)(c->n_rows + 1) * sizeof *offsets);
    int32_t *values = bench_memory(backend, c->values, n_values * sizeof *values);
    *t = (tensors){.memory = {qkv, d_qkv, out, d_out, lse, offsets, values}};
    t->forward = (bd_attention_forward_args){
        .boundaries = {c->n_rows, c->seq_len, offsets, values},
        .type = type,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_heads,
        .head_size = c->head_size,
        .q_stride = 3 * width,
        .kv_stride = 3 * width,
        .window = c->window,
        .scale = (float)(1.0 / sqrt((double)c->head_size)),
        .q = qkv,
        .k = qkv + row_bytes,
        .v = qkv + 2 * row_bytes,
        .out = out,
        .lse = lse,
    };
    t->backward = backward_of(&t->forward, d_out, d_qkv);
}

static void release_tensors(tensors *t, bd_backend *backend)
{
    for (size_t i = 0; i < sizeof t->memory / sizeof *t->memory; i++)
        backend->operations->release(backend, t->memory[i]);
}

// ---- Times ----------------------------------------------------------------------------------

typedef enum pass { FORWARD, BACKWARD } pass;

// A download waits for everything that was queued before it.
static void synchronize(bd_backend *backend, const tensors *t)
{
    float one;
    bd_error err;
    bench_check(backend->operations->download(backend, &one, t->forward.lse, sizeof one, &err),
                &err);
}

static bench_time time_calls(bd_backend *backend, const tensors *t, pass which, int n_calls)
{
    bd_error err;
    synchronize(backend, t);
    const bench_time begun = bench_now();
    for (int i = 0; i < n_calls; i++)
        bench_check(which == FORWARD
                        ? backend->operations->attention_forward(backend, &t->forward, &err)
                        : backend->operations->attention_backward(backend, &t->backward, &err),
                    &err);
    synchronize(backend, t);
    const bench_time time = bench_since(begun);
    return (bench_time){time.cpu / n_calls, time.wall / n_calls};
}

// Returns the median time of one call. The first call does not count, because it touches the
// memory for the first time.
static bench_time time_pass(bd_backend *backend, const tensors *t, pass which)
{
    bench_time times[N_RUNS];
    int n_calls = 1;
    double of_one = time_calls(backend, t, which, 1).wall;
    while (!backend->operations->works_on_host && of_one * n_calls < 0.05 &&
           n_calls < 1 << 16) {
        n_calls *= 2;
        of_one = time_calls(backend, t, which, n_calls).wall;
    }
    const int n_runs = of_one * n_calls > 2.0 ? 1 : N_RUNS;
    for (int i = 0; i < n_runs; i++)
        times[i] = time_calls(backend, t, which, n_calls);
    return bench_median(times, (size_t)n_runs);
}

// ---- Results --------------------------------------------------------------------------------

// Returns the operations of one product over the allowed pairs.
static double product_flop(const attention_case *c)
{
    return 2.0 * (double)(c->n_heads * c->head_size) * c->pairs;
}

static void print_case(const attention_case *c, bool on_host, bench_time f, bench_time b)
{
    const double flop = product_flop(c);
    printf("%-6s T=%-6" PRId64 "x %-3" PRId64 "head %3" PRId64 " %5" PRId64
           " documents %10.0f pairs  ",
           mix_words[c->which], c->seq_len, c->n_rows, c->head_size,
           (int64_t)c->offsets[c->n_rows] - c->n_rows, c->pairs);
    if (on_host)
        printf(
            "CPU ms %7.1f forward %7.1f backward %7.1f both  GFLOP per CPU second %5.1f %5.1f"
            "  wall GFLOP/s %5.1f\n",
            1e3 * f.cpu, 1e3 * b.cpu, 1e3 * (f.cpu + b.cpu), 2e-9 * flop / f.cpu,
            5e-9 * flop / b.cpu, 7e-9 * flop / (f.wall + b.wall));
    else
        printf(
            "ms %8.3f forward %8.3f backward  TFLOP/s %6.1f forward %6.1f backward %6.1f both"
            "\n",
            1e3 * f.wall, 1e3 * b.wall, 2e-12 * flop / f.wall, 5e-12 * flop / b.wall,
            7e-12 * flop / (f.wall + b.wall));
    fflush(stdout);
}

static bd_json *boundaries_to_json(const attention_case *c)
{
    bd_json *rows = bd_json_array();
    for (int64_t r = 0; r < c->n_rows; r++) {
        bd_json *row = bd_json_array();
        for (int32_t i = c->offsets[r]; i < c->offsets[r + 1]; i++)
            bd_json_append(row, bd_json_integer(c->values[i]));
        bd_json_append(rows, row);
    }
    return rows;
}

// CPU time is meaningful only where the CPU does the work.
static bd_json *case_to_json(const attention_case *c, bool on_host, bench_time f, bench_time b)
{
    const double flop = product_flop(c);
    bd_json *json = bd_json_object();
    bd_json_set_string(json, "mix", mix_words[c->which]);
    bd_json_set_integer(json, "seq_len", c->seq_len);
    bd_json_set_integer(json, "rows", c->n_rows);
    bd_json_set_integer(json, "heads", c->n_heads);
    bd_json_set_integer(json, "head_size", c->head_size);
    bd_json_set_integer(json, "window", c->window);
    bd_json_set_integer(json, "documents", c->offsets[c->n_rows] - c->n_rows);
    bd_json_set_integer(json, "pairs", (int64_t)c->pairs);
    bd_json_set_real(json, "forward_ms", 1e3 * f.wall);
    bd_json_set_real(json, "backward_ms", 1e3 * b.wall);
    if (on_host) {
        bd_json_set_real(json, "forward_cpu_ms", 1e3 * f.cpu);
        bd_json_set_real(json, "backward_cpu_ms", 1e3 * b.cpu);
    }
    bd_json_set_real(json, "forward_tflops", 2e-12 * flop / f.wall);
    bd_json_set_real(json, "backward_tflops", 5e-12 * flop / b.wall);
    bd_json_set_real(json, "both_tflops", 7e-12 * flop / (f.wall + b.wall));
    bd_json_set(json, "boundaries", boundaries_to_json(c));
    return json;
}

// Appends to `results`, or prints if that is NULL.
static void run_case(bd_backend *backend, attention_case *c, bd_type type, bd_json *results)
{
    tensors t;
    make_documents(c);
    make_tensors(&t, backend, c, type);
    const bool on_host = backend->operations->works_on_host;
    const bench_time f = time_pass(backend, &t, FORWARD), b = time_pass(backend, &t, BACKWARD);
    if (results)
        bd_json_append(results, case_to_json(c, on_host, f, b));
    else
        print_case(c, on_host, f, b);
    release_tensors(&t, backend);
    free(c->offsets);
    free(c->values);
}

// MIX_EVEN compares the cost of rows of several lengths, so it is measured only on request.
static bool is_asked_for(mix m, int which)
{
    return which == EVERY_MIX ? m != MIX_EVEN : which == (int)m;
}

static void run_cases(bd_backend *backend, const attention_settings *s, bd_json *results)
{
    static const int64_t row_lengths[] = {1024, 4096, 16384}, sizes[] = {64, 128};
    const bool on_host = backend->operations->works_on_host;
    const int automatic = on_host ? (int)MIX_CORPUS : EVERY_MIX;
    const int which = s->mix == AUTOMATIC_MIX ? automatic : s->mix;
    const int n_lengths = s->seq_len == NOT_GIVEN ? 3 : 1;
    const int n_sizes = s->head_size == NOT_GIVEN && !on_host ? 2 : 1;
    for (int size = 0; size < n_sizes; size++)
        for (int m = 0; m < N_MIXES; m++)
            for (int l = 0; l < n_lengths && is_asked_for((mix)m, which); l++) {
                attention_case c = {
                    .which = (mix)m,
                    .seq_len = s->seq_len == NOT_GIVEN ? row_lengths[l] : s->seq_len,
                    .n_rows = s->n_rows,
                    .n_heads = s->n_heads,
                    .head_size = s->head_size == NOT_GIVEN ? sizes[size] : s->head_size,
                    .window = s->window,
                };
                if (c.n_rows == NOT_GIVEN)
                    c.n_rows =
                        on_host || c.seq_len > DEVICE_TOKENS ? 1 : DEVICE_TOKENS / c.seq_len;
                run_case(backend, &c, s->precision, results);
            }
}

static int attention_run(const bd_arguments *arguments)
{
    const attention_settings *s = arguments->settings;
    bd_backend *backend =
        bench_open(s->backend, s->backend_module, s->isa,
                   bench_threads(arguments, bd_threads_count(0)), s->precision);
    bd_json *results = s->json ? bd_json_array() : NULL;
    run_cases(backend, s, results);
    if (s->json) {
        bd_json *json = bd_json_object();
        bd_json_set_string(json, "backend", backend->operations->name);
        bd_json_set_string(json, "precision", bd_precision_names[s->precision]);
        bd_json_set(json, "cases", results);
        bench_print_json(json);
    }
    backend->operations->close(backend);
    return BD_EXIT_DONE;
}

static const bd_command attention_command = {
    .name = "bench_attention",
    .summary = "Measure document attention, forward and backward",
    .description =
        "THREADS are of the CPU; without it one for each processor. TFLOP/s count the "
        "pairs of tokens that may see each other: 2 products forward, 5 backward.",
    .operands = "[THREADS]",
    .options = attention_options,
    .n_options = sizeof attention_options / sizeof attention_options[0],
    .settings_size = sizeof(attention_settings),
    .run = attention_run,
};

int main(int argc, char **argv)
{
    return bench_main(&attention_command, argc, argv);
}
