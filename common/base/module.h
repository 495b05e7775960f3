// module.h - parts of the program that are loaded when it runs, because what they need is not
// on every machine: a shared object beside the program, checked before anything of it is
// called.
#ifndef BINDERY_COMMON_BASE_MODULE_H
#define BINDERY_COMMON_BASE_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// What the two sides were compiled with. The version is raised when the meaning of a struct or
// a function changes; a changed size speaks for itself.
typedef struct bd_module_abi {
    uint32_t version;
    uint32_t table_bytes, argument_bytes;
} bd_module_abi;

#define BD_MODULE_EXPORT __attribute__((visibility("default")))

typedef struct bd_module {
    const char *file;           // "libbindery_cuda.so"
    const char *abi_symbol;     // of its bd_module_abi
    const char *entry_symbol;   // of the function that is called first
    const bd_module_abi *ours;  // what its bd_module_abi must be
} bd_module;

// The entry of the module at `path`, or, if that is NULL, of the one beside the program or in
// ../lib/bindery from there. It stays loaded. BD_ERR_UNSUPPORTED and the reason if there is no
// such file, or if it is none of ours, or one of another build.
bd_status bd_module_load(const bd_module *module, const char *path, void **entry,
                         bd_error *err);

// Whether that module, without a path of its own, is there to be loaded.
bool bd_module_exists(const bd_module *module);

#ifdef __cplusplus
}
#endif

#endif
