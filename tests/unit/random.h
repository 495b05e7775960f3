// random.h - random numbers for tests: the same on every machine for the same seed.
#ifndef BINDERY_TESTS_RANDOM_H
#define BINDERY_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state)  // splitmix64
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline int32_t random_between(uint64_t *state, int32_t low, int32_t high)
{
    return low + (int32_t)(next_random(state) % ((uint64_t)(high - low) + 1));
}

#endif
