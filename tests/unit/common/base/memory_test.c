#include "common/base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// The source itself instead of the library, so that its allocation can be made to fail.
static bool memory_is_out;
static int n_reallocations;

static void *counted_realloc(void *old, size_t size_bytes)
{
    n_reallocations++;
    return memory_is_out ? NULL : realloc(old, size_bytes);
}

#define realloc counted_realloc
#include "common/base/memory.c"  // NOLINT(bugprone-suspicious-include)
#undef realloc

static void nothing_becomes_room_for_what_is_needed(void **state)
{
    (void)state;
    for (size_t needed = 1; needed < 200; needed++) {
        uint64_t *array = NULL;
        size_t capacity = 0;
        assert_int_equal(
            bd_array_reserve((void **)&array, &capacity, needed, sizeof *array, NULL), BD_OK);
        assert_true(capacity >= needed);
        memset(array, 0xFF, capacity * sizeof *array);  // all of it is ours
        free(array);
    }
}

static void growing_keeps_what_is_there(void **state)
{
    (void)state;
    uint32_t *array = NULL;
    size_t capacity = 0;
    for (uint32_t n = 0; n < 1000; n++) {
        assert_int_equal(
            bd_array_reserve((void **)&array, &capacity, n + 1, sizeof *array, NULL), BD_OK);
        array[n] = n * 7;
        for (uint32_t i = 0; i <= n; i++)
            assert_int_equal(array[i], i * 7);
    }
    free(array);
}

static void appending_one_at_a_time_is_linear(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *array = NULL;
    size_t capacity = 0;
    n_reallocations = 0;
    for (size_t n = 1; n <= N; n++)
        assert_int_equal(bd_array_reserve((void **)&array, &capacity, n, 1, NULL), BD_OK);
    assert_in_range(n_reallocations, 1, 20);
    free(array);
}

static void enough_room_is_left_alone(void **state)
{
    (void)state;
    char here;
    void *array = &here;  // not from malloc(): freeing it would be noticed
    size_t capacity = 10;
    n_reallocations = 0;
    assert_int_equal(bd_array_reserve(&array, &capacity, 10, 1, NULL), BD_OK);
    assert_int_equal(bd_array_reserve(&array, &capacity, 0, 1, NULL), BD_OK);
    assert_ptr_equal(array, &here);
    assert_int_equal(capacity, 10);
    assert_int_equal(n_reallocations, 0);
}

static void refused(size_t needed, size_t element_size)
{
    char here;
    void *array = &here;
    size_t capacity = 4;
    bd_error err;
    assert_int_equal(bd_array_reserve(&array, &capacity, needed, element_size, &err),
                     BD_ERR_MEMORY);
    assert_int_equal(err.status, BD_ERR_MEMORY);
    assert_memory_equal(err.message, "no memory for ", 14);
    assert_ptr_equal(array, &here);
    assert_int_equal(capacity, 4);
}

static void failure_changes_nothing(void **state)
{
    (void)state;
    memory_is_out = true;
    refused(5, 1);
    refused(1 << 20, 8);
    memory_is_out = false;
}

static void size_that_no_number_holds_is_refused(void **state)
{
    (void)state;
    n_reallocations = 0;
    refused(SIZE_MAX, 1);          // there is no power of two above it
    refused(SIZE_MAX / 2 + 2, 1);  // the same
    refused(SIZE_MAX / 4, 8);      // the product
    refused(SIZE_MAX / 16, 64);
    assert_int_equal(n_reallocations, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_becomes_room_for_what_is_needed),
        cmocka_unit_test(growing_keeps_what_is_there),
        cmocka_unit_test(appending_one_at_a_time_is_linear),
        cmocka_unit_test(enough_room_is_left_alone),
        cmocka_unit_test(failure_changes_nothing),
        cmocka_unit_test(size_that_no_number_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
