// Parity of the CUDA backend with the CPU backend, operation by operation.
//
//   operations_test device|emulated MODULE [CASE]
//
// MODULE is the real module, and the test is skipped where that finds no device; or it is the
// emulated one, which must open anywhere. In the emulation every case runs under each schedule
// of threads, and must give the same bits. Inputs and outputs lie between guard bands; outputs
// begin as NaN where they are written, and as numbers where they are added to.
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../emulation/emulation.h"
#include "device_fixture.h"
#include "kernels/module.h"
#include "operations_cases.h"

typedef void (*configure_function)(const bd_emulation_settings *);
static configure_function configure;  // NULL on a device

typedef struct test_case {
    const char *name;
    void (*check)(void);
} test_case;

static test_case cases[] = {
    {"embedding_agrees", embedding_agrees},
    {"layer_norm_agrees", layer_norm_agrees},
    {"linear_agrees", linear_agrees},
    {"attention_agrees", attention_agrees},
    {"same_shape_takes_another_bias", same_shape_takes_another_bias},
    {"elements_agree", elements_agree},
    {"sum_of_squares_agrees", sum_of_squares_agrees},
    {"cross_entropy_agrees", cross_entropy_agrees},
    {"copies_keep_every_byte", copies_keep_every_byte},
    {"allocated_memory_is_zero", allocated_memory_is_zero},
    {"too_much_memory_is_refused", too_much_memory_is_refused},
    {"missing_device_is_refused", missing_device_is_refused},
    {"second_backend_leaves_the_first_alone", second_backend_leaves_the_first_alone},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void run_case(void **state)
{
    const test_case *c = *state;
    const int n_schedules = configure && !BRIEF ? BD_N_SCHEDULES : 1;
    for (int schedule = 0; schedule < n_schedules; schedule++) {
        if (configure)
            configure(&(bd_emulation_settings){
                .schedule = (bd_emulation_schedule)schedule,
                .copies = (bd_emulation_copies)(schedule % BD_N_COPIES),
                .streams = (bd_emulation_streams)(schedule % BD_N_STREAMS),
                .seed = 77,
                .host_threads = 2,
            });
        start_comparisons(schedule == 0);
        c->check();
        end_comparisons();
    }
    forget_comparisons();
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s device|emulated MODULE [CASE]\n", argv[0]);
        return 2;
    }
    const int emulated = strcmp(argv[1], "emulated") == 0;
    bd_error err;
    module_path = argv[2];
    if (bd_backend_open_module(&cuda, module_path, &(bd_cuda_settings){0}, &err) != BD_OK) {
        printf("%s: %s\n", emulated ? "failed" : "skipped", err.message);
        return emulated ? 1 : 77;
    }
    if (bd_backend_open_cpu(&cpu, 2, &err) != BD_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (emulated) {
        *(void **)&configure = dlsym(dlopen(module_path, RTLD_NOW), "bd_emulation_configure");
        assert_non_null(configure);
    }

    struct CMUnitTest tests[N_CASES];
    for (int i = 0; i < N_CASES; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, run_case, NULL, NULL, &cases[i]};
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    cuda->operations->close(cuda);
    cpu->operations->close(cpu);
    return failures;
}
