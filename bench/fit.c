// bench_fit - how fast packer/pack/fit.h places documents, how well, and in how much memory.
//
//   bench_fit               one line per set of lengths
//   bench_fit --dump FILE   write the first set's lengths as raw int32, for bench/fit-rivals.py
//
// Seconds are CPU seconds of the call alone, the median of five. Each set runs in a process of
// its own, so that the peak of resident memory is that set's: lengths and rows (4 bytes per
// document each), the program itself, and whatever the call needs besides.
#include "packer/pack/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SEQ_LEN = 2048, N_RUNS = 5 };

// ---- Lengths: the same on every machine that rounds exp() and log() alike ----------

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

static int32_t log_normal(uint64_t *state, double median, double sigma)
{
    const double angle = 2.0 * M_PI * uniform(state);
    const double normal = sqrt(-2.0 * log(uniform(state))) * cos(angle);
    const double length = ceil(median * exp(sigma * normal));
    return length < SEQ_LEN ? (int32_t)length : SEQ_LEN;
}

// One document in eleven fills a row, and hardly any is short enough for the remaining gaps.
static int32_t narrow_log_normal(uint64_t *state)
{
    return log_normal(state, 400.0, 1.2);
}

// Median and 99th percentile, in GPT-2 tokens, of 203 MB of documentation, man pages and code.
static int32_t corpus_log_normal(uint64_t *state)
{
    return log_normal(state, 347.0, 1.79);
}

static int32_t any_length(uint64_t *state)
{
    return 1 + (int32_t)(next_random(state) % SEQ_LEN);
}

// A hard case: of ten documents, nine exclude each other and the tenth cannot fill the gaps.
static int32_t mostly_over_half(uint64_t *state)
{
    const int32_t half = SEQ_LEN / 2;
    const int32_t base = uniform(state) <= 0.9 ? half : 0;
    return base + 1 + (int32_t)(next_random(state) % half);
}

typedef struct length_set {
    const char *name;  // one word: fit-rivals.py splits the table at spaces
    int64_t n;
    int32_t (*draw)(uint64_t *state);
    bd_status (*fit)(const int32_t *lengths, int64_t n, int32_t seq_len, int32_t max_segments,
                     int32_t *row_of, int32_t *n_rows, bd_error *err);
} length_set;

static const length_set SETS[] = {
    {"log-normal-1M", 1000000, narrow_log_normal, bd_fit_best},
    {"log-normal-10M", 10000000, narrow_log_normal, bd_fit_best},
    {"corpus-1M", 1000000, corpus_log_normal, bd_fit_best},
    {"corpus-10M", 10000000, corpus_log_normal, bd_fit_best},
    {"uniform-10M", 10000000, any_length, bd_fit_best},
    {"over-half-10M", 10000000, mostly_over_half, bd_fit_best},
    {"first-fit-1M", 1000000, narrow_log_normal, bd_fit_first},
    {"first-fit-10M", 10000000, narrow_log_normal, bd_fit_first},
};

static void *must_allocate(size_t size_bytes)
{
    void *memory = malloc(size_bytes);
    if (!memory) {
        fprintf(stderr, "bench_fit: no memory\n");
        exit(2);
    }
    return memory;
}

static int32_t *draw_lengths(const length_set *set)
{
    int32_t *lengths = must_allocate((size_t)set->n * sizeof *lengths);
    uint64_t state = 1;
    for (int64_t i = 0; i < set->n; i++)
        lengths[i] = set->draw(&state);
    return lengths;
}

// ---- Measuring ----------------------------------------------------------------------

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const length_set *set)
{
    int32_t *lengths = draw_lengths(set);
    int32_t *row_of = must_allocate((size_t)set->n * sizeof *row_of);
    memset(row_of, -1, (size_t)set->n * sizeof *row_of);  // its page faults are not timed

    int32_t n_rows = 0;
    double seconds[N_RUNS];
    for (int run = 0; run < N_RUNS; run++) {
        bd_error err;
        const double start = cpu_seconds();
        if (set->fit(lengths, set->n, SEQ_LEN, 0, row_of, &n_rows, &err) != BD_OK) {
            fprintf(stderr, "bench_fit: %s\n", err.message);
            exit(2);
        }
        seconds[run] = cpu_seconds() - start;
    }
    qsort(seconds, N_RUNS, sizeof *seconds, by_value);
    const double median = seconds[N_RUNS / 2];

    int64_t n_tokens = 0;
    for (int64_t i = 0; i < set->n; i++)
        n_tokens += lengths[i];
    const int64_t bound = (n_tokens + SEQ_LEN - 1) / SEQ_LEN;
    const double padding = 1.0 - (double)n_tokens / ((double)n_rows * SEQ_LEN);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%-16s %10lld %9d %9lld %10.4f %8.4f %11.1f %9.1f\n", set->name, (long long)set->n,
           n_rows, (long long)bound, 100.0 * padding, median, (double)set->n / median / 1e6,
           (double)usage.ru_maxrss / 1024.0);
    free(row_of);
    free(lengths);
}

static int measure_all(void)
{
    printf("%-16s %10s %9s %9s %10s %8s %11s %9s\n", "lengths", "documents", "rows", "bound",
           "padding-%", "CPU-s", "Mdocs/CPU-s", "peak-MiB");
    for (size_t s = 0; s < sizeof SETS / sizeof *SETS; s++) {
        fflush(stdout);  // otherwise the child would print it again
        const pid_t child = fork();
        if (child == 0) {
            measure(&SETS[s]);
            exit(0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
            fprintf(stderr, "bench_fit: could not measure %s\n", SETS[s].name);
            return 2;
        }
    }
    return 0;
}

static int dump(const char *path)
{
    int32_t *lengths = draw_lengths(&SETS[0]);
    const size_t n = (size_t)SETS[0].n;
    FILE *file = fopen(path, "wb");
    const int written = file && fwrite(lengths, sizeof *lengths, n, file) == n;
    const int closed = file && fclose(file) == 0;
    free(lengths);
    if (!written || !closed) {
        fprintf(stderr, "bench_fit: cannot write '%s'\n", path);
        return 2;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return measure_all();
    if (argc == 3 && strcmp(argv[1], "--dump") == 0)
        return dump(argv[2]);
    fprintf(stderr, "Usage: bench_fit [--dump FILE]\n");
    return 2;
}
