// typed_copy.h - floats of the host to and from a backend's tensor of either type.
#ifndef BINDERY_TRAINER_MODEL_TYPED_COPY_H
#define BINDERY_TRAINER_MODEL_TYPED_COPY_H

#include <stdint.h>

#include "common/base/error.h"
#include "kernels/backend.h"

// Each copies n numbers and is done on return. In bf16 an upload rounds to nearest even.
bd_status bd_upload_floats(bd_backend *backend, bd_type type, void *to, const float *from,
                           int64_t n, bd_error *err);
bd_status bd_download_floats(bd_backend *backend, bd_type type, float *to, const void *from,
                             int64_t n, bd_error *err);

#endif
