// bench_attention - seconds of document attention, forward and backward, on the CPU backend.
//
//   bench_attention [THREADS]    [default: all processors]
//
// 12 heads of 64 in rows of 1024, 4096 and 16384 tokens; documents' lengths are log-normal with
// the mean and the number of allowed pairs of a real corpus (a longer row holds longer
// documents). CPU ms are of both passes, the median of the runs; GFLOP/s count the allowed
// pairs alone: 2 products forward, 5 backward.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/threads.h"
#include "kernels/backend.h"

enum {
    N_HEADS = 12,
    HEAD_SIZE = 64,
    WIDTH = N_HEADS * HEAD_SIZE,
    N_RUNS = 9,
    MAX_BOUNDS = 256
};

typedef struct row_kind {
    int64_t seq_len;
    double mean;    // length of a document
    double spread;  // of its logarithm
} row_kind;

static const row_kind kinds[] = {{1024, 128, 0.26}, {4096, 186, 0.57}, {16384, 221, 0.73}};

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

// Boundaries of a full row; returns how many.
static int make_bounds(const row_kind *kind, int32_t *bounds)
{
    const int n = (int)((double)kind->seq_len / kind->mean);
    double length[MAX_BOUNDS], total = 0.0, so_far = 0.0;
    uint64_t state = 1;
    for (int i = 0; i < n; i++)
        total += length[i] = exp(kind->spread * normal(&state));
    bounds[0] = 0;
    for (int i = 0; i < n; i++) {
        so_far += length[i];
        bounds[i + 1] = (int32_t)lrint((double)kind->seq_len * so_far / total);
    }
    return n + 1;
}

static double count_pairs(const int32_t *bounds, int n_bounds)
{
    double pairs = 0.0;
    for (int i = 0; i + 1 < n_bounds; i++) {
        const double n = bounds[i + 1] - bounds[i];
        pairs += n * (n + 1.0) / 2.0;
    }
    return pairs;
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

typedef struct timing {
    double cpu[N_RUNS], wall[N_RUNS];
} timing;

static double median(double *values)
{
    qsort(values, N_RUNS, sizeof *values, by_value);
    return values[N_RUNS / 2];
}

static float *tensor(bd_backend *backend, int64_t n)
{
    uint64_t state = 2;
    void *memory;
    bd_error err;
    if (backend->operations->allocate(backend, (size_t)n * sizeof(float), &memory, &err) !=
        BD_OK) {
        fprintf(stderr, "bench_attention: %s\n", err.message);
        exit(2);
    }
    float *x = memory;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(uniform(&state) - 0.5);
    return x;
}

static void run_kind(bd_backend *backend, const row_kind *kind)
{
    int32_t bounds[MAX_BOUNDS + 1];
    const int n_bounds = make_bounds(kind, bounds);
    const int32_t offsets[2] = {0, n_bounds};
    const bd_boundaries boundaries = {1, kind->seq_len, offsets, bounds};
    const int64_t n = kind->seq_len * WIDTH;
    float *qkv = tensor(backend, 3 * n), *d_qkv = tensor(backend, 3 * n),
          *out = tensor(backend, n), *d_out = tensor(backend, n);
    float *lse = tensor(backend, kind->seq_len * N_HEADS);

    const bd_attention_forward_args forward = {boundaries,  N_HEADS,         N_HEADS, HEAD_SIZE,
                                               3 * WIDTH,   3 * WIDTH,       0.125f,  qkv,
                                               qkv + WIDTH, qkv + 2 * WIDTH, out,     lse};
    const bd_attention_backward_args backward = {
        boundaries, N_HEADS, N_HEADS,       HEAD_SIZE,        3 * WIDTH, 3 * WIDTH,
        0.125f,     qkv,     qkv + WIDTH,   qkv + 2 * WIDTH,  out,       lse,
        d_out,      d_qkv,   d_qkv + WIDTH, d_qkv + 2 * WIDTH};
    timing first, second;
    for (int i = -1; i < N_RUNS; i++) {
        const double cpu0 = seconds(CLOCK_PROCESS_CPUTIME_ID), wall0 = seconds(CLOCK_MONOTONIC);
        backend->operations->attention_forward(backend, &forward, NULL);
        const double cpu1 = seconds(CLOCK_PROCESS_CPUTIME_ID), wall1 = seconds(CLOCK_MONOTONIC);
        backend->operations->attention_backward(backend, &backward, NULL);
        if (i < 0)
            continue;  // the first touches the memory
        first.cpu[i] = cpu1 - cpu0;
        first.wall[i] = wall1 - wall0;
        second.cpu[i] = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu1;
        second.wall[i] = seconds(CLOCK_MONOTONIC) - wall1;
    }
    const double pairs = count_pairs(bounds, n_bounds);
    const double flop = 2.0 * WIDTH * pairs;
    const double f = median(first.cpu), b = median(second.cpu);
    printf("T=%-6lld %3d documents %9.0f pairs  CPU ms %7.1f forward %7.1f backward %7.1f both"
           "  GFLOP per CPU second %5.1f %5.1f  wall GFLOP/s %5.1f\n",
           (long long)kind->seq_len, n_bounds - 1, pairs, 1e3 * f, 1e3 * b, 1e3 * (f + b),
           2e-9 * flop / f, 5e-9 * flop / b,
           7e-9 * flop / (median(first.wall) + median(second.wall)));
    backend->operations->release(backend, qkv);
    backend->operations->release(backend, d_qkv);
    backend->operations->release(backend, out);
    backend->operations->release(backend, d_out);
    backend->operations->release(backend, lse);
}

int main(int argc, char **argv)
{
    bd_backend *backend;
    bd_error err;
    const int n_threads = argc > 1 ? atoi(argv[1]) : bd_threads_count(0);
    if (bd_backend_open_cpu(&backend, n_threads, &err) != BD_OK) {
        fprintf(stderr, "bench_attention: %s\n", err.message);
        return 2;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        run_kind(backend, &kinds[i]);
    backend->operations->close(backend);
    return 0;
}
