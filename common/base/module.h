// module.h - parts of the program that are loaded when it runs, because not every machine has
// the libraries that they need. A module is a shared object beside the program, which is
// checked before any function of it is called.
#ifndef BINDERY_COMMON_BASE_MODULE_H
#define BINDERY_COMMON_BASE_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// The interface that a side was compiled with. The version is raised when the meaning of a
// struct or a function changes; a changed size shows without that.
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

// Loads the module at the path `given`, or, if that is NULL, the one beside the program or in
// ../lib/bindery from there. It stays loaded; *entry is its first function. BD_ERR_UNSUPPORTED
// and the reason if there is no such file, if it is not a module of ours, or one of another
// build.
bd_status bd_module_load(const bd_module *module, const char *given, void **entry,
                         bd_error *err);

// Whether bd_module_load() without a path would find the file.
bool bd_module_exists(const bd_module *module);

#ifdef __cplusplus
}
#endif

#endif
