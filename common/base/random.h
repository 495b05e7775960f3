// random.h - splitmix64: the one generator, so that a seed means the same everywhere.
#ifndef BINDERY_COMMON_BASE_RANDOM_H
#define BINDERY_COMMON_BASE_RANDOM_H

#include <stdint.h>

typedef struct bd_random {
    uint64_t state;
} bd_random;

static inline uint64_t bd_random_next(bd_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

// The output of a generator whose state is x: turns a number into an unrelated one.
uint64_t bd_random_mix(uint64_t x);

// A number below n; 0 < n < 2^32.
uint32_t bd_random_bounded(bd_random *random, uint32_t n);

// In [0, 1).
double bd_random_uniform(bd_random *random);

// Normal with mean 0 and standard deviation 1.
double bd_random_normal(bd_random *random);

// Fisher-Yates: for i from n - 1 down to 1, swaps a[i] with a[bounded(i + 1)].
void bd_random_shuffle(bd_random *random, int64_t *a, int64_t n);

#endif
