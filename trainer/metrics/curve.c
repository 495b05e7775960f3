#include "trainer/metrics/curve.h"

#include <math.h>

static void merge_neighbours(bd_curve *curve)
{
    for (size_t i = 0; i < curve->n_buckets / 2; i++) {
        const bd_curve_bucket *a = &curve->buckets[2 * i], *b = a + 1;
        curve->buckets[i] = (bd_curve_bucket){
            .first = a->first,
            .last = b->last,
            .n = a->n + b->n,
            .least = fmin(a->least, b->least),
            .greatest = fmax(a->greatest, b->greatest),
            .sum = a->sum + b->sum,
        };
    }
    curve->n_buckets /= 2;
    curve->doubled++;
}

void bd_curve_add(bd_curve *curve, int64_t step, double value)
{
    if (curve->n_values % (INT64_C(1) << curve->doubled) == 0) {  // all buckets are full
        if (curve->n_buckets == BD_CURVE_BUCKETS)
            merge_neighbours(curve);
        curve->buckets[curve->n_buckets++] =
            (bd_curve_bucket){.first = step, .least = value, .greatest = value};
    }
    bd_curve_bucket *bucket = &curve->buckets[curve->n_buckets - 1];
    bucket->last = step;
    bucket->n++;
    bucket->least = fmin(bucket->least, value);
    bucket->greatest = fmax(bucket->greatest, value);
    bucket->sum += value;
    curve->n_values++;
}

bd_json *bd_curve_to_json(const bd_curve *curve)
{
    bd_json *steps = bd_json_array(), *values = bd_json_array();
    bd_json *json = bd_json_object();
    for (size_t i = 0; i < curve->n_buckets; i++) {
        const bd_curve_bucket *bucket = &curve->buckets[i];
        bd_json_append(steps, bd_json_integer(bucket->first));
        bd_json_append(values, bd_json_real(bucket->sum / (double)bucket->n));
    }
    bd_json_set(json, "steps", steps);
    bd_json_set(json, "values", values);
    if (curve->doubled == 0)
        return json;
    bd_json *lasts = bd_json_array(), *least = bd_json_array(), *greatest = bd_json_array();
    for (size_t i = 0; i < curve->n_buckets; i++) {
        const bd_curve_bucket *bucket = &curve->buckets[i];
        bd_json_append(lasts, bd_json_integer(bucket->last));
        bd_json_append(least, bd_json_real(bucket->least));
        bd_json_append(greatest, bd_json_real(bucket->greatest));
    }
    bd_json_set(json, "lasts", lasts);
    bd_json_set(json, "least", least);
    bd_json_set(json, "greatest", greatest);
    return json;
}
