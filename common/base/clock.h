// clock.h - how long something took.
#ifndef BINDERY_COMMON_BASE_CLOCK_H
#define BINDERY_COMMON_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

// Nanoseconds since some fixed moment; never goes back.
static inline int64_t bd_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
