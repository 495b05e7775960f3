#include "kernels/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char module_name[] = "libbindery_cuda.so";

typedef bd_status (*open_function)(bd_backend **, const bd_cuda_settings *, bd_error *);

static bd_status program_folder(char *folder, size_t size, bd_error *err)
{
    const ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    if (length < 0)
        return bd_fail_errno(err, "cannot find the program's own folder");
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    *(slash ? slash : folder) = '\0';
    return BD_OK;
}

// Where the module lies: in the build tree beside the program, installed in ../lib/bindery.
static bd_status find_module(char *path, size_t size, bd_error *err)
{
    static const char *const places[] = {"", "/../lib/bindery"};
    char folder[PATH_MAX];
    BD_TRY(program_folder(folder, sizeof folder, err));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int length = snprintf(path, size, "%s%s/%s", folder, places[i], module_name);
        if (length > 0 && (size_t)length < size && access(path, F_OK) == 0)
            return BD_OK;
    }
    return bd_fail(err, BD_ERR_UNSUPPORTED, "no module at '%.400s/%s'", folder, module_name);
}

// dlopen() would search the system for a name without a slash.
static bd_status given_module(char *path, size_t size, const char *given, bd_error *err)
{
    const int length = snprintf(path, size, "%s%s", strchr(given, '/') ? "" : "./", given);
    if (length < 0 || (size_t)length >= size || access(path, F_OK) != 0)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "no module at '%.400s'", given);
    return BD_OK;
}

static bd_status load_module(const char *path, void **module, bd_error *err)
{
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*module)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "cannot load the module: %s", dlerror());
    const bd_module_abi ours = BD_MODULE_ABI;
    const bd_module_abi *theirs = dlsym(*module, "bd_cuda_module_abi");
    bd_status status = BD_OK;
    if (!theirs)
        status = bd_fail(err, BD_ERR_UNSUPPORTED, "'%.400s' is not a module of bindery", path);
    else if (memcmp(theirs, &ours, sizeof ours) != 0)
        status = bd_fail(err, BD_ERR_UNSUPPORTED,
                         "the module at '%.300s' belongs to another build of bindery "
                         "(interface %u, not %u)",
                         path, theirs->version, ours.version);
    if (status != BD_OK)
        dlclose(*module);
    return status;
}

// The module stays loaded, whatever comes of it: CUDA does not like to be unloaded, and the
// backend's own close() lies in it.
static bd_status open_from(const char *path, bd_backend **backend,
                           const bd_cuda_settings *settings, bd_error *err)
{
    void *module;
    BD_TRY(load_module(path, &module, err));
    open_function open;
    *(void **)&open = dlsym(module, "bd_backend_open_cuda");
    if (!open)
        return bd_fail(err, BD_ERR_UNSUPPORTED, "'%.400s' is not a module of bindery", path);
    return open(backend, settings, err);
}

bd_status bd_backend_open_module(bd_backend **backend, const char *path,
                                 const bd_cuda_settings *settings, bd_error *err)
{
    *backend = NULL;
    char found[PATH_MAX];
    bd_status status = path ? given_module(found, sizeof found, path, err)
                            : find_module(found, sizeof found, err);
    if (status == BD_OK)
        status = open_from(found, backend, settings, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "cuda is not available");
    return BD_OK;
}
