#include "trainer/sampling.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static int64_t largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

// A number that is larger for a larger logit; the least for a NaN.
static uint32_t rank_of(float logit)
{
    const float x = logit + 0.0f;  // -0 becomes 0, its equal
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        return 0;
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

// The largest rank such that the masses (NULL: 1 each) of logits of that rank and above add up to
// `wanted`, which is above 0 and at most the sum of all. The rank is found byte by byte.
static uint32_t rank_that_reaches(const float *logits, const double *masses, int64_t n,
                                  double wanted)
{
    uint32_t rank = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        double sums[256] = {0};
        int byte = 255;
        for (int64_t i = 0; i < n; i++) {
            const uint32_t own = rank_of(logits[i]);
            if ((own & known) == rank)
                sums[own >> shift & 255] += masses ? masses[i] : 1.0;
        }
        for (; byte > 0 && sums[byte] < wanted; byte--)
            wanted -= sums[byte];
        rank |= (uint32_t)byte << shift;
        known |= UINT32_C(255) << shift;
    }
    return rank;
}

// Sets the weights of logits below `rank`, and those that are too small, to 0. Returns the sum of
// the others.
static double leave_out(double *weights, const float *logits, int64_t n, uint32_t rank,
                        double least)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (rank_of(logits[i]) < rank || weights[i] < least)
            weights[i] = 0;
        sum += weights[i];
    }
    return sum;
}

uint32_t bd_sample_token(bd_random *random, const float *logits, int64_t n_vocabulary,
                         const bd_drawing *drawing, double *weights)
{
    const int64_t best = largest(logits, n_vocabulary);
    if (drawing->temperature <= 0)
        return (uint32_t)best;
    for (int64_t i = 0; i < n_vocabulary; i++)  // 1 for the likeliest
        weights[i] = exp(((double)logits[i] - (double)logits[best]) / drawing->temperature);
    const bool limited = drawing->top_k > 0 && drawing->top_k < n_vocabulary;
    const uint32_t of_k =
        limited ? rank_that_reaches(logits, NULL, n_vocabulary, (double)drawing->top_k) : 0;
    double sum = leave_out(weights, logits, n_vocabulary, of_k, 0.0);
    if (drawing->top_p < 1 || drawing->min_p > 0) {
        const double wanted = fmax(drawing->top_p * sum, DBL_MIN);
        const uint32_t of_p =
            drawing->top_p < 1 ? rank_that_reaches(logits, weights, n_vocabulary, wanted) : 0;
        sum = leave_out(weights, logits, n_vocabulary, of_p, fmin(drawing->min_p, 1.0));
    }
    double left = bd_random_uniform(random) * sum;
    for (int64_t i = 0; i < n_vocabulary; i++) {
        left -= weights[i];
        if (weights[i] > 0 && left < 0)
            return (uint32_t)i;
    }
    return (uint32_t)best;  // rounding left a little over, or the logits are no numbers
}
