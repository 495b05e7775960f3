// launch_recorder.cpp - the functions of the CUDA runtime that LAUNCH() calls, so that the
// operations of kernels/cuda run on a machine without a device: launches and fills of device
// memory are passed to the hooks, and nothing is executed.
//
// The functions that nvcc's own code calls are declared as in the toolkit's crt/host_runtime.h,
// which only nvcc can include.
#include <map>
#include <string>

#include <cuda_runtime_api.h>

typedef void (*launch_hook)(const char *kernel, const unsigned grid[3], const unsigned block[3],
                            size_t shared_bytes, void **arguments);
typedef void (*fill_hook)(void *memory, int value, size_t n_bytes);

static launch_hook on_launch;
static fill_hook on_fill;
static cudaError_t last_error = cudaSuccess;
static const size_t usual_shared_bytes = 48 * 1024;

struct configuration {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};
static configuration configured;

struct kernel_entry {
    std::string name;
    size_t most_shared_bytes;
};

// Made at its first use: kernels are registered while the library is being loaded.
static std::map<const void *, kernel_entry> &kernels()
{
    static std::map<const void *, kernel_entry> all;
    return all;
}

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **arguments,
                          size_t shared_bytes)
{
    const auto found = kernels().find(kernel);
    if (found == kernels().end())
        return last_error = cudaErrorInvalidDeviceFunction;
    if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z > 1024)
        return last_error = cudaErrorInvalidConfiguration;
    if (shared_bytes > found->second.most_shared_bytes)
        return last_error = cudaErrorInvalidValue;
    const unsigned grid_sizes[] = {grid.x, grid.y, grid.z};
    const unsigned block_sizes[] = {block.x, block.y, block.z};
    on_launch(found->second.name.c_str(), grid_sizes, block_sizes, shared_bytes, arguments);
    return cudaSuccess;
}

extern "C" {

void bd_set_hooks(launch_hook new_on_launch, fill_hook new_on_fill)
{
    on_launch = new_on_launch;
    on_fill = new_on_fill;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t)
{
    return "refused by the recorder of launches";
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    const auto found = kernels().find(kernel);
    if (found == kernels().end() || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return last_error = cudaErrorInvalidValue;
    found->second.most_shared_bytes = size_t(value);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t n_bytes, cudaStream_t)
{
    on_fill(memory, value, n_bytes);
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t)
{
    return launch(kernel, grid, block, arguments, shared_bytes);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t)
{
    return launch(kernel, grid, block, arguments, shared_bytes);
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    *kernel = static_cast<cudaKernel_t>(const_cast<void *>(function));
    return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream)
{
    configured = {grid, block, shared_bytes, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                       void *stream)
{
    *grid = configured.grid;
    *block = configured.block;
    *shared_bytes = configured.shared_bytes;
    *static_cast<cudaStream_t *>(stream) = configured.stream;
    return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *)
{
    static void *handle;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **)
{
}

void __cudaUnregisterFatBinary(void **)
{
}

char __cudaInitModule(void **)
{
    return 0;
}

void __cudaRegisterFunction(void **, const char *function, char *, const char *name, int,
                            uint3 *, uint3 *, dim3 *, dim3 *, int *)
{
    kernels()[function] = {name, usual_shared_bytes};
}
}
