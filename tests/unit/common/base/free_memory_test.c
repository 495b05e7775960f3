#include "common/base/free_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

static void something_is_known_and_free(void **state)
{
    (void)state;
    const size_t n = bd_free_memory();
    assert_true(n > 0);
    assert_true(n < SIZE_MAX);
}

#ifndef __SANITIZE_ADDRESS__  // it needs more address space than any limit leaves
// A limit of the address space reduces it by as much as the process uses already, and memory
// that is allocated under the limit reduces it further.
static void a_limit_of_the_process_counts(void **state)
{
    (void)state;
    enum { BLOCK = 64 << 20 };
    const rlim_t room = 1 << 30;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = (struct rlimit){room, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    const size_t first = bd_free_memory();
    void *block = malloc(BLOCK);  // so large that it is mapped
    const size_t then = bd_free_memory();
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_non_null(block);
    free(block);
    assert_in_range(first, 1, room);
    assert_in_range(first - then, BLOCK, BLOCK + (1 << 20));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(something_is_known_and_free),
#ifndef __SANITIZE_ADDRESS__
        cmocka_unit_test(a_limit_of_the_process_counts),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
