// Training speed of the small model that bench/train-rivals.py measures in PyTorch: GPT-2 with
// 4 layers, 256 channels, 4 heads, vocabulary 8192; 4 rows of 512 tokens per step, documents of
// mean length 200; forward, backward and AdamW, float.
//
//   bench_train [--rows FILE] [THREADS]
//
// --rows writes the rows' boundaries as JSON, for `bench/train-rivals.py --rows FILE`. A first
// round over all rows warms up; then the median of the steps is printed.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "trainer/model.h"
#include "trainer/random.h"

enum { SEQ_LEN = 512, STEP_ROWS = 4, N_ROWS = 40, N_STEPS = 30, MAX_BOUNDS = SEQ_LEN + 1 };

static const bd_model_config config = {BD_MODEL_GPT2, 4, 256, 4, 1024, SEQ_LEN, 8192};

typedef struct corpus {
    int32_t offsets[N_ROWS + 1];
    int32_t values[N_ROWS * MAX_BOUNDS];
    uint16_t ids[N_ROWS * SEQ_LEN];
} corpus;

static void check(bd_status status, const bd_error *err)
{
    if (status == BD_OK)
        return;
    fprintf(stderr, "bench_train: %s\n", err->message);
    exit(2);
}

// Log-normal documents of mean 200 (sigma 1), end to end, cut where a row ends.
static void make_corpus(corpus *c)
{
    bd_random random = {1};
    double left = 0;
    int32_t n = 0;
    for (int r = 0; r < N_ROWS; r++) {
        int32_t at = 0;
        c->offsets[r] = n;
        c->values[n++] = 0;
        while (at < SEQ_LEN) {
            if (left < 1)
                left = fmax(1, round(exp(log(200.0) - 0.5 + bd_random_normal(&random))));
            const int32_t length = (int32_t)fmin(left, SEQ_LEN - at);
            left -= length;
            at += length;
            c->values[n++] = at;
        }
    }
    c->offsets[N_ROWS] = n;
    for (int t = 0; t < N_ROWS * SEQ_LEN; t++)
        c->ids[t] = (uint16_t)bd_random_bounded(&random, (uint32_t)config.n_vocabulary);
}

static void write_rows(const corpus *c, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out) {
        perror(path);
        exit(2);
    }
    for (int r = 0; r < N_ROWS; r++) {
        fprintf(out, "%s[0", r == 0 ? "[" : ",\n ");
        for (int32_t i = c->offsets[r] + 1; i < c->offsets[r + 1]; i++)
            fprintf(out, ", %d", c->values[i]);
        fputc(']', out);
    }
    fputs("]\n", out);
    fclose(out);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Weights, moments and the model that they belong to.
typedef struct trainee {
    bd_parameters parameters;
    bd_backend *backend;
    bd_model model;
    void *m, *v;
} trainee;

static void open_trainee(trainee *t, int n_threads)
{
    bd_error err;
    check(bd_parameters_init(&t->parameters, &config, &err), &err);
    check(bd_backend_open_cpu(&t->backend, n_threads, &err), &err);
    check(bd_model_init(&t->model, t->backend, &t->parameters, STEP_ROWS, SEQ_LEN, &err), &err);
    const size_t size_bytes = (size_t)t->parameters.n_total * sizeof(float);
    check(t->backend->operations->allocate(t->backend, size_bytes, &t->m, &err), &err);
    check(t->backend->operations->allocate(t->backend, size_bytes, &t->v, &err), &err);
    float *weights = malloc(size_bytes);
    if (!weights)
        exit(2);
    bd_parameters_draw(&t->parameters, 1, weights);
    check(bd_model_set_weights(&t->model, weights, &err), &err);
    free(weights);
}

static void close_trainee(trainee *t)
{
    t->backend->operations->release(t->backend, t->m);
    t->backend->operations->release(t->backend, t->v);
    bd_model_release(&t->model);
    t->backend->operations->close(t->backend);
    bd_parameters_release(&t->parameters);
}

static void train_step(trainee *t, const corpus *c, int step)
{
    const int row = step * STEP_ROWS % N_ROWS;
    const bd_boundaries boundaries = {STEP_ROWS, SEQ_LEN, c->offsets + row, c->values};
    const bd_model_batch batch = {c->ids + row * SEQ_LEN, sizeof *c->ids, boundaries,
                                  boundaries, boundaries};
    bd_error err;
    double loss_sum;
    check(bd_model_zero_gradients(&t->model, &err), &err);
    check(bd_model_train(&t->model, &batch, 1.0 / (STEP_ROWS * SEQ_LEN), &loss_sum, &err),
          &err);
    const bd_adamw_args args = {
        .n = t->parameters.n_total,
        .step = step + 1,
        .learning_rate = 1e-4f,
        .beta1 = 0.9f,
        .beta2 = 0.95f,
        .epsilon = 1e-8f,
        .weight_decay = 0.1f,
        .gradient_scale = 1.0f,
        .gradient = t->model.gradients,
        .parameter = t->model.weights,
        .m = t->m,
        .v = t->v,
    };
    check(t->backend->operations->adamw(t->backend, &args, &err), &err);
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

int main(int argc, char **argv)
{
    static corpus c;
    trainee t;
    int n_threads = 2;
    make_corpus(&c);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc)
            write_rows(&c, argv[++i]);
        else
            n_threads = atoi(argv[i]);
    }
    if (n_threads < 1) {
        fprintf(stderr, "usage: bench_train [--rows FILE] [THREADS]\n");
        return 2;
    }
    open_trainee(&t, n_threads);
    double wall[N_STEPS], cpu[N_STEPS];
    for (int step = -N_ROWS / STEP_ROWS; step < N_STEPS; step++) {
        const double wall_begun = seconds(CLOCK_MONOTONIC);
        const double cpu_begun = seconds(CLOCK_PROCESS_CPUTIME_ID);
        train_step(&t, &c, step + N_ROWS / STEP_ROWS);
        if (step >= 0) {
            wall[step] = seconds(CLOCK_MONOTONIC) - wall_begun;
            cpu[step] = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begun;
        }
    }
    qsort(wall, N_STEPS, sizeof *wall, ascending);
    qsort(cpu, N_STEPS, sizeof *cpu, ascending);
    const double n_tokens = STEP_ROWS * SEQ_LEN;
    printf("%d threads: %.0f tokens/s, %.3f CPU ms/token (median of %d steps)\n", n_threads,
           n_tokens / wall[N_STEPS / 2], 1e3 * cpu[N_STEPS / 2] / n_tokens, N_STEPS);
    close_trainee(&t);
    return 0;
}
