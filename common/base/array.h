// array.h - growing a plain array: the one place that decides how fast and reports failure.
#ifndef BINDERY_COMMON_BASE_ARRAY_H
#define BINDERY_COMMON_BASE_ARRAY_H

#include <stddef.h>

#include "common/base/error.h"

// Makes room for `needed` elements of `element_size` bytes in *array, which has room for
// *capacity; both are updated. The array is malloc'd (NULL at first) and stays the caller's.
// At least doubles, so that appending one at a time is linear. On failure nothing changes.
bd_status bd_array_reserve(void **array, size_t *capacity, size_t needed, size_t element_size,
                           bd_error *err);

#endif
