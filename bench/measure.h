// measure.h - shared by the benchmarks of backends: options, the backend, clocks, medians.
#ifndef BINDERY_BENCH_MEASURE_H
#define BINDERY_BENCH_MEASURE_H

#include <stddef.h>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/cli/options.h"
#include "trainer/model/backend_choice.h"

// Runs a benchmark, a program with one command: reads the options by the command's table,
// prints help and messages. Returns the exit status.
int bench_main(const bd_command *command, int argc, char **argv);

// Unless `status` is BD_OK, prints "bench_train: MESSAGE" on stderr and exits.
void bench_check(bd_status status, const bd_error *err);

// Returns the operand [THREADS], or `otherwise` if it is absent.
int bench_threads(const bd_arguments *arguments, int otherwise);

// Memory of the host; free() it.
void *bench_allocate(size_t size_bytes);

// Opens the backend and checks that it computes in `type`.
bd_backend *bench_open(bd_backend_choice choice, const char *module, bd_isa_choice isa,
                       int n_threads, bd_type type);

// Allocates the backend's memory and copies `from` into it; zeros if that is NULL.
void *bench_memory(bd_backend *backend, const void *from, size_t size_bytes);

// CPU seconds (all threads) and wall-clock seconds.
typedef struct bench_time {
    double cpu, wall;
} bench_time;

bench_time bench_now(void);
bench_time bench_since(bench_time begun);
bench_time bench_median(const bench_time *times, size_t n);  // the median of each field

void bench_print_json(bd_json *json);  // takes ownership

#endif
