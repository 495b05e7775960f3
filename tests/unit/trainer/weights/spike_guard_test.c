#include "trainer/weights/spike_guard.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double factor = 4;

static bd_step_outcome add(bd_spike_guard *guard, double norm)
{
    return bd_spike_guard_add(guard, 1, norm, factor);
}

// `n` steps of norm 1.
static bd_spike_guard after(int64_t n)
{
    bd_spike_guard guard = {0};
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(add(&guard, 1.0), BD_STEP_APPLIED);
    assert_true(guard.usual_norm == 1.0);
    return guard;
}

static void a_spike_is_more_than_the_factor_times_the_usual(void **state)
{
    (void)state;
    bd_spike_guard guard = after(BD_SPIKE_FREE_STEPS);
    assert_int_equal(add(&guard, 4.0), BD_STEP_APPLIED);  // not more
    guard = after(BD_SPIKE_FREE_STEPS);
    assert_int_equal(add(&guard, nextafter(4.0, 5.0)), BD_STEP_SPIKE);
    assert_int_equal(guard.n_spikes, 1);
    guard = after(BD_SPIKE_FREE_STEPS);
    assert_int_equal(bd_spike_guard_add(&guard, 1, 1e300, 0), BD_STEP_APPLIED);  // 0: none is
    assert_int_equal(guard.n_spikes, 0);
}

static void the_first_steps_are_no_spikes(void **state)
{
    (void)state;
    bd_spike_guard guard = after(BD_SPIKE_FREE_STEPS - 1);
    assert_int_equal(add(&guard, 1e6), BD_STEP_APPLIED);
}

static void gradients_that_stay_larger_become_the_usual(void **state)
{
    (void)state;
    bd_spike_guard guard = after(100);
    int n_skipped = 0;
    while (add(&guard, 100.0) == BD_STEP_SPIKE)
        n_skipped++;
    // The usual norm grows by 3/50 with each: 1.06^n >= 25.
    assert_int_equal(n_skipped, (int)ceil(log(25.0) / log(1.06)));
    assert_int_equal(guard.n_spikes, n_skipped);
}

static void steps_without_targets_are_no_measure(void **state)
{
    (void)state;
    bd_spike_guard guard = after(30);
    for (int i = 0; i < 100; i++)
        assert_int_equal(bd_spike_guard_add(&guard, 0, 0.0, factor), BD_STEP_NO_TARGETS);
    assert_int_equal(guard.n_without_targets, 100);
    assert_int_equal(guard.n_norms, 30);
    assert_true(guard.usual_norm == 1.0);
}

static void it_is_kept_to_the_last_bit(void **state)
{
    (void)state;
    static const double norms[] = {0, 1.0 / 3, 0x1.fffffffffffffp-3, 1e-310, DBL_MAX};
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
        const bd_spike_guard guard = {3, INT64_C(1) << 53, 7, norms[i]};
        bd_spike_guard loaded;
        bd_json *json = bd_spike_guard_to_json(&guard), *parsed;
        char *text;
        assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, NULL), BD_OK);
        assert_int_equal(bd_json_parse(text, strlen(text), &parsed, NULL), BD_OK);
        assert_int_equal(bd_spike_guard_from_json(&loaded, parsed, NULL), BD_OK);
        assert_memory_equal(&loaded, &guard, sizeof guard);
        free(text);
        bd_json_free(json);
        bd_json_free(parsed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spike_is_more_than_the_factor_times_the_usual),
        cmocka_unit_test(the_first_steps_are_no_spikes),
        cmocka_unit_test(gradients_that_stay_larger_become_the_usual),
        cmocka_unit_test(steps_without_targets_are_no_measure),
        cmocka_unit_test(it_is_kept_to_the_last_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
