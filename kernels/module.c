#include "kernels/module.h"

typedef bd_status (*open_function)(bd_backend **, const bd_cuda_settings *, bd_error *);

static const bd_module_abi ours = BD_MODULE_ABI;
static const bd_module module = {
    .file = "libbindery_cuda.so",
    .abi_symbol = "bd_cuda_module_abi",
    .entry_symbol = "bd_backend_open_cuda",
    .ours = &ours,
};

// The module stays loaded, whatever comes of it: CUDA does not like to be unloaded, and the
// backend's own close() lies in it.
static bd_status open_from(const char *path, bd_backend **backend,
                           const bd_cuda_settings *settings, bd_error *err)
{
    open_function open;
    BD_TRY(bd_module_load(&module, path, (void **)&open, err));
    return open(backend, settings, err);
}

bd_status bd_backend_open_module(bd_backend **backend, const char *path,
                                 const bd_cuda_settings *settings, bd_error *err)
{
    *backend = NULL;
    const bd_status status = open_from(path, backend, settings, err);
    if (status != BD_OK)
        return bd_error_prefix(err, status, "cuda is not available");
    return BD_OK;
}

bool bd_backend_module_exists(void)
{
    return bd_module_exists(&module);
}
