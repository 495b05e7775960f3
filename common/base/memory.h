// memory.h - arrays that grow, and arithmetic of sizes.
#ifndef BINDERY_COMMON_BASE_MEMORY_H
#define BINDERY_COMMON_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

// Makes room for `needed` elements of `element_size` bytes in *array, which has room for
// *capacity; both are updated. The array is malloc'd (NULL at first) and stays the caller's.
// The capacity at least doubles, so that appending one element at a time takes linear time.
// On failure nothing changes.
bd_status bd_array_reserve(void **array, size_t *capacity, size_t needed, size_t element_size,
                           bd_error *err);

// Each of these returns false, and leaves *out unspecified, if the result does not fit.
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

// How many binary digits n has: 0 for 0, otherwise the exponent of the largest power of two that
// is not above n, plus 1.
static inline int bd_bit_width(uint64_t n)
{
    return n == 0 ? 0 : 64 - __builtin_clzll(n);
}

#endif
