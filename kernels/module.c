#include "kernels/module.h"

typedef bd_status (*cuda_open_function)(bd_backend **, const bd_cuda_settings *, bd_error *);

static const bd_module_abi cuda_abi = BD_MODULE_ABI;
static const bd_module cuda_module = {
    .file = "libbindery_cuda.so",
    .abi_symbol = "bd_cuda_module_abi",
    .entry_symbol = "bd_backend_open_cuda",
    .ours = &cuda_abi,
};

bd_status bd_backend_open_module(bd_backend **backend, const char *path,
                                 const bd_cuda_settings *settings, bd_error *err)
{
    *backend = NULL;
    // The module stays loaded even if it cannot be opened: CUDA does not survive being unloaded,
    // and the backend's own close() lies in it.
    cuda_open_function open;
    bd_status status = bd_module_load(&cuda_module, path, (void **)&open, err);
    if (status == BD_OK)
        status = open(backend, settings, err);
    return status == BD_OK ? BD_OK : bd_error_prefix(err, status, "cuda is not available");
}

bool bd_backend_module_exists(void)
{
    return bd_module_exists(&cuda_module);
}
