// smoothed.h - an exponential mean over steps, without a bias towards 0 at the beginning.
//
// After n values it is sum of a^(n-i) x_i over sum of a^(n-i), with a = BD_SMOOTHING: about the
// last 50 steps count.
#ifndef BINDERY_TRAINER_METRICS_SMOOTHED_H
#define BINDERY_TRAINER_METRICS_SMOOTHED_H

#define BD_SMOOTHING 0.98

typedef struct bd_smoothed {
    double sum, weight;  // both 0 at first
} bd_smoothed;

static inline void bd_smoothed_add(bd_smoothed *smoothed, double value)
{
    smoothed->sum = BD_SMOOTHING * smoothed->sum + value;
    smoothed->weight = BD_SMOOTHING * smoothed->weight + 1.0;
}

// NAN before the first value.
static inline double bd_smoothed_value(const bd_smoothed *smoothed)
{
    return smoothed->sum / smoothed->weight;
}

#endif
