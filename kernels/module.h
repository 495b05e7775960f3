// module.h - the CUDA backend as a module that is loaded at run time, so that one `bindery`
// serves machines with and without an NVIDIA driver.
//
// The module is a shared object, libbindery_cuda.so, with two symbols in C linkage:
// bd_backend_open_cuda(), and bd_cuda_module_abi, by which a module of another build is refused
// before any function of it is called.
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

// ---- The interface of program and module ----------------------------------------------------

typedef struct bd_cuda_settings {
    int32_t device;  // the number that CUDA gives it, from 0
} bd_cuda_settings;

// The size of each operation's arguments is multiplied by its place in the table and the length
// of its name, so that a module with the same operations in another order is refused as well.
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

// ---- Functions of the program ---------------------------------------------------------------

// Opens the CUDA backend of the module at `path`, or, if that is NULL, of libbindery_cuda.so
// beside the program or in ../lib/bindery from there. Close it as any backend; the module stays
// loaded. Fails with BD_ERR_UNSUPPORTED if there is no module, no driver or no device, if the
// module is of another build or the device is too old; the message says which.
bd_status bd_backend_open_module(bd_backend **backend, const char *path,
                                 const bd_cuda_settings *settings, bd_error *err);

// Whether the module that a NULL path means exists. A device may still be missing.
bool bd_backend_module_exists(void);

#ifdef __cplusplus
}
#endif

#endif
