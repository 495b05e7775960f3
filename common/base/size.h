// size.h - sizes computed from outside numbers, with overflow reported instead of wrapped.
#ifndef BINDERY_COMMON_BASE_SIZE_H
#define BINDERY_COMMON_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Each returns false, and leaves *out unspecified, when the result does not fit.
static inline bool bd_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool bd_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool bd_int64_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool bd_int64_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

#endif
