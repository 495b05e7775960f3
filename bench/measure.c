#include "bench/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cli/program.h"

static const char *program_name;

void bench_check(bd_status status, const bd_error *err)
{
    if (status == BD_OK)
        return;
    fprintf(stderr, "%s: %s\n", program_name, err->message);
    exit(BD_EXIT_FAILED);
}

static void print_help(const bd_command *command)
{
    static const bd_command_group no_groups[] = {NULL};
    const bd_program program = {.name = command->name, .groups = no_groups};
    bd_command alone = *command;
    alone.name = "";  // the program's name says which command it is
    bd_program_print_help(&program, &alone, stdout);
}

int bench_main(const bd_command *command, int argc, char **argv)
{
    bd_arguments arguments;
    bd_error err;
    int status = BD_EXIT_DONE;
    program_name = command->name;
    bench_check(bd_arguments_parse(&arguments, command, argc, argv, &err), &err);
    if (arguments.help)
        print_help(command);
    else if (arguments.version)
        printf("%s %s\n", command->name, BINDERY_VERSION);
    else
        status = command->run(&arguments);
    bd_arguments_release(&arguments);
    return status;
}

int bench_threads(const bd_arguments *arguments, int otherwise)
{
    if (arguments->n_operands == 0)
        return otherwise;
    char *end;
    const long n = strtol(arguments->operands[0], &end, 10);
    bd_error err;
    if (*end != '\0' || n < 1 || n > 4096)
        bench_check(bd_fail(&err, BD_ERR_ARGUMENT,
                            "'%s' is not a number of threads (1 to 4096)",
                            arguments->operands[0]),
                    &err);
    return (int)n;
}

void *bench_allocate(size_t size_bytes)
{
    void *memory = malloc(size_bytes);
    bd_error err;
    if (!memory)
        bench_check(bd_fail(&err, BD_ERR_MEMORY, "no memory for %zu bytes", size_bytes), &err);
    return memory;
}

bd_backend *bench_open(bd_backend_choice choice, const char *module, bd_isa_choice isa,
                       int n_threads, bd_type type)
{
    bd_backend *backend;
    bd_error err;
    bench_check(bd_backend_open_choice(&backend, choice, module, isa, 0, n_threads, &err),
                &err);
    bench_check(bd_backend_check_type(backend, type, &err), &err);
    return backend;
}

void *bench_memory(bd_backend *backend, const void *from, size_t size_bytes)
{
    const bd_operations *operations = backend->operations;
    void *memory;
    bd_error err;
    bench_check(operations->allocate(backend, size_bytes, &memory, &err), &err);
    if (from)
        bench_check(operations->upload(backend, memory, from, size_bytes, &err), &err);
    return memory;
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bench_time bench_now(void)
{
    return (bench_time){seconds(CLOCK_PROCESS_CPUTIME_ID), seconds(CLOCK_MONOTONIC)};
}

bench_time bench_since(bench_time begun)
{
    const bench_time now = bench_now();
    return (bench_time){now.cpu - begun.cpu, now.wall - begun.wall};
}

static int ascending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

bench_time bench_median(const bench_time *times, size_t n)
{
    bd_error err;
    double *cpu = malloc(2 * n * sizeof *cpu), *wall = cpu + n;
    if (!cpu)
        bench_check(bd_fail(&err, BD_ERR_MEMORY, "no memory for %zu times", n), &err);
    for (size_t i = 0; i < n; i++) {
        cpu[i] = times[i].cpu;
        wall[i] = times[i].wall;
    }
    qsort(cpu, n, sizeof *cpu, ascending);
    qsort(wall, n, sizeof *wall, ascending);
    const bench_time median = {cpu[n / 2], wall[n / 2]};
    free(cpu);
    return median;
}

void bench_print_json(bd_json *json)
{
    bd_error err;
    bench_check(bd_json_put(json, BD_JSON_COMPACT, stdout, &err), &err);
}
