#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/module.h"

// Opens `path` and expects a refusal whose message contains `reason`.
static void expect_refusal(const char *path, const char *reason)
{
    bd_backend *backend = (bd_backend *)&backend;  // not NULL: the call must set it to NULL
    bd_error err;
    const bd_cuda_settings settings = {0};
    assert_int_equal(bd_backend_open_module(&backend, path, &settings, &err),
                     BD_ERR_UNSUPPORTED);
    assert_null(backend);
    if (strncmp(err.message, "cuda is not available: ", 23) != 0 ||
        !strstr(err.message, reason))
        fail_msg("the message is '%s'", err.message);
}

static void missing_module_is_named(void **state)
{
    (void)state;
    expect_refusal("/nowhere/module.so", "no module at '/nowhere/module.so'");
    expect_refusal("module-that-is-not-here.so", "no module at 'module-that-is-not-here.so'");
}

// There is no module beside the test's own program.
static void default_module_is_sought_beside_the_program(void **state)
{
    (void)state;
    expect_refusal(NULL, "/libbindery_cuda.so'");
}

static void long_path_is_refused(void **state)
{
    (void)state;
    static char path[10000];
    memset(path, 'x', sizeof path - 1);
    expect_refusal(path, "no module at 'xxxx");
}

static void file_that_is_no_module_is_refused(void **state)
{
    (void)state;
    expect_refusal("/dev/null", "cannot load the module");
}

static void library_that_is_no_module_is_refused(void **state)
{
    (void)state;
    expect_refusal(BINDERY_UNRELATED_MODULE, "is not a module of bindery");
}

static void module_of_another_build_is_refused_before_it_is_called(void **state)
{
    (void)state;
    expect_refusal(BINDERY_OLD_MODULE,
                   "belongs to another build of bindery (interface 0, not ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_module_is_named),
        cmocka_unit_test(default_module_is_sought_beside_the_program),
        cmocka_unit_test(long_path_is_refused),
        cmocka_unit_test(file_that_is_no_module_is_refused),
        cmocka_unit_test(library_that_is_no_module_is_refused),
        cmocka_unit_test(module_of_another_build_is_refused_before_it_is_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
