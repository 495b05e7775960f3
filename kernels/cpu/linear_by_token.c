// Tiles of a few outputs by a few tokens keep their sums in registers. A weight is read from
// memory once for all tokens, and the tokens stay in the cache. Which outputs and tokens share a
// tile changes no result, because the order of a sum depends on n_in alone.
#include "kernels/linear_by_token.h"

#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

// The sums of a tile and what is loaded for them fit the registers.
enum { TOKENS = 6 };
#if defined(__AVX512F__)
enum { WIDTH = 4 };
#else
enum { WIDTH = 2 };
#endif

// Runs are summed in float, and their sums in double (kernels/summation.h).
enum { VECTORS_PER_RUN = 128, INPUTS_PER_RUN = 64 };

// A task has about this many weights: small enough for many threads, large enough to outweigh
// the start of a task.
enum { WEIGHTS_PER_TASK = 1 << 16, OUTPUTS_APART = 8 * BD_LANES };
enum { JOINS_PER_TASK = 4096, LINE_BYTES = 64 };

typedef struct by_token_work {
    const bd_linear_by_token_args *args;
    int64_t stride;   // of out
    float *run_sums;  // [run][whole_vectors(n_out)], only for a lone token
} by_token_work;

static const float *row_of_token(const bd_linear_by_token_args *a, int64_t t)
{
    return bd_floats(a->x, (a->rows ? a->rows[t] : t) * a->n_in);
}

static void put_sum(const by_token_work *work, int64_t t, int64_t j, double sum)
{
    const bd_linear_by_token_args *a = work->args;
    const double bias = a->bias ? (double)*bd_floats(a->bias, j) : 0.0;
    *bd_floats_out(a->out, t * work->stride + j) = (float)(sum + bias);
}

// ---- BD_WEIGHT_OUT_IN: a vector has neighbouring inputs of one output --------------------

// Outputs j … j + n_outputs - 1 of tokens t … t + n_tokens - 1.
static inline __attribute__((always_inline)) void multiply_rows(const by_token_work *work,
                                                                int64_t j, int64_t t,
                                                                const int n_outputs,
                                                                const int n_tokens)
{
    const bd_linear_by_token_args *a = work->args;
    const int64_t n = a->n_in, whole = n / BD_LANES * BD_LANES;
    const float *w = bd_floats(a->weight, j * n), *x[TOKENS];
    double sums[WIDTH][TOKENS] = {{0}};
    for (int s = 0; s < n_tokens; s++)
        x[s] = row_of_token(a, t + s);
    for (int64_t i = 0; i < whole;) {
        const int64_t end = bd_min(i + VECTORS_PER_RUN * BD_LANES, whole);
        bd_vector run[WIDTH][TOKENS] = {{{0}}};
        for (; i < end; i += BD_LANES) {
            bd_vector weights[WIDTH];
#pragma GCC unroll 8
            for (int o = 0; o < n_outputs; o++)
                weights[o] = bd_load(w + o * n + i);
#pragma GCC unroll 8
            for (int s = 0; s < n_tokens; s++) {
                const bd_vector inputs = bd_load(x[s] + i);
#pragma GCC unroll 8
                for (int o = 0; o < n_outputs; o++)
                    run[o][s] += weights[o] * inputs;
            }
        }
#pragma GCC unroll 8
        for (int o = 0; o < n_outputs; o++)
#pragma GCC unroll 8
            for (int s = 0; s < n_tokens; s++)
                sums[o][s] += bd_add_lanes(run[o][s]);
    }
    for (int o = 0; o < n_outputs; o++)
        for (int s = 0; s < n_tokens; s++) {
            for (int64_t i = whole; i < n; i++)
                sums[o][s] += (double)w[o * n + i] * (double)x[s][i];
            put_sum(work, t + s, j + o, sums[o][s]);
        }
}

// ---- BD_WEIGHT_IN_OUT: a vector has neighbouring outputs of one input --------------------

// The same for n_vectors vectors of outputs.
static inline __attribute__((always_inline)) void multiply_columns(const by_token_work *work,
                                                                   int64_t j, int64_t t,
                                                                   const int n_vectors,
                                                                   const int n_tokens)
{
    const bd_linear_by_token_args *a = work->args;
    const float *w = bd_floats(a->weight, j), *x[TOKENS];
    double sums[TOKENS][WIDTH * BD_LANES] = {{0}};
    for (int s = 0; s < n_tokens; s++)
        x[s] = row_of_token(a, t + s);
    for (int64_t i = 0; i < a->n_in;) {
        const int64_t end = bd_min(i + INPUTS_PER_RUN, a->n_in);
        bd_vector run[TOKENS][WIDTH] = {{{0}}};
        for (; i < end; i++) {
            bd_vector weights[WIDTH];
#pragma GCC unroll 8
            for (int v = 0; v < n_vectors; v++)
                weights[v] = bd_load(w + i * a->n_out + v * BD_LANES);
#pragma GCC unroll 8
            for (int s = 0; s < n_tokens; s++)
#pragma GCC unroll 8
                for (int v = 0; v < n_vectors; v++)
                    run[s][v] += x[s][i] * weights[v];
        }
        for (int s = 0; s < n_tokens; s++)
            for (int v = 0; v < n_vectors; v++) {
                float lanes[BD_LANES];
                bd_store(lanes, run[s][v]);
                for (int l = 0; l < BD_LANES; l++)
                    sums[s][v * BD_LANES + l] += (double)lanes[l];
            }
    }
    for (int s = 0; s < n_tokens; s++)
        for (int o = 0; o < n_vectors * BD_LANES; o++)
            put_sum(work, t + s, j + o, sums[s][o]);
}

// One of the last outputs, which fill no vector.
static void multiply_column(const by_token_work *work, int64_t j, int64_t t)
{
    const bd_linear_by_token_args *a = work->args;
    const float *w = bd_floats(a->weight, j), *x = row_of_token(a, t);
    double sum = 0.0;
    for (int64_t i = 0; i < a->n_in; i++)
        sum += (double)x[i] * (double)w[i * a->n_out];
    put_sum(work, t, j, sum);
}

// ---- Tiles ------------------------------------------------------------------------------

// A tile of `width` outputs, or vectors of outputs, and all tokens.
static inline __attribute__((always_inline)) void
multiply_strip(const by_token_work *work, int64_t j, const int width, const int rows)
{
#define TILE(n)                                     \
    do {                                            \
        if (rows)                                   \
            multiply_rows(work, j, t, width, n);    \
        else                                        \
            multiply_columns(work, j, t, width, n); \
    } while (0)
    const int64_t n_tokens = work->args->n_tokens;
    int64_t t = 0;
    for (; t + TOKENS <= n_tokens; t += TOKENS)
        TILE(TOKENS);
    switch (n_tokens - t) {
    case 5:
        TILE(5);
        break;
    case 4:
        TILE(4);
        break;
    case 3:
        TILE(3);
        break;
    case 2:
        TILE(2);
        break;
    case 1:
        TILE(1);
        break;
    default:
        break;
    }
#undef TILE
}

static void multiply_outputs(const by_token_work *work, int64_t first, int64_t last)
{
    const int64_t n_tokens = work->args->n_tokens;
    int64_t j = first;
    // For few tokens one row after the other, which is the quickest way to read them
    // (bench/generate.c: for a lone token two rows at a time take twice as long).
    for (; n_tokens > TOKENS && j + WIDTH <= last; j += WIDTH)
        multiply_strip(work, j, WIDTH, 1);
    for (; j < last; j++)
        multiply_strip(work, j, 1, 1);
}

static void multiply_output_vectors(const by_token_work *work, int64_t first, int64_t last)
{
    const int64_t n_tokens = work->args->n_tokens;
    int64_t j = first;
    for (; j + WIDTH * BD_LANES <= last; j += WIDTH * BD_LANES)
        multiply_strip(work, j, WIDTH, 0);
    for (; j + BD_LANES <= last; j += BD_LANES)
        multiply_strip(work, j, 1, 0);
    for (; j < last; j++)
        for (int64_t t = 0; t < n_tokens; t++)
            multiply_column(work, j, t);
}

static void activate_outputs(const by_token_work *work, int64_t first, int64_t last)
{
    const bd_linear_by_token_args *a = work->args;
    for (int64_t t = 0; a->activation != BD_ACTIVATION_NONE && t < a->n_tokens; t++) {
        float *out = bd_floats_out(a->out, t * work->stride + first);
        BD_CPU(activate)(a->activation, out, out, last - first);
    }
}

static void by_token_loop(const void *context, int64_t first, int64_t last)
{
    const by_token_work *work = context;
    const bd_linear_by_token_args *a = work->args;
    if (a->layout == BD_WEIGHT_OUT_IN)
        multiply_outputs(work, first, last);
    else
        multiply_output_vectors(work, first, last);
    activate_outputs(work, first, last);
}

// ---- BD_WEIGHT_IN_OUT and a lone token --------------------------------------------------

// Then a task has a run of inputs: it reads whole rows, one after the other, which is far quicker
// than strips of columns (bench/generate.c, GPT-2: twice as quick), and keeps its sums in the
// cache. The order of the additions is the same.

static int64_t whole_vectors(int64_t n_out)
{
    return n_out / BD_LANES * BD_LANES;
}

static bd_status lone_run(void *context, int64_t run, bd_error *err)
{
    (void)err;
    const by_token_work *work = context;
    const bd_linear_by_token_args *a = work->args;
    const int64_t n = whole_vectors(a->n_out);
    const int64_t end = bd_min((run + 1) * INPUTS_PER_RUN, a->n_in);
    const float *x = row_of_token(a, 0);
    float *restrict sums = work->run_sums + run * n;
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int64_t i = run * INPUTS_PER_RUN; i < end; i++) {
        const float *w = bd_floats(a->weight, i * a->n_out);
        const float factor = x[i];
        for (int64_t c = 0; c < n; c += BD_LANES)
            bd_store(sums + c, bd_load(sums + c) + factor * bd_load(w + c));
    }
    return BD_OK;
}

static void join_runs(const void *context, int64_t first, int64_t last)
{
    const by_token_work *work = context;
    const bd_linear_by_token_args *a = work->args;
    const int64_t n_runs = bd_ceil_divide(a->n_in, INPUTS_PER_RUN);
    const int64_t n = whole_vectors(a->n_out);
    int64_t j = first;
    for (; j < bd_min(last, n); j++) {
        double sum = 0.0;
        for (int64_t run = 0; run < n_runs; run++)
            sum += (double)work->run_sums[run * n + j];
        put_sum(work, 0, j, sum);
    }
    for (; j < last; j++)
        multiply_column(work, j, 0);
    activate_outputs(work, first, last);
}

static bd_status multiply_lone_token(bd_backend *backend, by_token_work *work, bd_error *err)
{
    const bd_linear_by_token_args *a = work->args;
    const int64_t n_runs = bd_ceil_divide(a->n_in, INPUTS_PER_RUN);
    const size_t size_bytes =
        (size_t)(n_runs * whole_vectors(a->n_out)) * sizeof *work->run_sums;
    void *memory;
    BD_TRY(bd_cpu_scratch(backend, size_bytes + LINE_BYTES, &memory, err));
    work->run_sums = (float *)(((uintptr_t)memory + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
    BD_TRY(bd_threads_run(((bd_cpu_backend *)backend)->threads, lone_run, work, n_runs, err));
    return bd_cpu_for(backend, a->n_out, JOINS_PER_TASK, join_runs, work, err);
}

// ---- The operation ----------------------------------------------------------------------

// Tasks are cut where every instruction set has whole vectors, so that an output is computed in
// the same way wherever a task begins.
BD_CPU_OPERATION(linear_by_token)
{
    by_token_work work = {.args = args, .stride = bd_stride(args->out_stride, args->n_out)};
    const int64_t outputs = bd_ceil_divide(WEIGHTS_PER_TASK, args->n_in);
    if (args->n_tokens == 0)
        return BD_OK;
    if (args->n_tokens == 1 && args->layout == BD_WEIGHT_IN_OUT)
        return multiply_lone_token(backend, &work, err);
    return bd_cpu_for(backend, args->n_out,
                      bd_ceil_divide(outputs, OUTPUTS_APART) * OUTPUTS_APART, by_token_loop,
                      &work, err);
}
