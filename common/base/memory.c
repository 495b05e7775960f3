#include "common/base/memory.h"

#include <stdlib.h>

bd_status bd_array_reserve(void **array, size_t *capacity, size_t needed, size_t element_size,
                           bd_error *err)
{
    if (needed <= *capacity)
        return BD_OK;
    size_t wanted = *capacity ? *capacity : 16;
    while (wanted < needed)
        if (!bd_size_mul(wanted, 2, &wanted))
            return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu elements", needed);
    size_t size_bytes;
    void *grown =
        bd_size_mul(wanted, element_size, &size_bytes) ? realloc(*array, size_bytes) : NULL;
    if (!grown)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %zu elements of %zu bytes", wanted,
                       element_size);
    *array = grown;
    *capacity = wanted;
    return BD_OK;
}
