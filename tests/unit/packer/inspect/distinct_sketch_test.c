#include "packer/inspect/distinct_sketch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/checksum.h"

// From the small numbers for which empty registers are counted, past the change, to large ones.
static void estimate_is_within_its_stated_error(void **state)
{
    (void)state;
    static bd_distinct_sketch sketch;
    static const uint64_t counts[] = {1, 2, 33, 1000, 60000, 150000, 170000, 1000000, 3000000};
    memset(&sketch, 0, sizeof sketch);
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (; n < counts[i]; n++)
            bd_distinct_sketch_add(&sketch, bd_hash64(&n, sizeof n, 0));
        const double estimate = bd_distinct_sketch_estimate(&sketch);
        const double error = fabs(estimate - (double)n) / (double)n;
        assert_true(error <= bd_distinct_sketch_error);
    }
}

static void repeated_values_change_nothing(void **state)
{
    (void)state;
    static bd_distinct_sketch sketch, before;
    memset(&sketch, 0, sizeof sketch);
    for (int round = 0; round < 2; round++) {
        for (uint64_t n = 0; n < 1000; n++)
            bd_distinct_sketch_add(&sketch, bd_hash64(&n, sizeof n, 0));
        if (round == 0)
            before = sketch;
    }
    assert_memory_equal(&sketch, &before, sizeof sketch);
}

static void merged_is_as_if_one_had_seen_all(void **state)
{
    (void)state;
    static bd_distinct_sketch whole, parts[2];
    memset(&whole, 0, sizeof whole);
    memset(parts, 0, sizeof parts);
    for (uint64_t n = 0; n < 100000; n++) {
        const uint64_t hash = bd_hash64(&n, sizeof n, 0);
        bd_distinct_sketch_add(&whole, hash);
        bd_distinct_sketch_add(&parts[n % 2], hash);
    }
    bd_distinct_sketch_merge(&parts[0], &parts[1]);
    assert_memory_equal(&parts[0], &whole, sizeof whole);
}

static void nothing_is_none(void **state)
{
    (void)state;
    static const bd_distinct_sketch sketch;
    assert_true(bd_distinct_sketch_estimate(&sketch) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimate_is_within_its_stated_error),
        cmocka_unit_test(repeated_values_change_nothing),
        cmocka_unit_test(merged_is_as_if_one_had_seen_all),
        cmocka_unit_test(nothing_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
