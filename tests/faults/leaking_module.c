// A backend whose attention ignores documents: the CUDA module that BINDERY_CUDA_MODULE names,
// but for its attention every row is one segment. The probe for leaks must find it.
#include <dlfcn.h>
#include <stdlib.h>

#include "kernels/module.h"

static const bd_operations *honest;

// The boundaries {0, used} of each row, in the backend's memory; they are never freed.
static bd_status blur(bd_backend *backend, const bd_boundaries *boundaries,
                      bd_boundaries *blurred, bd_error *err)
{
    const size_t n = (size_t)boundaries->n_rows;
    int32_t *offsets = calloc(n + 1, sizeof *offsets), *values = calloc(2 * n, sizeof *values);
    void *device_offsets, *device_values;
    if (!offsets || !values)
        abort();
    BD_TRY(honest->download(backend, offsets, boundaries->offsets, (n + 1) * sizeof *offsets,
                            err));
    for (size_t r = 0; r < n; r++) {
        BD_TRY(honest->download(backend, &values[2 * r + 1],
                                boundaries->values + offsets[r + 1] - 1, sizeof *values, err));
        offsets[r] = (int32_t)(2 * r);
    }
    offsets[n] = (int32_t)(2 * n);
    BD_TRY(honest->allocate(backend, (n + 1) * sizeof *offsets, &device_offsets, err));
    BD_TRY(honest->allocate(backend, 2 * n * sizeof *values, &device_values, err));
    BD_TRY(honest->upload(backend, device_offsets, offsets, (n + 1) * sizeof *offsets, err));
    BD_TRY(honest->upload(backend, device_values, values, 2 * n * sizeof *values, err));
    free(offsets);
    free(values);
    *blurred = *boundaries;
    blurred->offsets = device_offsets;
    blurred->values = device_values;
    return BD_OK;
}

static bd_status attend(bd_backend *backend, const bd_attention_forward_args *args,
                        bd_error *err)
{
    bd_attention_forward_args changed = *args;
    BD_TRY(blur(backend, &args->boundaries, &changed.boundaries, err));
    return honest->attention_forward(backend, &changed, err);
}

static bd_status attend_back(bd_backend *backend, const bd_attention_backward_args *args,
                             bd_error *err)
{
    bd_attention_backward_args changed = *args;
    BD_TRY(blur(backend, &args->boundaries, &changed.boundaries, err));
    return honest->attention_backward(backend, &changed, err);
}

bd_status bd_backend_open_cuda(bd_backend **backend, const bd_cuda_settings *settings,
                               bd_error *err)
{
    static bd_operations leaking;
    const char *path = getenv("BINDERY_CUDA_MODULE");
    void *module = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    bd_status (*open)(bd_backend **, const bd_cuda_settings *, bd_error *);
    if (!module)
        abort();
    *(void **)&open = dlsym(module, "bd_backend_open_cuda");
    BD_TRY(open(backend, settings, err));
    honest = (*backend)->operations;
    leaking = *honest;
    leaking.attention_forward = attend;
    leaking.attention_backward = attend_back;
    (*backend)->operations = &leaking;
    return BD_OK;
}

const bd_module_abi bd_cuda_module_abi = BD_MODULE_ABI;
