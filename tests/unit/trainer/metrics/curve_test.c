#include "trainer/metrics/curve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// A value for each step, with a peak that is lost unless buckets keep extremes.
static double value_of(int64_t step)
{
    return step == 777 ? 1e6 : step == 778 ? -1e6 : sin((double)step);
}

static bd_curve *curve_of(int64_t n)
{
    bd_curve *curve = calloc(1, sizeof *curve);
    assert_non_null(curve);
    for (int64_t step = 1; step <= n; step++)
        bd_curve_add(curve, 3 * step, value_of(step));
    return curve;
}

// Every value is in exactly one bucket, in order, and is part of the bucket's figures.
static void assert_covers(const bd_curve *curve, int64_t n)
{
    int64_t step = 1;
    for (size_t i = 0; i < curve->n_buckets; i++) {
        const bd_curve_bucket *bucket = &curve->buckets[i];
        double least = INFINITY, greatest = -INFINITY, sum = 0;
        assert_int_equal(bucket->first, 3 * step);
        for (int64_t k = 0; k < bucket->n; k++, step++) {
            least = fmin(least, value_of(step));
            greatest = fmax(greatest, value_of(step));
            sum += value_of(step);
        }
        assert_int_equal(bucket->last, 3 * (step - 1));
        assert_true(bucket->least == least && bucket->greatest == greatest);
        assert_true(fabs(bucket->sum - sum) <= 1e-6);
        if (i + 1 < curve->n_buckets)
            assert_int_equal(bucket->n, curve->buckets[0].n);
    }
    assert_int_equal(step - 1, n);
}

static void buckets_hold_everything_whatever_the_number_of_steps(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 31, 33, 511, 512, 513, 1024, 1025, 1026, 99999};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bd_curve *curve = curve_of(sizes[i]);
        assert_covers(curve, sizes[i]);
        assert_true(curve->n_buckets <= BD_CURVE_BUCKETS);
        if (sizes[i] <= BD_CURVE_BUCKETS)
            assert_int_equal(curve->n_buckets, sizes[i]);
        else
            assert_true(curve->n_buckets > BD_CURVE_BUCKETS / 2);
        free(curve);
    }
}

static void only_buckets_of_several_values_have_a_band(void **state)
{
    (void)state;
    bd_error err;
    char *text;
    bd_curve *curve = curve_of(2);
    bd_json *json = bd_curve_to_json(curve);
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, &err), BD_OK);
    assert_true(strncmp(text, "{\"steps\":[3,6],\"values\":[0.84147", 32) == 0);
    assert_null(strstr(text, "least"));
    free(text);
    bd_json_free(json);
    free(curve);
    curve = curve_of(BD_CURVE_BUCKETS + 1);
    json = bd_curve_to_json(curve);
    assert_int_equal(bd_json_print(json, BD_JSON_COMPACT, &text, &err), BD_OK);
    assert_non_null(strstr(text, "\"lasts\":[6,12,"));
    assert_non_null(strstr(text, "\"least\":[0.84147"));
    assert_non_null(strstr(text, "\"greatest\":[0.90929"));
    free(text);
    bd_json_free(json);
    free(curve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_hold_everything_whatever_the_number_of_steps),
        cmocka_unit_test(only_buckets_of_several_values_have_a_band),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
