#include "trainer/sampling.h"

#include <math.h>
#include <stdlib.h>

static int64_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int descending(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a > b ? -1 : a < b;
}

// The smallest logit that is still among the top_k.
static double threshold(const float *logits, int64_t n, int64_t top_k, double *scratch)
{
    for (int64_t i = 0; i < n; i++)
        scratch[i] = logits[i];
    qsort(scratch, (size_t)n, sizeof *scratch, descending);
    return scratch[top_k - 1];
}

uint32_t bd_sample_token(bd_random *random, const float *logits, int64_t n_vocabulary,
                         double temperature, int64_t top_k, double *weights)
{
    const int64_t best = largest(logits, n_vocabulary);
    if (temperature <= 0)
        return (uint32_t)best;
    const double least = top_k > 0 && top_k < n_vocabulary
                             ? threshold(logits, n_vocabulary, top_k, weights)
                             : -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n_vocabulary; i++) {
        weights[i] = logits[i] >= least
                         ? exp(((double)logits[i] - (double)logits[best]) / temperature)
                         : 0.0;
        sum += weights[i];
    }
    double left = bd_random_uniform(random) * sum;
    for (int64_t i = 0; i < n_vocabulary; i++) {
        left -= weights[i];
        if (weights[i] > 0 && left < 0)
            return (uint32_t)i;
    }
    return (uint32_t)best;  // rounding left a little over
}
