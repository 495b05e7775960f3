// module.h - backends that are loaded when the program runs: one `bindery` serves machines with
// and without an NVIDIA driver.
//
// The module is a shared object, libbindery_cuda.so, with two symbols in C linkage:
// bd_backend_open_cuda() and, so that a module of another build is refused before it is called,
// bd_cuda_module_abi.
#ifndef BINDERY_KERNELS_MODULE_H
#define BINDERY_KERNELS_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/module.h"
#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- What program and module agree on -------------------------------------------------------

typedef struct bd_cuda_settings {
    int32_t device;  // as CUDA counts them, from 0
} bd_cuda_settings;

// The size of an operation's arguments counts with the operation's place in the table, so that
// a module whose list has the same operations in another order is refused as well.
#define BD_MODULE_ABI_VERSION 2
#define BD_PLACED_ARGUMENT_BYTES(name) \
    +sizeof(bd_##name##_args) * offsetof(bd_operations, name) * sizeof #name
#define BD_MODULE_ABI                                                                    \
    {                                                                                    \
        BD_MODULE_ABI_VERSION, sizeof(bd_operations),                                    \
            sizeof(bd_adamw_part) + sizeof(bd_collectives) +                             \
                sizeof(bd_collectives_operations) + sizeof(bd_collectives_id) +          \
                sizeof(bd_cuda_settings) BD_FOR_EACH_OPERATION(BD_PLACED_ARGUMENT_BYTES) \
    }

extern BD_MODULE_EXPORT const bd_module_abi bd_cuda_module_abi;
BD_MODULE_EXPORT bd_status bd_backend_open_cuda(bd_backend **backend,
                                                const bd_cuda_settings *settings,
                                                bd_error *err);

// ---- What the program calls -----------------------------------------------------------------

// The CUDA backend from the module at `path`, or, if that is NULL, from libbindery_cuda.so
// beside the program or in ../lib/bindery from there. Close it as any backend; the module stays
// loaded. The message says why there is no such backend: no module, another build's module, no
// driver, no device, a device too old (all BD_ERR_UNSUPPORTED).
bd_status bd_backend_open_module(bd_backend **backend, const char *path,
                                 const bd_cuda_settings *settings, bd_error *err);

// Whether that module, without a path of its own, is there; not whether a device is.
bool bd_backend_module_exists(void);

#ifdef __cplusplus
}
#endif

#endif
