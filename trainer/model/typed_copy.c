#include "trainer/model/typed_copy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"

static bd_status upload_rounded(bd_backend *backend, void *to, const float *from, int64_t n,
                                bd_error *err)
{
    uint16_t *rounded = malloc((size_t)n * sizeof *rounded);
    if (!rounded)
        return bd_fail(err, BD_ERR_MEMORY, "no memory for %" PRId64 " rounded weights", n);
    for (int64_t i = 0; i < n; i++)
        rounded[i] = bd_bf16_of_float(from[i]);
    const bd_status status =
        backend->operations->upload(backend, to, rounded, (size_t)n * sizeof *rounded, err);
    free(rounded);
    return status;
}

bd_status bd_upload_floats(bd_backend *backend, bd_type type, void *to, const float *from,
                           int64_t n, bd_error *err)
{
    return type == BD_BF16
               ? upload_rounded(backend, to, from, n, err)
               : backend->operations->upload(backend, to, from, (size_t)n * sizeof *from, err);
}

bd_status bd_download_floats(bd_backend *backend, bd_type type, float *to, const void *from,
                             int64_t n, bd_error *err)
{
    // bf16 arrives in the upper half of the memory and is widened from the front, so that each
    // value is read before its place is overwritten.
    char *arrives = (char *)to + (size_t)n * (sizeof *to - bd_type_bytes(type));
    BD_TRY(backend->operations->download(backend, arrives, from,
                                         (size_t)n * bd_type_bytes(type), err));
    for (int64_t i = 0; type == BD_BF16 && i < n; i++) {
        uint16_t value;
        memcpy(&value, arrives + i * (int64_t)sizeof value, sizeof value);
        to[i] = bd_float_of_bf16(value);
    }
    return BD_OK;
}

bd_status bd_upload_turns(bd_backend *backend, uint64_t *to, const bd_rotation *rotation,
                          int64_t head_size, bd_error *err)
{
    uint64_t turns[BD_MOST_HEAD_SIZE / 2];
    bd_rotation_turns(rotation, head_size, turns);
    return backend->operations->upload(backend, to, turns,
                                       (size_t)(head_size / 2) * sizeof *turns, err);
}
