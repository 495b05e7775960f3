#include "common/base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// The module lies beside the program in the build tree, and in ../lib/bindery once installed.
static bd_status find_module(char *path, size_t size, const char *file, bd_error *err)
{
    static const char *const places[] = {"", "/../lib/bindery"};
    char folder[PATH_MAX];
    const ssize_t folder_length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (folder_length < 0)
        return bd_fail_errno(err, "cannot find the program's own folder");
    folder[folder_length] = '\0';
    char *slash = strrchr(folder, '/');
    *(slash ? slash : folder) = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int length = snprintf(path, size, "%s%s/%s", folder, places[i], file);
        if (length > 0 && (size_t)length < size && access(path, F_OK) == 0)
            return BD_OK;
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED, "no module at '%.400s/%s'", folder, file);
}

bool bd_module_exists(const bd_module *module)
{
    char path[PATH_MAX];
    return find_module(path, sizeof path, module->file, NULL) == BD_OK;
}

static bd_status check_abi(const bd_module *module, void *handle, const char *path,
                           bd_error *err)
{
    const bd_module_abi *theirs = dlsym(handle, module->abi_symbol);
    if (!theirs || !dlsym(handle, module->entry_symbol))
        return bd_fail(err, BD_ERR_UNSUPPORTED, "'%.400s' is not a module of bindery", path);
    if (memcmp(theirs, module->ours, sizeof *theirs) != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED,
                       "the module at '%.300s' belongs to another build of bindery "
                       "(interface %u, not %u)",
                       path, theirs->version, module->ours->version);
    return BD_OK;
}

bd_status bd_module_load(const bd_module *module, const char *given, void **entry,
                         bd_error *err)
{
    char path[PATH_MAX];
    if (!given) {
        BD_TRY(find_module(path, sizeof path, module->file, err));
    } else {
        // dlopen() would search the system for a name without a slash.
        const char *here = strchr(given, '/') ? "" : "./";
        const int length = snprintf(path, sizeof path, "%s%s", here, given);
        if (length < 0 || (size_t)length >= sizeof path || access(path, F_OK) != 0)
            return bd_fail(err, BD_ERR_UNSUPPORTED, "no module at '%.400s'", given);
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "cannot load the module: %s", dlerror());
    const bd_status status = check_abi(module, handle, path, err);
    if (status != BD_OK)
        dlclose(handle);
    else
        *entry = dlsym(handle, module->entry_symbol);
    return status;
}
