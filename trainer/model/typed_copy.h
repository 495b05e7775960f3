// typed_copy.h - floats of the host to and from a backend's tensor of either type, and the turns of
// a rotation to a backend.
#ifndef BINDERY_TRAINER_MODEL_TYPED_COPY_H
#define BINDERY_TRAINER_MODEL_TYPED_COPY_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"
#include "trainer/model/rotation.h"

// Each copies n numbers and is done on return. In bf16 an upload rounds to nearest even.
bd_status bd_upload_floats(bd_backend *backend, bd_type type, void *to, const float *from,
                           int64_t n, bd_error *err);
bd_status bd_download_floats(bd_backend *backend, bd_type type, float *to, const void *from,
                             int64_t n, bd_error *err);

// Computes bd_rotation_turns() into the backend's memory, to [head_size / 2].
bd_status bd_upload_turns(bd_backend *backend, uint64_t *to, const bd_rotation *rotation,
                          int64_t head_size, bd_error *err);

#endif
