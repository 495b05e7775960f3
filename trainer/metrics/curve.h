// curve.h - any number of values over steps in bounded memory. Each bucket stands for the same
// number of neighbouring values and keeps their minimum, maximum and mean. Up to
// BD_CURVE_BUCKETS values have a bucket each; whenever the buckets are full, neighbours are merged
// in pairs, so that at least half of them stay in use.
#ifndef BINDERY_TRAINER_METRICS_CURVE_H
#define BINDERY_TRAINER_METRICS_CURVE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/json.h"

enum { BD_CURVE_BUCKETS = 512 };

typedef struct bd_curve_bucket {
    int64_t first, last;  // steps
    int64_t n;
    double least, greatest, sum;
} bd_curve_bucket;

// An empty curve is all zero.
typedef struct bd_curve {
    bd_curve_bucket buckets[BD_CURVE_BUCKETS];
    size_t n_buckets;
    int64_t doubled;  // a full bucket has 2^doubled values
    int64_t n_values;
} bd_curve;

// Appends a finite value. Steps must rise.
void bd_curve_add(bd_curve *curve, int64_t step, double value);

// {"steps": […], "values": […]}; if buckets have several values, `steps` are their first ones,
// `values` their means, and there are "lasts" (steps), "least" and "greatest".
bd_json *bd_curve_to_json(const bd_curve *curve);

#endif
