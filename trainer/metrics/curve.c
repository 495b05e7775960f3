#include "trainer/metrics/curve.h"

#include <math.h>

static void merge_neighbours(bd_series *series)
{
    for (size_t i = 0; i < series->n_buckets / 2; i++) {
        const bd_series_bucket *a = &series->buckets[2 * i], *b = a + 1;
        series->buckets[i] = (bd_series_bucket){
            .first = a->first,
            .last = b->last,
            .n = a->n + b->n,
            .least = fmin(a->least, b->least),
            .greatest = fmax(a->greatest, b->greatest),
            .sum = a->sum + b->sum,
        };
    }
    series->n_buckets /= 2;
    series->doubled++;
}

void bd_series_add(bd_series *series, int64_t step, double value)
{
    if (series->n_values % (INT64_C(1) << series->doubled) == 0) {  // all buckets are full
        if (series->n_buckets == BD_SERIES_BUCKETS)
            merge_neighbours(series);
        series->buckets[series->n_buckets++] =
            (bd_series_bucket){.first = step, .least = value, .greatest = value};
    }
    bd_series_bucket *bucket = &series->buckets[series->n_buckets - 1];
    bucket->last = step;
    bucket->n++;
    bucket->least = fmin(bucket->least, value);
    bucket->greatest = fmax(bucket->greatest, value);
    bucket->sum += value;
    series->n_values++;
}

bd_json *bd_series_to_json(const bd_series *series)
{
    bd_json *steps = bd_json_array(), *values = bd_json_array();
    bd_json *json = bd_json_object();
    for (size_t i = 0; i < series->n_buckets; i++) {
        const bd_series_bucket *bucket = &series->buckets[i];
        bd_json_append(steps, bd_json_integer(bucket->first));
        bd_json_append(values, bd_json_real(bucket->sum / (double)bucket->n));
    }
    bd_json_set(json, "steps", steps);
    bd_json_set(json, "values", values);
    if (series->doubled == 0)
        return json;
    bd_json *lasts = bd_json_array(), *least = bd_json_array(), *greatest = bd_json_array();
    for (size_t i = 0; i < series->n_buckets; i++) {
        const bd_series_bucket *bucket = &series->buckets[i];
        bd_json_append(lasts, bd_json_integer(bucket->last));
        bd_json_append(least, bd_json_real(bucket->least));
        bd_json_append(greatest, bd_json_real(bucket->greatest));
    }
    bd_json_set(json, "lasts", lasts);
    bd_json_set(json, "least", least);
    bd_json_set(json, "greatest", greatest);
    return json;
}
