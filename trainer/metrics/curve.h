// curve.h - values over steps, however many, in little memory: each bucket holds the same
// number of neighbouring values and knows the least, the greatest and the mean of them. While
// there are at most BD_CURVE_BUCKETS values, each has a bucket of its own.
#ifndef BINDERY_TRAINER_METRICS_CURVE_H
#define BINDERY_TRAINER_METRICS_CURVE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/json.h"

enum {
    BD_CURVE_BUCKETS = 512
};  // at most; at least half of it once there are that many values

typedef struct bd_curve_bucket {
    int64_t first, last;  // steps
    int64_t n;
    double least, greatest, sum;
} bd_curve_bucket;

// Empty when all is 0.
typedef struct bd_curve {
    bd_curve_bucket buckets[BD_CURVE_BUCKETS];
    size_t n_buckets;
    int64_t doubled;  // a full bucket has 2^doubled values
    int64_t n_values;
} bd_curve;

// Adds a finite value; steps rise.
void bd_curve_add(bd_curve *curve, int64_t step, double value);

// {"steps": […], "values": […]}; if buckets have several values, `steps` are their first ones,
// `values` their means, and there are "lasts" (steps), "least" and "greatest".
bd_json *bd_curve_to_json(const bd_curve *curve);

#endif
