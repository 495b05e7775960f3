#include "common/base/random.h"

#include <math.h>

uint64_t bd_random_mix(uint64_t x)
{
    return bd_random_next(&(bd_random){x});
}

uint32_t bd_random_bounded(bd_random *random, uint32_t n)
{
    return (uint32_t)((bd_random_next(random) >> 32) * n >> 32);
}

double bd_random_uniform(bd_random *random)
{
    return (double)(bd_random_next(random) >> 11) * 0x1p-53;
}

double bd_random_normal(bd_random *random)
{
    // Box-Muller; 1 - uniform is never 0. The second of the pair is not kept: no hidden state.
    const double radius = sqrt(-2.0 * log(1.0 - bd_random_uniform(random)));
    return radius * cos(2.0 * M_PI * bd_random_uniform(random));
}

void bd_random_shuffle(bd_random *random, int64_t *a, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = bd_random_bounded(random, (uint32_t)(i + 1));
        const int64_t moved = a[i];
        a[i] = a[j];
        a[j] = moved;
    }
}
